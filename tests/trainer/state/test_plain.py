"""Checkpoints, and what ranks send each other, hold no code; other programs read the tensors by name."""

import json
from contextlib import suppress
from pathlib import Path
from random import Random
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


def test_two_tensors_of_one_name_stay_two() -> None:
    tree = {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}, "__metadata__": torch.ones(2)}
    assert same(plain.loads(plain.dumps(tree)), tree)


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


def test_a_file_of_another_program_is_read_by_name() -> None:
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    read = plain.loads(len(header).to_bytes(8, "little") + header + b"\0\0\x80?")
    assert same(read, {"w": torch.ones(1)})


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
        {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]},
        {"dtype": "X", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32"},
        [],
    ],
    ids=str,
)
def test_a_header_that_lies_is_refused(row: Any) -> None:
    header = json.dumps({"w": row}).encode()
    with pytest.raises(ValueError, match=r"file of tensors|lies outside|no size|overlap"):
        plain.loads(len(header).to_bytes(8, "little") + header + b"\0" * 4)


def in_layout(header: dict[str, Any], numbers: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + numbers


def test_a_thousand_names_of_one_megabyte_do_not_become_a_gigabyte() -> None:
    row = {"dtype": "BOOL", "shape": [2**20], "data_offsets": [0, 2**20]}
    with pytest.raises(ValueError, match="overlap"):
        plain.loads(in_layout({str(number): row for number in range(1000)}, bytes(2**20)))


def test_no_tensor_stands_in_two_places_of_a_tree() -> None:
    """A check of 40 MB that stood there five hundred times took a minute, and a name takes forty bytes."""
    tree = json.dumps({"list": [{"tensor": "a"}] * 2})
    row = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}

    with pytest.raises(ValueError, match="no file of tensors"):
        plain.loads(in_layout({"__metadata__": {"tree": tree}, "a": row}, b"\0"))


def test_a_shape_of_a_million_sides_is_refused_before_they_are_multiplied() -> None:
    """Their product has a million digits: it took minutes."""
    with pytest.raises(ValueError, match="no size"):
        plain.loads(in_layout({"w": {"dtype": "F32", "shape": [9] * 10**6, "data_offsets": [0, 4]}}, bytes(4)))


def test_tensors_without_numbers_lie_where_others_begin() -> None:
    rows = {"none": {"dtype": "F32", "shape": [0], "data_offsets": [4, 4]},
            "w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
            "v": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}  # fmt: skip

    assert {name: len(tensor) for name, tensor in plain.loads(in_layout(rows, bytes(8))).items()} == {
        "none": 0, "w": 1, "v": 1,
    }  # fmt: skip


def test_any_bytes_are_refused_or_read_and_never_run() -> None:
    random, whole = Random(0), plain.dumps({"weight": torch.ones(3), "rest": [1, (2, None)]})
    for _ in range(2000):
        noise, place = random.randbytes(random.randrange(20)), random.randrange(len(whole))
        for data in (noise, whole[:place], whole[:place] + noise + whole[place + len(noise) :]):
            with suppress(ValueError):
                plain.loads(data)
