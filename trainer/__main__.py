# PYTHON_ARGCOMPLETE_OK
"""`python -m trainer`: parse flags, call run(), and map errors to exit codes.

Only this module and the other entry points (torchrun.py, sagemaker.py) read the environment.
"""

import gc
import os
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from trainer.config import SECTIONS, TrainConfig
from trainer.contract import STOPPED, TIME_IN_NAMES, Exit, random_letters
from trainer.datasets import bucket
from trainer.distributed import loopback
from trainer.distributed.ranks import Ranks, read_ranks
from trainer.errors import SettingsError, TrainerError, report_end
from trainer.outcome import Record, no_record, recorded
from trainer.process import libraries
from trainer.process.parent import end_with_parent, ignore_requests_to_leave
from trainer.process.run_folder import RunFolder
from trainer.settings import flags
from trainer.settings.checks import check
from trainer.terminal import say

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# How long a rank waits for another one to report an error: once the ranks have agreed which one reports, and before
# that, while the other may still be importing torch.
AGREED_WAIT_S, STARTUP_WAIT_S = 2.0, 30.0

ABOUT = """Train an image classifier on one GPU, on several, or on a CPU.

  python -m trainer --model cnn --dataset digits --epochs 5
  python -m trainer --model resnet18 --dataset cifar10 --epochs 5 --batch-size 256
  torchrun --nproc-per-node 2 -m trainer --dataset imagefolder --data-dir DIR --precision bf16"""


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run one training and return the exit code of trainer.contract.Exit."""
    try:
        return _main(argv, env)
    except KeyboardInterrupt:  # it may arrive while an error is being reported
        return STOPPED


def _main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    ranks = Ranks()
    try:
        config = read_settings(argv)
        check(config)
        ranks = read_ranks(env)
        if ranks.nodes == 1:
            for name, value in loopback.environment().items():
                os.environ.setdefault(name, value)
        return _run(config, ranks, env)
    except TrainerError as error:
        return reported(error, ranks)


def reported(error: TrainerError, ranks: Ranks) -> int:
    """Report `error`, unless another rank does, and return its exit code."""
    _flush()
    if not error.is_reported and (_is_mine_to_report(error, ranks) or not _another_rank_reports(error)):
        report_end(error.code, str(error))
    return error.code


def read_settings(argv: Sequence[str]) -> TrainConfig:
    """The settings given on a command line.  Raises SettingsError; exits for --help."""
    (config,) = flags.parse(argv, [TrainConfig], prog="python -m trainer", about=ABOUT, sections=SECTIONS)
    assert isinstance(config, TrainConfig)
    return config


def _run(config: TrainConfig, ranks: Ranks, env: Mapping[str, str]) -> int:
    set_library_defaults(config)
    with run_folder(config, env) as folder, _recorded(folder, ranks) as record:
        gc.disable()  # until run() trains: to look through torch's modules while they are imported takes long
        from trainer.health.check import read_expected
        from trainer.run import run  # torch takes seconds to import; --help and wrong flags need not wait

        run(config, ranks, folder.claim, say, sys.stderr.isatty(), record, read_expected(env))
        ignore_requests_to_leave()  # training is done: a late interruption notice must not make it run again
    return Exit.DONE


def set_library_defaults(config: TrainConfig) -> None:
    """Set environment variables that torch's libraries read on import, unless the user has set them.

    Raises SettingsError.
    """
    if config.compile or config.strategy == "fsdp":
        libraries.name_compile_cache(os.environ)
    if config.data_url is not None:
        bucket.set_defaults(config.data_url, os.environ)
    if config.deterministic:
        # cuBLAS: https://pytorch.org/docs/stable/notes/randomness.html
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    libraries.set_defaults(os.environ)


def _recorded(folder: RunFolder, ranks: Ranks) -> AbstractContextManager[Record]:
    """Context in which rank 0 records the outcome in the run folder."""
    if not ranks.is_head:
        return nullcontext(no_record)
    return recorded(folder.for_outcome)


def run_folder(config: TrainConfig, env: Mapping[str, str]) -> RunFolder:
    """The folder for the results.  New ones are named after the job id, so restarts find it, or the time."""
    if config.run_dir is not None:
        return RunFolder(config.run_dir, is_named=True, checkpoint_dir=config.checkpoint_dir)
    jobs = [env[name] for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID") if env.get(name, "none") != "none"]
    job = jobs[0] if jobs else f"{datetime.now():{TIME_IN_NAMES}}-{random_letters()}"
    if _UUID.fullmatch(job):
        job = job[:8]  # from torchrun --standalone: enough to find the folder again after a restart
    path = Path("runs") / f"{config.dataset}-{config.model}-{job}"
    return RunFolder(path, is_named=False, is_new=not jobs, checkpoint_dir=config.checkpoint_dir)


def _is_mine_to_report(error: TrainerError, ranks: Ranks) -> bool:
    """Whether this rank is the one that reports the error.

    Before the ranks are connected, the first rank of each node reports settings errors, as its ranks share them.
    """
    if error.is_mine_to_report is not None:
        return error.is_mine_to_report
    return ranks.local_rank == 0 or not isinstance(error, SettingsError)


def _another_rank_reports(error: TrainerError) -> bool:
    """Wait for another rank to report the error: torchrun then stops this one with SIGTERM.

    Returns False if none has, for example because only this rank's settings are wrong: then this rank must report.
    """
    agreed = error.is_mine_to_report is not None
    time.sleep(AGREED_WAIT_S if agreed else STARTUP_WAIT_S)  # SIGTERM ends the process
    return agreed


def _flush() -> None:
    """Flush standard output and standard error, if they are still writable."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()


def leave(code: int) -> NoReturn:
    """End this process immediately."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _flush()
    # Not sys.exit: during interpreter shutdown, torch threads that still need it abort the process
    # (seen with gloo, one run in fifty), and NCCL may wait forever for a lost rank.
    os._exit(code)


if __name__ == "__main__":
    end_with_parent(os.environ)
    leave(main(sys.argv[1:], os.environ))
