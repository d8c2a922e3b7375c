"""The device, threads and torch switches of this process, set once at the start."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from trainer.config import TrainConfig, batches_at
from trainer.distributed.ranks import Ranks
from trainer.errors import SettingsError, TrainingError
from trainer.process.libraries import usable_cores

THREADS_PER_CORE = 4  # the limit; more than one gain nothing, and 1,024 on two cores did not finish an update in 40 s


def pick_device(device: str, ranks: Ranks) -> torch.device:
    """This rank's GPU, or the CPU.  device: the setting --device.  Raises SettingsError for a missing GPU.

    Launchers ask for cuda on machines with GPUs, so that a training never falls back to the CPU at the same price.
    """
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise SettingsError(f"--device cuda: this machine has no usable GPU: {_why_no_gpu()}")
    gpus = torch.cuda.device_count()
    if gpus == 1 and _sees_its_own_only(ranks):
        return torch.device("cuda", 0)
    if ranks.local_world_size > gpus:
        raise SettingsError(
            f"{ranks.local_world_size} ranks on this node but only {gpus} GPU{'s' * (gpus > 1)}; start at most {gpus} "
            "with --nproc-per-node, or take --device cpu."
        )
    return torch.device("cuda", ranks.local_rank)


def _sees_its_own_only(ranks: Ranks) -> bool:
    """Whether Slurm has bound each task of this node to one of its GPUs, as with --gpus-per-task or --gpu-bind."""
    on_node = os.environ.get("SLURM_GPUS_ON_NODE", "")
    return ranks.source == "Slurm" and on_node.isdigit() and 1 < ranks.local_world_size <= int(on_node)


def _why_no_gpu() -> str:
    """The likely reason why torch finds no GPU, such as a driver too old for its CUDA version, and what to do."""
    from trainer.health import nvidia

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built for the CPU; install one for CUDA, or take --device cpu."
    driver = nvidia.driver_version()
    if driver is None:
        return (
            f"torch {torch.__version__} is built for CUDA {torch.version.cuda}, and nvidia-smi finds no driver; "
            "give the container its GPUs (--gpus all), or take --device cpu."
        )
    if os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        return (
            f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r} hides the GPUs; unset it, "
            "or take --device cpu."
        )
    return (
        f"driver {driver} does not support CUDA {torch.version.cuda}, which torch {torch.__version__} is built for; "
        "take an image with an older CUDA, or machines with a newer driver."
    )


def device_name(device: torch.device) -> str:
    """The name of the ranks' device: 'NVIDIA A10G', or 'CPU'."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def share_of_cores(local_world_size: int) -> int:
    """The number of usable cores per rank, at least one."""
    return max(1, usable_cores() // local_world_size)


def threads_of(environment: Mapping[str, str], local_world_size: int) -> int:
    """The default for --threads: OMP_NUM_THREADS, or else the rank's share of the cores.

    With several ranks, torchrun sets OMP_NUM_THREADS to 1 by default; on a CPU this would leave cores idle.
    """
    asked = environment.get("OMP_NUM_THREADS", "")
    is_torchruns = asked == "1" and local_world_size > 1
    sensible = {str(number) for number in range(1, THREADS_PER_CORE * usable_cores() + 1)}
    return int(asked) if asked in sensible and not is_torchruns else share_of_cores(local_world_size)


def set_up(config: TrainConfig, device: torch.device, ranks: Ranks) -> None:
    """Set threads, determinism, TF32 and cuDNN benchmarking for the whole process.

    Raises SettingsError for too many threads.
    """
    most = THREADS_PER_CORE * usable_cores()
    if config.threads is not None and config.threads > most:
        raise SettingsError(
            f"--threads {config.threads}: at most {most} are useful on {usable_cores()} cores; drop it."
        )
    torch.set_num_threads(config.threads or threads_of(os.environ, ranks.local_world_size))
    if config.deterministic != torch.are_deterministic_algorithms_enabled():  # setting it imports torch's compiler
        torch.use_deterministic_algorithms(config.deterministic)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = config.cudnn_benchmark and not config.deterministic
        torch.backends.cudnn.allow_tf32 = True
        torch.set_float32_matmul_precision("high")


@contextmanager
def translate_torch_errors(config: TrainConfig, ranks: Ranks) -> Iterator[None]:
    """Translate torch's errors that are caused by settings into TrainerErrors."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise TrainingError(_out_of_memory(config, ranks)) from error
    except RuntimeError as error:
        if "does not have a deterministic implementation" in str(error):
            problem = str(error).split(" does not have")[0]
            raise SettingsError(
                f"--deterministic: {problem} has no deterministic kernel; drop it or change --model."
            ) from error
        if type(error).__name__ == "InvalidCxxCompiler":
            raise SettingsError("--compile needs a C++ compiler; install g++, or drop it.") from error
        raise


def _out_of_memory(config: TrainConfig, ranks: Ranks) -> str:
    images, gib = batches_at(config, 0, ranks.world_size).per_replica, torch.cuda.mem_get_info()[1] / 2**30
    return (
        f"out of GPU memory: {config.model} with {images} images per pass does not fit into {gib:.0f} GiB. "
        "Halve --batch-size and double --accumulate: the result is the same. "
        "--precision bf16, --eval-batch-size and --strategy fsdp save memory too."
    )
