# PYTHON_ARGCOMPLETE_OK
"""`python -m trainer`: flags -> run(); the one place that maps errors to exit codes.

It and what else starts a process (torchrun.py, sagemaker.py) read the environment; nothing below them does.
"""

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from trainer.config import SECTIONS, TrainConfig, check
from trainer.contract import STOPPED, TIME_IN_NAMES, Exit
from trainer.distributed.ranks import Ranks, read_ranks
from trainer.errors import SettingsError, TrainerError, tell
from trainer.outcome import Record, no_record, recorded
from trainer.settings import flags

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# How long a rank waits for another to report: one that only has to print it, and one that may still import torch.
LET_SPEAK_S, LET_REFUSE_S = 2.0, 30.0

ABOUT = """Train an image classifier on one GPU, on several, or on a CPU.

  python -m trainer --model cnn --dataset digits --epochs 5
  python -m trainer --model resnet18 --dataset cifar10 --epochs 5 --batch-size 256
  torchrun --nproc-per-node 2 -m trainer --dataset imagefolder --data-dir DIR --precision bf16"""


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs one training and returns the exit code of trainer.contract.Exit."""
    ranks = Ranks()
    try:
        config = read_settings(argv)
        check(config)
        ranks = read_ranks(env)
        return _run(config, ranks, env)
    except TrainerError as error:
        sys.stdout.flush()
        if _is_mine_to_tell(error, ranks) or not _another_tells(error):
            tell(error.code, str(error))
        return error.code
    except KeyboardInterrupt:
        return STOPPED


def read_settings(argv: Sequence[str]) -> TrainConfig:
    """The settings that a command line gives.  Raises SettingsError; exits for --help."""
    (config,) = flags.parse(argv, [TrainConfig], prog="python -m trainer", about=ABOUT, sections=SECTIONS)
    assert isinstance(config, TrainConfig)
    return config


def _run(config: TrainConfig, ranks: Ranks, env: Mapping[str, str]) -> int:
    _set_library_defaults(config)
    run_dir = run_dir_of(config, env)
    with _recorded(run_dir, config, ranks) as record:
        from trainer.run import run  # torch takes seconds to import; --help and wrong flags need not wait

        run(config, ranks, run_dir, _say, sys.stderr.isatty(), record)
    return Exit.DONE


def _set_library_defaults(config: TrainConfig) -> None:
    """Variables that torch's libraries read once, when torch is imported; the user's own are left alone."""
    if config.deterministic:
        # cuBLAS: https://pytorch.org/docs/stable/notes/randomness.html
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if "OMP_WAIT_POLICY" not in os.environ:
        # OpenMP's threads spin for milliseconds before they sleep.  Beside other work that took 19 s of processor where
        # 8 s do (four epochs of digits, measured); a fraction of a millisecond is enough between two operations.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # GNU's, of torch's Linux wheels
        os.environ.setdefault("KMP_BLOCKTIME", "1")  # Intel's and LLVM's, in ms


def _recorded(run_dir: Path, config: TrainConfig, ranks: Ranks) -> AbstractContextManager[Record]:
    """Inside, rank 0 leaves the outcome in the run folder; a folder nobody named is not made for a failure alone."""
    if not ranks.is_head:
        return nullcontext(no_record)
    return recorded(run_dir, make_folder=config.run_dir is not None)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")  # one write: see tell()
    sys.stdout.flush()  # through a pipe, too, at once


def run_dir_of(config: TrainConfig, env: Mapping[str, str]) -> Path:
    """The folder for the results.  A job id names a new one, so that a restarted job finds it again; else the time."""
    if config.run_dir is not None:
        return config.run_dir
    jobs = [env[name] for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID") if env.get(name, "none") != "none"]
    job = jobs[0] if jobs else datetime.now().strftime(TIME_IN_NAMES)
    if _UUID.fullmatch(job):
        job = job[:8]  # of torchrun --standalone: enough to find the folder again after a restart
    return Path("runs") / f"{config.dataset}-{config.model}-{job}"


def _is_mine_to_tell(error: TrainerError, ranks: Ranks) -> bool:
    """One rank speaks for all; wrong settings are the same on a whole node, so before they meet its first rank does."""
    if error.is_mine_to_tell is not None:
        return error.is_mine_to_tell
    return ranks.local_rank == 0 or not isinstance(error, SettingsError)


def _another_tells(error: TrainerError) -> bool:
    """Waits until the rank that tells has spoken: torchrun ends all of them, by SIGTERM, as soon as one has left.

    False if it seems not to: then its settings are not wrong, and this rank must tell.
    """
    agreed = error.is_mine_to_tell is not None
    time.sleep(LET_SPEAK_S if agreed else LET_REFUSE_S)  # SIGTERM ends the wait, and the process
    return agreed


def leave(code: int) -> NoReturn:
    """Ends this process, at once."""
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: while the interpreter is torn down, torch's threads that still want it abort the process
    # (seen with gloo, a run in fifty), and NCCL may wait for a lost rank for ever.
    os._exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1:], os.environ))
