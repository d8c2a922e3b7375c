"""A rehearsal from its command line to its receipt: read rehearse() first.

The launcher is the real one, in a process of its own: nothing in it knows that this AWS is not Amazon's.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from launch.core import shell
from launch.core.errors import NotSetUp
from launch.rehearse.stage.environment import cleaned, entered
from launch.rehearse.stage.faults import check
from launch.rehearse.stage.scene import KILLED, Asked, Opened, Scene
from trainer.contract import Exit
from trainer.errors import MachineError, SettingsError

if TYPE_CHECKING:
    from launch.rehearse.aws.server import Requests
    from launch.rehearse.stage.display import Display
    from launch.rehearse.stage.injection import Injection

GRACE_S = 120.0  # a launcher that is asked to stop takes the job down first


@dataclass
class Stage:
    """What a rehearsal plays on, and what happened there.  commands: each launcher's command with its exit code."""

    asked: Asked
    scene: Scene
    requests: Requests
    display: Display
    injection: Injection
    at_first: set[str]
    made: set[str] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)
    commands: list[tuple[str, int]] = field(default_factory=list)
    ended: float = 0.0
    met: float | None = None  # when the ranks had met

    def run(self, *words: str) -> int:
        """`python -m launch.ec2 words...` against the embedded AWS, to its end; its exit code, 137 if it was killed."""
        command = [sys.executable, "-m", "launch.rehearse.stage.leash", str(os.getpid()), self.asked.module, *words]
        name = words[0] if words[0].isalpha() else "launch"
        try:
            code = shell.run(
                command, self._env(), grace_s=GRACE_S, on_line=self.display.line, on_start=self.injection.aim
            )
        except MachineError:
            code = KILLED
        self.injection.aim(None)
        self.commands.append((name, code))
        self.ended = time.monotonic()
        return code

    def left(self) -> set[str]:
        """What costs money now and did not when the rehearsal began."""
        return self.scene.account.resources() - self.at_first

    def look(self) -> None:
        """Now and then: what has happened."""
        from launch.rehearse.stage.progress import has_begun

        self.display.look()  # before a fault: an epoch is shown, and then what happens after it
        self.injection.look()
        if self.met is None and has_begun(self.scene.account):
            self.met = time.monotonic()

    def _env(self) -> dict[str, str]:
        there = {"AWS_ENDPOINT_URL": self.scene.endpoint, "AWS_DEFAULT_REGION": self.asked.region}
        return {**cleaned(self.asked.env), **there}


def rehearse(asked: Asked, *, is_terminal: bool = False) -> int:
    """Runs the job's whole life here, shows it, and says what happened; the launcher's exit code.  Main thread only.

    Raises NotSetUp without the extra `rehearse`, and SettingsError for what cannot be rehearsed.
    """
    check(asked.faults, asked.epochs)
    with _run_folder(Path("runs") / asked.job), entered(asked.env), _stage(asked, is_terminal) as stage:
        code = _play(stage)
        stage.scene.close()
        stage.display.close()
        _tell(stage, code)
        return code


@contextmanager
def _run_folder(folder: Path) -> Iterator[None]:
    """A new folder, for what the job leaves; it goes again if that is nothing."""
    is_first = not folder.parent.exists()
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise SettingsError(f"{folder} is there from an earlier run; take another --job-name.") from None
    except OSError as error:
        raise MachineError(f"cannot make {folder} ({error.strerror}); go to a folder that you may write to.") from None
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty
            folder.rmdir()
            if is_first:
                folder.parent.rmdir()


def _play(stage: Stage) -> int:
    """The launcher, and whatever must follow it so that nothing is left; the exit code of the job."""
    asked, display = stage.asked, stage.display
    code = stage.run(*asked.launch)
    while what := stage.injection.mend(code):
        display.note(f"{what}; the same command again goes on with job {asked.job}")
        code = stage.run(*asked.launch)
    if code == Exit.DONE and asked.leaves and stage.left():
        display.note("the launcher has left the job alone; following it to its end")
        code = stage.run("attach", asked.job)
    if not (left := stage.left()):
        return code
    killed = f"the launcher was killed; on AWS `python -m {asked.module} attach {asked.job}` would go on; here "
    display.note(f"{killed if code == KILLED else ''}{len(left)} resources are left, which `stop` removes")
    stage.run("stop", asked.job)
    return code or Exit.MACHINE  # a launcher that calls it a success must not leave anything


def _tell(stage: Stage, code: int) -> None:
    from launch.rehearse.receipt.facts import Receipt
    from launch.rehearse.receipt.page import write
    from launch.rehearse.receipt.results import save
    from launch.rehearse.receipt.text import as_text

    kept, files = save(stage.scene.account, stage.asked.bucket, stage.asked.job, stage.requests.seen)
    receipt = Receipt.of(stage, code, kept, files)
    stage.display.say("\n" + as_text(receipt))
    write(receipt)


@contextmanager
def _stage(asked: Asked, is_terminal: bool) -> Iterator[Stage]:
    """AWS, its nodes, and who watches them; nothing of them is left afterwards."""
    _need_moto()
    from moto.core.model_instances import reset_model_data

    from launch.rehearse.aws.server import Requests
    from launch.rehearse.stage.display import Display
    from launch.rehearse.stage.injection import Injection

    reset_model_data()  # of an earlier rehearsal in this process
    opened: Opened = _opened(asked)
    requests = Requests()
    with _folder() as folder, opened(asked, folder, requests) as scene:
        has_colours = is_terminal and not asked.env.get("NO_COLOR") and asked.env.get("TERM") != "dumb"
        display = Display(scene, asked.epochs, is_terminal, has_colours)
        injection = Injection(asked.faults, scene, display.note)
        at_first = scene.account.resources()
        stage = Stage(asked, scene, requests, display, injection, at_first)
        requests.before = injection.refuse
        requests.after = lambda seen: stage.made.update(scene.account.resources() - at_first)
        scene.watch(stage.look, injection.give_up)
        display.note(f"an AWS in this process, {asked.region}; nodes: {scene.nodes}; job {asked.job}")
        yield stage


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder that goes with us, also if we are killed."""
    where = tempfile.gettempdir()
    # The boot script names it without quotes, as it may on AWS.
    where = where if re.fullmatch(r"[\w/.-]+", where) else "/tmp"  # nosec B108  # mkdtemp's folder is nobody else's
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=where))
    sweep = 'echo ready; cat >/dev/null; for _ in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$1" && exit; sleep 0.5; done'
    sweeper = shell.start_child(["sh", "-c", sweep, "sh", str(folder)], {"PATH": os.defpath})
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        sweeper.let_go(10.0)


def _opened(asked: Asked) -> Opened:
    module, _, function = asked.backend.scene.partition(":")
    opened: Opened = getattr(import_module(module), function)
    return opened


def _need_moto() -> None:
    for name in ("awscli", "boto3", "flask", "flask_cors", "jinja2", "moto"):
        if find_spec(name) is None:
            raise NotSetUp(f"a rehearsal needs {name}; run pip install -c constraints.txt -e .[rehearse]")
