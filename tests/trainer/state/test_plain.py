"""Checkpoints, and what ranks send each other, hold no code; other programs read the tensors by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch as library
import torch

from trainer.state import plain

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
