"""Names the trainer shares with the launchers: exit codes, files of a run folder, container paths.

Torch-free, so a launcher may import it.  Nothing here acts.
"""

import re
from enum import IntEnum
from pathlib import PurePosixPath


class Exit(IntEnum):
    """Exit codes.  The launchers decide by them whether to start again."""

    DONE = 0
    BUG = 1  # a bug of the trainer's own: it has printed a traceback
    SETTINGS = 2  # the same command will fail again
    DATA = 3  # the same data will fail again
    AWS = 4  # launchers only: AWS refused
    TRAINING = 5  # NaN loss, out of memory: the same training will fail again
    MACHINE = 6  # a lost rank, a taken port: may work on another try
    DISK = 7  # full: will fail again until it has room
    SICK = 8  # this machine failed its health check: will fail again until another takes its place
    INTERRUPTED = 75  # saved on request; start again to go on (EX_TEMPFAIL of sysexits.h)


STOPPED = 130  # 128 + SIGINT, as a shell reports Ctrl-C

# Files of a run folder, relative to it.
METRICS = "metrics.jsonl"
PACE = "pace.json"  # of a script of the user's own, see trainer.script.pace
CURVES = "curves.png"
SETTINGS = "config.yaml"
WEIGHTS, PLAIN_WEIGHTS = "model.pt", "model.safetensors"
SIGNATURE = "model.json"  # the model's input and output, see trainer.datasets.base
CHECKPOINTS = "checkpoints"
OUTCOME = "outcome.json"  # how the run ended, see trainer.outcome

# How a run says that it can be resumed: by its folder, which is all that it knows of itself.  A launcher finds the run
# by its job's name, and looks for these words to say that instead.
RESUME = "run the same command with --run-dir {folder}"
RESUME_PATTERN = re.compile(RESUME.format(folder=r"\S+?(?=[.;]?(?:\s|$))"))

# The time, in the name of a folder or job that the user did not name, and what distinguishes two of the same second.
TIME_IN_NAMES = "%Y%m%d-%H%M%S"
RANDOM_LETTERS = r"[a-z2-7]{5}"


def random_letters() -> str:
    """Five letters, one of 33 million."""
    import secrets  # only who names something needs it

    return "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(5))


# SageMaker's container layout: https://docs.aws.amazon.com/sagemaker/latest/dg/amazon-sagemaker-toolkits.html
SAGEMAKER_MODEL = PurePosixPath("/opt/ml/model")
SAGEMAKER_CHECKPOINTS = PurePosixPath("/opt/ml/checkpoints")
# The channel that brings the source of a script of the user's own, and the file in it.
SAGEMAKER_CHANNEL, SAGEMAKER_ARCHIVE = "script", "source.tar.gz"
# The words of its command, as a JSON list.  AWS's toolkit passes other names on to the ranks as flags, which version
# 5.1.0 hands to a shell; a name that begins with sagemaker_ is not passed on, and read from the file below /opt/ml.
SAGEMAKER_HYPERPARAMETER = "sagemaker_ddp_script"
SAGEMAKER_HYPERPARAMETERS = PurePosixPath("input/config/hyperparameters.json")
# The entry point of the source bundle, beside the folder trainer/.
SAGEMAKER_SCRIPT = "train.py"
SAGEMAKER_PACKAGES = "packages.txt"  # beside it: what is installed when the job starts, with hashes
SAGEMAKER_SCRIPT_TEXT = "from trainer.sagemaker import start\n\nstart()\n"
# The line on standard error in which a rank says why it ends.  AWS's toolkit copies into FailureReason only what
# follows the first line with the name of a Python exception, and its ExitCode is always 1 under torchrun.  So one line
# has the exit code and the sentence, and the launcher looks for it anywhere in FailureReason.
SAGEMAKER_FAILURE = "Exception: exit code {code}: {sentence}"
SAGEMAKER_FAILURE_PATTERN = re.compile(r'Exception: exit code (?P<code>\d{1,3}): (?P<sentence>[^\n]*?)"?(?:\n|$)')

# Prefix of the environment variables that say where AWS keeps the value of another variable.
SAGEMAKER_SECRET = "DDP_SECRET_"  # nosec B105  # a name

# Asks for inference code beside the weights, which AWS's PyTorch inference toolkit loads: any value.
SAGEMAKER_INFERENCE = "DDP_INFERENCE_CODE"

# Environment variables in which a launcher describes the machine to the ranks: the number of its GPUs, the rate of its
# network (Gbit/s), and the numbers of NVIDIA's Xid errors in its kernel's log.  See trainer.health.
NODE_GPUS, NODE_GBPS, NODE_XIDS = "DDP_NODE_GPUS", "DDP_NODE_GBPS", "DDP_NODE_XIDS"
# The process id of the launcher that started this process to end with it, see trainer.process.parent.
LAUNCHER = "DDP_LAUNCHER"
# Stands before the reasons if a machine failed its health check.
FAILED_CHECK = " failed its health check: "

# How a metric line starts; SageMaker's metric definitions and the sweep look for it.
METRIC_PREFIX = "[METRIC]"

# What a script of the user's own finds in its environment, see trainer/SCRIPTS.md.  The folder that is kept, uploaded
# and there again after a restart; the data, where there is any; the name of the job; how often it was started again;
# and how many seconds after SIGTERM it is ended by force.
RUN_DIR, DATA_DIR, JOB, RESTARTS = "DDP_RUN_DIR", "DDP_DATA_DIR", "DDP_JOB", "DDP_RESTARTS"
STOP_WITHIN = "DDP_STOP_WITHIN_S"
STOP_WITHIN_S = 30
# The worker that runs it.
SCRIPT_WORKER = "trainer.script"
