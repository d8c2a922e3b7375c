"""Constants that the trainer shares with the launchers: exit codes, files of a run folder, container paths.

Torch-free, so that launchers can import it.
"""

import re
from enum import IntEnum
from pathlib import PurePosixPath


class Exit(IntEnum):
    """Exit codes.  The launchers use them to decide whether to start again."""

    DONE = 0
    BUG = 1  # a bug in the trainer, which has printed a traceback
    SETTINGS = 2  # the same command will fail again
    DATA = 3  # the same data will fail again
    AWS = 4  # launchers only: AWS refused
    TRAINING = 5  # NaN loss, out of memory: the same training will fail again
    MACHINE = 6  # a lost rank, a taken port: may work on another try
    DISK = 7  # disk full: will fail again until there is space
    SICK = 8  # this machine failed its health check: will fail again until it is replaced
    INTERRUPTED = 75  # saved on request; start again to go on (EX_TEMPFAIL of sysexits.h)


STOPPED = 130  # 128 + SIGINT, as a shell reports Ctrl-C

# Files of a run folder, relative to it.
METRICS = "metrics.jsonl"
PACE = "pace.json"  # of a user's script, see trainer.script.pace
CURVES = "curves.png"
SETTINGS = "config.yaml"
WEIGHTS, PLAIN_WEIGHTS = "model.pt", "model.safetensors"
SIGNATURE = "model.json"  # the model's input and output, see trainer.datasets.base
CHECKPOINTS = "checkpoints"
OUTCOME = "outcome.json"  # how the run ended, see trainer.outcome

# How a run prints the way to resume it.  It knows only its folder; a launcher knows the job's name, so it looks for
# this text and replaces it.
RESUME = "run the same command with --run-dir {folder}"
RESUME_PATTERN = re.compile(RESUME.format(folder=r"\S+?(?=[.;]?(?:\s|$))"))

# Generated names of folders and jobs: the time, and letters to distinguish two of the same second.
TIME_IN_NAMES = "%Y%m%d-%H%M%S"
RANDOM_LETTERS = r"[a-z2-7]{5}"


def random_letters() -> str:
    """Five random letters, one of 33 million combinations."""
    import secrets  # here, because few processes need it

    return "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(5))


# SageMaker's container layout: https://docs.aws.amazon.com/sagemaker/latest/dg/amazon-sagemaker-toolkits.html
SAGEMAKER_MODEL = PurePosixPath("/opt/ml/model")
SAGEMAKER_CHECKPOINTS = PurePosixPath("/opt/ml/checkpoints")
# The channel with the source of a user's script, and the file in it.
SAGEMAKER_CHANNEL, SAGEMAKER_ARCHIVE = "script", "source.tar.gz"
# The arguments of its command, as a JSON list.  AWS's toolkit passes other hyperparameters to the ranks as flags, in
# version 5.1.0 through a shell; one that begins with sagemaker_ is not passed, but read from the file below /opt/ml.
SAGEMAKER_HYPERPARAMETER = "sagemaker_ddp_script"
SAGEMAKER_HYPERPARAMETERS = PurePosixPath("input/config/hyperparameters.json")
# The entry point of the source bundle, beside the folder trainer/.
SAGEMAKER_SCRIPT = "train.py"
SAGEMAKER_PACKAGES = "packages.txt"  # beside it: the packages to install when the job starts, with hashes
SAGEMAKER_SCRIPT_TEXT = "from trainer.sagemaker import start\n\nstart()\n"
# The line on standard error with which a rank reports why it ends.  AWS's toolkit copies into FailureReason only what
# follows the first line with the name of a Python exception, and its ExitCode is always 1 under torchrun.  So one line
# contains both the exit code and the reason, and the launcher searches FailureReason for it.
SAGEMAKER_FAILURE = "Exception: exit code {code}: {sentence}"
SAGEMAKER_FAILURE_PATTERN = re.compile(r'Exception: exit code (?P<code>\d{1,3}): (?P<sentence>[^\n]*?)"?(?:\n|$)')

# Prefix of environment variables that name the AWS secret or parameter with the value of another variable.
SAGEMAKER_SECRET = "DDP_SECRET_"  # noqa: S105  # a name

# Set to any value to add inference code for AWS's PyTorch inference toolkit beside the weights.
SAGEMAKER_INFERENCE = "DDP_INFERENCE_CODE"

# Environment variables in which a launcher describes the machine to the ranks: the number of its GPUs, the rate of its
# network (Gbit/s), and the numbers of NVIDIA's Xid errors in its kernel's log.  See trainer.health.
NODE_GPUS, NODE_GBPS, NODE_XIDS = "DDP_NODE_GPUS", "DDP_NODE_GBPS", "DDP_NODE_XIDS"
# The process id of the launcher; this process exits when the launcher does, see trainer.process.parent.
LAUNCHER = "DDP_LAUNCHER"
# Precedes the reasons in the error about a machine that failed its health check.
FAILED_CHECK = " failed its health check: "

# How a metric line starts; SageMaker's metric definitions and the sweep look for it.
METRIC_PREFIX = "[METRIC]"

# Environment variables of a user's script, see trainer/SCRIPTS.md: the folder that is kept, uploaded, and restored
# after a restart; the folder of the data, if any; the name of the job; the number of restarts; and the seconds between
# SIGTERM and SIGKILL.
RUN_DIR, DATA_DIR, JOB, RESTARTS = "DDP_RUN_DIR", "DDP_DATA_DIR", "DDP_JOB", "DDP_RESTARTS"
STOP_WITHIN = "DDP_STOP_WITHIN_S"
STOP_WITHIN_S = 30
# The module that runs the user's script.
SCRIPT_WORKER = "trainer.script"
