"""Uploaded is what git tracks or does not ignore, less what .dockerignore names and what is never sent."""

import shutil
from pathlib import Path

import pytest

from launch.core.source.walk import list_files
from tests.launch.core.source.folder import git, repository, source, write
from trainer.errors import SettingsError

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def sent(top: Path, in_repository: bool = False) -> set[str]:
    return {file.name for file in list_files(top, in_repository, top).files} - {".gitignore", ".dockerignore"}


def test_in_a_repository_git_decides(tmp_path: Path) -> None:
    """The innermost .gitignore counts, those above the source too, and a file that git tracks is sent even so."""
    top = repository(tmp_path / "repo", {".gitignore": "*.bin\n*.ckpt\n", "src/a/.gitignore": "!*.bin\n"})
    write(tmp_path, {".gitignore": "*.py\n"})
    write(top, {".git/info/exclude": "*.tmp\n", "x.bin": "", "tracked.bin": "", "gone.py": ""})
    write(top / "src", {"train.py": "", "x.ckpt": "", "x.tmp": "", "a/x.bin": "", "\udce9.py": ""})
    git(top, "add", "-f", "tracked.bin", "gone.py")
    (top / "gone.py").unlink()

    assert sent(top, in_repository=True) == {
        "tracked.bin", "src/train.py", "src/a/x.bin", "src/a/.gitignore", "src/\udce9.py",
    }  # fmt: skip
    assert source(top / "src", source_dir=top / "src").files == ("a/.gitignore", "a/x.bin", "train.py", "\udce9.py")


def test_submodules_and_worktrees_are_sent_by_their_own_rules(tmp_path: Path) -> None:
    part = repository(tmp_path / "part", {".gitignore": "*.log\n", "x.bin": ""})
    git(part, "add", ".")
    git(part, "commit", "-qm", "x")
    top = repository(tmp_path / "repo", {".gitignore": "*.bin\n", "train.py": "", "x.bin": ""})
    git(top, "submodule", "--quiet", "add", str(part), "sub")
    git(top, "add", ".")
    git(top, "commit", "-qm", "x")
    git(top, "worktree", "add", "-q", str(tmp_path / "tree"))
    write(top, {"sub/x.log": ""})

    files = (".gitignore", ".gitmodules", "sub/.gitignore", "sub/x.bin", "train.py")
    assert source(top).files == files
    assert source(tmp_path / "tree").files == (".gitignore", ".gitmodules", "train.py")


def test_without_git_the_gitignore_of_the_top_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {".gitignore": "*.log\n!keep.log\n/data/\n", "train.py": "", "a/x.log": "", "keep.log": ""})
    write(tmp_path, {"data/x": "", "a/data/x": ""})
    expected = {"train.py", "keep.log", "a/data/x"}

    assert sent(tmp_path) == expected
    git(tmp_path, "init", "-q")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert sent(tmp_path, in_repository=True) == expected


def test_ignore_files_of_folders_and_repositories_within_count(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "", "c/.gitignore": "*\n", "c/x": "", "d/.gitignore": "a/\n", "d/a/x": "", "d/x": ""})
    repository(tmp_path / "r", {".gitignore": "*.ckpt\n", "x.ckpt": "", "lib.py": ""})

    assert sent(tmp_path) == {"train.py", "d/.gitignore", "d/x", "r/.gitignore", "r/lib.py"}


def test_a_tracked_file_whose_folder_is_now_a_file_is_left_out(tmp_path: Path) -> None:
    top = repository(tmp_path, {"train.py": "", "a/x": ""})
    git(top, "add", ".")
    (top / "a/x").unlink()
    (top / "a").rmdir()
    write(top, {"a": ""})

    assert source(top).files == ("a", "train.py")


def test_a_line_that_is_no_pattern_is_named(tmp_path: Path) -> None:
    write(tmp_path, {".dockerignore": "[z-a]\n", "train.py": ""})

    with pytest.raises(SettingsError, match=r"\.dockerignore: .*z-a"):
        source(tmp_path)


def test_a_repository_that_git_does_not_read_is_refused_in_gits_words(tmp_path: Path) -> None:
    write(tmp_path, {".git": "gitdir: nowhere\n", "train.py": ""})

    with pytest.raises(SettingsError, match=r"git cannot list the files of .*not a git repository"):
        source(tmp_path)


DOCKER = {
    "a name at the top alone": ("*.log\n", ["a.log", "x/a.log"], ["x/a.log"]),
    "with a slash or without": ("/a\nb/\n./c\n", ["a/x", "b/x", "c", "d"], ["d"]),
    "at every level": ("**/*.log\n", ["a.log", "x/a.log", "y"], ["y"]),
    "taken back from a folder": ("x\n!x/keep\n", ["x/keep", "x/y", "z"], ["x/keep", "z"]),
    "nothing but": ("*\n!src\n", ["src/a/b.py", "c", "d/e"], ["src/a/b.py"]),
    "comments and what is no pattern": ("# a\n.\n/\n!\n\n", ["a", "# a"], ["a", "# a"]),
}


@pytest.mark.parametrize(("text", "files", "kept"), DOCKER.values(), ids=DOCKER)
def test_dockerignore_means_what_it_means_to_docker(
    tmp_path: Path, text: str, files: list[str], kept: list[str]
) -> None:
    """https://docs.docker.com/build/concepts/context/#dockerignore-files"""
    write(tmp_path, {".dockerignore": text} | dict.fromkeys(files, "x"))

    assert sent(tmp_path) == set(kept)


@pytest.mark.parametrize("in_repository", [True, False])
def test_what_is_never_sent(tmp_path: Path, in_repository: bool) -> None:
    names = ["train.py", "a/__pycache__/x.pyc", "node_modules/x", "env/pyvenv.cfg", "env/lib/x", "runs/1/x",
             "a/runs/x"]  # fmt: skip
    (repository if in_repository else write)(tmp_path, dict.fromkeys(names, ""))

    assert source(tmp_path).files == ("a/runs/x", "train.py")
    assert source(tmp_path, "../train.py", cwd=tmp_path / "a", source_dir=tmp_path).files == ("train.py",)
