"""A rehearsal from its command line to its receipt: read rehearse() first.

The launcher is the real one, in a process of its own: nothing in it knows that this AWS is not Amazon's.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from launch import shell
from launch.errors import NotSetUp
from launch.rehearse.scene import CREDENTIALS, Asked, Opened, Scene
from trainer.contract import Exit
from trainer.errors import MachineError

if TYPE_CHECKING:
    from launch.rehearse.cloud import Requests
    from launch.rehearse.display import Display
    from launch.rehearse.injection import Injection

GRACE_S = 120.0  # a launcher that is asked to stop takes the job down first
# moto reads these when it is used; 1,300 old AMIs would take half a second.
MOTO = {
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    "MOTO_ENABLE_AMI_VALIDATION": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
}
# Where each backend's jobs are rehearsed, by its module: adding one is a line.
SCENES = {"launch.ec2": "launch.rehearse.ec2.scene"}


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
        command = [sys.executable, "-m", "launch.rehearse.leash", self.asked.module, *words]
        name = words[0] if words[0].isalpha() else "launch"
        try:
            code = shell.run(command, self._env(), grace_s=GRACE_S, hear=self.display.line, born=self.injection.aim)
        except MachineError:
            code = 137
        self.commands.append((name, code))
        self.ended = time.monotonic()
        return code

    def look(self) -> None:
        """Now and then: what has happened."""
        from launch.rehearse.progress import has_begun

        self.injection.look()
        if self.met is None and has_begun(self.scene.account):
            self.met = time.monotonic()
        self.display.look()

    def _env(self) -> dict[str, str]:
        kept = {name: value for name, value in self.asked.env.items() if not name.startswith("AWS_")}
        return {**kept, **CREDENTIALS, "AWS_ENDPOINT_URL": self.scene.endpoint, "AWS_DEFAULT_REGION": self.asked.region}


def rehearse(asked: Asked, *, is_terminal: bool = False) -> int:
    """Runs the job's whole life here, shows it, and says what happened; the launcher's exit code.  Main thread only.

    Raises NotSetUp without the extra `rehearse`, and SettingsError for what cannot be rehearsed.
    """
    _need_moto()
    with _stage(asked, is_terminal) as stage:
        code = _play(stage)
        stage.scene.close()
        stage.display.close()
        _tell(stage)
        return code


def _play(stage: Stage) -> int:
    """The launcher, and whatever must follow it so that nothing is left; the exit code of the job."""
    asked, display = stage.asked, stage.display
    code = stage.run(*asked.launch)
    if code == 137 and stage.injection.killed:
        display.note(f"the launcher was killed; the same command again goes on with job {asked.job}")
        code = stage.run(*asked.launch)
    elif code == 137:
        display.note(f"the launcher was killed; `python -m {asked.module} attach {asked.job}` would go on with the job")
    elif code == Exit.DONE and any(life.ended is None for life in stage.scene.lives.values()):
        display.note("the launcher has left the job alone; following it to its end")
        code = stage.run("attach", asked.job)
    if stage.scene.account.resources() - stage.at_first:
        display.note(f"something is left: python -m {asked.module} stop {asked.job}")
        stage.run("stop", asked.job)
    return code


def _tell(stage: Stage) -> None:
    from launch.rehearse.receipt import Receipt, as_text
    from launch.rehearse.results import save

    kept = save(stage.scene.account, stage.asked.bucket, stage.asked.job, stage.requests.seen)
    print("\n" + as_text(Receipt.of(stage, kept)), flush=True)


@contextmanager
def _stage(asked: Asked, is_terminal: bool) -> Iterator[Stage]:
    """AWS, its nodes, and who watches them; nothing of them is left afterwards."""
    os.environ.update(MOTO)
    from launch.rehearse.cloud import Requests
    from launch.rehearse.display import Display
    from launch.rehearse.injection import Injection

    opened: Opened = import_module(SCENES[asked.module]).opened
    requests = Requests()
    with _folder() as folder, opened(asked, folder, requests) as scene:
        display = Display(scene, asked.epochs, is_terminal)
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
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-"))
    sweep = 'echo ready; cat >/dev/null; for _ in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$1" && exit; sleep 0.5; done'
    sweeper = shell.hold(["sh", "-c", sweep, "sh", str(folder)], {"PATH": os.defpath})
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        sweeper.let_go(10.0)


def _need_moto() -> None:
    try:
        import flask  # noqa: F401
        import moto  # noqa: F401
    except ModuleNotFoundError as error:
        raise NotSetUp(f"a rehearsal needs {error.name}; run pip install 'aws-ddp-toolkit[rehearse]'.") from error
