"""Checkpoints, and weights that torch has pickled: no code runs, and other programs read the tensors by name."""

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch as library
import torch

from trainer.errors import CheckpointError
from trainer.models.cnn import build
from trainer.state import plain
from trainer.state.checkpoint import SAFE_TORCH, load, torch_version

# ---- plain


TREE: dict[str, Any] = {
    "model": {"conv.weight": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(7), "none": torch.empty(0, 3)},
    "optimizer": {"state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.ones(2, dtype=torch.bfloat16)}},
                  "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "fused": None, "params": [0, 1]}]},
    "scaler": {}, "ranks": [{"cpu": torch.get_rng_state(), "mask": torch.tensor([True, False])}],
    "odd": {"nan": float("inf"), "text": "\u202e\n\"'", "large": 2**70, "yes": True},
}  # fmt: skip


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def test_what_is_read_is_what_was_written_to_the_last_bit() -> None:
    assert same(plain.loads(plain.dumps(TREE)), TREE)


@pytest.mark.parametrize("dtype", plain.NAMES)
def test_every_kind_of_number_is_kept(dtype: torch.dtype) -> None:
    there = torch.randint(0, 2, (3, 5)).to(dtype).T  # not contiguous
    assert same(plain.loads(plain.dumps(there)), there)


def test_other_programs_find_the_tensors_by_name_as_the_format_says() -> None:
    """https://huggingface.co/docs/safetensors: no gaps, offsets from the end of the header, metadata of texts."""
    data = plain.dumps({"weight": torch.tensor([1.0, 2.0]), "count": torch.tensor([3], dtype=torch.int64)})
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert header["count"] == {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}
    assert header["weight"] == {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}
    assert len(data) == 8 + length + 16
    assert all(isinstance(text, str) for text in header["__metadata__"].values())


def test_the_library_of_that_name_reads_what_we_write_and_we_what_it_writes(tmp_path: Path) -> None:
    there = {"w": torch.arange(6.0).reshape(2, 3), "mask": torch.tensor([True, False, True]), "none": torch.empty(0, 3),
             "half": torch.ones(2, 2, dtype=torch.bfloat16)}  # fmt: skip
    (tmp_path / "a.safetensors").write_bytes(plain.dumps(there))

    assert same(dict(sorted(library.load_file(tmp_path / "a.safetensors").items())), dict(sorted(there.items())))
    assert same(dict(sorted(plain.loads(library.save(there, {"by": "it"})).items())), dict(sorted(there.items())))


@pytest.mark.parametrize("thing", [object(), {1.5: 0}, {"x": {1, 2}}, torch.zeros(1, dtype=torch.complex64)])
def test_what_cannot_be_read_again_is_not_written(thing: Any) -> None:
    with pytest.raises(TypeError, match="cannot be saved"):
        plain.dumps(thing)


@pytest.mark.parametrize(
    "row",
    [
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 99]},
        {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]},
        {"dtype": "X", "shape": [1], "data_offsets": [0, 4]},
        [],
    ],
    ids=str,
)
def test_a_header_that_lies_is_refused(row: Any) -> None:
    header = json.dumps({"w": row}).encode()
    with pytest.raises(ValueError, match=r"file of tensors|lies outside"):
        plain.loads(len(header).to_bytes(8, "little") + header + b"\0" * 4)


# ---- pickled


pytestmark = pytest.mark.skipif(torch_version() < SAFE_TORCH, reason="this torch reads nothing pickled")


def saved(content: object, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, **options)
    return file.getvalue()


@pytest.mark.parametrize("is_zip", [True, False])
def test_what_torch_saves_is_read(is_zip: bool) -> None:
    model = build("cnn", 10, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.zeros(2, 3, 32, 32)).sum().backward()
    optimizer.step()
    state: dict[str, Any] = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "tied": list(model.parameters()) * 3,
    }

    found = load(saved(state, _use_new_zipfile_serialization=is_zip))

    assert torch.equal(found["model"]["head.bias"], model.state_dict()["head.bias"])
    assert found["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]


class Attack:
    """Pickled, it makes a folder when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("is_zip", [True, False])
def test_what_is_pickled_with_code_is_refused_and_does_not_run(is_zip: bool, tmp_path: Path) -> None:
    data = saved({"model": Attack(tmp_path / "ran")}, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(pickle.UnpicklingError):
        load(data)
    assert not (tmp_path / "ran").exists()


def test_it_is_read_only_by_a_torch_that_does_so_safely(monkeypatch: pytest.MonkeyPatch) -> None:
    """https://nvd.nist.gov/vuln/detail/CVE-2026-24747"""
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu128")
    monkeypatch.setattr(torch, "load", None)
    with pytest.raises(CheckpointError, match=r"torch 2\.10"):
        load(saved({"weight": torch.ones(2)}))
