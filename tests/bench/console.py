"""What the console takes with 500 jobs and a log of 100,000 lines: seconds to the first paint, memory, calls to AWS.

The console is a process of its own; AWS is the rehearsals' own, in this process.

    python -m tests.bench.console
"""

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

from playwright.sync_api import Page, sync_playwright

from launch.rehearse.aws.server import RequestLog
from launch.rehearse.aws.server import served as served_aws
from tests import needs
from tests.bench.report import machine, say
from tests.conftest import ROOT
from tests.launch.console.served import GROUP, log, put, run_in
from tests.launch.console.test_pages import JOB, TURN
from tests.launch.ec2.account import Account
from tests.launch.ec2.terminal import Terminal
from tests.launch.job_worlds import EPOCH

RUNS, JOBS, EPOCHS, LINES = 492, 8, 20, 100_000
WATCHED_S = 60
RECORDS = [{**EPOCH, "epoch": 1 + number} for number in range(EPOCHS)]


def main() -> None:
    os.environ.update(AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing", AWS_DEFAULT_REGION="us-east-1")
    say(machine())
    say(
        f"{RUNS} runs of this machine with {EPOCHS} epochs, {JOBS} jobs on EC2, of which one has {LINES:,} lines of log"
    )
    requests = RequestLog()
    with tempfile.TemporaryDirectory() as folder, Account.opened() as account:
        _fill(account, Path(folder) / "runs")
        with served_aws(requests, None) as port, _console(Path(folder), port) as (console, address):
            _look(console, address, requests)


def _fill(account: Account, runs: Path) -> None:
    for number in range(RUNS):
        run_in(runs / f"sweep-{number // 50}" / f"run-{number:03}", RECORDS)
    terminal = Terminal(account)
    account.aws().call("logs", "CreateLogGroup", {"logGroupName": GROUP})
    for name in ["one", *(f"job-{number}" for number in range(1, JOBS))]:
        terminal.start(name, 2, hours_ago=1)
        put(account, f"jobs/{name}/run/metrics.jsonl", "{}\n")
    log(account, "one", [f"step {number}: loss {1000 / (1 + number):.6f}, 2450.5 images/s" for number in range(LINES)])


@contextmanager
def _console(folder: Path, port: int) -> Iterator[tuple[Popen[str], str]]:
    env = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "launch.console", "--no-open"]
    with Popen(words, cwd=folder, env=env, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.terminate()


def _look(console: "Popen[str]", address: str, requests: RequestLog) -> None:
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        page = playwright.chromium.launch(executable_path=needs.chromium_path(), args=flags).new_page()
        base = address.partition("/?")[0]
        rows, lines = page.locator("#jobs tbody tr").nth(RUNS + JOBS - 1), page.locator("#log li").nth(400)
        some = page.locator("#jobs tbody tr").nth(RUNS - 1)
        began = time.monotonic()
        seconds = _timed(lambda: (page.goto(address), some.wait_for()))
        say(f"page of all jobs: {seconds:.2f} s to the runs of this machine")
        rows.wait_for()
        say(f"page of all jobs: {time.monotonic() - began:.2f} s to the jobs on AWS")
        say(f"page of all jobs, again: {_timed(lambda: (page.goto(base), rows.wait_for())):.2f} s to all")
        say(f"filtering: {_timed(lambda: page.locator('[name=q]').fill('run-007')):.2f} s")
        page.locator("[name=q]").fill("")
        _watch(page, requests, "the page of all jobs")
        for which in ("first", "second"):
            seconds = _timed(lambda: (page.goto(base + JOB), lines.wait_for()))
            say(f"page of a job, {which} time: {seconds:.2f} s to the log's last lines")
        search = page.locator("#search input")
        seconds = _timed(lambda: (search.fill("step 777:"), page.get_by_text(f"1 of {LINES} lines").wait_for()))
        say(f"searching the log: {seconds:.2f} s")
        _watch(page, requests, "the page of a job")
        say(f"memory of the console: {_peak_mib(console.pid):.0f} MiB")
        heap = page.evaluate("performance.memory.usedJSHeapSize / 2 ** 20")
        say(f"memory of the page: {heap:.0f} MiB of JavaScript")


def _timed(act: object) -> float:
    began = time.monotonic()
    act()  # type: ignore[operator]
    return time.monotonic() - began


def _watch(page: Page, requests: RequestLog, what: str) -> None:
    for hidden in (False, True):
        page.evaluate(TURN, hidden)
        page.wait_for_timeout(5000)
        requests.requests.clear()
        page.wait_for_timeout(WATCHED_S * 1000)
        count = Counter(request.name for request in requests.requests)
        most = ", ".join(f"{number} {name}" for name, number in count.most_common(4))
        state = "hidden" if hidden else "visible"
        say(
            f"{what}, {state}: {60 * count.total() / WATCHED_S:.0f} calls to AWS a minute{f' ({most})' if most else ''}"
        )
    page.evaluate(TURN, False)


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
