"""launch.sagemaker --queue: AWS Batch's service jobs in front of training jobs, on the embedded AWS."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from launch.aws.batch import QueueFacts
from launch.core.errors import NotSetUp
from launch.rehearse.aws.batch import moto_patches, refusals
from launch.rehearse.aws.batch.jobs import ServiceJob
from launch.rehearse.aws.batch.moto_patches import make_queue
from launch.rehearse.aws.batch.scheduler import step, terminate
from launch.rehearse.aws.sagemaker.changes import advance, age, complete, fail
from launch.rehearse.aws.sagemaker.jobs import TrainingJob
from launch.sagemaker.request import OPERATION, PAYLOAD_BYTES, SUBMIT
from tests.launch.faults import EVERY, TOLD_APART, Died, Faults, injected
from tests.launch.sagemaker.known import FACTS, NAME, plan, resolve
from tests.launch.sagemaker.test_crash_sweep import READS
from tests.launch.sagemaker.world import Event, Stage
from trainer.contract import STOPPED, Exit
from trainer.errors import SettingsError, TrainerError

# As AWS's container toolkit reports a rank that has left with 75.
REASON = 'AlgorithmError: ExecuteUserScriptError:\nExitCode {0}\nErrorMessage "Exception: exit code {0}: {1}"'
INTERRUPTED, NO_DATA = REASON.format(75, "interrupted"), REASON.format(3, "no images")


@contextmanager
def opened() -> Iterator[Stage]:
    """An account with a queue for one instance at a time."""
    with Stage.opened(queue="demo", instance_type="ml.g5.2xlarge") as made:
        make_queue(made.account.rules, "aws-ddp-toolkit-demo", 1, made.account.region, made.account.id)
        yield made


@pytest.fixture
def stage() -> Iterator[Stage]:
    with opened() as made:
        yield made


def put(stage: Stage, name: str = NAME, **settings: Any) -> ServiceJob:
    """Puts a job into the queue, as the command does; returns it as Batch has it."""
    stage.settings |= {"job_name": name, **settings}
    assert stage.launch() == 0
    step(stage.account.rules)
    return service_jobs(stage)[-1]


def service_jobs(stage: Stage) -> list[ServiceJob]:
    return list(stage.account.rules.batch.jobs.values())


def attempts(stage: Stage) -> list[TrainingJob]:
    """All training jobs, oldest first."""
    step(stage.account.rules)
    return list(stage.account.jobs.values())


def left(stage: Stage) -> list[str]:
    """What waits, runs or costs money."""
    step(stage.account.rules)
    waiting = [str(job.request["jobName"]) for job in service_jobs(stage) if job.status not in ("SUCCEEDED", "FAILED")]
    return waiting + stage.account.left()


# ---- waiting and running


def test_a_job_returns_at_once_and_waits_its_turn(stage: Stage) -> None:
    put(stage, "first")
    put(stage, "second")
    put(stage, "third")

    assert [job.status for job in service_jobs(stage)] == ["SCHEDULED", "RUNNABLE", "RUNNABLE"]
    assert stage.type("status", "third") == 0
    assert "waits in queue demo, number 2 of 2 in line" in stage.text
    assert stage.type("status") == 0
    assert [line.split()[0] for line in stage.text.splitlines() if " Queued " in line] == ["third", "second"]


def test_a_training_job_keeps_to_the_folder_and_the_name_of_its_job(stage: Stage) -> None:
    """Batch makes a name of its own for it."""
    put(stage, "a-name-with-more-than-23-characters")
    (made,) = attempts(stage)

    assert made.name.startswith("AWSBatcha-name-with-more-")
    assert len(made.name) <= 63
    folder = f"s3://{stage.account.bucket}/jobs/a-name-with-more-than-23-characters"
    assert made.request["OutputDataConfig"]["S3OutputPath"] == f"{folder}/output"
    assert made.request["CheckpointConfig"]["S3Uri"] == f"{folder}/run"
    assert json.loads(made.request["HyperParameters"]["sagemaker_job_name"]) == "a-name-with-more-than-23-characters"


def test_the_same_command_joins_what_waits_or_runs(stage: Stage) -> None:
    put(stage)
    put(stage)
    put(stage, "other")
    put(stage, "other")

    assert len(service_jobs(stage)) == 2
    assert "other is already in the queue" in stage.text


def test_a_repeated_request_is_the_same_request(stage: Stage) -> None:
    """Where Batch's list does not show the first one yet: its token is that of the same start."""
    first, second = stage.plan(), stage.plan()
    asked, again = ([one.params for one in plan.steps][-1] for plan in (first, second))  # type: ignore[union-attr]

    assert asked["clientToken"] == again["clientToken"]
    assert asked["serviceRequestPayload"] == again["serviceRequestPayload"]


def test_a_job_that_has_ended_can_be_started_again(stage: Stage) -> None:
    put(stage)
    complete(attempts(stage)[0])
    step(stage.account.rules)
    put(stage)

    assert [job.request["jobName"] for job in service_jobs(stage)] == [NAME, f"{NAME}--2"]


def test_priority_and_share_decide_who_is_next(stage: Stage) -> None:
    put(stage, "first", share="vision")
    put(stage, "slow", share="vision")
    put(stage, "urgent", share="vision", priority=9)
    put(stage, "others", share="speech", priority=0)

    for _ in range(3):
        complete(attempts(stage)[-1])
    started = [job.name.removeprefix("AWSBatch")[:-32] for job in attempts(stage)]
    assert started == ["first", "others", "urgent", "slow"]


def test_attach_waits_for_its_turn_and_follows_to_the_end(stage: Stage) -> None:
    put(stage, "first")
    put(stage)
    first = attempts(stage)[0]

    def second() -> TrainingJob:
        return attempts(stage)[1]

    def leave() -> None:
        stage.leave_result(second().name)
        complete(second(), 600)

    events: list[Event] = [
        lambda: complete(first),
        lambda: advance(second()),
        lambda: stage.account.log(second().name, "algo-1", ["epoch 1/1"]),
        leave,
    ]
    stage.events = iter(events)

    assert stage.type("attach", NAME) == 0
    assert f"{NAME} waits in queue demo, number 1 of 1 in line" in stage.text
    assert "epoch 1/1" in stage.text
    assert (stage.results / NAME / "model.pt").read_text() == "the weights"


# ---- attempts


def test_an_interrupted_attempt_is_repeated_from_its_checkpoints(stage: Stage) -> None:
    put(stage)
    first = attempts(stage)[0]
    advance(first)
    fail(first, INTERRUPTED, 600)
    second = attempts(stage)[1]

    assert second.request["CheckpointConfig"] == first.request["CheckpointConfig"]
    assert second.request["HyperParameters"] == first.request["HyperParameters"]
    assert stage.type("status", NAME) == 0
    assert all(word in stage.text for word in ("attempt 1", f"attempt 2    {second.name}, runs"))
    assert stage.type("status", NAME, "--json") == 0
    summary = json.loads(stage.said[-1])
    assert (summary["status"], summary["usd"] > 0) == ("waiting", True)  # for instances; the first attempt was billed


@pytest.mark.parametrize(
    "reason",
    [
        NO_DATA,
        "ClientError: Data download failed",
        "AlgorithmError: ExitCode 1",
        REASON.format(3, "InterruptedError: InternalServerError of the hub"),  # words of the training
    ],
)
def test_errors_of_settings_and_data_are_not_tried_again(stage: Stage, reason: str) -> None:
    put(stage)
    first = attempts(stage)[0]
    advance(first)
    fail(first, reason, 60)

    assert len(attempts(stage)) == 1
    assert left(stage) == []
    assert stage.type("status", NAME, "--json") == 0
    assert json.loads(stage.said[-1])["status"] == "failed"


@pytest.mark.parametrize("reason", ["InternalServerError: We encountered an internal error.", INTERRUPTED])
def test_errors_of_sagemaker_and_interruptions_are_tried_again(stage: Stage, reason: str) -> None:
    put(stage)
    advance(attempts(stage)[0])
    fail(attempts(stage)[0], reason, 60)
    assert len(attempts(stage)) == 2


def test_a_training_that_is_done_does_not_wait_for_batch_to_see_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(stage)
    made = attempts(stage)[0]
    advance(made)
    stage.leave_result(made.name)
    for module in (moto_patches, refusals):
        monkeypatch.setattr(module, "step", lambda rules: None)
    complete(made, 600)

    assert stage.type("status", NAME, "--json") == 0
    assert json.loads(stage.said[-1])["status"] == "done"
    assert stage.type("stop", NAME) == 0
    assert "was not running" in stage.said[-1]


def test_a_job_that_its_queue_has_ended_has_failed_for_that_reason(stage: Stage) -> None:
    """It was not stopped: .../batch/latest/userguide/sm_job_stuck_in_runnable_misconfiguration.html"""
    put(stage, "first")
    put(stage)
    reason = "Terminated by JobStateTimeLimit action due to reason: MISCONFIGURATION:SERVICE_ENVIRONMENT_MAX_RESOURCE"
    terminate(service_jobs(stage)[-1], reason, stage.account.rules)

    assert stage.type("status", NAME, "--json") == 0
    summary = json.loads(stage.said[-1])
    assert (summary["status"], summary["exit_code"], summary["reason"]) == ("failed", Exit.AWS, reason)


def test_a_job_without_capacity_waits_and_uses_up_no_attempt(stage: Stage) -> None:
    job = put(stage, max_restarts=0)
    stage.account.capacity["ml.g5.2xlarge"] = 0
    advance(attempts(stage)[0])
    attempts(stage)
    assert (job.status, job.used) == ("SCHEDULED", 1)
    stage.account.capacity["ml.g5.2xlarge"] = 1
    complete(attempts(stage)[-1])
    step(stage.account.rules)
    assert job.status == "SUCCEEDED"


def test_a_job_may_wait_for_capacity_longer_than_it_may_train(stage: Stage) -> None:
    job, now = put(stage, max_hours=1), stage.account.rules.now
    stage.account.rules.now = lambda: now() + timedelta(hours=3)
    step(stage.account.rules)
    assert job.status == "SCHEDULED"


def test_the_log_goes_on_with_the_next_attempt(stage: Stage) -> None:
    put(stage)
    first = attempts(stage)[0]
    advance(first)
    stage.account.log(first.name, "algo-1", ["of the first"])

    def interrupted() -> None:
        fail(first, INTERRUPTED, 60)
        second = attempts(stage)[1]
        advance(second)
        stage.account.log(second.name, "algo-1", ["of the second"])

    stage.events = iter([interrupted, lambda: complete(attempts(stage)[1])])

    assert stage.type("logs", NAME, "--follow") == 0
    assert "of the first" in stage.text
    assert "of the second" in stage.text


def test_tags_may_reach_the_training_job_or_not(stage: Stage) -> None:
    """AWS does not document it: the job is found either way, and once."""
    stage.account.rules.batch.passes_tags_on = True
    put(stage)
    advance(attempts(stage)[0])

    stage.said.clear()
    assert stage.type("leaks") == 0
    assert stage.text.count(NAME) == 1


def test_a_job_is_found_by_its_training_job_when_batch_has_forgotten_it(stage: Stage) -> None:
    """A week after its end: https://docs.aws.amazon.com/batch/latest/userguide/job_states.html"""
    for name in ("a-long-name-of-a-training-1", "a-long-name-of-a-training-2"):
        put(stage, name)
        made = attempts(stage)[-1]
        stage.leave_result(made.name)
        complete(made, 600)
        age(made, 10 * 86_400)
    step(stage.account.rules)
    stage.account.rules.batch.jobs.clear()

    assert stage.type("fetch", "a-long-name-of-a-training-1") == 0
    assert (stage.results / "a-long-name-of-a-training-1/model.pt").read_text() == "the weights"
    put(stage, "a-long-name-of-a-training-1")
    assert service_jobs(stage)[-1].request["jobName"] == "a-long-name-of-a-training-1--2"


def test_a_job_is_found_by_its_training_job_when_its_queue_is_gone(stage: Stage) -> None:
    put(stage)
    stage.leave_result(attempts(stage)[0].name)
    complete(attempts(stage)[0], 600)
    step(stage.account.rules)
    stage.account.rules.batch.queues.clear()

    assert stage.type("fetch", NAME) == 0
    assert (stage.results / NAME / "model.pt").read_text() == "the weights"
    del stage.settings["queue"]
    assert "started again as" in stage.plan().title


def test_stop_ends_a_training_job_that_batch_has_lost(stage: Stage) -> None:
    stage.account.rules.batch.passes_tags_on = True
    put(stage)
    advance(attempts(stage)[0])
    stage.account.rules.batch.queues.clear()
    stage.account.rules.batch.jobs.clear()

    assert stage.type("stop", NAME) == 0
    assert f"{NAME} is stopped" in stage.text
    assert stage.account.left() == []


# ---- stopping


def waits(stage: Stage) -> None:
    put(stage, "first")
    put(stage)


def has_a_training_job(stage: Stage) -> None:
    put(stage)


def trains(stage: Stage) -> None:
    put(stage)
    advance(attempts(stage)[0])


def waits_again(stage: Stage) -> None:
    """Its first attempt was interrupted, and another job has its place."""
    put(stage, share="one")
    put(stage, "first", share="two")
    advance(attempts(stage)[0])
    fail(attempts(stage)[0], INTERRUPTED, 60)
    step(stage.account.rules)


@pytest.mark.parametrize("before", [waits, has_a_training_job, trains, waits_again])
def test_stop_ends_a_job_in_every_state(stage: Stage, before: Callable[[Stage], None]) -> None:
    before(stage)
    assert NAME in left(stage)

    assert stage.type("stop", NAME) == 0
    assert f"{NAME} is stopped" in stage.text
    assert NAME not in left(stage)
    assert not [job for job in stage.account.left() if f"AWSBatch{NAME}" in job]
    stage.said.clear()
    assert stage.type("stop", NAME) == 0  # twice
    assert stage.type("status", NAME, "--json") == 0
    assert json.loads(stage.said[-1])["exit_code"] == STOPPED


def test_stop_all_empties_the_queue(stage: Stage) -> None:
    waits(stage)
    assert stage.type("leaks") == 0
    assert "waits in queue demo" in stage.text

    assert stage.type("stop", "--all", "--yes") == 0
    assert left(stage) == []


# ---- before anything is sent


def test_the_plan_says_what_the_queue_holds(stage: Stage) -> None:
    waits(stage)
    stage.settings["job_name"] = "next"
    shown = str(stage.plan())

    assert f"demo: 1 of 1 instances in use, 1 in line: {NAME}" in shown


def test_a_line_longer_than_batch_shows_is_not_called_shorter(stage: Stage) -> None:
    put(stage, "first")
    (first,) = service_jobs(stage)
    for number in range(150):
        name = f"00000000-{number}"
        arn = f"{first.arn.rpartition('/')[0]}/{name}"
        stage.account.rules.batch.jobs[name] = replace(first, id=name, arn=arn, status="SUBMITTED", attempts=[])
    stage.settings["job_name"] = "next"

    assert "demo: 1 of 1 instances in use, 100 or more in line: first, first, first, ..." in str(stage.plan())


def test_a_queue_that_outgrows_the_quota_is_warned_of(stage: Stage) -> None:
    stage.account.quota["ml.g5.2xlarge for training job usage"] = 4
    make_queue(stage.account.rules, "aws-ddp-toolkit-large", 8, stage.account.region, stage.account.id)
    assert not [text for text in stage.plan().warnings if "queue" in text]

    stage.settings["queue"] = "large"
    assert "up --queue large:4" in " ".join(stage.plan().warnings)


def test_a_request_that_sagemaker_refuses_fails_with_its_reason(stage: Stage) -> None:
    """Batch does not look at it."""
    stage.account.delete_role()
    stage.settings["role"] = stage.account.role
    put(stage)

    assert attempts(stage) == []
    assert stage.type("status", NAME, "--json") == 0
    summary = json.loads(stage.said[-1])
    assert (summary["status"], summary["reason"].split(":")[0]) == ("failed", "ValidationException")
    assert summary["exit_code"] == Exit.AWS


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"nodes": 2}, "--nodes 2: queue demo has 1"),
        ({"queue": "dema"}, "did you mean 'demo'"),
        ({"environment": ",".join(f"V{number}={'x' * 500}" for number in range(20))}, "a queue takes 10,240"),
    ],
)
def test_what_could_never_start_is_a_problem_of_the_plan(stage: Stage, settings: dict[str, Any], words: str) -> None:
    stage.settings |= settings
    with pytest.raises((SettingsError, NotSetUp), match=words):
        stage.launch()
    assert service_jobs(stage) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"priority": 1},
        {"share": "a"},
        {"queue": "demo", "warm_pool_s": 60},
        {"queue": "demo", "through": "estimator"},
        {"queue": "demo", "max_pending_hours": 2},  # Batch would try again
        {"queue": "demo", "job_name": "AWSBatch-of-mine"},
    ],
)
def test_settings_that_contradict_a_queue_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        resolve(**settings)


IN_QUEUE = replace(FACTS, queue=QueueFacts("demo", most=64, in_use=0))


@pytest.mark.parametrize(("nodes", "most"), [(1, 4_000), (8, 4_000), (64, 4_000)])
def test_the_payload_fits_at_any_number_of_instances(
    nodes: int, most: int, record_property: Callable[[str, object], None]
) -> None:
    """The number of instances is one number in it."""
    made = plan(facts=IN_QUEUE, queue="demo", nodes=nodes, instance_type="ml.g5.12xlarge")
    size = len(made.steps[-1].params["serviceRequestPayload"])  # type: ignore[union-attr]
    record_property("payload", (nodes, size))
    assert size < most < PAYLOAD_BYTES


def test_the_request_is_one_that_botocore_and_sagemaker_take(stage: Stage) -> None:
    request = plan(facts=IN_QUEUE, queue="demo").steps[-1].params  # type: ignore[union-attr]
    payload = json.loads(request["serviceRequestPayload"])

    assert stage.aws.violation("batch", SUBMIT, request) == ""
    assert stage.aws.violation("sagemaker", OPERATION, payload) == ""
    assert "RoleArn" in stage.aws.violation("sagemaker", OPERATION, payload | {"RoleArn": 1})


def test_the_most_it_can_cost_is_that_of_all_its_attempts() -> None:
    """Each has the whole time limit."""
    once, queued = plan(max_restarts=3), plan(facts=IN_QUEUE, queue="demo", max_restarts=3)
    assert queued.quotes[0].most_usd == pytest.approx(4 * (once.quotes[0].most_usd or 0))


# ---- whatever fails at whatever call


def launch(stage: Stage) -> None:
    stage.launch()


def stop(stage: Stage) -> None:
    stage.type("stop", NAME)


SLOW = pytest.mark.slow("no fault at any call puts a job into the queue twice, or leaves one there after stop")


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        pytest.param(kind, command, marks=() if (kind, command) == ("died after", launch) else SLOW)
        for kind in TOLD_APART
        for command in (launch, stop)
    ],
)
def test_no_fault_puts_a_job_into_the_queue_twice_or_leaves_it_there(
    kind: str, command: Callable[[Stage], None]
) -> None:
    with before(command) as (stage, faults):
        command(stage)
        calls = [call.operation for call in faults.calls]
    left_over = dict[int, object]()
    for number, (last, operation) in enumerate(pairwise(["", *calls]), 1):
        if operation.startswith(READS) and (kind != "error before" or operation == last):
            continue  # reads in a row are one case
        with before(command) as (stage, faults):
            faults.at(number, EVERY[kind]())
            with suppress(TrainerError, Died):
                command(stage)
            faults.clear()
            command(stage)
            alive = [job for job in service_jobs(stage) if job.status not in ("SUCCEEDED", "FAILED")]
            stop(stage)
            if len(alive) != (command is launch) or left(stage):
                left_over[number] = (alive, left(stage))
    assert len(calls) > 10
    assert left_over == {}


@contextmanager
def before(command: Callable[[Stage], None]) -> Iterator[tuple[Stage, Faults]]:
    with opened() as stage, injected(Faults()) as faults:
        if command is stop:
            put(stage)
        faults.clear()
        yield stage, faults
