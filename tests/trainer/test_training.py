"""Where weights come from, and what a data set is asked for."""

import os
import stat
import tempfile
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.ranks_here import alone
from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.state.checkpoint import save_weights
from trainer.training import _load_weights, data_request, read_weights

WEIGHTS = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}


def same(weights: dict[str, Tensor]) -> bool:
    return weights.keys() == WEIGHTS.keys() and all(torch.equal(weights[name], WEIGHTS[name]) for name in WEIGHTS)


def refused(path: Path, model: nn.Module) -> str:
    with pytest.raises(SettingsError) as error:
        _load_weights(model, TrainConfig(model="cnn", init_from=path))
    sentence = str(error.value)
    assert "\n" not in sentence
    return sentence


def test_weights_of_a_finished_run_are_read(tmp_path: Path) -> None:
    save_weights(tmp_path / "model.pt", WEIGHTS)
    assert same(read_weights(tmp_path / "model.pt"))


def test_weights_from_elsewhere_need_no_digest(tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / "theirs.pth")
    assert same(read_weights(tmp_path / "theirs.pth"))


def test_a_checkpoint_gives_its_model(tmp_path: Path) -> None:
    save_weights(tmp_path / "best.pt", {"format": 1, "model": WEIGHTS, "optimizer": {}})
    assert same(read_weights(tmp_path / "best.pt"))


def test_a_digest_that_lies_beside_is_checked(tmp_path: Path) -> None:
    save_weights(tmp_path / "model.pt", WEIGHTS)
    torch.save({}, tmp_path / "model.pt")
    assert "does not match its digest" in refused(tmp_path / "model.pt", nn.Linear(3, 2))


def test_missing_weights_are_one_sentence(tmp_path: Path) -> None:
    assert refused(tmp_path / "model.pt", nn.Linear(3, 2)) == (
        f"--init-from {tmp_path}/model.pt: No such file or directory; "
        "give the model.pt of a finished run, or a checkpoint."
    )


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x80\x02.", b"PK\x03\x04garbage"])
def test_a_file_without_weights_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    assert "holds no weights that torch can read" in refused(tmp_path / "model.pt", nn.Linear(3, 2))


def test_a_list_is_no_weights(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "model.pt")
    assert "holds no weights by name" in refused(tmp_path / "model.pt", nn.Linear(3, 2))


def test_weights_of_another_shape_are_one_sentence(tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / "model.pt")
    sentence = refused(tmp_path / "model.pt", nn.Linear(4, 5))
    assert sentence.startswith(f"--init-from {tmp_path}/model.pt does not fit model cnn (size mismatch for weight: ")
    assert sentence.endswith("; take the --model, --dataset and --image-size it was trained with.")


def test_weights_that_are_no_numbers_are_one_sentence(tmp_path: Path) -> None:
    torch.save(WEIGHTS | {"bias": torch.tensor([0.0, float("inf")])}, tmp_path / "model.pt")
    assert refused(tmp_path / "model.pt", nn.Linear(3, 2)) == (
        f"--init-from {tmp_path}/model.pt holds weights that are not finite; give others."
    )


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the temporary files of a user without a home are."""

    def expanduser(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", expanduser)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_user_without_a_home_gets_a_cache_of_his_own_in_the_temporary_folder(homeless: Path) -> None:
    request = data_request(TrainConfig(), alone(), channels_last=False)
    assert request.cache_dir == homeless / f"aws-ddp-toolkit-data-{os.getuid()}"
    assert stat.S_IMODE(request.cache_dir.stat().st_mode) == 0o700
