import logging
import random
from pathlib import Path

import pytest
import torch

from trainer.datasets.cache import VERSION, Content, checksum, recall


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


def test_flipped_bytes_are_never_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Anywhere in the file, one at a time: what is read is what was kept, or it is made again."""
    path, rng = tmp_path / "a.safetensors", random.Random(0)
    pixels = torch.randint(0, 256, (40, 8, 8, 3), dtype=torch.uint8)
    kept = {"train": {"pixels": pixels, "labels": torch.arange(40), "bad": {"a.jpg": "empty"}}, "classes": 10}
    recall(path, always, lambda: kept)
    whole = path.read_bytes()
    built = 0

    def again() -> Content:
        nonlocal built
        built += 1
        return kept

    for _ in range(150):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        found = recall(path, always, again)
        assert torch.equal(found["train"]["pixels"], pixels)
        assert found["train"]["labels"].tolist() == list(range(40))
        assert (found["train"]["bad"], found["classes"]) == ({"a.jpg": "empty"}, 10)
    assert built > 100
    assert "Traceback" not in caplog.text


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A team shares the cache, and torch's own format is pickled: safe to read only from torch 2.10 on."""
    monkeypatch.setattr(torch, "load", never_built)
    torch.save({"version": VERSION, "content": {"value": 1}, "checksum": checksum({"value": 1})}, tmp_path / "a.pt")
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
