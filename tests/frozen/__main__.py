"""What a refactoring must not change: python -m tests.frozen FOLDER, on the commit before and after; then diff -r.

Writes a file for each job: the plan that its dry run prints for programs, and its exit code.  Ids, digests and times
are numbered in the order in which they appear.  Kept for the work on a lighter house only.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from tests import conftest

EC2 = """
--nodes 2
--nodes 1 --instance-type g5.12xlarge --dataset cifar10
--nodes 2 --instance-type p4d.24xlarge --dataset imagenet --data-snapshot snap-00000000000000000
--nodes 4 --spot --dataset synthetic --epochs 2
--nodes 2 --data-volume multi-attach --dataset imagenet
--nodes 2 --instance-type g5.2xlarge,g6.2xlarge --wait-for-capacity 2 --max-usd 100
--nodes 2 --region us-east-1,us-west-2 --dataset cifar10
--nodes 1 --instance-type c7i.2xlarge --allow-cpu --dataset digits --model cnn
--nodes 2 --data-s3 s3://pictures/raw --dataset imagefolder
--nodes 2 --detach --max-hours 3 --job-name detached
--nodes 2 --script {script} --max-hours 1 -- --lr 0.1 "two words"
--nodes 2 --secret TOKEN=ssm:/ddp-toolkit/TOKEN --variables A=b --script {script}
--nodes 2 --subnet subnet-00000000000000000
--nodes 2 --strategy fsdp --model resnet50 --dataset imagenet
--nodes 65
--nodes 2 --node 2
--nodes 2 --max-usd 1
--nodes 2 --data nonsense --dataset imagefolder
"""
SAGEMAKER = """
--instance-type ml.p3.8xlarge
--nodes 2
--nodes 2 --instance-type ml.g5.12xlarge --dataset imagenet --data s3://pictures/imagenet
--spot --max-hours 2 --max-wait-hours 4
--warm-pool-s 600
--through boto3 --instance-type ml.g5.xlarge
--script {script} -- --lr 0.1 "two words"
--nodes 2 --input-mode File --data s3://pictures/imagenet --dataset imagefolder
--bucket none-such
--instance-type ml.g5.2xlage
--job-name named --max-usd 20 --max-hours 1
--secret TOKEN=ssm:/ddp-toolkit/TOKEN --script {script}
"""
SLURM = """
--nodes 2
--nodes 2 --job-name job --time 10 --gpus-per-node 4 --gpu-type a100
--nodes 1 --device cpu --cpus-per-task 2 --dataset digits --model cnn
--nodes 2 --script {script} -- --lr 0.1 "two words"
--nodes 2 --container-image image.sqsh
"""
LOCAL = """
--nproc-per-node 2
--nproc-per-node 2 --dataset digits --model cnn --epochs 1 --strategy fsdp
--nproc-per-node 1 --script {script} -- --lr 0.1
"""
SCRIPT = "import argparse\nprint('trained')\n"
# As AWS, moto and the toolkit make them up.
IDS = re.compile(
    r"\b(?:[0-9a-f]{32,64}|(?:ami|snap|subnet|sg|vpc|vol|cr|rtb|igw|acl)-[0-9a-f]{8,17}|AROA\w+|AIDA\w+|H4sI[\w+/=]+)"
)
TIMES = re.compile(
    r"\b(?:\d{8}-\d{6}(?:-[a-z0-9]{4,6}\b)?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?Z?)?(?: UTC)?|1[789]\d{8}\b)"
)


def numbered(text: str) -> str:
    """`text` with a number in place of each id that differs from run to run, and without times."""
    seen: dict[str, str] = {}
    return IDS.sub(lambda found: seen.setdefault(found[0], f"<{len(seen)}>"), TIMES.sub("<time>", text))


def pretty(text: str) -> str:
    with contextlib.suppress(ValueError):
        return json.dumps(json.loads(text), indent=1)
    return text


def frozen(act: Callable[[], int]) -> str:
    """What act() prints, and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = act()
    return f"exit code {code}\n{numbered(err.getvalue())}\n{numbered(pretty(out.getvalue()))}\n"


def ec2() -> Iterator[tuple[str, Callable[[], int]]]:
    from launch.ec2.__main__ import main
    from tests.launch.ec2.account import Account

    for line in EC2.strip().splitlines():
        with Account.opened() as account:
            words = line.replace("snap-00000000000000000", account.snapshot)
            words = words.replace("subnet-00000000000000000", account.subnets["us-east-1b"])
            yield line, lambda words=words: main(argv_of(words))  # type: ignore[misc]


def sagemaker() -> Iterator[tuple[str, Callable[[], int]]]:
    from tests.launch.sagemaker.world import Stage

    for line in SAGEMAKER.strip().splitlines():
        with Stage.opened() as stage:
            yield line, lambda line=line: stage.type(*argv_of(line))  # type: ignore[misc]


def without_account(module: str, lines: str) -> Iterator[tuple[str, Callable[[], int]]]:
    main = import_module(f"launch.{module}.__main__").main
    for line in lines.strip().splitlines():
        yield line, lambda line=line: main(argv_of(line))  # type: ignore[misc]


def argv_of(line: str) -> list[str]:
    import shlex

    words = shlex.split(line.replace("{script}", "train.py"))
    at = words.index("--") if "--" in words else len(words)
    return [*words[:at], "--dry-run=json", *words[at:]]


def main() -> None:
    into = Path(sys.argv[1]).absolute()
    work = Path("/tmp/frozen-work")  # one place, as paths are in plans
    work.mkdir(exist_ok=True)
    (work / "train.py").write_text(SCRIPT)
    os.chdir(work)
    os.environ |= {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1",
                   "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
                   "AWS_CONFIG_FILE": "/none", "AWS_SHARED_CREDENTIALS_FILE": "/none"}  # fmt: skip
    jobs = {
        "ec2": ec2(),
        "sagemaker": sagemaker(),
        "slurm": without_account("slurm", SLURM),
        "local": without_account("local", LOCAL),
    }
    for backend, lines in jobs.items():
        (into / backend).mkdir(parents=True, exist_ok=True)
        for number, (line, act) in enumerate(lines):
            (into / backend / f"{number:02}.txt").write_text(f"{line}\n{frozen(act)}")


if __name__ == "__main__":
    assert conftest.ROOT  # which sets moto's environment
    main()
