"""What is counted while training."""

import sys

import pytest
import torch

from trainer.metrics.counters import GpuUse, Totals, is_timed, per_update, tally

CPU = torch.device("cpu")


def test_an_unreadable_image_counts_nowhere() -> None:
    totals = Totals(CPU)
    totals.add(torch.tensor(2.0), torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([1, -100]), step=0)
    assert totals.sums.tolist() == [2.0, 1.0, 1.0]
    assert tally(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([-100, 0]))[1:].tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("at_once", [False, True])
def test_sums_are_the_same_whenever_somebody_reads(at_once: bool) -> None:
    torch.manual_seed(0)
    batches = [(torch.rand(()), torch.randn(size, 3), torch.randint(-1, 3, (size,))) for size in [4] * 70 + [3, 4, 1]]
    seldom, often = Totals(CPU), Totals(CPU, at_once=at_once)
    for step, batch in enumerate(batches):
        seldom.add(*batch, step)
        often.add(*batch, step)
        if step % 7 == 0:
            assert often.sums[2] > 0
    expected = torch.zeros(3, dtype=torch.float64)
    for loss, logits, labels in batches:
        count = (labels >= 0).sum()
        expected += torch.stack([loss.double() * count, (logits.argmax(dim=1) == labels).sum().double(), count])
    assert seldom.sums.tolist() == often.sums.tolist() == expected.tolist()


def test_the_first_bad_update_is_remembered() -> None:
    totals = Totals(CPU)
    logits, labels = torch.zeros(1, 2), torch.zeros(1, dtype=torch.long)
    for step, loss in enumerate([1.0, float("nan"), 1.0, float("inf")]):
        totals.add(torch.tensor(loss), logits, labels, step)
    assert totals.first_bad.item() == 1


def test_top5_counts_any_of_the_five_best() -> None:
    logits = torch.arange(10.0).repeat(3, 1)  # classes 9 8 7 6 5 are the five best
    assert tally(logits, torch.tensor([9, 5, 4]))[1:].tolist() == [1.0, 2.0, 3.0]


def test_slow_first_updates_of_a_gpu_count_for_themselves_alone() -> None:
    """An epoch of 97 updates: ten of 600 ms, in which cuDNN chooses its kernels, then 87 of 7 ms, of which 9 are timed.

    An H100 showed 300 ms of backward in steps of 83 ms, as the mean of those that are timed.
    """
    timed = [(update, "backward", 600.0 if update < 10 else 7.0) for update in range(97) if is_timed(update)]
    assert per_update(timed, 97)["backward"] == pytest.approx((10 * 600 + 87 * 7) / 97)


def samples(monkeypatch: pytest.MonkeyPatch, *answers: int | Exception) -> GpuUse:
    """A GPU that answers so, asked without delay until the last answer, an error."""
    left = list(answers)

    def utilization(device: torch.device) -> int:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("trainer.metrics.counters.SAMPLE_EVERY_S", 0.0)
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
