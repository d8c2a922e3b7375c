"""Mixed precision: choosing it, autocast, and optimizer updates with gradient scaling."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainer.config import TrainConfig
from trainer.errors import SettingsError

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def pick_precision(config: TrainConfig, device: torch.device) -> str:
    """The precision for this device, 'fp32', 'fp16' or 'bf16': the user's choice, or the fastest safe one.

    Raises SettingsError for --amp if the device supports only fp32 well.
    """
    if config.amp is False:
        return "fp32"
    if config.precision != "auto":
        return config.precision
    best = _best_precision(device)
    if config.amp and best == "fp32":
        raise SettingsError(
            f"--amp: this {device.type} has no hardware for fp16 or bf16, which would only be slower; "
            "drop --amp, or insist with --precision bf16."
        )
    return best


def warning_for_slow_precision(precision: str, device: torch.device) -> str | None:
    """A warning if 16-bit precision is slow on this CPU, else None."""
    if device.type != "cpu" or precision == "fp32" or (precision == "bf16" and cpu_has_bf16()):
        return None
    return f"--precision {precision} is many times slower than fp32 on this CPU; use --precision fp32, or drop it."


def _best_precision(device: torch.device) -> str:
    if device.type == "cuda":
        major, _ = torch.cuda.get_device_capability(device)
        # bf16 from Ampere (sm_80) on; V100 and T4 have fp16 matrix units only.
        return "bf16" if major >= 8 else "fp16" if major >= 7 else "fp32"
    return "bf16" if cpu_has_bf16() else "fp32"


def cpu_has_bf16() -> bool:
    """Whether this CPU has bf16 hardware (AMX or AVX512_BF16); without it, bf16 is slower than fp32."""
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(bool(getattr(torch.cpu, name, bool)()) for name in names)


def autocast(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """The autocast context for a forward pass."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])


def gradient_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """A gradient scaler, needed against underflow with fp16 and disabled with other precisions."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


class Stepper:
    """Backward passes and optimizer updates in the right order: scale, backward, unscale, clip, step, update.

    Clipping before unscaling would clip scaled gradients; a step without the scaler would apply infinities.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        parameters: Iterable[nn.Parameter],
        scaler: torch.amp.GradScaler,
        clip_norm: float | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.scaler = scaler
        self._parameters = list(parameters)
        self._clip_norm = clip_norm

    def backward(self, loss: Tensor) -> None:
        """Add the scaled gradients of `loss`, () on the device."""
        self.scaler.scale(loss).backward()

    def update(self, learning_rate: float) -> None:
        """Apply the accumulated gradients and clear them."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        if self._clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
