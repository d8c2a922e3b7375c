"""Files that other programs have pickled: read as torch writes them, and refused where they would take too much."""

import io
import pickle
import struct
import zipfile
from typing import Any

import pytest
import torch

from trainer.models.cnn import build
from trainer.state.checkpoint import SAFE_TORCH, load, torch_version
from trainer.state.pickled import check_file, check_values

pytestmark = pytest.mark.skipif(torch_version() < SAFE_TORCH, reason="this torch reads nothing pickled")


def saved(content: object, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, **options)
    return file.getvalue()


def zipped_anew(data: bytes, compression: int = zipfile.ZIP_STORED, pickled: bytes = b"") -> bytes:
    """The same files in a zip of Python's.  pickled: instead of data.pkl."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(file, "w", compression) as after:
        for name in before.namelist():
            after.writestr(name, pickled if pickled and name.endswith("data.pkl") else before.read(name))
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


def test_a_zip_of_another_program_is_read() -> None:
    assert load(zipped_anew(saved({"a": torch.ones(3)})))["a"].tolist() == [1, 1, 1]


def test_no_file_unpacks_to_gigabytes() -> None:
    data = zipped_anew(saved({"a": torch.zeros(2**20)}), zipfile.ZIP_DEFLATED)

    assert len(data) < 2**14
    with pytest.raises(ValueError, match="compressed"):
        load(data)


def test_no_two_of_its_files_lie_in_one_place() -> None:
    data = saved({"a": torch.zeros(2**12), "b": torch.zeros(2**12)})
    entries = data[data.index(b"PK\x01\x02") : data.index(b"PK\x06\x06")]
    more = (len(entries) * 5).to_bytes(8, "little")
    head, tail = data[: data.index(b"PK\x01\x02")], bytearray(data[data.index(b"PK\x06\x06") :])
    tail[40:48] = more  # of the directory, now five times as long
    tail[56 + 8 : 56 + 16] = (len(head) + 5 * len(entries)).to_bytes(8, "little")  # where the record before begins

    with pytest.raises(ValueError, match="overlap"):
        load(head + entries * 5 + tail)


@pytest.mark.parametrize("where", [12, 16, 20], ids=["size", "begin", "comment"])
def test_no_other_directory_is_looked_at_than_torchs(where: int) -> None:
    data = bytearray(zipped_anew(saved({"a": torch.zeros(3)})))
    data[len(data) - 22 + where] ^= 1

    with pytest.raises(ValueError, match="its zip"):
        load(bytes(data))


def test_nor_one_that_the_longer_end_record_is_said_to_have() -> None:
    data = bytearray(saved({"a": torch.zeros(3)}))
    place = data.index(b"PK\x06\x07") + 8
    data[place : place + 8] = struct.pack("<Q", 4)

    with pytest.raises(ValueError, match="two ends"):
        load(bytes(data))


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_key_that_is_a_million_million_times_the_same_tuple_is_never_hashed(is_zip: bool) -> None:
    """A kilobyte would keep Python busy for hours."""
    tuples: tuple[Any, ...] = ()
    for _ in range(40):
        tuples = (tuples, tuples)
    mapping = b"\x80\x02}" + pickle.dumps(tuples, 2)[2:-1] + b"K\x01s."
    data = zipped_anew(saved({}), pickled=mapping) if is_zip else pickle.dumps(1, 2) * 3 + mapping

    with pytest.raises(ValueError, match="too often"):
        load(data)


def test_lists_that_stand_in_each_other_are_refused_before_anything_goes_over_them() -> None:
    lists = list[Any]()
    for _ in range(40):
        lists = [lists, lists]

    with pytest.raises(ValueError, match="too often"):
        load(saved({"config": {"model": lists}}))


@pytest.mark.parametrize("value", ["a" * 2**16, b"a" * 2**16, 1 << 2**18], ids=["text", "bytes", "number"])
@pytest.mark.parametrize("is_key", [True, False])
def test_no_text_stands_there_so_often_that_an_error_would_fill_the_memory_with_it(value: Any, is_key: bool) -> None:
    """A megabyte, two thousand times in the place of the model's name, took gigabytes."""
    often = (value,) * 2**9
    check_values({"a": [often[:100]]}, 1)

    with pytest.raises(ValueError, match="too often"):
        check_values({often: 1} if is_key else {"config": {"model": often}}, 1)


@pytest.mark.parametrize("value", [frozenset({"a" * 2**16}), bytearray(2**16)], ids=["a set", "bytes"])
def test_nor_within_a_set_or_as_bytes_that_may_change(value: Any) -> None:
    with pytest.raises(ValueError, match="too often"):
        check_values([value] * 2**9, 1)


def test_as_much_text_as_the_file_has_is_read() -> None:
    """Such as the paths of a million images beside the weights."""
    text = "a" * 2**20

    check_values([text] * 20, 20 * 2**20)
    with pytest.raises(ValueError, match="too often"):
        check_values([text] * 20, 2**20)


def test_a_tensor_is_no_larger_than_its_file() -> None:
    with pytest.raises(ValueError, match="larger than their file"):
        load(saved({"a": torch.zeros(1).expand(2**40)}))


def test_garbage_of_any_kind_ends_in_an_error() -> None:
    for data in (b"", b".", b"PK\x03\x04", b"\x80\x02(.", b"\x80\x02t.", b"\x80\x02h\x07.", saved({})[:-1]):
        with pytest.raises((ValueError, LookupError, zipfile.BadZipFile)):
            check_file(data)


def test_the_numbers_of_a_large_model_are_within_the_limits() -> None:
    check_values({str(number): [0.0] * 10 for number in range(10**5)}, 1)
