"""A rehearsal from its command line to its receipt: read rehearse() first.

The launcher is the real one, in a process of its own: nothing in it knows that this AWS is not Amazon's.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch import shell
from launch.errors import NotSetUp
from launch.rehearse.faults import Fault
from trainer.contract import Exit
from trainer.errors import MachineError, SettingsError

if TYPE_CHECKING:
    from launch.rehearse.account import Account
    from launch.rehearse.cloud import Requests
    from launch.rehearse.display import Display
    from launch.rehearse.injection import Injection
    from launch.rehearse.node import Machines, Volume
    from launch.rehearse.watcher import Watcher

NETWORK, GATEWAY, PORT = "172.31.0.0/16", "172.31.255.254", 5000  # moto's default VPC, and its last address
GRACE_S = 120.0  # a launcher that is asked to stop takes the job down first
# moto reads these when it is used; 1,300 old AMIs would take half a second.
MOTO = {
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    "MOTO_ENABLE_AMI_VALIDATION": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
}
# Of the child's environment; the user's own settings of AWS are none of its business.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "rehearsal",
    "AWS_SECRET_ACCESS_KEY": "rehearsal",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "*",
}


@dataclass(frozen=True)
class Asked:
    """What is rehearsed.

    module: the backend's, such as launch.ec2; argv: its command line; options: its settings by name;
    data: a folder that volumes of the data set hold.
    """

    module: str
    argv: tuple[str, ...]
    job: str
    options: Mapping[str, Any]
    dataset: str
    epochs: int
    env: Mapping[str, str]
    faults: tuple[Fault, ...] = ()
    data: Path | None = None

    @property
    def region(self) -> str:
        return self.options.get("region") or "us-east-1"

    @property
    def launch(self) -> list[str]:
        """The command line again, without the rehearsal: later flags win, also over those in a --config."""
        return [*self.argv, "--job-name", self.job, "--no-rehearse", "--inject", ""]


@dataclass
class Stage:
    """What a rehearsal plays on, and what happened there.  commands: each launcher's command with its exit code."""

    asked: Asked
    account: Account
    requests: Requests
    watcher: Watcher
    display: Display
    injection: Injection
    endpoint: str
    at_first: set[str]
    made: set[str]
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
        if self.met is None and has_begun(self.account):
            self.met = time.monotonic()
        self.display.look()

    def _env(self) -> dict[str, str]:
        kept = {name: value for name, value in self.asked.env.items() if not name.startswith("AWS_")}
        return {**kept, **CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint, "AWS_DEFAULT_REGION": self.asked.region}


def rehearse(asked: Asked, *, is_terminal: bool = False) -> int:
    """Runs the job's whole life here, shows it, and says what happened; the launcher's exit code.  Main thread only.

    Raises NotSetUp without the extra `rehearse`, and SettingsError for what cannot be rehearsed.
    """
    _need_moto()
    with _stage(asked, is_terminal) as stage:
        code = _play(stage)
        stage.watcher.close()
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
    elif code == Exit.DONE and any(life.ended is None for life in stage.watcher.lives.values()):
        display.note("the launcher has left the job alone; following it to its end")
        code = stage.run("attach", asked.job)
    if stage.account.resources() - stage.at_first:
        display.note(f"something is left: python -m {asked.module} stop {asked.job}")
        stage.run("stop", asked.job)
    return code


def _tell(stage: Stage) -> None:
    from launch.rehearse.receipt import Receipt, as_text
    from launch.rehearse.results import save

    kept = save(stage.account, stage.asked.options.get("bucket"), stage.asked.job, stage.requests.seen)
    print("\n" + as_text(Receipt.of(stage, kept)), flush=True)


@contextmanager
def _stage(asked: Asked, is_terminal: bool) -> Iterator[Stage]:
    """AWS, the network and the watcher; nothing of them is left afterwards."""
    os.environ.update(MOTO)
    from launch.rehearse.account import Account
    from launch.rehearse.cloud import Requests, served
    from launch.rehearse.display import Display
    from launch.rehearse.ec2 import mended
    from launch.rehearse.injection import Injection
    from launch.rehearse.node import World
    from launch.rehearse.watcher import Watcher

    account, requests = Account(asked.region), Requests()
    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        stack.enter_context(mended(account.rules))
        _fill(account, asked)
        machines = stack.enter_context(_machines(folder))
        account.rules.address = machines.address
        port = stack.enter_context(served(requests))
        inside = (
            port
            if machines.gateway == "127.0.0.1"
            else stack.enter_context(served(requests, machines.gateway, PORT, machines.place))
        )
        world = World(f"http://{machines.gateway}:{inside}")
        watcher = Watcher(
            account,
            machines,
            world,
            asked.options.get("nodes") or 1,
            data=_data(asked, folder, machines.kind != "processes"),
        )
        stack.callback(watcher.close)
        display = Display(account, watcher, asked.job, asked.options.get("bucket"), asked.epochs, is_terminal)
        injection = Injection(asked.faults, account, watcher, display.note)
        at_first = account.resources()
        stage = Stage(
            asked, account, requests, watcher, display, injection, f"http://127.0.0.1:{port}", at_first, set()
        )
        requests.before, watcher.give_up = injection.refuse, injection.give_up
        requests.after = lambda seen: stage.made.update(account.resources() - at_first)
        watcher.tell = stage.look
        display.note(f"an AWS in this process, {asked.region}; nodes: {machines.kind}; job {asked.job}")
        yield stage


def _fill(account: Account, asked: Asked) -> None:
    """The account as infra/README.md makes it, and what the command line names."""
    account.fill()
    account.make_snapshot(asked.dataset, 8)
    if bucket := asked.options.get("bucket"):
        account.make_bucket(bucket)


@contextmanager
def _machines(folder: Path) -> Iterator[Machines]:
    """Namespaces where they can be made, else processes."""
    from launch.rehearse import namespaces, processes

    if namespaces.why_not_here() is None:
        with namespaces.network(folder / "nodes", f"{GATEWAY}/16") as network:
            yield network
    elif why := processes.why_not_here():
        raise SettingsError(f"nodes cannot be rehearsed on this machine: it {why}.")
    else:
        with processes.processes(folder / "nodes") as made:
            yield made


def _data(asked: Asked, folder: Path, makes_images: bool) -> Callable[[str], Volume | None]:
    """Makes the data volumes of nodes."""
    from launch.rehearse.node import Volume

    def volume(name: str) -> Volume | None:
        if asked.data is None:
            return None
        if not makes_images:
            return Volume(name, asked.data.resolve())
        image = folder / "data.img"
        if not image.exists():
            size = sum(file.stat().st_size for file in asked.data.rglob("*") if file.is_file())
            Volume.of(asked.data, name, image, mib=32 + 2 * (size >> 20))
        return Volume(name, image)

    return volume


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
