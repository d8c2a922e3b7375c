"""Weights that torch has pickled are read where that is safe, and nothing that is pickled runs."""

import io
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.errors import CheckpointError
from trainer.models.cnn import build
from trainer.state.checkpoint import SAFE_TORCH, load, torch_version

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
