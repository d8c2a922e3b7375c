"""The plan of a SageMaker job: the requests, the price, and what speaks against it."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from launch.core.errors import AwsError, NotSetUp
from launch.core.plan import Plan, as_json, as_text
from launch.sagemaker import sdk
from launch.sagemaker.facts import Facts, Quota
from launch.sagemaker.planner import inner
from tests.launch.sagemaker.known import BUCKET, FACTS, NAME, plan, run
from tests.launch.sagemaker.test_sdk import EVERYTHING, FILE_SYSTEMS
from tests.launch.sagemaker.world import quick_sdk


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with quick_sdk():
        yield


TYPES = ("ml.p3.8xlarge", "ml.p3.16xlarge", "ml.g5.2xlarge", "ml.g5.12xlarge", "ml.g5.48xlarge")
JOBS: dict[str, dict[str, Any]] = {
    **{f"{kind}-x{nodes}": {"instance_type": kind, "nodes": nodes} for kind in TYPES for nodes in (1, 2)},
    "everything": EVERYTHING,
    "warm-pool-fsx": FILE_SYSTEMS,
}


@cache
def planned(name: str) -> Plan:
    """With the SDK's own request."""
    return plan(replace(FACTS, quotas=()), capture=sdk.capture, **JOBS[name])


def without_digest(made: Plan, text: str) -> str:
    """`text` without what changes with every line of the trainer, and every option."""
    (digest,) = re.findall(r"/source/(\w{16})/", as_text(made))[:1]
    text = re.sub(r"\d+ files, [\d,]+ bytes", "<size>", text.replace(digest, "<digest>"))
    text = re.sub(r"\([\d,]+ characters", "(<size>", text)
    return re.sub(r"[\d,]+ bytes, SHA-256 \w{64}", "<size>, SHA-256 <digest>", text)


@pytest.mark.parametrize("name", JOBS)
def test_the_request_of_a_job_is_as_it_was(name: str, golden: Callable[[str, str], None]) -> None:
    made = planned(name)
    request = made.steps[-1].params  # type: ignore[union-attr]
    text = without_digest(made, json.dumps(request, indent=2, sort_keys=True))
    assert "<digest>" in text
    golden(f"{name}.json", text + "\n")


def test_the_whole_dry_run_is_as_it_was(golden: Callable[[str, str], None]) -> None:
    quotas = (Quota("ml.p3.8xlarge for training job usage", 4, 1),)
    made = plan(replace(FACTS, quotas=quotas), capture=sdk.capture, instance_type="ml.p3.8xlarge", nodes=2)
    golden("dry-run.txt", without_digest(made, as_text(made)) + "\n")


def test_a_program_reads_every_request_and_the_estimators_arguments() -> None:
    content = json.loads(as_json(planned("everything")))
    assert [step["call"] for step in content["steps"]] == [
        "s3:PutObject", "s3:PutObject", "sagemaker:CreateTrainingJob",
    ]  # fmt: skip
    (arguments,) = content["arguments"].values()
    assert arguments["distribution"] == {"torch_distributed": {"enabled": True}}
    assert arguments["subnets"] == ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]


def test_the_source_is_there_before_the_job_that_fetches_it() -> None:
    spec, source, create = plan(capture=sdk.capture).steps
    assert spec.params["Key"] == f"jobs/{NAME}/job.json"  # type: ignore[union-attr]
    submitted = create.params["HyperParameters"]["sagemaker_submit_directory"]  # type: ignore[union-attr]
    assert submitted == f'"s3://{BUCKET}/{source.params["Key"]}"'  # type: ignore[union-attr]


def test_nothing_in_the_requests_is_outside_of_the_jobs_folder() -> None:
    made = planned("ml.g5.2xlarge-x1")
    places = re.findall(r"s3://[^\"\\\s]+", json.dumps(made.steps[-1].params))  # type: ignore[union-attr]
    assert places
    assert all(place.startswith(f"s3://{BUCKET}/jobs/{NAME}/") for place in places)


# ---- which start it is


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        ((), NAME),
        ((NAME,), f"{NAME}--2"),
        ((f"{NAME}--2", NAME), f"{NAME}--3"),
        ((f"{NAME}--12", NAME), f"{NAME}--13"),
    ],
)
def test_a_name_is_taken_once_and_for_all(taken: tuple[str, ...], name: str) -> None:
    assert inner(plan(replace(FACTS, taken=taken))).estimator.name == name


def running(**changes: Any) -> Facts:
    """The start that lives is the same as plan() makes, but for these changes."""
    told = {"dataset": '"cifar10"', "batch-size": '"256"', "progress": '"false"', "sagemaker_region": '"us-east-1"'}
    one = run(
        **{"name": f"{NAME}--2", "instance_type": "ml.g5.2xlarge", "nodes": 1, "hyperparameters": told, **changes}
    )
    return replace(FACTS, taken=(one.name, NAME), running=one)


def test_a_job_that_runs_is_left_alone() -> None:
    made = plan(running())
    assert (made.steps, made.problems) == ((), ())
    assert inner(made).estimator.name == f"{NAME}--2"
    assert made.title.endswith(f"it is running, as {NAME}--2; nothing is started")


@pytest.mark.parametrize(
    "changes", [{"nodes": 2}, {"instance_type": "ml.g5.12xlarge"}, {"is_spot": True}, {"hyperparameters": {}}]
)
def test_a_job_that_runs_with_other_settings_speaks_against_the_launch(changes: dict[str, Any]) -> None:
    made = plan(running(**changes))
    assert [str(problem) for problem in made.problems] == [
        f"job {NAME} is running with other settings; choose another --job-name, or stop it first."
    ]


def test_a_job_started_again_says_so_and_uses_the_same_folder() -> None:
    made = plan(replace(FACTS, taken=(NAME,)))
    assert made.title.endswith(f"started again as {NAME}--2")
    assert inner(made).estimator.arguments["checkpoint_s3_uri"] == f"s3://{BUCKET}/jobs/{NAME}/run"


# ---- what is told


def told(made: Plan) -> str:
    return as_text(made)


def test_the_price_is_expected_and_at_most() -> None:
    text = told(plan(nodes=2, max_hours=10))
    assert "ml.g5.2xlarge  3.03 USD per hour on demand, all 2 with their disks" in text
    assert re.search(r"at most +30\.8\d USD: 10 h until the time limit, 10 min to end", text)
    epoch = r"[\d,.]+ s per epoch \([\d,.]+ to [\d,.]+\), [\d,]+ images/s, limited by"
    assert re.search(rf"expected +[\d.]+ USD in [\d.]+ (h|min): {epoch}", text)


def test_spot_and_warm_pools_are_in_the_price() -> None:
    assert "up to 90% less; SageMaker tells at the end what it was" in told(plan(spot=True))
    assert "the machines stay 600 s for a next job like this, and cost" in told(plan(warm_pool_s=600))


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"instance_type": "ml.p3.8xlarge"}, "p3.8xlarge is at its end: AWS asked everybody to leave it by"),
        ({"instance_type": "ml.p3.8xlarge"}, "Take g5.12xlarge (ml.g5.12xlarge on SageMaker), which has as many GPUs."),
        ({"instance_type": "ml.p3.8xlarge"}, "the price of ml.p3.8xlarge is from an old price list."),
        ({"instance_type": "ml.p3.8xlarge"}, "AWS patches 2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker no more since"),
        ({"checkpoints": False}, "without checkpoints a job that ends early has lost everything."),
        ({"encrypt_traffic": True, "nodes": 2}, "encrypted traffic between the nodes slows every all-reduce."),
        ({"nodes": 4}, "the quota 'ml.g5.2xlarge for training job usage' is 4: SageMaker will refuse the job."),
        ({"image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/ours:1"}, "the toolkit does not know this image"),
        ({"data": "s3://elsewhere/imagenet"}, "s3://elsewhere/imagenet/ is not in infra/iam/sagemaker.json"),
    ],
)
def test_what_may_go_wrong_is_a_warning(settings: dict[str, Any], warning: str) -> None:
    assert any(warning in sentence for sentence in plan(**settings).warnings)
    assert not any(warning in sentence for sentence in plan().warnings)


def test_a_plain_job_has_no_warnings() -> None:
    assert plan().warnings == ()


def test_a_bucket_that_the_role_may_not_use_is_a_warning() -> None:
    made = plan(replace(FACTS, bucket="my-own"))
    assert made.warnings == ("bucket my-own is not in infra/iam/sagemaker.json; make sure that the role may use it.",)


@pytest.mark.parametrize(("running", "words"), [(3, "3 running"), (None, "an unknown number running")])
def test_the_quota_is_shown_with_what_runs(running: int | None, words: str) -> None:
    made = plan(replace(FACTS, quotas=(Quota("q", 4, running),)))
    assert f"1 needed + {words} <= 4 (q)" in told(made)


def test_problems_of_the_lookup_and_a_missing_sdk_are_told_together() -> None:
    def missing(*_: object) -> dict[str, Any]:
        raise NotSetUp("sagemaker is not installed.")

    made = plan(replace(FACTS, problems=(AwsError("no role"),)), capture=missing)
    assert [str(problem) for problem in made.problems] == ["no role", "sagemaker is not installed."]
    assert [step.operation for step in made.steps] == ["PutObject", "PutObject"]  # type: ignore[union-attr]


def test_without_an_account_the_plan_says_what_it_does_not_know() -> None:
    text = told(plan(replace(FACTS, account=None, role=None, role_from="", bucket=None, quotas=())))
    assert "account     <unknown>, us-east-1" in text
    assert "s3://aws-ddp-toolkit-<account>-us-east-1/jobs/" in text
