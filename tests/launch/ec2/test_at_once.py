"""Two launches at the same moment, as processes: two jobs, or one job and one clear refusal."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launch.aws.names import JOB_TAG
from launch.rehearse.aws.server import RequestLog, served
from tests.conftest import ROOT
from tests.launch.ec2.account import Account

# Runs each command line that it is sent, and answers with the exit code and what was printed.
LAUNCHER = """
import contextlib, io, json, sys
from launch.ec2.__main__ import main
for line in sys.stdin:
    out, answers = io.StringIO(), sys.stdout
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = main(json.loads(line))
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, out.getvalue()]), file=answers, flush=True)
"""
JOB = ("--dataset", "imagenet", "--model", "resnet18", "--detach")


@contextmanager
def launchers(account: Account, folder: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    with served(RequestLog(), None) as port:
        env = {
            **os.environ,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_DEFAULT_REGION": account.region,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "PYTHONPATH": str(ROOT),
        }
        command, pipes = [sys.executable, "-c", LAUNCHER], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        both = [subprocess.Popen(command, cwd=folder, env=env, text=True, **pipes) for _ in range(2)]  # type: ignore[call-overload]
        try:
            yield both
        finally:
            for one in both:
                one.stdin.close()
                one.wait(60)
                one.stdout.close()


def at_once(both: list["subprocess.Popen[str]"], *lines: tuple[str, ...]) -> list[tuple[int, str]]:
    for one, line in zip(both, lines, strict=True):
        assert one.stdin is not None
        one.stdin.write(json.dumps(line) + "\n")
        one.stdin.flush()
    return [tuple(json.loads(one.stdout.readline())) for one in both if one.stdout is not None]


def jobs(account: Account) -> Counter[str]:
    """The number of nodes of each job."""
    return Counter(tag["value"] for node in account.nodes for tag in node.get_tags() if tag["key"] == JOB_TAG)


@pytest.mark.slow("9 pairs of launches at the same moment are two jobs, or one and a clear refusal")
@pytest.mark.timeout(600)
def test_of_nine_pairs_of_launches_none_is_lost_and_none_gets_the_nodes_of_two(tmp_path: Path) -> None:
    with Account.opened() as account, launchers(account, tmp_path) as both:
        for number in range(3):
            before = jobs(account)

            unnamed = at_once(both, ("--nodes", "1", *JOB), ("--nodes", "1", *JOB))
            assert [code for code, _ in unnamed] == [0, 0], unnamed
            assert sorted((jobs(account) - before).values()) == [1, 1]

            name = ("--job-name", f"other-{number}")
            other = at_once(both, ("--nodes", "2", *name, *JOB), ("--nodes", "1", *name, *JOB))
            assert sorted(code for code, _ in other) == [0, 2], other
            (refused,) = (said for code, said in other if code)
            assert f"job other-{number} was started with other settings; choose another --job-name" in refused
            assert jobs(account)[f"other-{number}"] == (2 if other[0][0] == 0 else 1)

            name = ("--job-name", f"same-{number}")
            same = at_once(both, ("--nodes", "2", *name, *JOB), ("--nodes", "2", *name, *JOB))
            assert [code for code, _ in same] == [0, 0], same
            assert jobs(account)[f"same-{number}"] == 2
