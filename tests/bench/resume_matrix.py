"""Every strategy on one to four ranks, real processes: stopped in every way, does a run end where an unbroken one does?

Each run is killed (SIGKILL of its last rank) in epoch 2, asked to stop by SIGTERM in epoch 3 and by Ctrl-C in
epoch 4; each time the same command continues it.  What SIGTERM left also goes on with another number of ranks.

python -m tests.bench.resume_matrix [--ranks 1 2 3 4] [--strategies ddp fsdp]
"""

import argparse
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench.report import machine, say
from tests.conftest import trainer_env
from tests.trainer.parts import differing, state
from tests.trainer.test_any_ranks import kept
from tests.warm import Job, free_port

LIMIT_S = 300.0
FLAGS = ("--model", "cnn", "--dataset", "synthetic", "--synthetic-images", "480", "--image-size", "8", "--epochs", "5",
         "--global-batch-size", "24", "--precision", "fp32", "--no-plot", "--threads", "1", "--log-every", "1",
         "--checkpoint-every-s", "0.05", "--probe-steps", "1", "--timeout-s", "30")  # fmt: skip
STRATEGIES: dict[str, tuple[str, ...]] = {
    "single": ("--strategy", "single"),
    "ddp": ("--strategy", "ddp"),
    "ddp, bf16": ("--strategy", "ddp", "--comm-hook", "bf16"),
    "ddp, powersgd": ("--strategy", "ddp", "--comm-hook", "powersgd"),
    "fsdp": ("--strategy", "fsdp", "--ema-decay", "0.9"),
}


def start(folder: Path, ranks: int, flags: tuple[str, ...]) -> Job:
    """The trainer with its results in `folder`."""
    places = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_PORT": str(free_port())}
    envs = [trainer_env(places | {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]
    words = [*FLAGS, *flags, "--run-dir", str(folder), "--cache-dir", str(folder.parent / "cache")]
    return Job(words, folder.parent, envs if ranks > 1 else [trainer_env()])


def finish(folder: Path, ranks: int, flags: tuple[str, ...]) -> None:
    """Runs to the end.  Raises RuntimeError with what was printed where that fails."""
    job = start(folder, ranks, flags)
    _, err = job.communicate(LIMIT_S)
    if job.returncode:
        raise RuntimeError(f"exit code {job.returncode}: {err}")


def stop(folder: Path, ranks: int, flags: tuple[str, ...], epoch: int, how: Callable[[Job], None]) -> str:
    """Stops a run when epoch `epoch` begins; its exit code, and the epochs and images of the next that it has saved."""
    job = start(folder, ranks, flags)
    for line in job.stdout:
        if line.startswith(f"epoch {epoch - 1}/"):
            how(job)
            break
    job.communicate(LIMIT_S)
    progress = state(folder / "checkpoints")["progress"]
    return f"exit {job.returncode:>2} at {progress['epoch']}:{progress['images']:<3}"


def kill(job: Job) -> None:
    pid = job._ranks[-1].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def row(name: str, ranks: int, folder: Path) -> str:
    """One strategy on so many ranks: where it was stopped, and what came of it."""
    flags, run, elsewhere = STRATEGIES[name], folder / "run", folder / "elsewhere"
    finish(folder / "unbroken", ranks, flags)
    stops = [stop(run, ranks, flags, 2, kill)]
    stops.append(stop(run, ranks, flags, 3, lambda job: job.send_signal(signal.SIGTERM)))
    shutil.copytree(run, elsewhere)
    stops.append(stop(run, ranks, flags, 4, lambda job: job.send_signal(signal.SIGINT)))
    finish(run, ranks, flags)
    differs = differing(*(kept(each / "checkpoints") for each in (folder / "unbroken", run)))
    others = ranks % 4 + 1
    finish(elsewhere, others, flags if name != "single" else ("--strategy", "ddp"))
    return (
        f"{name:<14}{ranks:>2}   {'   '.join(stops)}   {'identical' if not differs else 'DIFFERS: ' + differs[0]:<9}"
        f"   on {others}: {_distance(folder / 'unbroken', elsewhere)}"
    )


def _distance(one: Path, other: Path) -> str:
    """How far apart the weights and the numbers of updates of two finished runs are."""
    ours, theirs = state(one / "checkpoints"), state(other / "checkpoints")
    apart = max(float((ours["model"][key] - weight).abs().max()) for key, weight in theirs["model"].items())
    updates = theirs["progress"]["updates"] - ours["progress"]["updates"]
    return f"{apart:.0e} apart, {'as many' if not updates else f'{updates:+}'} updates"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), choices=list(STRATEGIES))
    args = parser.parse_args()
    say(machine())
    heads = f"{'strategy, ranks':<19}{'SIGKILL; epoch:image':<21}{'SIGTERM':<19}{'Ctrl-C':<19}"
    say(f"{heads}{'in the end':<12}other ranks")
    for name in args.strategies:
        for ranks in args.ranks:
            if ranks == 1 or name != "single":
                with tempfile.TemporaryDirectory() as folder:
                    say(row(name, ranks, Path(folder)))


if __name__ == "__main__":
    main()
