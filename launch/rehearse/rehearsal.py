"""A rehearsal from its command line to its receipt: read rehearse() first.

The launcher is the real one, in a separate process, with this AWS as its endpoint.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from launch.core import shell
from launch.core.errors import NotSetUp
from launch.core.shell import interpreter
from launch.rehearse.backend import KILLED, OpenBackend, RehearsedBackend, RehearsedJob
from launch.rehearse.environment import cleaned, entered, shared_models
from launch.rehearse.faults import check
from trainer.contract import Exit
from trainer.errors import MachineError, SettingsError, import_function, one_line

if TYPE_CHECKING:
    from launch.rehearse.aws.server import RequestLog
    from launch.rehearse.display import Display
    from launch.rehearse.faults import Injection

GRACE_S = 120.0  # for a launcher to stop: it removes the job first
MODULES = ("awscli", "boto3", "flask", "flask_cors", "jinja2", "moto")


@dataclass
class Rehearsal:
    """A running rehearsal."""

    job: RehearsedJob
    backend: RehearsedBackend
    requests: RequestLog
    display: Display
    injection: Injection
    resources_before: set[str]  # in the account, when it began
    made: set[str] = field(default_factory=set)  # resources since then
    began: float = field(default_factory=time.monotonic)
    commands: list[tuple[str, int]] = field(default_factory=list)  # of the launcher, with their exit codes
    ended_at: float = 0.0  # when the last command ended (monotonic, s)
    rendezvous_at: float | None = None  # when the ranks had met (monotonic, s)

    def run(self, *words: str, module: str = "") -> int:
        """Run `python -m launch.ec2 words...` on the embedded AWS; return its exit code, 137 if it was killed.

        module: another command than the job's launcher.
        """
        python = interpreter(sys.executable, Path.cwd())
        watchdog = [*python, "-m", "launch.rehearse.watchdog", str(os.getpid())]
        name = words[0] if words[0].isalpha() else "launch"
        try:
            code = shell.run(
                [*watchdog, module or self.job.module, *words],
                self._env(),
                grace_s=GRACE_S,
                on_line=self.display.launcher_line,
                on_start=self.injection.set_launcher,
            )
        except MachineError:
            code = KILLED
        self.injection.set_launcher(None)
        self.commands.append((name, code))
        self.ended_at = time.monotonic()
        return code

    def run_repaired(self, aim: str, *words: str, module: str = "") -> int:
        """Run a command, and again after each injected fault that ends it.  aim: why it is run again, in words."""
        code = self.run(*words, module=module)
        while reason := self.injection.repair(code):
            self.display.note(f"{reason}; running the same command again to {aim}")
            code = self.run(*words, module=module)
        return code

    def publish(self) -> int:
        """Publish the data with launch.data; return its exit code.  The data are not counted as left over."""
        job, folder = self.job, Path("runs", self.job.name)
        is_plain = not (job.train.reads_folder or job.is_prepared)  # a script's own
        kind = ("--plain",) if is_plain else ("--prepared", str(folder / "prepared"))
        words = ("publish", str(job.data), "--name", job.data_name, *kind, "--work-dir", str(folder / "publishing"))
        code = self.run_repaired(f"continue publishing {job.data_name}", *words, module="launch.data")
        self.resources_before |= self.backend.account.resources()
        self.made.clear()
        return code

    def left(self) -> set[str]:
        """Resources that cost money now and were not there when the rehearsal began."""
        return self.backend.account.resources() - self.resources_before

    def update(self) -> None:
        """Show what has happened since, and inject the faults that are due."""
        from launch.rehearse.recording import has_begun

        self.display.update()  # before a fault: an epoch is shown, and then what happens after it
        self.injection.inject_due(self.display.recorder.reached)
        if self.rendezvous_at is None and has_begun(self.backend.account):
            self.rendezvous_at = time.monotonic()

    def _env(self) -> dict[str, str]:
        return {
            **cleaned(self.job.env),
            "AWS_ENDPOINT_URL": self.backend.endpoint,
            "AWS_DEFAULT_REGION": self.job.region,
        }


def rehearse(job: RehearsedJob, *, is_terminal: bool = False) -> int:
    """Run the job's whole life here and print the receipt; return the launcher's exit code.  Main thread only.

    Raises NotSetUp without the extra `rehearse` or its programs, and SettingsError for what cannot be rehearsed.
    """
    check(job.faults, job.train.epochs)
    _check_installed()
    _check_requirements(job)
    with (
        _run_folder(Path("runs") / job.name),
        entered(job.env),
        shared_models(),
        _opened(job, is_terminal) as rehearsal,
    ):
        code = _run_job(rehearsal)
        rehearsal.backend.close()
        rehearsal.display.close()
        _write_receipt(rehearsal, code)
        return code


@contextmanager
def _run_folder(folder: Path) -> Iterator[None]:
    """Create a new folder for the job's results; remove it again if it stays empty."""
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


def _run_job(rehearsal: Rehearsal) -> int:
    """Run the launcher, and what must follow so that nothing is left; return the job's exit code."""
    job, display = rehearsal.job, rehearsal.display
    if rehearsal.backend.publishes:
        code = rehearsal.publish()
        if code:
            return code
    code = rehearsal.run_repaired(f"resume job {job.name}", *job.launch_words)
    if code == Exit.DONE:
        code = _follow(rehearsal) or _run_next(rehearsal)
    left = rehearsal.left()
    if not left:
        return code
    if code == KILLED:
        display.note(f"the launcher was killed; on AWS, `python -m {job.module} attach {job.name}` would resume it")
    display.note(f"{len(left)} resources are left; running `stop` to remove them")
    rehearsal.run("stop", job.name)
    return code or Exit.MACHINE  # a launcher that reports success must not leave anything


def _follow(rehearsal: Rehearsal) -> int:
    """Wait for the end of a job that the launcher has left running, and follow it if nothing on AWS does."""
    if not (rehearsal.job.is_detached and rehearsal.left()):
        return Exit.DONE
    name = rehearsal.job.name
    if (code := rehearsal.backend.await_end()) is not None:
        rehearsal.display.note("the job has ended without a launcher on this machine; fetching its results")
        return code or rehearsal.run("fetch", name)
    rehearsal.display.note("the launcher has detached from the job; following it to its end")
    return rehearsal.run("attach", name)


def _run_next(rehearsal: Rehearsal) -> int:
    """With --keep-warm: run the same command again on the warm nodes, as another job, then stop the nodes."""
    job = rehearsal.job
    if not job.options.get("keep_warm"):
        return Exit.DONE
    rehearsal.display.note(f"running the same command again, as job {job.next_name}, on the warm nodes")
    code = rehearsal.run(*job.next_words)
    return rehearsal.run("stop", job.next_name) or code


def _write_receipt(rehearsal: Rehearsal, code: int) -> None:
    from launch.rehearse.receipt.facts import Receipt, save
    from launch.rehearse.receipt.page import write
    from launch.rehearse.receipt.text import as_text

    folder, files = save(
        rehearsal.backend.account, rehearsal.job.bucket, rehearsal.job.name, rehearsal.requests.requests
    )
    receipt = Receipt.of(rehearsal, code, folder, files)
    rehearsal.display.text("\n" + as_text(receipt))
    write(receipt)
    rehearsal.display.text("\n".join(["", "next, on AWS:", *(f"  {line}" for line in _next(rehearsal.job))]))


def _next(job: RehearsedJob) -> list[str]:
    """The commands that prepare the account, show the plan and start the job."""
    after = ["--", *job.arguments] if job.arguments else []
    doctor = ["python", "-m", "launch.doctor", "--for", job.backend.name, "--fix"]
    launch = job.backend.command.split()
    commands: list[tuple[list[str], list[str]]] = [(doctor, []), (launch, ["--dry-run"]), (launch, [])]
    return [shlex.join([*command, *job.on_aws, *more, *after]) for command, more in commands]


@contextmanager
def _opened(job: RehearsedJob, is_terminal: bool) -> Iterator[Rehearsal]:
    """The embedded AWS with its nodes and its display; nothing is left afterwards."""
    from moto.core.model_instances import reset_model_data

    from launch.rehearse.aws.server import RequestLog
    from launch.rehearse.display import Display, console_for
    from launch.rehearse.faults import Injection

    reset_model_data()  # of an earlier rehearsal in this process
    requests = RequestLog()
    open_backend: OpenBackend = import_function(job.backend.rehearsal)
    with _folder() as folder, open_backend(job, folder, requests) as backend:
        resources_before = backend.account.resources()
        with closing(Display(backend, job.train.epochs, console_for(job.env, is_terminal))) as display:
            injection = Injection(job.faults, backend, display.note)
            rehearsal = Rehearsal(job, backend, requests, display, injection, resources_before)
            requests.before = injection.refuse
            requests.after = lambda request: rehearsal.made.update(backend.account.resources() - resources_before)
            backend.on_line = display.launcher_line
            backend.watch(rehearsal.update, injection.abort)
            display.note(f"embedded AWS in {job.region}; nodes: {backend.node_kind}; job {job.name}")
            yield rehearsal


@contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder, which is removed even if this process is killed."""
    where = tempfile.gettempdir()
    # The boot script uses the path without quotes, which is safe on AWS.
    where = where if re.fullmatch(r"[\w/.-]+", where) else "/tmp"  # noqa: S108  # mkdtemp makes a private folder
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=where))
    sweep = 'echo ready; cat >/dev/null; for _ in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$1" && exit; sleep 0.5; done'
    sweeper = shell.start_child(["sh", "-c", sweep, "sh", str(folder)], {"PATH": os.defpath})
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        sweeper.close(10.0)


def _check_installed() -> None:
    """Raise NotSetUp with the command that installs what is missing."""
    if missing := [name for name in MODULES if find_spec(name) is None]:
        raise NotSetUp(
            f"a rehearsal needs {', '.join(missing)}; run pip install -c constraints.txt -e '.[rehearse]' in the "
            "checkout"
        )


def _check_requirements(job: RehearsedJob) -> None:
    """Raise NotSetUp if pip would have to download something for the script's requirements: nodes cannot."""
    source = job.train.source
    if source is None or not source.requirements:
        return
    listed = source.top / source.requirements
    flags = ["--isolated", "--no-input", "--dry-run", "--no-index", "--retries", "0"]
    # Unreachable proxies, because requirements may have URLs, which nodes cannot reach either.
    offline = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    pip = [*interpreter(sys.executable, listed.parent), "-m", "pip"]
    pip_run = shell.run_captured(
        [*pip, "install", *flags, "-r", str(listed)], {**job.env, **offline}, str(listed.parent)
    )
    if pip_run.code:
        reasons = [line for line in pip_run.err.splitlines() if line.startswith("ERROR: ")] or pip_run.err.splitlines()
        raise NotSetUp(
            f"nodes of a rehearsal have the packages of this Python and no package index, and {source.requirements} "
            f"asks for more ({one_line(''.join(reasons[-1:]).removeprefix('ERROR: '), 200)}); run pip install -r "
            f"{shlex.quote(str(listed))}"
        )
