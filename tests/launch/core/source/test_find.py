"""Which folder is sent for a script or a module, and what the script is called in it."""

from pathlib import Path

import pytest

from launch.core.source.find import find
from tests.launch.core.source.folder import git, pipe, repository, source, write
from trainer.errors import SettingsError

HOME = Path("/home/somebody")


def test_without_a_repository_the_scripts_folder_is_sent(tmp_path: Path) -> None:
    write(tmp_path, {"other.py": "", "project/train.py": "print()", "project/lib/a.py": "1"})

    found = source(tmp_path, "project/train.py")

    assert (found.top, found.entry, found.cwd, found.word) == (tmp_path / "project", "train.py", ".", "train.py")
    assert (found.files, found.bytes) == (("lib/a.py", "train.py"), 8)


def test_in_a_repository_its_top_is_sent_and_the_user_stands_where_they_stood(tmp_path: Path) -> None:
    repository(tmp_path, {"src/train.py": "", "conf/a.yaml": "", "lib.py": ""})

    found = source(tmp_path, "../src/train.py", cwd=tmp_path / "conf")

    assert (found.top, found.entry, found.cwd, found.word) == (tmp_path, "src/train.py", "conf", "../src/train.py")


@pytest.mark.parametrize("place", [".git", "part/.git"], ids=["a repository", "one within"])
def test_the_nearest_repository_counts(tmp_path: Path, place: str) -> None:
    repository(tmp_path, {"part/train.py": ""})
    if place == "part/.git":
        git(tmp_path / "part", "init", "-q")

    assert source(tmp_path, "part/train.py").top == (tmp_path / place).parent


def test_the_home_folder_is_never_sent(tmp_path: Path) -> None:
    home = repository(tmp_path / "home", {"train.py": "", "project/train.py": "", ".gitignore": "*\n"})

    inside = find(Path("project/train.py"), None, None, home, home=home)
    assert (inside.top, inside.files) == (home / "project", ("train.py",))
    for source_dir in (None, home, tmp_path, Path("/")):
        with pytest.raises(SettingsError, match=r"all of your home folder .* would be sent.*folder of its own"):
            find(home / "train.py", None, source_dir, home, home=home)


@pytest.mark.parametrize(
    ("files", "script", "expected"),
    [
        ({"requirements.txt": "", "train.py": ""}, "train.py", "requirements.txt"),
        ({"requirements.txt": "", "a/train.py": ""}, "a/train.py", "requirements.txt"),
        ({"requirements.txt": "", "a/requirements.txt": "", "a/train.py": ""}, "a/train.py", "a/requirements.txt"),
        ({"b/requirements.txt": "", "a/train.py": ""}, "a/train.py", ""),
        ({"requirements.txt": "", "train.py": "", ".gitignore": "requirements.txt"}, "train.py", ""),
    ],
)
def test_requirements_are_the_scripts_own_or_else_the_tops(
    tmp_path: Path, files: dict[str, str], script: str, expected: str
) -> None:
    assert source(repository(tmp_path, files), script).requirements == expected


MISSING_LISTS = {
    "ignored": ({"base.txt": "", ".gitignore": "base.txt"}, r"^base\.txt, which .* needs, .*\.gitignore names it; "),
    "not there": ({}, r"^base\.txt, which requirements\.txt needs, would not be sent: it is not in "),
    "of another": ({"base.txt": "-c ../x.txt"}, r"^\.\./x\.txt, which requirements\.txt needs, "),
}


@pytest.mark.parametrize(("files", "message"), MISSING_LISTS.values(), ids=MISSING_LISTS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_list_that_requirements_name_and_that_is_not_sent_is_refused(
    encoding: str, files: dict[str, str], message: str, tmp_path: Path
) -> None:
    repository(tmp_path, {"train.py": "", **files})
    (tmp_path / "requirements.txt").write_text("-r base.txt\n", encoding)

    with pytest.raises(SettingsError, match=message):
        source(tmp_path, "train.py")


def test_lists_that_are_sent_name_each_other_and_what_is_not_in_the_source(tmp_path: Path) -> None:
    listed = "-r a/base.txt\n-c https://h/c.txt\n-r /image/r.txt\n-r ${LIST}\n"
    files = {"requirements.txt": listed, "a/base.txt": "-r ../requirements.txt\n-c c.txt\n", "a/c.txt": "x<2\n"}

    assert {*files} <= {*source(repository(tmp_path, {"train.py": "", **files}), "train.py").files}


REFUSED = {
    "missing": ("trian.py", r"there is no file trian\.py; did you mean train\.py\?"),
    "a folder": ("lib", "lib is a folder"),
    "a pipe": ("pipe.py", r"pipe\.py is not a file"),
    "below a file": ("train.py/x", "there is no file"),
    "ignored": ("ignored.py", r"ignored\.py would not be sent: .*\.gitignore names it"),
    "in an ignored folder": ("build/x.py", r"build/x\.py would not be sent: .*\.gitignore names it"),
    "left out by Docker": ("tests/x.py", r"tests/x\.py would not be sent: .*\.dockerignore names it"),
    "a result": ("runs/x.py", r"runs/x\.py would not be sent: a folder runs is never sent"),
    "a hostile name": ("tr\x1b[31m\nain.py", r"there is no file tr\\x1b\[31m ain\.py"),
}


@pytest.mark.parametrize(("script", "message"), REFUSED.values(), ids=REFUSED)
def test_a_script_that_would_not_be_there_is_refused(tmp_path: Path, script: str, message: str) -> None:
    repository(tmp_path, {".gitignore": "ignored.py\nbuild/\n", ".dockerignore": "tests\n"})
    write(tmp_path, dict.fromkeys(["train.py", "ignored.py", "build/x.py", "tests/x.py", "runs/x.py", "lib/x.py"], ""))
    pipe(tmp_path / "pipe.py")

    with pytest.raises(SettingsError, match=message):
        source(tmp_path, script)


def test_a_source_folder_that_lacks_the_script_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "", "lib/x.py": ""})

    with pytest.raises(SettingsError, match=r"is outside of --source-dir"):
        source(tmp_path, source_dir=Path("lib"))
    for missing in ("nowhere", "train.py"):
        with pytest.raises(SettingsError, match=f"--source-dir: there is no folder .*{missing}"):
            source(tmp_path, source_dir=Path(missing))
    assert source(tmp_path, source_dir=Path()).top == tmp_path


def test_a_folder_that_is_reached_by_a_link_is_the_same_folder(tmp_path: Path) -> None:
    write(tmp_path / "real", {"train.py": "", "latest.py": ""})
    (tmp_path / "link").symlink_to("real")

    assert source(tmp_path, "link/train.py", source_dir=Path("real")) == source(tmp_path / "real")


MODULES = {
    "a file": ("a.train", {}),
    "a package": ("a", {"a/__main__.py": ""}),
    "of a requirement": ("accelerate.test", {"requirements.txt": "torch\n  Accelerate==1.0  # x\n"}),
    "of a list that requirements name": ("x.y", {"requirements.txt": "-r r.txt", "r.txt": "x"}),
    "of a requirement with a dash": ("pytorch_lightning.demos", {"requirements.txt": "pytorch-lightning[extra]>=2"}),
}


@pytest.mark.parametrize(("module", "files"), MODULES.values(), ids=MODULES)
def test_a_module_is_found_where_the_user_stands(tmp_path: Path, module: str, files: dict[str, str]) -> None:
    write(tmp_path, {"a/__init__.py": "", "a/train.py": "", **files})

    found = find(None, module, None, tmp_path, home=HOME)

    assert (found.top, found.entry, found.word) == (tmp_path, "", "")


NO_MODULES = {
    "missing": ("a.trian", r"there is no a/trian\.py in the source folder"),
    "a package that does nothing": ("a", r"a is a package without __main__\.py"),
    "a path": ("a/train.py", r"write a module as after `python -m`"),
    "a file": ("train.py", r"there is no train/py\.py"),
    "nothing": ("", "write a module"),
    "of no requirement": ("accelerate.test", "no package of that name in its requirements.txt"),
}


@pytest.mark.parametrize(("module", "message"), NO_MODULES.values(), ids=NO_MODULES)
def test_a_module_that_would_not_be_found_is_refused(tmp_path: Path, module: str, message: str) -> None:
    write(tmp_path, {"a/__init__.py": "", "a/train.py": "", "train.py": "", "requirements.txt": "numpy\n"})

    with pytest.raises(SettingsError, match=message):
        find(None, module, None, tmp_path, home=HOME)


def test_a_module_is_looked_for_below_the_source_folder_where_the_user_stands(tmp_path: Path) -> None:
    write(tmp_path, {"src/a.py": "", "b.py": ""})

    assert find(None, "a", Path(".."), tmp_path / "src", home=HOME).cwd == "src"
    with pytest.raises(SettingsError, match=r"there is no b\.py in the source folder .*src"):
        find(None, "b", Path(".."), tmp_path / "src", home=HOME)
