"""How busy the GPU was, as NVML counts it."""

import threading

import torch

SAMPLE_EVERY_S = 1.0


class GpuUse:
    """Samples one GPU's utilisation in the background.  On a CPU, or without NVML, there are no samples."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._samples: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gpu-use", daemon=True)
        if device.type == "cuda":
            self._thread.start()

    def mean_percent(self) -> float | None:
        """The mean since the last call, 0 to 100, or None without a sample."""
        samples, self._samples = self._samples, []
        return sum(samples) / len(samples) if samples else None

    def close(self) -> None:
        """Ends the sampling."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        try:
            import pynvml
        except ImportError:
            return
        try:
            while not self._over.wait(SAMPLE_EVERY_S):
                self._samples.append(torch.cuda.utilization(self._device))
        except (pynvml.NVMLError, RuntimeError):  # no NVML here (containers often lack it), or a GPU that is split
            return
