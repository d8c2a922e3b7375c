"""Names the trainer shares with the launchers: exit codes, files of a run folder, container paths.

Torch-free, so a launcher may import it.  Nothing here acts.
"""

import re
from enum import IntEnum
from pathlib import PurePosixPath


class Exit(IntEnum):
    """What a process ends with.  The launchers decide by it whether starting again makes sense."""

    DONE = 0
    BUG = 1  # a traceback was printed: ours to mend
    SETTINGS = 2  # the same command will fail again
    DATA = 3  # the same data will fail again
    AWS = 4  # launchers only: AWS refused
    TRAINING = 5  # NaN loss, out of memory: the same training will fail again
    MACHINE = 6  # a lost rank, a taken port: may work on another try
    DISK = 7  # full: will fail again until it has room
    INTERRUPTED = 75  # saved on request; start again to go on (EX_TEMPFAIL of sysexits.h)


STOPPED = 130  # 128 + SIGINT, as a shell reports Ctrl-C

# Files of a run folder, relative to it.
METRICS = "metrics.jsonl"
CURVES = "curves.png"
SETTINGS = "config.yaml"
WEIGHTS = "model.pt"
CHECKPOINTS = "checkpoints"
OUTCOME = "outcome.json"  # how the run ended, see trainer.outcome

# How a folder is named that has no other name.
TIME_IN_NAMES = "%Y%m%d-%H%M%S"

# SageMaker's container layout: https://docs.aws.amazon.com/sagemaker/latest/dg/amazon-sagemaker-toolkits.html
SAGEMAKER_MODEL = PurePosixPath("/opt/ml/model")
SAGEMAKER_CHECKPOINTS = PurePosixPath("/opt/ml/checkpoints")
# The entry point of the source bundle, beside the folder trainer/.
SAGEMAKER_SCRIPT = "train.py"
SAGEMAKER_SCRIPT_TEXT = "from trainer.sagemaker import start\n\nstart()\n"
# How a rank says on standard error why it ends, so that it arrives in DescribeTrainingJob's FailureReason: AWS's
# toolkit writes there what follows the first line that holds the name of a Python exception, and nothing else; and
# its ExitCode is always 1 under torchrun.  So one line has both, and the launcher looks for it anywhere in the text.
SAGEMAKER_FAILURE = "Exception: exit code {code}: {sentence}"
SAGEMAKER_FAILURE_PATTERN = re.compile(r'Exception: exit code (?P<code>\d+): (?P<sentence>[^\n]*?)"?(?:\n|$)')

# What a job's environment variable is called that says where the value of another one is kept.
SAGEMAKER_SECRET = "DDP_SECRET_"  # nosec B105  # a name

# How a metric line starts; SageMaker's metric definitions and the sweep look for it.
METRIC_PREFIX = "[METRIC]"
