"""Against a small archive of the official format: the digests that are known are replaced by its own."""

import hashlib
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from trainer.datasets import cifar10
from trainer.errors import DataError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data_dir with cifar-10-batches-py: 6 files of 4 images each."""
    batches = tmp_path / "data" / "cifar-10-batches-py"
    batches.mkdir(parents=True)
    rng = np.random.default_rng(0)
    names = (*cifar10.TRAIN, *cifar10.TEST)
    contents = {
        name: {"data": rng.integers(0, 256, (4, 3072), dtype=np.uint8), "labels": [0, 1, 2, 9]} for name in names
    }
    md5 = {name: _write(batches / name, content) for name, content in contents.items()}
    monkeypatch.setattr("trainer.prepare.cifar.MD5", md5)
    return batches.parent


@pytest.fixture
def archive(folder: Path) -> Path:
    """The same as an archive, without the folder."""
    path = folder / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for file in sorted((folder / "cifar-10-batches-py").iterdir()):
            tar.add(file, f"cifar-10-batches-py/{file.name}")
            file.unlink()
    (folder / "cifar-10-batches-py").rmdir()
    return path


def _write(path: Path, content: object) -> str:
    data = pickle.dumps(content)
    path.write_bytes(data)
    return hashlib.md5(data).hexdigest()


def test_pixels_and_labels_are_the_archives(ask, folder: Path) -> None:
    data = cifar10.load(ask(folder))

    [batch] = data.evaluation.eval_batches(range(4), 4)
    with (folder / "cifar-10-batches-py" / "test_batch").open("rb") as file:
        raw = torch.from_numpy(pickle.load(file)["data"]).view(4, 3, 32, 32)
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
    assert torch.allclose(batch.images, (raw / 255 - mean[:, None, None]) / std[:, None, None], atol=1e-5)
    assert batch.labels.tolist() == [0, 1, 2, 9]
    assert (data.train.size, data.classes, data.image_size) == (20, 10, 32)


def test_an_archive_is_as_good_as_a_folder_and_its_place_need_not_be_writable(ask, archive: Path) -> None:
    archive.parent.chmod(0o555)

    assert cifar10.load(ask(archive.parent)).train.size == 20
    assert [path.name for path in archive.parent.iterdir()] == ["cifar-10-python.tar.gz"]


@pytest.mark.parametrize("size", [100, 2000])
def test_a_truncated_archive_is_named_with_the_remedy(ask, archive: Path, size: int) -> None:
    archive.write_bytes(archive.read_bytes()[:size])

    with pytest.raises(DataError, match=r"cifar-10-python.tar.gz is damaged or incomplete; delete it"):
        cifar10.load(ask(archive.parent))


def test_a_missing_archive_says_which_file_to_put_where(ask, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        cifar10.load(ask(tmp_path / "nowhere"))

    assert f"{tmp_path}/nowhere" in str(caught.value)
    assert "cifar-10-python.tar.gz" in str(caught.value)


def test_a_download_that_fails_says_why_and_leaves_nothing(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*arguments: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("torchvision.datasets.utils.download_url", no_network)

    with pytest.raises(DataError, match=r"downloading it failed \(no route to host\); put cifar-10-python.tar.gz"):
        cifar10.load(ask(tmp_path / "data", download=True))
    assert list((tmp_path / "data").iterdir()) == []


def test_a_download_is_announced_kept_and_read(
    ask, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def download(url: str, root: str, filename: str, md5: str) -> None:
        (Path(root) / filename).write_bytes(archive.read_bytes())

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download)

    assert cifar10.load(ask(tmp_path / "elsewhere", download=True)).train.size == 20
    assert (tmp_path / "elsewhere" / "cifar-10-python.tar.gz").is_file()
    # Warnings reach standard error even where nobody has set up logging.
    assert [record.levelname for record in caplog.records] == ["WARNING"]
