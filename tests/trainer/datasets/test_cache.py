import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trainer.datasets.cache import VERSION, Content, recall


def always(found: Content) -> bool:
    return True


def never_built() -> Content:
    raise AssertionError("built again")


def test_what_was_built_once_is_read_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.safetensors"
    recall(path, always, lambda: {"numbers": torch.arange(3), "names": ["a"]})

    again = recall(path, always, never_built)

    assert again["numbers"].tolist() == [0, 1, 2]
    assert again["names"] == ["a"]


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: bytes(len(data)), lambda data: b""]
)
def test_a_file_that_was_cut_off_is_never_used(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    recall(path, always, lambda: {"pixels": torch.arange(1000), "classes": 10})
    path.write_bytes(damage(path.read_bytes()))

    assert recall(path, always, lambda: {"classes": 11})["classes"] == 11


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A team shares the cache, and torch's own format is pickled: safe to read only from torch 2.10 on."""
    monkeypatch.setattr(torch, "load", never_built)
    torch.save({"version": VERSION, "content": {"value": 1}}, tmp_path / "a.pt")
    (tmp_path / "a.safetensors").write_bytes((tmp_path / "a.pt").read_bytes())

    assert recall(tmp_path / "a.safetensors", always, lambda: {"value": 2})["value"] == 2
    assert recall(tmp_path / "a.safetensors", always, never_built)["value"] == 2


def test_processes_share_what_they_read_and_none_changes_it(tmp_path: Path) -> None:
    """Mapped: a set of gigabytes is once in memory, not once a rank."""
    path = tmp_path / "a.safetensors"
    recall(path, always, lambda: {"numbers": torch.arange(1000)})
    before = path.read_bytes()

    read = recall(path, always, never_built)["numbers"]
    read[0] = 7

    assert str(path) in Path("/proc/self/maps").read_text()
    assert path.read_bytes() == before


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")

    with caplog.at_level(logging.WARNING):
        built = recall(tmp_path / "file" / "a.safetensors", always, lambda: {"value": 1})

    assert built["value"] == 1
    assert "--cache-dir" in caplog.text


def test_what_is_out_of_date_or_of_an_older_version_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    recall(path, always, lambda: {"value": 1})

    assert recall(path, lambda found: found["value"] == 2, lambda: {"value": 2})["value"] == 2
    assert recall(path, always, never_built)["value"] == 2
    monkeypatch.setattr("trainer.datasets.cache.VERSION", 99)
    assert recall(path, always, lambda: {"value": 3})["value"] == 3
