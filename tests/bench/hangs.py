"""Who hangs, where, under which launcher: how soon is it named, by whom, and what is left?

  python -m tests.bench.hangs --timeout-s 5 --launchers torchrun srun mpirun none

torchrun is ours (trainer.torchrun), srun that of a real Slurm of two nodes on this machine, mpirun Open MPI's; with
none the ranks are started one by one with the variables of srun, so that nobody ends those that stay.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from tests.bench.hung_rank import WHERE
from tests.conftest import trainer_env, trainer_words
from tests.launch.slurm import cluster
from tests.processes import left_of, processes_with
from tests.warm import free_port

RANKS = 3
LAUNCHERS = ("torchrun", "srun", "mpirun", "none")
# torchrun and Slurm give a stopped process 30 s between SIGTERM and SIGKILL.
ENDS_WITHIN_S = 75.0
COLUMNS = ("launcher", "who", "where", "named after s", "named", "by", "all ended after s", "exit code", "orphans")


@dataclass(frozen=True)
class Case:
    """rank: who hangs."""

    launcher: str
    rank: int
    where: str


@dataclass
class Output:
    """What a run printed, with the moment of each line."""

    lines: list[tuple[float, str]] = field(default_factory=list)

    def listen(self, stream: Sequence[str]) -> None:
        """Keeps every line of `stream`."""
        for line in stream:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def first(self, pattern: str) -> tuple[float, re.Match[str]] | None:
        """The first line that has `pattern`."""
        found = ((at, re.search(pattern, line)) for at, line in self.lines)
        return next(((at, match) for at, match in found if match), None)


def main(argv: Sequence[str]) -> None:
    """Prints a row for each case as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timeout-s", type=float, default=5.0)
    parser.add_argument("--launchers", nargs="+", choices=LAUNCHERS, default=LAUNCHERS)
    parser.add_argument("--who", nargs="+", type=int, choices=range(RANKS), default=range(RANKS))
    parser.add_argument("--where", nargs="+", choices=WHERE, default=WHERE)
    parser.add_argument("--at-once", type=int, default=1, help="runs side by side")
    parser.add_argument("--verbose", action="store_true", help="all output of each run, too")
    args = parser.parse_args(argv)
    cases = [Case(launcher, who, where) for launcher in args.launchers for where in args.where for who in args.who]
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    with ExitStack() as stack:
        env = stack.enter_context(cluster.started()).env if "srun" in args.launchers else dict(os.environ)
        workers = stack.enter_context(ThreadPoolExecutor(args.at_once))
        for row, output in workers.map(lambda case: try_one(case, args.timeout_s, env), cases):
            print(row, flush=True)
            if args.verbose:
                print("\n".join(f"  {line}" for _, line in output.lines), flush=True)


def try_one(case: Case, timeout_s: float, env: Mapping[str, str]) -> tuple[str, Output]:
    """Runs one case to its end; its row of the table."""
    with tempfile.TemporaryDirectory(prefix="hangs-") as folder:
        mark, output = f"HANGS_MARK={uuid4().hex}", Output()
        words = [sys.executable, "-m", "tests.bench.hung_rank"]
        words += trainer_words(Path(folder), "--epochs", "50", "--timeout-s", timeout_s, "--synthetic-images", "96")
        places = trainer_env({**env, "HANG": f"{case.rank}:{case.where}", **dict([mark.split("=")])})
        jobs = [
            subprocess.Popen(command, env={**places, **more}, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, cwd=Path.cwd(), start_new_session=True)
            for command, more in _commands(case.launcher, words)
        ]  # fmt: skip
        listeners = [threading.Thread(target=output.listen, args=(job.stdout,), daemon=True) for job in jobs]
        for listener in listeners:
            listener.start()
        codes = _codes(jobs, nobody_ends_them=case.launcher == "none")
        ended = time.monotonic()
        orphans = _end_orphans(mark, stopped_may_stay=case.launcher == "none" and case.where == "SIGSTOP")
        for listener in listeners:
            listener.join(5)
    return _row(case, output, ended, codes, orphans), output


def _commands(launcher: str, words: Sequence[str]) -> list[tuple[list[str], dict[str, str]]]:
    """What to start, each with its environment."""
    port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    python, *rest = words
    if launcher == "torchrun":
        return [([python, "-m", "trainer.torchrun", "--standalone", "--nproc-per-node", str(RANKS), *rest], {})]
    if launcher == "mpirun":
        flags = ["--allow-run-as-root", "--oversubscribe", "-np", str(RANKS)]
        return [(["mpirun", *flags, *words], {**port, "OMPI_MCA_btl": "self,tcp"})]
    if launcher == "srun":
        # As launch.slurm starts it.
        flags = [
            "--nodes",
            "2",
            "--ntasks",
            str(RANKS),
            "--overlap",
            "--export=ALL",
            "--kill-on-bad-exit=0",
            "--wait=60",
        ]
        return [(["srun", *flags, *words], port)]
    slurm = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(RANKS), "SLURM_STEP_NUM_NODES": "1",
             "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": str(RANKS), **port}  # fmt: skip
    return [(list(words), {**slurm, "SLURM_PROCID": str(r), "SLURM_LOCALID": str(r)}) for r in range(RANKS)]


def _codes(jobs: Sequence[subprocess.Popen[str]], *, nobody_ends_them: bool) -> list[int | None]:
    """The exit codes; None for one that does not end.  A run that never begins to hang ends by itself."""
    until = time.monotonic() + 60 + ENDS_WITHIN_S
    codes: list[int | None] = [None] * len(jobs)
    while time.monotonic() < until and None in codes:
        codes = [job.poll() for job in jobs]
        living = [job for job, code in zip(jobs, codes, strict=True) if code is None]
        if nobody_ends_them and living and all(_is_stopped(job.pid) for job in living):
            break
        time.sleep(0.1)
    return codes


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def _end_orphans(mark: str, *, stopped_may_stay: bool) -> str:
    """How many processes are left.  One that was stopped, and that no launcher ends, must end once it goes on."""
    if stopped_may_stay:
        for pid in processes_with(mark):
            os.kill(pid, signal.SIGCONT)
        began = time.monotonic()
        left = left_of(mark, within_s=20.0)
        text = f"{len(left)}, {time.monotonic() - began:.0f} s after SIGCONT"
    else:
        left = left_of(mark, within_s=5.0)
        text = str(len(left))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return text


def _row(case: Case, output: Output, ended: float, codes: Sequence[int | None], orphans: str) -> str:
    began = output.first(r"rank \d+ hangs$")
    named = output.first(r"error: (.*) (died or hung|was killed|lost contact)")
    reporters = [match[1] for _, line in output.lines if (match := re.search(r"(rank \d+) reported it with", line))]
    since = began[0] if began else float("nan")
    return "| " + " | ".join([
        case.launcher,
        f"rank {case.rank}",
        case.where,
        f"{named[0] - since:.1f}" if named else "never",
        named[1][1] if named else "-",
        ", ".join(reporters) or "-",
        f"{ended - since:.1f}",
        " ".join("-" if code is None else str(code) for code in codes),
        orphans,
    ]) + " |"  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
