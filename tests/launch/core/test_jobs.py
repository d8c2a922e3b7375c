"""The verbs of started jobs, on a backend of the tests: the order of steps, confirmation, Ctrl-C and exit codes."""

from collections.abc import Sequence

import pytest

from launch.core.job_verbs import job_verbs
from launch.core.jobs import NO_LEAKS, JobOptions, Leak
from launch.core.options import Options
from launch.core.verbs import coded, run_verb
from tests.launch.core.listed import ListedJobs
from trainer.contract import Exit
from trainer.errors import SettingsError

# ---- jobs


COMMAND = "python -m launch.tests"


def leak(job: str, usd: float = 1.0, *, is_leak: bool = True, is_removable: bool = True) -> Leak:
    return Leak(job, "us-east-1", is_leak, "past its limit", usd, ((job, "us-east-1"),), is_removable=is_removable)


def run(jobs: ListedJobs, *words: str, lacks: Sequence[str] = (), where: type[Options] = Options) -> int:
    """Types `python -m launch.tests WORDS`; returns the exit code."""
    return run_verb(COMMAND, job_verbs(COMMAND, lambda _: jobs, where, lacks=lacks), words[0], words[1:])


def test_status_shows_all_jobs_or_all_of_one() -> None:
    jobs = ListedJobs([leak("one")])

    assert (run(jobs, "status"), run(jobs, "status", "one")) == (0, 0)
    assert jobs.said == [
        "1 jobs",
        "job one\n\na  b\n\n  cost  1 USD\n\nnext:\n  python -m launch.tests stop one\nnote",
    ]


def test_logs_are_shown_and_followed_to_the_end() -> None:
    jobs = ListedJobs()

    assert (run(jobs, "logs", "one"), run(jobs, "logs", "one", "-f")) == (0, 0)
    assert jobs.said == ["epoch 1", "epoch 1", "one has ended"]


def test_the_log_of_a_job_that_has_ended_is_not_waited_for() -> None:
    jobs = ListedJobs(is_running=False, lines=())

    assert run(jobs, "logs", "one", "-f") == 0
    assert jobs.said == ["nothing yet"]


def test_ctrl_c_ends_the_following_and_not_the_job() -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    jobs = ListedJobs(follow=interrupted)

    assert run(jobs, "logs", "one", "--follow") == 130
    assert jobs.said[-1].endswith("\n  python -m launch.tests stop one")
    assert jobs.removed == []


def test_attach_ends_with_the_exit_code_of_the_training() -> None:
    assert run(ListedJobs(), "attach", "one") == 5


def test_stop_all_asks_for_yes_and_ends_what_costs_most_first() -> None:
    jobs = ListedJobs(
        [leak("cheap", 1, is_leak=False), leak("costly", 9, is_leak=False), leak("theirs", is_removable=False)]
    )

    with pytest.raises(SettingsError, match="--all stops cheap, costly; add --yes"):
        run(jobs, "stop", "--all")
    assert jobs.removed == []
    assert run(jobs, "stop", "--all", "--yes") == 0
    assert jobs.removed == ["costly", "cheap"]


def test_stop_all_of_nothing_is_fine() -> None:
    assert run(ListedJobs(), "stop", "--all") == 0


def test_stop_takes_one_job_or_all() -> None:
    with pytest.raises(SettingsError, match="not both"):
        run(ListedJobs([leak("one")]), "stop", "one", "--all")


def test_what_cannot_be_stopped_is_an_error_and_the_others_are_stopped() -> None:
    jobs = ListedJobs([leak("one"), leak("two")], fails=["one"])

    assert run(jobs, "stop", "--all", "--yes") == 4
    assert jobs.removed == ["two"]
    assert jobs.said[-1] == "error: one: AWS refused"


@pytest.mark.parametrize(
    ("there", "is_complete", "code"),
    [
        ([], True, 0),
        ([leak("one", is_leak=False)], True, 0),
        ([leak("one")], True, 4),
        ([leak("one", is_removable=False)], True, 4),
        ([], False, 4),
    ],
)
def test_the_exit_code_of_leaks_says_whether_there_is_one(there: list[Leak], is_complete: bool, code: int) -> None:
    assert run(ListedJobs(there, is_complete=is_complete), "leaks") == code


def test_delete_removes_leaks_of_ours_only_and_asks_first() -> None:
    jobs = ListedJobs([leak("old"), leak("young", is_leak=False), leak("theirs", is_removable=False)], agrees=False)

    with pytest.raises(SettingsError, match="--delete removes old; add --yes"):
        run(jobs, "leaks", "--delete")
    assert jobs.removed == []
    assert run(jobs, "leaks", "--delete", "--yes") == 4  # theirs is left
    assert jobs.removed == ["old"]


def test_delete_running_removes_jobs_within_their_time_limit_too() -> None:
    jobs = ListedJobs([leak("old"), leak("young", is_leak=False)])

    assert run(jobs, "leaks", "--delete", "--running") == 0
    assert (sorted(jobs.removed), jobs.said[-1]) == (["old", "young"], NO_LEAKS)
    with pytest.raises(SettingsError, match="--running needs --delete"):
        run(jobs, "leaks", "--running")


def test_what_removes_the_leaks_looks_in_the_same_regions() -> None:
    class Where(Options):
        region: str | None = None

    jobs = ListedJobs([leak("old")])

    run(jobs, "leaks", "--region", "eu-west-1", where=Where)
    run(jobs, "leaks", "--all-regions", where=Where)
    assert [text.splitlines()[-1] for text in jobs.said if "to remove" in text] == [
        "  python -m launch.tests leaks --delete --region eu-west-1",
        "  python -m launch.tests leaks --delete --all-regions",
    ]


def test_a_backend_has_the_verbs_that_it_does_not_lack_with_options_of_its_own() -> None:
    class Fetch(JobOptions):
        fetch: bool = True

    verbs = job_verbs(COMMAND, lambda _: ListedJobs(), options={"attach": Fetch}, lacks=("leaks", "ssh"))

    assert list(verbs) == ["status", "logs", "fetch", "stop", "forward", "tensorboard", "attach"]
    assert set(verbs["attach"].options.model_fields) == {"job", "fetch"}


def test_a_backend_says_more_of_a_verb_in_its_help() -> None:
    verbs = job_verbs(COMMAND, lambda _: ListedJobs(), notes={"stop": "It saves first: {command} stop.\n"})

    assert verbs["stop"].about.endswith("It saves first: python -m launch.tests stop.\n")
    assert "saves" not in verbs["logs"].about


def test_stop_all_shows_what_answers_and_asks_for_yes_though_a_region_does_not() -> None:
    jobs = ListedJobs([leak("near")], is_complete=False)

    with pytest.raises(SettingsError, match="--all stops near; add --yes"):
        run(jobs, "stop", "--all")
    assert "near" in jobs.said[-1]
    assert run(ListedJobs(is_complete=False), "stop", "--all") == 4


# ---- verbs


@pytest.mark.parametrize("code", [256, -256, 2**31])
def test_no_exit_code_that_others_wrote_is_one_that_a_shell_takes_for_success(code: int) -> None:
    """Of a process's exit code a shell sees the last eight bits."""
    assert coded(lambda: code) == Exit.BUG


@pytest.mark.parametrize("code", [0, 3, 143, 255])
def test_every_other_exit_code_is_passed_on(code: int) -> None:
    assert coded(lambda: code) == code
