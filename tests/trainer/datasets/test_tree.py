import os
from pathlib import Path

import pytest

from trainer.datasets.tree import find_tree, list_files
from trainer.errors import DataError


def lay(root: Path, *files: str) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return root


@pytest.mark.parametrize(
    ("others", "half"),
    [("val test", "val"), ("valid", "valid"), ("validation test", "validation"), ("test dev", "dev"), ("test", "test")],
)
def test_test_is_evaluated_on_only_where_there_is_no_other_half(others: str, half: str, tmp_path: Path) -> None:
    lay(tmp_path, *(f"{one}/{name}/1.jpg" for one in ("train", *others.split()) for name in ("dog", "cat")))

    tree = find_tree(tmp_path)

    assert (tree.evaluation.name, tree.classes) == (half, ("cat", "dog"))


def test_a_half_under_two_names_is_one_half_and_two_halves_are_named(tmp_path: Path) -> None:
    lay(tmp_path, *(f"{half}/{name}/1.jpg" for half in ("train", "valid", "test") for name in ("cat", "dog")))
    (tmp_path / "val").symlink_to("valid")
    assert find_tree(tmp_path).evaluation.name == "val"

    (tmp_path / "dev").mkdir()
    with pytest.raises(DataError, match="has val/ and dev/"):
        find_tree(tmp_path)


def test_classes_are_the_same_in_another_form_of_unicode_and_with_blanks_around(tmp_path: Path) -> None:
    lay(tmp_path, "train/caf\u00e9/1.jpg", "train/m\u00fcsli/2.jpg")  # composed, as Linux writes them
    lay(tmp_path, "val/cafe\u0301/3.jpg", "val/mu\u0308sli /4.jpg")  # decomposed, as macOS does

    tree = find_tree(tmp_path)

    assert tree.classes == ("caf\u00e9", "m\u00fcsli")
    assert list_files(tree.evaluation, tree.classes).names == ["cafe\u0301/3.jpg", "mu\u0308sli /4.jpg"]


@pytest.mark.parametrize("twin", ["cafe\u0301", "caf\u00e9 "])
def test_two_folders_of_one_class_are_refused(twin: str, tmp_path: Path) -> None:
    lay(tmp_path, "train/caf\u00e9/1.jpg", f"train/{twin}/2.jpg", "val/caf\u00e9/3.jpg")

    with pytest.raises(
        DataError, match=r"train has two folders for the class caf\u00e9, .*; move their images into one"
    ):
        find_tree(tmp_path)


def test_files_are_listed_by_class_also_from_folders_within_and_hidden_ones_are_not(tmp_path: Path) -> None:
    lay(
        tmp_path,
        "train/cat/2.JPEG",
        "train/cat/1.png",
        "train/dog/images/3.jpg",
        "train/dog/.x/4.jpg",
        "train/dog/._3.jpg",
        "train/dog/000.png/5.jpg",
        "train/dog/a.txt",
    )

    files = list_files(tmp_path / "train", ("cat", "dog"))

    assert files.names == ["cat/1.png", "cat/2.JPEG", "dog/000.png/5.jpg", "dog/images/3.jpg"]
    assert files.labels == [0, 0, 1, 1]
    assert set(files.folders) == {"cat", "dog", "dog/images", "dog/000.png"}


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ([], "no folder {d}"),
        (["val/cat/1.jpg"], "{d} has no train/"),
        (["train/cat/1.jpg"], "{d} has neither val/ nor test/"),
        (["train/1.jpg", "val/cat/1.jpg"], "{d}/train has no class folders"),
        (["train/cat/1.jpg", "val/ILSVRC2012_val_00000001.JPEG"], "{d}/val has no class folders"),
        (["train/cat/1.jpg", "val/cat/1.jpg"], "{d}/train has only one class folder, cat"),
        (
            ["train/cat/1.jpg", "train/dog/1.jpg", "test/cat/1.jpg", "test/zebra/1.jpg"],
            "{d}/test has different class folders from train/: dog missing; zebra not in train/",
        ),
    ],
    ids=["no folder", "no train", "no val", "no classes", "flat val", "one class", "other classes"],
)
def test_a_tree_that_does_not_fit_says_what_to_do(tmp_path: Path, files: list[str], sentence: str) -> None:
    root = lay(tmp_path / "data", *files)

    with pytest.raises(DataError) as caught:
        find_tree(root)

    assert str(caught.value).startswith(sentence.format(d=root))


def test_an_empty_class_is_named(tmp_path: Path) -> None:
    lay(tmp_path, "train/cat/1.jpg", "train/dog/readme.txt")

    with pytest.raises(DataError, match=r"train/dog has no images \(\.jpg .*\); fill it, or remove the class"):
        list_files(tmp_path / "train", ("cat", "dog"))


def two_classes(root: Path) -> Path:
    return lay(root, *(f"{half}/{name}/1.jpg" for half in ("train", "val") for name in ("cat", "dog")))


def test_other_links_are_followed(tmp_path: Path) -> None:
    root = two_classes(tmp_path / "data") / "train"
    lay(tmp_path / "elsewhere", "a/2.jpg", "3.jpg")
    (root / "cat" / "more").symlink_to(tmp_path / "elsewhere" / "a")
    (root / "cat" / "3.jpg").symlink_to(tmp_path / "elsewhere" / "3.jpg")

    assert list_files(root, ("cat", "dog")).names == ["cat/1.jpg", "cat/3.jpg", "cat/more/2.jpg", "dog/1.jpg"]


def test_a_class_that_is_a_broken_link_is_not_left_out_in_silence(tmp_path: Path) -> None:
    root = two_classes(tmp_path)
    for half in ("train", "val"):
        (root / half / "zebra").symlink_to("gone")

    with pytest.raises(DataError, match="train/zebra is a broken link; fix or remove it"):
        find_tree(root)


@pytest.mark.parametrize(("name", "shown"), [(b"caf\xe9", r"caf\xe9"), (b"red\x1b[31m", r"red\x1b[31m")])
def test_a_class_whose_name_cannot_be_printed_is_refused(name: bytes, shown: str, tmp_path: Path) -> None:
    root = two_classes(tmp_path)
    for half in ("train", "val"):
        (root / half / os.fsdecode(name)).mkdir()

    with pytest.raises(DataError) as caught:
        find_tree(root)

    assert shown in str(caught.value)
