"""The command line of every backend: parse settings, show or perform a plan, and run the verbs of a job's life.

This is where errors become one sentence and an exit code.  What a plan contains is up to the backend.
"""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import BaseModel, Field

from launch.core import job_file
from launch.core.backend import Backend, ways_to
from launch.core.clock import Clock
from launch.core.errors import Ended
from launch.core.job import Job, Where
from launch.core.options import DRY_RUN, DryRun, Options, WordList
from launch.core.secrets import check_no_secret
from launch.core.terminal import approve, complain, say, wants
from launch.core.training.base import Training
from launch.core.training.classifier import Classifier
from launch.core.training.options import SCRIPT_SECTION, TRAINS, split, training_of, unsuggested
from launch.core.verbs import Verb, coded, run_verb, unknown_verb, verb_list, verb_of
from trainer.config import SECTIONS
from trainer.contract import OUTCOME, STOPPED, Exit, random_letters
from trainer.errors import SettingsError, TrainerError
from trainer.outcome import Outcome, state_of
from trainer.settings import flags
from trainer.settings.argparser import Help, flag

if TYPE_CHECKING:
    from launch.core.jobs import Jobs
    from launch.core.quote import Quote

Plan = TypeVar("Plan")

# The default training of a rehearsal: real images that need no download.
REHEARSED = {"dataset": "digits", "model": "cnn", "batch_size": 32}


class LaunchOptions(Options):
    """Options of every launcher."""

    dry_run: DryRun = DRY_RUN
    yes: bool = Field(False, description="start without a question, which --max-usd answers as well")
    outcome: Path | None = Field(
        None,
        description="folder to write outcome.json into: state, exit code, seconds, USD",
        json_schema_extra={"metavar": "FOLDER"},
    )


class RehearsalOptions(Options):
    """Options of a launcher whose jobs can be rehearsed."""

    rehearse: bool = Field(
        False, description="play the whole job on this machine, against an embedded AWS; needs no account"
    )
    inject: WordList = Field(
        (),
        description="faults to inject with --rehearse, such as node-dies@epoch:1 or no-capacity:zone-a",
        json_schema_extra={"metavar": "FAULT,..."},
    )
    rehearse_data: Path | None = Field(
        None,
        description="folder with train/ and val/ to put on the rehearsed volumes",
        json_schema_extra={"metavar": "FOLDER"},
    )


# The flags that most jobs need, by heading of --help; a backend has some of them.
FIRST = {
    "what to train": ("script", "model", "dataset", "epochs", "batch_size"),
    "machines": ("nodes", "instance_type", "gpus_per_node", "nproc_per_node", "cpus_per_task", "partition", "region",
                 "spot"),
    "data": ("data",),
    "limits and money": ("max_hours", "max_usd", "time"),
    "what to do": ("dry_run", "rehearse", "yes", "wait", "detach"),
}  # fmt: skip
MOST_GPUS = 4096  # for which machines are suggested


# Flags that launch.doctor does not take -> whether a value follows.
_NOT_THE_JOBS = {
    "--dry-run": False,
    "--yes": False,
    "--outcome": True,
    "--rehearse": False,
    "--inject": True,
    "--rehearse-data": True,
}


def _shown(plan: Any, form: bool | str) -> str:
    from launch.core.plan import FORMS  # --help does not need it

    return FORMS[form](plan)


@dataclass(frozen=True)
class Launcher(Generic[Where, Plan]):
    """The command line of one backend.  All functions may raise TrainerError."""

    backend: Backend
    about: str  # for --help
    plan: Callable[[Job[Where]], Plan]  # decides and does not act
    # Carries out a plan; returns how the run ended, None if it is still running.
    perform: Callable[[Plan], Outcome | None]
    show: Callable[[Plan, bool | str], str] = _shown  # in a form of --dry-run
    brief: Callable[[Plan], str] = lambda plan: ""  # said before the start
    quotes: "Callable[[Plan], Sequence[Quote]]" = lambda plan: ()  # of what the start would start; empty: nothing
    approve: Callable[[str], None] = approve  # asks before money is spent
    # Why a plan cannot be performed, if so.
    problem: Callable[[Plan], TrainerError | None] = lambda plan: getattr(plan, "problem", None)
    verbs: Mapping[str, Verb] = field(default_factory=dict)
    jobs: "Callable[[Any], Jobs] | None" = None  # of the options of a verb
    name: Callable[[Plan], str] = lambda plan: ""  # of the planned job
    # Raises SettingsError for a job that cannot work, without calling AWS.
    check: Callable[[Job[Where]], object] = lambda job: None
    env: Mapping[str, str] = field(default_factory=dict)  # of the user, for rehearsals


def main(launcher: Launcher[Where, Plan], argv: Sequence[str]) -> int:
    """Run the command line of `launcher`; return the exit code."""

    def act() -> int:
        verb = verb_of(launcher.verbs, argv)
        if verb:
            return run_verb(launcher.backend.command, launcher.verbs, verb, argv[1:])
        return _launch(launcher, argv)

    code = coded(act)
    if code == Exit.AWS and launcher.backend.examination and not verb_of(launcher.verbs, argv):
        _offer_to_fix(launcher.backend.name, argv)
    return code


def _offer_to_fix(backend: str, argv: Sequence[str]) -> None:
    """Print the command that fixes what the account lacks; at a terminal, offer to run it."""
    words = ["-m", "launch.doctor", "--for", backend, "--fix", *_of_job(argv)]
    complain(f"to see all that the account lacks, and to fix it: {shlex.join(['python', *words])}")
    if not any(word.startswith("--dry-run") for word in argv) and wants("run it now"):
        from launch.core.shell import run_here, this_python  # --help does not need it

        run_here([*this_python(), *words])
        complain("then start the job again, with the same command")


def _of_job(argv: Sequence[str]) -> list[str]:
    """The command line without what is no setting of the job: the flags of LaunchOptions and RehearsalOptions."""
    words, rest, is_value = list[str](), iter(argv), False
    for word in rest:
        name, equals, _ = word.partition("=")
        if word == "--":
            return [*words, word, *rest]
        if name in _NOT_THE_JOBS:
            is_value = not equals and _NOT_THE_JOBS[name]
        elif is_value and not word.startswith("--"):
            is_value = False
        else:
            words.append(word)
    return words


def _launch(launcher: Launcher[Where, Plan], argv: Sequence[str]) -> int:
    launch, rehearsal, job = _read(launcher, argv)
    check_no_secret({**job.train.settings, **dict(job.where)})
    if rehearsal.rehearse and launch.dry_run:
        raise SettingsError("--dry-run prints the plan and --rehearse plays it; leave one of them out.")
    if rehearsal.rehearse:
        return _rehearse(launcher, argv, rehearsal, job)
    if rehearsal.inject:
        raise SettingsError("--inject makes faults in a rehearsal only; add --rehearse.")
    if not launch.dry_run:
        return _perform(launcher, job, launch)
    return _dry_run(launcher, launcher.plan(job), launch.dry_run, argv)


def _dry_run(launcher: Launcher[Where, Plan], plan: Plan, form: bool | str, argv: Sequence[str]) -> int:
    from launch.core.plan import dry_run_code

    say(launcher.show(plan, form))
    problem = launcher.problem(plan)
    if form is True and problem is None and not launcher.backend.runs_here:
        words = [word for word in argv if not word.startswith("--dry-run")]
        say(f"\nto start it:\n  {launcher.backend.command} {shlex.join(words)}".rstrip())
    return dry_run_code(problem)


def _perform(launcher: Launcher[Where, Plan], job: Job[Where], options: LaunchOptions) -> int:
    """Plan the job, perform the plan, and write the outcome into a folder, if given."""
    clock, folder = Clock(), options.outcome
    started = clock.now()
    if folder is not None:
        _prepare(folder)

    def write(outcome: Outcome) -> None:
        if folder is not None:
            seconds = outcome.seconds if outcome.seconds is not None else clock.now() - started
            ended = outcome.ended or f"{clock.utc():%Y-%m-%dT%H:%M:%SZ}"
            _write(replace(outcome, seconds=seconds, ended=ended), folder)

    try:
        outcome = _performed(launcher, job, is_approved=options.yes)
    except TrainerError as error:
        known = error.outcome if isinstance(error, Ended) else None
        write(known or Outcome(state_of(error.code), error.code, str(error)))
        raise
    except KeyboardInterrupt:
        write(Outcome("stopped", STOPPED, "stopped by Ctrl-C"))
        raise
    except Exception as bug:
        write(Outcome("failed", Exit.BUG, f"{type(bug).__name__}: {bug}"))
        raise
    if outcome is None:
        return Exit.DONE
    write(outcome)
    return outcome.exit_code


def _performed(launcher: Launcher[Where, Plan], job: Job[Where], *, is_approved: bool) -> Outcome | None:
    plan = launcher.plan(job)
    if problem := launcher.problem(plan):
        raise problem
    if text := launcher.brief(plan):
        say(text)
    quotes = launcher.quotes(plan)
    if quotes and not is_approved:
        from launch.core.quote import price_of_all

        launcher.approve(f"start it, for {price_of_all(quotes)}")
    return launcher.perform(plan)


def _prepare(folder: Path) -> None:
    """Make `folder` and remove an earlier run's outcome.  Raises SettingsError before anything is spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / OUTCOME).unlink(missing_ok=True)
    except OSError as error:
        raise SettingsError(f"--outcome {folder} cannot be written ({error.strerror}); give another folder.") from error


def _write(outcome: Outcome, folder: Path) -> None:
    """Write the outcome; a failure is only a warning, as the run itself has ended."""
    try:
        outcome.write(folder)
    except OSError as error:
        complain(f"warning: {folder / OUTCOME} was not written: {error.strerror}")


def _rehearse(
    launcher: Launcher[Where, Plan], argv: Sequence[str], rehearsal: RehearsalOptions, job: Job[Where]
) -> int:
    """Run the same command line against an embedded AWS, in a separate process."""
    from launch.core.job import default_job_name
    from launch.rehearse.backend import RehearsedJob
    from launch.rehearse.faults import parse
    from launch.rehearse.rehearsal import rehearse

    launcher.check(job)
    options = {**dict(job.where), **job.where.model_dump()}  # with those that are not saved with a job
    words, arguments = split(argv)
    rehearsed = RehearsedJob(
        backend=launcher.backend,
        argv=(*words, *_rehearsal_words(job.train)),
        arguments=tuple(arguments),
        on_aws=tuple(_of_job(words)),
        name=options.get("job_name") or default_job_name(job.train.label, datetime.now(), random_letters()),
        options=options,
        train=job.train,
        env=dict(launcher.env),
        faults=parse(rehearsal.inject),
        data=rehearsal.rehearse_data,
    )
    return rehearse(rehearsed, is_terminal=sys.stdout.isatty())


def _rehearsal_words(train: Training) -> list[str]:
    """Flags with a rehearsal's own defaults, without those that another setting rules out."""
    if not isinstance(train, Classifier):
        return []
    config = train.config
    ruled_out = {name for name, rival in flags.RIVALS.items() if getattr(config, rival) is not None}
    return [word for name in REHEARSED if name not in ruled_out for word in (flag(name), str(getattr(config, name)))]


def _read(launcher: Launcher[Where, Plan], argv: Sequence[str]) -> tuple[LaunchOptions, RehearsalOptions, Job[Where]]:
    backend = launcher.backend
    about = launcher.about + _verb_list(launcher)
    sections = {"dry_run": backend.module, **SCRIPT_SECTION, **SECTIONS}
    rehearsal = [RehearsalOptions] if backend.rehearsal else []
    models: list[type[BaseModel]] = [LaunchOptions, *rehearsal, backend.options, *TRAINS]
    _check_words(launcher, argv)
    words, arguments = split(argv)
    job_file.check_flags(words, models, backend)
    shown = Help(backend.command, about, sections, backend.defaults, first_flags(backend))
    given = flags.given(words, models, shown, unsuggested(words))
    settings = job_file.settings(given, models, backend)
    launch, *more, where, script, config = settings.build(models)
    rehearsed = cast(RehearsalOptions, more[0]) if more else RehearsalOptions.model_construct()
    if rehearsed.rehearse:  # --config may set it, too
        config = settings.build(models, REHEARSED)[-1]
    train = training_of(script, config, settings.given, arguments, Path.cwd(), backend)
    # A limit that the user gave for this job is a yes; one among the defaults for every job is a limit only.
    launch = launch.model_copy(update={"yes": cast(LaunchOptions, launch).yes or "max_usd" in settings.given})
    return cast(LaunchOptions, launch), rehearsed, Job(train, cast(Where, where), settings.notes)


def first_flags(backend: Backend) -> Mapping[str, Sequence[str]]:
    """The flags that most jobs on `backend` need, by heading."""
    return {**FIRST, "data": ("data_dir",)} if backend.shares_folders else FIRST


def job_of(backend: Backend, settings: Mapping[str, Any]) -> Job[Any]:
    """The job of settings named as the flags, for programs; what is not given is the user's or the backend's default.

    Raises SettingsError.
    """
    models: list[type[BaseModel]] = [backend.options, *TRAINS]
    job_file.read(Path("the settings"), settings, models, backend)  # refuses unknown names
    found = job_file.settings(settings, models, backend)
    where, script, config = found.build(models)
    job = Job(training_of(script, config, found.given, (), Path.cwd(), backend), where, found.notes)
    check_no_secret({**job.train.settings, **dict(job.where)})
    return job


def _check_words(launcher: Launcher[Where, Plan], argv: Sequence[str]) -> None:
    """Raise SettingsError for what users of other launchers type here."""
    words, _ = split(argv)
    first = argv[0] if argv else ""
    if first.endswith(".py"):
        raise SettingsError(f"give the script by its flag: --script {first}; its own arguments follow --.")
    if first and not first.startswith("-") and launcher.verbs:
        from launch.core.jobs import VERBS  # --help does not need it

        if first in VERBS:
            raise SettingsError(f"{launcher.backend.module} has no verb {first}; --help lists those that it has.")
        raise unknown_verb(first, launcher.verbs)
    for place, word in enumerate(words):
        name, _, value = word.partition("=")
        if name == "--gpus":
            raise _no_gpus(launcher.backend, value or "".join(words[place + 1 : place + 2]))


def _no_gpus(backend: Backend, given: str) -> SettingsError:
    """The error for --gpus, with the flags that give so many GPUs."""
    gpus = int(given) if given.isdecimal() and 0 < int(given) <= MOST_GPUS else 0
    found = ways_to(backend, gpus) if gpus else []
    ways = [" ".join(f"{flag(name)} {value}" for name, value in way.items()) for way in found]
    return SettingsError(
        f"there is no flag --gpus; for {gpus} GPUs give {', or '.join(ways)}." if ways else
        "there is no flag --gpus; choose machines by --instance-type and --nodes, or processes by --nproc-per-node."
    )  # fmt: skip


def _verb_list(launcher: Launcher[Where, Plan]) -> str:
    if not launcher.verbs:
        return ""
    return "\n".join(["", "afterwards:", verb_list(launcher.backend.command, launcher.verbs), ""])
