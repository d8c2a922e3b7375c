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
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from launch.core import shell
from launch.core.errors import NotSetUp
from launch.core.shell import interpreter
from launch.rehearse.stage.environment import cleaned, entered, shared_models
from launch.rehearse.stage.faults import check
from launch.rehearse.stage.scene import KILLED, OpenScene, RehearsedJob, Scene
from trainer.contract import Exit
from trainer.errors import MachineError, SettingsError, one_line
from trainer.settings.registry import import_function

if TYPE_CHECKING:
    from launch.rehearse.aws.server import RequestLog
    from launch.rehearse.stage.display import Display
    from launch.rehearse.stage.injection import Injection

GRACE_S = 120.0  # for a launcher that is asked to stop: it removes the job first
MODULES = ("awscli", "boto3", "flask", "flask_cors", "jinja2", "moto")


@dataclass
class Stage:
    """A running rehearsal.

    commands: each command of the launcher with its exit code; at_first, made: resources of the account; ended, met
    (monotonic, s): when the last command ended, and when the ranks had met.
    """

    job: RehearsedJob
    scene: Scene
    requests: RequestLog
    display: Display
    injection: Injection
    at_first: set[str]
    made: set[str] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)
    commands: list[tuple[str, int]] = field(default_factory=list)
    ended: float = 0.0
    met: float | None = None

    def run(self, *words: str, module: str = "") -> int:
        """Runs `python -m launch.ec2 words...` on the embedded AWS; returns its exit code, 137 if it was killed.

        module: another command than the job's launcher.
        """
        python = interpreter(sys.executable, Path.cwd())
        leash = [*python, "-m", "launch.rehearse.stage.leash", str(os.getpid())]
        name = words[0] if words[0].isalpha() else "launch"
        try:
            code = shell.run(
                [*leash, module or self.job.module, *words],
                self._env(),
                grace_s=GRACE_S,
                on_line=self.display.launcher_line,
                on_start=self.injection.aim,
            )
        except MachineError:
            code = KILLED
        self.injection.aim(None)
        self.commands.append((name, code))
        self.ended = time.monotonic()
        return code

    def publish(self) -> int:
        """Has launch.data publish the data, which are meant to stay; returns its exit code."""
        job, folder = self.job, Path("runs", self.job.name)
        is_plain = not (job.train.reads_folder or job.is_prepared)  # a script's own
        kind = ("--plain",) if is_plain else ("--prepared", str(folder / "prepared"))
        words = ("publish", str(job.data), "--name", job.data_name, *kind, "--work-dir", str(folder / "publishing"))
        code = self.run(*words, module="launch.data")
        while reason := self.injection.repair(code):
            self.display.note(f"{reason}; running the same command again to continue publishing {job.data_name}")
            code = self.run(*words, module="launch.data")
        self.at_first |= self.scene.account.resources()
        self.made.clear()
        return code

    def left(self) -> set[str]:
        """Resources that cost money now and were not there when the rehearsal began."""
        return self.scene.account.resources() - self.at_first

    def look(self) -> None:
        """Shows what has happened, and injects the faults that are due."""
        from launch.rehearse.stage.progress import has_begun

        self.display.update()  # before a fault: an epoch is shown, and then what happens after it
        self.injection.look()
        if self.met is None and has_begun(self.scene.account):
            self.met = time.monotonic()

    def _env(self) -> dict[str, str]:
        return {
            **cleaned(self.job.env),
            "AWS_ENDPOINT_URL": self.scene.endpoint,
            "AWS_DEFAULT_REGION": self.job.region,
        }


def rehearse(job: RehearsedJob, *, is_terminal: bool = False) -> int:
    """Plays the job's whole life here and prints the receipt; returns the launcher's exit code.  Main thread only.

    Raises NotSetUp without the extra `rehearse` or its programs, and SettingsError for what cannot be rehearsed.
    """
    check(job.faults, job.train.epochs)
    _check_installed()
    _check_requirements(job)
    with (
        _run_folder(Path("runs") / job.name),
        entered(job.env),
        shared_models(),
        _stage(job, is_terminal) as stage,
    ):
        code = _play(stage)
        stage.scene.close()
        stage.display.close()
        _write_receipt(stage, code)
        return code


@contextmanager
def _run_folder(folder: Path) -> Iterator[None]:
    """A new folder for what the job leaves; it is removed again if it stays empty."""
    is_first = not folder.parent.exists()
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise SettingsError(f"{folder} exists from an earlier run; choose another --job-name.") from None
    except OSError as error:
        raise MachineError(
            f"cannot create {folder} ({error.strerror}); change to a folder that you may write to."
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty
            folder.rmdir()
            if is_first:
                folder.parent.rmdir()


def _play(stage: Stage) -> int:
    """Runs the launcher, and what must follow so that nothing is left; returns the job's exit code."""
    job, display = stage.job, stage.display
    if stage.scene.publishes:
        code = stage.publish()
        if code:
            return code
    code = stage.run(*job.launch_words)
    while reason := stage.injection.repair(code):
        display.note(f"{reason}; running the same command again to resume job {job.name}")
        code = stage.run(*job.launch_words)
    if code == Exit.DONE and job.is_detached and stage.left():
        display.note("the launcher has detached from the job; following it to its end")
        code = stage.run("attach", job.name)
    left = stage.left()
    if not left:
        return code
    if code == KILLED:
        display.note(f"the launcher was killed; on AWS, `python -m {job.module} attach {job.name}` would resume it")
    display.note(f"{len(left)} resources are left; running `stop` to remove them")
    stage.run("stop", job.name)
    return code or Exit.MACHINE  # a launcher that reports success must not leave anything


def _write_receipt(stage: Stage, code: int) -> None:
    from launch.rehearse.receipt.facts import Receipt
    from launch.rehearse.receipt.page import write
    from launch.rehearse.receipt.results import save
    from launch.rehearse.receipt.text import as_text

    kept, files = save(stage.scene.account, stage.job.bucket, stage.job.name, stage.requests.requests)
    receipt = Receipt.of(stage, code, kept, files)
    stage.display.text("\n" + as_text(receipt))
    write(receipt)


@contextmanager
def _stage(job: RehearsedJob, is_terminal: bool) -> Iterator[Stage]:
    """AWS, its nodes, and what watches them; nothing of them is left afterwards."""
    from moto.core.model_instances import reset_model_data

    from launch.rehearse.aws.server import RequestLog
    from launch.rehearse.stage.display import Display, console_for
    from launch.rehearse.stage.injection import Injection

    reset_model_data()  # of an earlier rehearsal in this process
    requests = RequestLog()
    open_scene: OpenScene = import_function(job.backend.scene)
    with _folder() as folder, open_scene(job, folder, requests) as scene:
        at_first = scene.account.resources()
        with closing(Display(scene, job.train.epochs, console_for(job.env, is_terminal))) as display:
            injection = Injection(job.faults, scene, display.note)
            stage = Stage(job, scene, requests, display, injection, at_first)
            requests.before = injection.refuse
            requests.after = lambda request: stage.made.update(scene.account.resources() - at_first)
            scene.watch(stage.look, injection.give_up)
            display.note(f"embedded AWS in {job.region}; nodes: {scene.node_kind}; job {job.name}")
            yield stage


@contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder, which is removed also if this process is killed."""
    where = tempfile.gettempdir()
    # The boot script uses the path without quotes, which is safe on AWS.
    where = where if re.fullmatch(r"[\w/.-]+", where) else "/tmp"  # nosec B108  # mkdtemp's folder is nobody else's
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=where))
    sweep = 'echo ready; cat >/dev/null; for _ in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$1" && exit; sleep 0.5; done'
    sweeper = shell.start_child(["sh", "-c", sweep, "sh", str(folder)], {"PATH": os.defpath})
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        sweeper.close(10.0)


def _check_installed() -> None:
    """Raises NotSetUp with the command that installs what is missing."""
    if missing := [name for name in MODULES if find_spec(name) is None]:
        raise NotSetUp(
            f"a rehearsal needs {', '.join(missing)}; run pip install -c constraints.txt -e '.[rehearse]' in the "
            "checkout"
        )


def _check_requirements(job: RehearsedJob) -> None:
    """Raises NotSetUp where pip would have to fetch what the script's requirements ask for, which no node can."""
    source = job.train.source
    if source is None or not source.requirements:
        return
    listed = source.top / source.requirements
    flags = ["--isolated", "--no-input", "--dry-run", "--no-index", "--retries", "0"]
    # The proxies are for what is named by its address: a node would not get there.
    offline = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    pip = [*interpreter(sys.executable, listed.parent), "-m", "pip"]
    ended = shell.run_captured([*pip, "install", *flags, "-r", str(listed)], {**job.env, **offline}, str(listed.parent))
    if ended.code:
        reasons = [line for line in ended.err.splitlines() if line.startswith("ERROR: ")] or ended.err.splitlines()
        raise NotSetUp(
            f"nodes of a rehearsal have the packages of this Python and no package index, and {source.requirements} "
            f"asks for more ({one_line(''.join(reasons[-1:]).removeprefix('ERROR: '), 200)}); run pip install -r "
            f"{quote(str(listed))}"
        )
