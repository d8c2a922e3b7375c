"""Training on this machine from Python, for notebooks.

from launch import local
records = local.train(model="cnn", dataset="digits", epochs=5)
"""

from typing import Any

from trainer.contract import METRIC_PREFIX, METRICS
from trainer.errors import DataError, Interrupted, MachineError, SettingsError, TrainerError, TrainingError

_ERRORS = (SettingsError, DataError, TrainingError, MachineError, Interrupted)

# Imports are within the functions, as this is part of the package that --help imports.


def train(*, show: bool = False, **settings: Any) -> list[dict[str, Any]]:
    """Trains with the trainer's settings, in a process of its own; one record an epoch, as trainer/README.md has it.

    show: what the trainer says, too.  Without a run_dir nothing else is kept.  Raises TrainerError with the trainer's
    own sentence: TrainingError if it ran out of memory.
    """
    import json
    import os
    import sys
    import tempfile
    from pathlib import Path
    from typing import cast

    from launch.core import shell
    from trainer.config import TrainConfig, check
    from trainer.settings import flags

    with tempfile.TemporaryDirectory() as folder:
        (built,) = flags.build({"run_dir": Path(folder, "run"), **settings}, [TrainConfig])
        config = cast(TrainConfig, built)
        check(config)
        said: list[str] = []

        def hear(line: str) -> None:
            said.append(line)
            if show and not line.startswith(METRIC_PREFIX):
                print(line, flush=True)

        # Whoever calls this has no command line to pass an environment down from.
        code = shell.run([sys.executable, "-m", "trainer", *flags.to_argv(config)], os.environ, on_line=hear)
        if code:
            raise _error(code, said)
        assert config.run_dir is not None
        return [json.loads(line) for line in (config.run_dir / METRICS).read_text().splitlines()]


def _error(code: int, said: list[str]) -> TrainerError:
    """What the trainer ended with, in its own words."""
    kind = next((kind for kind in _ERRORS if kind.code == code), TrainerError)
    start = next((place for place, line in enumerate(said) if line.startswith("error: ")), max(0, len(said) - 15))
    return kind("\n".join(said[start:]).removeprefix("error: ") or f"the trainer ended with exit code {code}.")
