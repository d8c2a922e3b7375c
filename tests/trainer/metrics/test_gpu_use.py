"""GPU utilisation, where there is a GPU and where there is not."""

import sys

import pytest
import torch

from trainer.metrics.gpu_use import GpuUse


def samples(monkeypatch: pytest.MonkeyPatch, *answers: int | Exception) -> GpuUse:
    """A GPU that answers so, asked without delay until the last answer, an error."""
    left = list(answers)

    def utilization(device: torch.device) -> int:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("trainer.metrics.gpu_use.SAMPLE_EVERY_S", 0.0)
    monkeypatch.setattr(torch.cuda, "utilization", utilization)
    use = GpuUse(torch.device("cuda", 0))
    use._thread.join(timeout=10)
    return use


def test_the_mean_is_of_the_samples_since_the_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    use = samples(monkeypatch, 40, 60, RuntimeError("the end"))
    assert [use.mean_percent(), use.mean_percent()] == [50.0, None]
    use.close()


def test_a_driver_without_nvml_ends_the_sampling_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = pytest.importorskip("pynvml")
    use = samples(monkeypatch, pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert use.mean_percent() is None  # an exception in the thread would fail this test as a warning
    use.close()


def test_without_its_package_nothing_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert samples(monkeypatch).mean_percent() is None


def test_a_cpu_has_no_utilisation() -> None:
    use = GpuUse(torch.device("cpu"))
    use.close()
    assert use.mean_percent() is None
