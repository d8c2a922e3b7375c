"""What is not sent is what git and Docker leave out of a folder."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from launch.aws.upload import facts
from launch.core.source.walk import list_files
from launch.core.training.script import Script
from tests.launch.core.source.folder import repository, source, write

GIT = shutil.which("git")


def sent(top: Path, inside: Path | None = None) -> set[str]:
    return {file.name for file in list_files(top, inside, top).files} - {".gitignore", ".dockerignore"}


# .gitignore, the files of the folder, and those of them that are sent: as `git ls-files -co --exclude-standard` has it.
PATTERNS = {
    "a name at every level": ("*.log\n", ["a.log", "x/a.log", "a.py"], ["a.py"]),
    "a folder and not a file": ("data/\n", ["data/x", "y/data/x", "z/data"], ["z/data"]),
    "a path from the top": ("/data\n", ["data/x", "y/data/x"], ["y/data/x"]),
    "a path with a slash in it": ("a/b\n", ["a/b", "c/a/b"], ["c/a/b"]),
    "taken back": ("*.log\n!keep.log\n", ["a.log", "keep.log"], ["keep.log"]),
    "not taken back from an ignored folder": ("x/\n!x/keep\n", ["x/keep", "y"], ["y"]),
    "all but one folder": ("/*\n!/src\n", ["src/a/b.py", "c"], ["src/a/b.py"]),
    "a folder that is taken back and not what is ignored in it": ("*.log\n!/src\n", ["src/a.log", "src/b"], ["src/b"]),
    "stars for folders": ("a/**/z\n**/tmp\n", ["a/z", "a/b/c/z", "q/tmp/x", "z"], ["z"]),
    "all folders below a folder": ("x/**/\n", ["x/a", "x/b/c", "y/x/d"], ["x/a", "y/x/d"]),
    "all below a folder": ("x/**\n", ["x/a", "x/b/c", "y/x/a"], ["y/x/a"]),
    "comments, spaces and Windows": ("# a\r\nb  \r\n\r\n\\#c\r\n", ["a", "b", "#c"], ["a"]),
    "patterns that are none": ("!\n[z-a]\n\\\na\n", ["a", "b"], ["b"]),
    "letters": ("[ab].py\nf?\n", ["a.py", "c.py", "fg", "f"], ["c.py", "f"]),
    "letters by name": ("[[:digit:]]*.txt\n[[:upper:]x]\n", ["1.txt", "a.txt", "B", "x", "d"], ["a.txt", "d"]),
    "a slash alone": ("out\n!/\n", ["out/a", "b"], ["b"]),
    "letters in brackets, never a slash": ("a[!b]c\n", ["a/c", "axc"], ["a/c"]),
}


@pytest.mark.parametrize(("text", "files", "kept"), PATTERNS.values(), ids=PATTERNS)
def test_gitignore_means_what_it_means_to_git(tmp_path: Path, text: str, files: list[str], kept: list[str]) -> None:
    write(tmp_path, {".gitignore": text} | dict.fromkeys(files, "x"))

    assert sent(tmp_path) == set(kept)


NAMES = ("a", "b", "ab", "a.py", "b.txt", "dir", "src", "x y", "[z]")


def some_pattern(chance: random.Random) -> str:
    parts = [chance.choice([*NAMES, "*", "**", "*.py", "a*", "?", "[ab]"]) for _ in range(chance.choice([1, 1, 2, 3]))]
    return chance.choice(["", "", "!"]) + chance.choice(["", "/"]) + "/".join(parts) + chance.choice(["", "/"])


@pytest.mark.skipif(GIT is None, reason="needs git")
@pytest.mark.parametrize("seed", [7, 51, 76, 99, 101])
def test_it_agrees_with_git_on_random_folders(tmp_path: Path, seed: int) -> None:
    """Five of the kind; 600 more were compared when this was written."""
    chance = random.Random(seed)
    top = repository(tmp_path, {})
    for _ in range(30):
        path = tmp_path / "/".join(chance.choice(NAMES) for _ in range(chance.choice([1, 2, 2, 3])))
        if not path.exists() and all(parent.is_dir() or not parent.exists() for parent in path.parents):
            write(tmp_path, {str(path.relative_to(tmp_path)): "x"})
    folders = [tmp_path, *(path for path in sorted(tmp_path.iterdir()) if path.is_dir() and path.name != ".git")]
    for folder in folders[:4]:
        write(folder, {".gitignore": "\n".join(some_pattern(chance) for _ in range(4))})
    write(tmp_path, {".git/info/exclude": some_pattern(chance) + "\n", ".git/objects/x": "", ".git/refs/x": ""})

    words = [str(GIT), "ls-files", "-coz", "--exclude-standard"]
    env = {"PATH": os.environ["PATH"], "HOME": "/nowhere"}
    answer = subprocess.run(words, cwd=top, env=env, capture_output=True, text=True, check=True).stdout

    assert {file.name for file in list_files(top, top, top).files} == set(answer.split("\0")) - {""}


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


def test_the_innermost_file_decides(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "*.bin\n", "a/.gitignore": "!*.bin\n", "a/x.bin": "", "a/b/.gitignore": "x.bin\n",
                     "a/b/x.bin": "", "x.bin": ""})  # fmt: skip

    assert {name for name in sent(tmp_path) if name.endswith("bin")} == {"a/x.bin"}


def test_patterns_above_the_source_count_as_far_as_the_repository_goes(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "*.py\n"})
    top = repository(tmp_path / "repo", {".gitignore": "*.ckpt\n", ".git/info/exclude": "*.tmp\n"})
    write(top / "src", {"train.py": "", "x.ckpt": "", "x.tmp": ""})

    assert source(top / "src", source_dir=top / "src").files == ("train.py",)


def test_what_is_never_sent(tmp_path: Path) -> None:
    names = ["train.py", ".git/config", "a/__pycache__/x.pyc", "node_modules/x", "env/pyvenv.cfg", "env/lib/x",
             "runs/1/x", "a/runs/x"]  # fmt: skip
    repository(tmp_path, dict.fromkeys(names, ""))

    assert source(tmp_path).files == ("a/runs/x", "train.py")
    assert source(tmp_path, "../train.py", cwd=tmp_path / "a").files == ("train.py",)


def test_submodules_and_worktrees_have_their_own_patterns(tmp_path: Path) -> None:
    top = repository(tmp_path / "repo", {".gitignore": "*.bin\n", "train.py": "", "x.bin": ""})
    write(top, {"sub/.git": "gitdir: ../.git/modules/sub\n", "sub/.gitignore": "*.log\n", "sub/x.bin": "",
                "sub/x.log": "", "sub/x.tmp": "", ".git/modules/sub/info/exclude": "*.tmp\n"})  # fmt: skip
    tree = write(tmp_path / "tree", {".git": f"gitdir: {top}/.git/worktrees/tree\n", "a/train.py": "", "x.secret": ""})
    write(top, {".git/worktrees/tree/commondir": "../..\n", ".git/info/exclude": "*.secret\n"})

    assert source(top).files == (".gitignore", "sub/.gitignore", "sub/x.bin", "train.py")
    assert source(tree, "a/train.py").files == ("a/train.py",)


@pytest.mark.skipif(GIT is None, reason="needs git")
def test_tracked_files_that_are_left_out_are_named_in_the_plan(tmp_path: Path) -> None:
    names = ["a.json", "b/x", "c.json", "d.json", "gone.json", "train.py"]
    write(tmp_path, {".gitignore": "*.json\n/b\n"} | dict.fromkeys(names, ""))
    for words in (["init", "-q"], ["add", "-f", *names]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "gone.json").unlink()
    write(tmp_path, {"untracked.json": ""})

    found = source(tmp_path)

    assert found.files == (".gitignore", "train.py")
    assert found.left_out == ("a.json", "b/x", "c.json", "d.json")
    (fact,) = (one for one in facts(Script(("train.py",), source=found)) if one.name == "left_out")
    assert fact.text == "files that git tracks and .gitignore names, 4 in all: a.json, b/x, c.json, ..."
