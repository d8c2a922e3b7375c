"""Checks for settings that are valid alone but not in combination.  Torch-free."""

from trainer import datasets, models, optimizers, strategies
from trainer.config import TrainConfig
from trainer.errors import SettingsError, check_name, one_line


def check(config: TrainConfig) -> None:
    """Raise SettingsError for unknown names and for settings that contradict each other."""
    check_name("model", config.model, models.NAMES)
    check_name("dataset", config.dataset, datasets.NAMES)
    check_name("optimizer", config.optimizer, optimizers.NAMES)
    check_name("strategy", config.strategy, ["auto", *strategies.NAMES])
    for wrong, sentence in _contradictions(config):
        if wrong:
            raise SettingsError(sentence)


def _contradictions(c: TrainConfig) -> list[tuple[bool, str]]:
    return [
        *_in_data(c), *_in_images(c), *_in_batches(c), *_in_optimization(c), *_in_strategy(c), *_in_speed(c),
        *_in_logging(c),
    ]  # fmt: skip


def _in_data(c: TrainConfig) -> list[tuple[bool, str]]:
    return [
        (
            c.data_url is not None and not datasets.is_folder(c.dataset),
            f"--data-url is for prepared images, which --dataset {c.dataset} cannot read; use imagefolder or imagenet.",
        ),
        (
            c.data_url is not None and not c.data_url.startswith("s3://"),
            f"--data-url {one_line(c.data_url)} is not a folder in S3; write it as s3://BUCKET/FOLDER.",
        ),
        (
            c.data_url is not None and "data_dir" in c.model_fields_set,
            "give --data-dir or --data-url, not both.",
        ),
    ]


def _in_images(c: TrainConfig) -> list[tuple[bool, str]]:
    start = c.image_size_start
    in_memory = not datasets.is_folder(c.dataset)
    return [
        (
            start is not None and in_memory,
            f"--image-size-start is for images that are read as they are needed, and {c.dataset} is kept in memory; "
            "take --dataset imagenet or imagefolder, or drop it.",
        ),
        (
            start is not None and c.image_size is not None and start >= c.image_size,
            f"--image-size-start {start} must be less than --image-size {c.image_size}, to which images grow.",
        ),
        (
            start is not None and c.epochs == 1,
            f"--image-size-start {start} grows over the epochs, and there is one; give --epochs 2 or more, or drop it.",
        ),
        (
            c.decode == "gpu" and in_memory,
            f"--decode gpu is for JPEGs that are read as they are needed, and {c.dataset} is kept in memory; drop it.",
        ),
        (
            c.decode == "gpu" and c.device == "cpu",
            "--decode gpu needs a GPU, and --device cpu asks for none; drop one.",
        ),
    ]


def _in_batches(c: TrainConfig) -> list[tuple[bool, str]]:
    ramp = c.batch_ramp or {}
    return [
        (
            c.global_batch_size is not None and "batch_size" in c.model_fields_set,
            "give --batch-size or --global-batch-size, not both.",
        ),
        (bool(ramp) and c.global_batch_size is not None, "give --batch-ramp or --global-batch-size, not both."),
        (bool(ramp) and 0 not in ramp, "--batch-ramp must start at epoch 0; begin it with 0:IMAGES."),
        (any(e < 0 or n < 1 for e, n in ramp.items()), "--batch-ramp takes epochs from 0 and at least one image."),
    ]


def _in_optimization(c: TrainConfig) -> list[tuple[bool, str]]:
    return [
        (
            c.schedule == "multistep" and not c.milestones,
            "--schedule multistep needs --milestones, such as --milestones 30,60,80.",
        ),
        (
            bool(c.milestones) and c.schedule != "multistep",
            f"--milestones has no effect with --schedule {c.schedule}; add --schedule multistep.",
        ),
        (
            (c.warmup_epochs or 0) >= c.epochs,
            f"--warmup-epochs {c.warmup_epochs or 0:g} must be less than --epochs {c.epochs}.",
        ),
        (
            c.nesterov and c.momentum == 0 and "nesterov" in c.model_fields_set,
            "--nesterov needs a --momentum above 0.",
        ),
    ]


def _in_strategy(c: TrainConfig) -> list[tuple[bool, str]]:
    return [
        (
            c.comm_hook != "none" and c.strategy not in ("auto", "ddp"),
            f"--comm-hook {c.comm_hook} works with --strategy ddp only, not {c.strategy}.",
        ),
        (
            c.static_graph and c.accumulate > 1,
            "--static-graph does not work with --accumulate, whose passes differ in what they send; drop one.",
        ),
        (
            c.strategy == "fsdp" and c.channels_last is True,
            "--channels-last does not work with --strategy fsdp, which shards contiguous weights; drop it.",
        ),
        (
            c.strategy == "fsdp" and c.optimizer == "muon",
            "--optimizer muon needs whole matrices and fsdp shards them; take --strategy ddp or another optimizer.",
        ),
        (
            c.strategy == "fsdp" and c.optimizer == "sgd" and c.fused is True,
            "torch's fused sgd does not support the sharded weights of --strategy fsdp; drop --fused.",
        ),
        (c.strategy == "dp" and c.device == "cpu", "--strategy dp splits over GPUs; on a CPU use --strategy single."),
        (
            c.strategy == "dp" and c.compile,
            "--compile does not work with --strategy dp; take --strategy ddp, which is faster anyway.",
        ),
    ]


def _in_speed(c: TrainConfig) -> list[tuple[bool, str]]:
    return [
        (c.amp is True and c.precision == "fp32", "--amp and --precision fp32 contradict each other; drop one."),
        (
            c.amp is False and c.precision in ("fp16", "bf16"),
            f"--no-amp and --precision {c.precision} contradict each other; drop one.",
        ),
    ]


def _in_logging(c: TrainConfig) -> list[tuple[bool, str]]:
    no_names = ("", "true", "false", "yes", "no", "on", "off")
    return [
        (
            any(name is not None and name.lower() in no_names for name in (c.mlflow, c.wandb)),
            "--wandb and --mlflow take a name: the project or experiment to log to.",
        ),
    ]
