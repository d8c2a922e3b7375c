from pathlib import Path

import pytest

from trainer.datasets.tree import find_tree, list_files
from trainer.errors import DataError


def lay(root: Path, *files: str) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return root


def test_val_goes_before_test_and_classes_are_sorted(tmp_path: Path) -> None:
    lay(tmp_path, *(f"{half}/{name}/1.jpg" for half in ("train", "val", "test") for name in ("dog", "cat")))

    tree = find_tree(tmp_path)

    assert (tree.evaluation.name, tree.classes) == ("val", ("cat", "dog"))


def test_files_are_listed_by_class_also_from_folders_within_and_hidden_ones_are_not(tmp_path: Path) -> None:
    lay(
        tmp_path,
        "train/cat/2.JPEG",
        "train/cat/1.png",
        "train/dog/images/3.jpg",
        "train/dog/.x/4.jpg",
        "train/dog/a.txt",
    )

    files = list_files(tmp_path / "train", ("cat", "dog"))

    assert files.names == ["cat/1.png", "cat/2.JPEG", "dog/images/3.jpg"]
    assert files.labels == [0, 0, 1]
    assert list(files.folders) == ["cat", "dog", "dog/images"]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ([], "no folder {d}; point --data-dir at the one that holds train/ and val/ (or test/)."),
        (["val/cat/1.jpg"], "{d} has no train/; put one folder per class into {d}/train."),
        (["train/cat/1.jpg"], "{d} has neither val/ nor test/; put images to evaluate on, by class, into one."),
        (
            ["train/1.jpg", "val/cat/1.jpg"],
            "{d}/train has no class folders; sort its images into one folder per class.",
        ),
        (
            ["train/cat/1.jpg", "val/ILSVRC2012_val_00000001.JPEG"],
            "{d}/val has no class folders; sort its images into the same ones as train/ has.",
        ),
        (
            ["train/cat/1.jpg", "train/dog/1.jpg", "test/cat/1.jpg", "test/zebra/1.jpg"],
            "{d}/test has other class folders than train/: dog missing; zebra not in train/; both need the same.",
        ),
    ],
    ids=["no folder", "no train", "no val", "no classes", "flat val", "other classes"],
)
def test_a_tree_that_does_not_fit_says_what_to_do(tmp_path: Path, files: list[str], sentence: str) -> None:
    root = lay(tmp_path / "data", *files)

    with pytest.raises(DataError) as caught:
        find_tree(root)

    assert str(caught.value) == sentence.format(d=root)


def test_an_empty_class_is_named(tmp_path: Path) -> None:
    lay(tmp_path, "train/cat/1.jpg", "train/dog/readme.txt")

    with pytest.raises(DataError, match=r"train/dog has no images \(\.jpg .*\); fill it, or remove the class"):
        list_files(tmp_path / "train", ("cat", "dog"))
