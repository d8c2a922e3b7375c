# PYTHON_ARGCOMPLETE_OK
"""`python -m trainer.tune FLAGS`: try batch sizes and numbers of workers, and print the best as flags."""

import sys
from collections.abc import Callable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from trainer import datasets
from trainer.config import SECTIONS, TrainConfig
from trainer.errors import SettingsError, TrainingError, exit_code_of
from trainer.process.libraries import usable_cores
from trainer.settings import flags
from trainer.settings.checks import check
from trainer.terminal import say
from trainer.tune.choose import Trial, best, largest_that_fits, next_batch_size, worker_counts
from trainer.tune.trial import run_trial

ABOUT = """Find the batch size and the number of workers that train fastest on this machine.

  python -m trainer.tune --model resnet18 --dataset imagenet --data-dir DIR
  python -m trainer.tune --model resnet50 --dataset synthetic --image-size 224 --precision bf16

Takes the flags of the training.  Trains for a few seconds with each batch size, doubled from --batch-size-from until
one does not fit or is no faster; then, if images are decoded during training, with different numbers of workers.  Each
trial runs in its own process.  A given --batch-size or --workers is not varied.  Nothing is saved."""

# If more than this share of the time is spent waiting for data, the input limits the device.
WAITS = 0.1
DOES_NOT_FIT = "does not fit into memory"


class Tuning(BaseModel):
    """What to try, and for how long."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    trial_s: float = Field(10.0, ge=0.1, le=3600, description="seconds of each trial, after its first updates")
    batch_size_from: int = Field(16, ge=1, description="smallest batch size to try")
    batch_size_to: int = Field(4096, ge=1, description="largest batch size to try")


Try = Callable[[TrainConfig, float], Trial]


def main(argv: Sequence[str], attempt: Try | None = None) -> int:
    """Tune, print the result, and return the exit code."""
    return exit_code_of(lambda: say(tune(*_read(argv), attempt or run_trial)))


def _read(argv: Sequence[str]) -> tuple[Tuning, TrainConfig]:
    tuning, config = flags.parse(
        argv, [Tuning, TrainConfig], prog="python -m trainer.tune", about=ABOUT,
        sections={"trial_s": "trials", **SECTIONS},
    )  # fmt: skip
    assert isinstance(tuning, Tuning)
    assert isinstance(config, TrainConfig)
    _check(tuning, config)
    return tuning, config


def _check(tuning: Tuning, config: TrainConfig) -> None:
    check(config)
    if config.global_batch_size is not None or config.batch_ramp:
        raise SettingsError("tune finds the batch of one device; leave out --global-batch-size and --batch-ramp.")
    if tuning.batch_size_from > tuning.batch_size_to:
        raise SettingsError("--batch-size-from is more than --batch-size-to; give a smaller one.")


def tune(tuning: Tuning, config: TrainConfig, attempt: Try) -> str:
    """Run the trials, print them, and return the best flags.  Raises TrainingError if nothing fits into memory."""
    workers = config.workers or usable_cores()
    say(f"{'batch':>7}{'workers':>9}{'images/s':>11}{'waits for data':>16}{'memory, MiB':>13}{'GPU busy':>10}")

    def tried(batch_size: int, workers: int) -> Trial:
        trial = attempt(config.model_copy(update={"batch_size": batch_size, "workers": workers}), tuning.trial_s)
        say(row(trial))
        return trial

    batches: list[Trial] = []
    if "batch_size" in config.model_fields_set:
        batches.append(tried(config.batch_size, workers))
    else:
        while (size := next_batch_size(batches, tuning.batch_size_from, tuning.batch_size_to)) is not None:
            batches.append(tried(size, workers))
    chosen = best(batches)
    if chosen is None:
        raise TrainingError(
            f"not even a batch of {min(trial.batch_size for trial in batches)} fits into memory; "
            "take --precision bf16, a smaller --image-size or a larger device."
        )
    flags_found = f"--batch-size {chosen.batch_size}"
    if datasets.is_folder(config.dataset):
        if config.workers is None:
            others = [tried(chosen.batch_size, number) for number in worker_counts(usable_cores(), workers)]
            chosen = best([chosen, *others]) or chosen
        flags_found += f" --workers {chosen.workers}"
        say_decoding(chosen)
    return f"largest that fits, of those tried: {largest_that_fits(batches)}; fastest:\n{flags_found}"


def say_decoding(trial: Trial) -> None:
    """If the device waits for data, print the rate of decoding per processor, an input of launch.forecast."""
    if trial.images_per_s is None or trial.data_wait < WAITS:
        return
    each = trial.images_per_s / usable_cores()
    say(f"It waits for data: {each:,.0f} images/s a processor (launch.forecast --decoded-per-vcpu {each:.0f}).")


def row(trial: Trial) -> str:
    """The line of a trial in the table."""
    start = f"{trial.batch_size:>7}{trial.workers:>9}"
    if trial.images_per_s is None:
        return f"{start}  {DOES_NOT_FIT}"
    busy = "" if trial.gpu_percent is None else f"{trial.gpu_percent:.0f} %"
    return (
        f"{start}{trial.images_per_s:>11,.0f}{f'{100 * trial.data_wait:.0f} %':>16}{trial.memory_mib:>13,.0f}{busy:>10}"
    ).rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
