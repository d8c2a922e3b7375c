"""Training on this machine from Python, for notebooks.

from launch import local
records = local.train(model="cnn", dataset="digits", epochs=5)
"""

from typing import Any

from trainer.contract import LAUNCHER, METRIC_PREFIX, METRICS
from trainer.errors import TrainerError, error_with

# Imports are within the functions, as --help imports this module with its package.


def train(*, show: bool = False, **settings: Any) -> list[dict[str, Any]]:
    """Train with the trainer's settings in a separate process; return one record per epoch, see trainer/README.md.

    show: print the trainer's output.  Without a run_dir nothing else is kept.  Raises the trainer's error, such as
    TrainingError if it runs out of memory.
    """
    import json
    import os
    import signal
    import tempfile
    from pathlib import Path
    from typing import cast

    from launch.core import shell
    from launch.core.shell import this_python
    from launch.core.terminal import say
    from trainer.config import TrainConfig
    from trainer.settings import flags
    from trainer.settings.checks import check

    with tempfile.TemporaryDirectory() as folder:
        (built,) = flags.build({"run_dir": Path(folder, "run"), **settings}, [TrainConfig])
        config = cast(TrainConfig, built)
        check(config)
        output: list[str] = []

        def keep(line: str) -> None:
            output.append(line)
            if show and not line.startswith(METRIC_PREFIX):
                say(line)

        # A script in another folder does not import from the current folder; neither must the training.
        command = [*this_python(), "-m", "trainer", *flags.to_argv(config)]
        env = {**os.environ, LAUNCHER: str(os.getpid())}  # the training ends with the kernel
        code = shell.run(command, env, on_line=keep, stop_signal=signal.SIGTERM)
        if code:
            raise error_of(code, output)
        assert config.run_dir is not None
        return [json.loads(line) for line in (config.run_dir / METRICS).read_bytes().splitlines()]


def error_of(code: int, output: list[str]) -> TrainerError:
    """The error that the trainer printed, or its last lines if it printed none."""
    starts = [place for place, line in enumerate(output) if line.startswith("error: ")]
    shown = output[starts[0] :] if starts else output[-15:]
    sentence = "\n".join(shown).removeprefix("error: ")
    return error_with(code, sentence or f"the trainer ended with exit code {code}.")
