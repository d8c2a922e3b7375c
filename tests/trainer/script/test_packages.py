"""What a source asks for is installed once per node, over what the image has, and nothing half is ever used."""

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from trainer.contract import Exit
from trainer.errors import TrainerError
from trainer.script.packages import layer_for, run_pip, variables

DIGEST = "d" * 64
URL = "https://index/demo-1.0-py3-none-any.whl"


def row(name: str, *, sha256: str | None = "ab", url: str = URL, is_direct: bool = False) -> dict[str, Any]:
    hashes = {"sha256": sha256} if sha256 else {}
    return {
        "metadata": {"name": name, "version": "1.0"},
        "is_direct": is_direct,
        "download_info": {"url": url, "archive_info": {"hashes": hashes}},
    }


class Pip:
    """In the place of pip: reports `rows` as lacking, and installs a file for each."""

    def __init__(
        self, *rows: dict[str, Any], code: int = 0, stderr: str = "", before: Callable[[], None] = list
    ) -> None:
        self.rows, self.code, self.stderr, self.before = rows, code, stderr, before
        self.calls: list[list[str]] = []
        self.pins = ""
        self.folders = set[Path]()

    def __call__(self, words: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
        self.calls.append(list(words))
        self.folders.add(folder)
        self.before()
        if "--dry-run" in words:
            Path(words[words.index("--report") + 1]).write_text(json.dumps({"install": self.rows}))
        else:
            self.pins = Path(words[-1]).read_text("utf-8-sig")
            (Path(words[words.index("--target") + 1]) / "demo.py").write_text("")
        return subprocess.CompletedProcess(words, self.code, "", self.stderr)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    file = folder / "requirements.txt"
    file.write_text("demo==1.0\n")
    return file


def layer(listed: Path, pip: Any, began: float = 0.0) -> Path:
    return layer_for(listed, listed.parents[1] / "work", DIGEST, began, pip)


def test_exactly_what_lacks_is_installed_beside_the_image(listed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pip = Pip(row("demo"), row("needs"))

    made = layer(listed, pip)

    assert (made / "demo.py").exists()
    asked, installed = pip.calls
    assert {"--dry-run", "--report", str(listed)} <= set(asked)
    assert {"--no-deps", "--target"} <= set(installed)
    assert pip.pins == "demo==1.0 --hash=sha256:ab\nneeds==1.0 --hash=sha256:ab\n"
    assert capsys.readouterr().out == "requirements.txt: installing demo 1.0, needs 1.0\n"
    assert pip.folders == {listed.parent}  # to which paths in the file are relative


def test_a_layer_is_kept_across_restarts(listed: Path) -> None:
    first = layer(listed, Pip(row("demo")))

    assert layer(listed, pytest.fail) == first


@pytest.mark.parametrize("change", ["source", "interpreter", "image"])
def test_another_source_interpreter_or_image_has_a_layer_of_its_own(
    change: str, listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, digest = layer(listed, Pip(row("demo"))), DIGEST

    if change == "interpreter":
        monkeypatch.setattr(sys, "version", "4.0")
    elif change == "image":
        (listed.parent / "new-1.0.dist-info").mkdir()
        monkeypatch.syspath_prepend(str(listed.parent))
    else:
        digest = "e" * 64

    assert layer_for(listed, listed.parents[1] / "work", digest, 0.0, Pip(row("demo"))) != first


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_list_is_read_as_powershell_writes_it_too(encoding: str, listed: Path) -> None:
    listed.write_bytes("# n\u00e9cessaires\r\n--extra-index-url https://h/\u00e9\r\n-r more.txt\r\n".encode(encoding))
    (listed.parent / "more.txt").write_bytes("demo --hash=sha256:cd\r\n".encode(encoding))
    pip = Pip(row("demo"))

    layer(listed, pip)

    assert pip.pins == "--extra-index-url https://h/\u00e9\ndemo==1.0 --hash=sha256:cd\n"


@pytest.mark.parametrize(
    "text",
    [
        "Demo==1.0 --hash=sha256:ab --hash=sha256:cd",
        "demo==1.0 \\\n    --hash sha256:ab \\\n    --hash=sha256:cd  # both",
        "demo==1.0; python_version < '3' --hash=sha256:ab\ndemo==2.0; python_version >= '3' --hash=sha256:cd",
        f"{URL} --hash=sha256:ab --hash=sha256:cd",
        "-r more.txt",
        "--requirement=more.txt",
    ],
)
def test_what_is_installed_has_the_hashes_that_were_demanded_and_not_the_indexs(text: str, listed: Path) -> None:
    """A stranger's index serves a file that fits once, and another the next time.

    pip does not compare the hash in an index's link with a file that has the demanded one, and reports the link's:
    pip 23.2.1, by the same attack with an index on loopback.
    """
    listed.write_text(text + "\n", "utf-8")
    (listed.parent / "more.txt").write_text("demo==1.0 --hash=sha256:ab --hash=sha256:cd\n")
    pip = Pip(row("demo", sha256="ee"), row("DEMO", sha256=None))

    layer(listed, pip)

    held = " --hash=sha256:ab --hash=sha256:cd\n"
    assert pip.pins == f"demo==1.0{held}DEMO==1.0{held}"


def test_a_hash_that_cannot_be_read_is_no_reason_to_install_without(listed: Path) -> None:
    listed.write_text("demo==1.0 --hash=${HASH}\n")
    pip = Pip(row("demo"))

    with pytest.raises(TrainerError, match=r"^requirements.txt requires hashes, but has none for demo; "):
        layer(listed, pip)

    assert len(pip.calls) == 1


NO_NETWORK = """WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<x>: Failed')'
ERROR: Could not find a version that satisfies the requirement demo (from versions: none)
ERROR: No matching distribution found for demo
"""


@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        ("one\nERROR: No matching distribution found for demo\n", Exit.SETTINGS),
        (NO_NETWORK, Exit.MACHINE),
        (NO_NETWORK.replace("versions: none", "versions: 1.0, 2.0"), Exit.SETTINGS),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", Exit.DISK),
        ("", Exit.SETTINGS),
    ],
    ids=["no such package", "no network", "no such version", "full disk", "no word"],
)
def test_a_failure_is_one_sentence_with_pips_last_lines(stderr: str, code: int, listed: Path) -> None:
    with pytest.raises(TrainerError) as error:
        layer(listed, Pip(row("demo"), code=1, stderr=stderr))

    assert error.value.code == code
    assert (stderr.splitlines() or ["pip printed nothing"])[-1].removeprefix("ERROR: ") in str(error.value)
    assert error.value.__notes__ == ["\n".join(stderr.splitlines())]
    assert [path.name for path in (listed.parents[1] / "work").iterdir() if path.is_dir()] == []  # nothing half is left


def test_ranks_that_waited_for_a_failed_installation_do_not_try_it_again(listed: Path) -> None:
    began = time.time()
    with pytest.raises(TrainerError):
        layer(listed, Pip(code=1, stderr="ERROR: no"), began)

    with pytest.raises(TrainerError) as error:
        layer(listed, pytest.fail, began)

    assert (error.value.code, error.value.is_reported) == (Exit.SETTINGS, True)
    assert layer(listed, Pip(row("demo")), time.time() + 1).is_dir()  # but a restart does


def test_ranks_of_a_node_wait_for_the_one_that_installs(listed: Path) -> None:
    installing, others = threading.Event(), list[Path]()
    waiting = threading.Thread(target=lambda: others.append(layer(listed, pytest.fail)))

    def let_another_come() -> None:
        if not installing.is_set():
            installing.set()
            waiting.start()
            waiting.join(0.2)  # it waits, or it would have failed
            assert waiting.is_alive()

    made = layer(listed, Pip(row("demo"), before=let_another_come))
    waiting.join()

    assert others == [made]


def test_an_installation_that_was_killed_begins_anew(listed: Path) -> None:
    class Gone(Pip):
        def __call__(self, words: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
            super().__call__(words, folder)
            os._exit(9)

    child = os.fork()
    if child == 0:
        layer(listed, Gone(row("demo")))
    os.waitpid(child, 0)
    assert [path for path in (listed.parents[1] / "work").iterdir() if path.is_dir()] != []  # what it had begun

    made = layer(listed, Pip(row("demo")))

    assert sorted(path.name for path in made.parent.iterdir() if path.is_dir()) == [made.name]


def test_the_layer_comes_before_the_image_and_so_do_its_programs(tmp_path: Path) -> None:
    found = variables(tmp_path, {"PYTHONPATH": "/toolkit", "PATH": "/usr/bin"})

    assert found == {"PYTHONPATH": f"{tmp_path}:/toolkit", "PATH": f"{tmp_path}/bin:/usr/bin"}
    assert variables(tmp_path, {})["PYTHONPATH"] == str(tmp_path)


def wheel(folder: Path, name: str, version: str, needs: str = "") -> str:
    """Writes a wheel with one module, and returns its SHA-256."""
    folder.mkdir(exist_ok=True, parents=True)
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD")))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_real_pip_installs_what_lacks_with_its_hash_and_leaves_what_fits(listed: Path) -> None:
    wheels = listed.parent / "wheels"
    digest = wheel(wheels, "ddp_demo", "1.0", "Requires-Dist: numpy\n")  # which is here
    wheel(wheels, "ddp_demo", "2.0")
    listed.write_text("--no-index\n--find-links wheels\nddp_demo<2\n")

    made = layer(listed, run_pip)

    assert sorted(path.name for path in made.glob("*") if path.suffix != ".json") == [
        "__pycache__", "ddp_demo-1.0.dist-info", "ddp_demo.py", "exactly.txt"
    ]  # fmt: skip
    assert f"{wheels}/ddp_demo-1.0-py3-none-any.whl --hash=sha256:{digest}\n" in (made / "exactly.txt").read_text()


def test_the_real_pip_refuses_another_file_than_the_one_that_was_locked(listed: Path) -> None:
    wheel(listed.parent / "wheels", "ddp_demo", "1.0")
    listed.write_text(f"--no-index\n--find-links wheels\nddp_demo==1.0 --hash=sha256:{'0' * 64}\n")

    with pytest.raises(TrainerError, match="cannot be installed: THESE PACKAGES DO NOT MATCH THE HASHES") as error:
        layer(listed, run_pip)

    assert error.value.code == Exit.SETTINGS


@pytest.mark.parametrize(
    ("found", "place"),
    [
        ({"vcs_info": {"vcs": "git", "commit_id": "01"}, "subdirectory": "py"}, "git+https://h/r@01#subdirectory=py"),
        ({"dir_info": {}}, "https://h/r"),
    ],
)
def test_a_repository_is_installed_at_the_commit_that_was_found(
    found: dict[str, Any], place: str, listed: Path
) -> None:
    """https://pip.pypa.io/en/stable/reference/installation-report/"""
    mine = row("mine", is_direct=True) | {"download_info": {"url": "https://h/r", **found}}
    pip = Pip(mine, row("demo"))

    layer(listed, pip)

    assert pip.pins == f"mine @ {place}\ndemo==1.0\n"  # pip takes hashes of all or of none
