"""The plan of a SageMaker job: the requests, the price, and what speaks against it."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from launch.core.job import Job
from launch.core.plan import as_json, as_text, needs_in
from launch.core.price import CATALOGS, Prices
from launch.core.training.script import Script
from launch.sagemaker import checks, planner
from launch.sagemaker.facts import Facts, Quota
from launch.sagemaker.planner import SageMakerPlan
from tests.launch.sagemaker.known import FACTS, NAME, job, plan, training_job
from tests.launch.sagemaker.test_sdk import EVERYTHING, FILE_SYSTEMS
from trainer.errors import SettingsError

EARLIER = replace(FACTS, now=FACTS.now - timedelta(days=60))  # AWS patches the newest image for long


def without_digest(made: SageMakerPlan, text: str) -> str:
    """`text` without what changes with every line of the trainer, and every option."""
    (digest,) = re.findall(r"/source/(\w{16})/", as_text(made))[:1]
    text = re.sub(r"\d+ files, [\d,]+ bytes", "<size>", text.replace(digest, "<digest>"))
    text = re.sub(r"\([\d,]+ characters", "(<size>", text)
    return re.sub(r"[\d,]+ bytes, SHA-256 \w{64}", "<size>, SHA-256 <digest>", text)


@pytest.mark.parametrize("settings", [EVERYTHING, FILE_SYSTEMS], ids=["request", "file-systems"])
def test_the_request_of_a_job_is_as_it_was(
    settings: dict[str, Any], request: pytest.FixtureRequest, golden: Callable[[str, str], None]
) -> None:
    made = plan(replace(FACTS, quotas=()), **settings)
    asked = deepcopy(made.steps[-1].params)  # type: ignore[union-attr]
    del asked["AlgorithmSpecification"]["MetricDefinitions"]  # test_description.py has them
    text = json.dumps(asked, indent=1, sort_keys=True) + "\n"
    golden(f"{request.node.callspec.id}.json", without_digest(made, text))


def test_the_whole_dry_run_is_as_it_was(golden: Callable[[str, str], None]) -> None:
    quotas = (Quota("ml.p3.8xlarge for training job usage", 4, 1),)
    made = plan(replace(FACTS, quotas=quotas), through="estimator", instance_type="ml.p3.8xlarge", nodes=2)
    golden("dry-run.txt", without_digest(made, as_text(made)) + "\n")


def test_a_program_reads_every_request_and_the_estimators_arguments() -> None:
    content = json.loads(as_json(plan(through="estimator", **EVERYTHING)))
    assert [step["call"] for step in content["steps"]] == [
        "s3:PutObject", "s3:PutObject", "sagemaker:CreateTrainingJob",
    ]  # fmt: skip
    (arguments,) = content["arguments"].values()
    assert arguments["distribution"] == {"torch_distributed": {"enabled": True}}
    assert arguments["subnets"] == ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]


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
    assert plan(replace(FACTS, taken=taken)).payload.description.name == name


def running(**changes: Any) -> Facts:
    """The start that lives is the same as plan() makes, but for these changes."""
    hyperparameters = {
        "dataset": '"cifar10"',
        "batch-size": '"256"',
        "device": '"cuda"',
        "progress": '"false"',
        "sagemaker_region": '"us-east-1"',
    }
    one = training_job(
        **{
            "name": f"{NAME}--2",
            "instance_type": "ml.g5.2xlarge",
            "nodes": 1,
            "hyperparameters": hyperparameters,
            **changes,
        }
    )
    return replace(FACTS, taken=(one.name, NAME), running=one)


@pytest.mark.parametrize(
    ("settings", "device"),
    [
        ({}, "cuda"),
        ({"device": "cuda"}, "cuda"),
        ({"device": "cpu"}, "cpu"),
        ({"instance_type": "ml.c5.2xlarge", "allow_cpu": True}, None),
    ],
    ids=str,
)
def test_a_job_for_gpus_never_falls_back_to_the_cpu(settings: dict[str, Any], device: str | None) -> None:
    assert plan(**settings).payload.description.hyperparameters.get("device") == device


@pytest.mark.parametrize(
    "changes",
    [{"nodes": 2}, {"hyperparameters": {}}],
    ids=str,
)
def test_a_running_job_with_other_settings_is_a_problem(changes: dict[str, Any]) -> None:
    (problem,) = plan(running(**changes)).problems
    assert isinstance(problem, SettingsError)
    assert "--job-name" in str(problem)


# ---- text and facts


def test_spot_has_no_price_per_hour_and_at_most_that_on_demand() -> None:
    (spot,), (on_demand,) = plan(spot=True).quotes, plan().quotes
    assert (spot.market, spot.usd_per_hour) == ("spot", None)
    assert spot.on_demand_usd_per_hour == on_demand.usd_per_hour
    assert (spot.expected_usd, spot.most_usd) == (on_demand.expected_usd, on_demand.most_usd)


def test_a_plan_says_that_data_are_copied_before_the_time_that_it_expects() -> None:
    copied, streamed, own = (
        plan(**where).quotes[0].notes
        for where in (
            {"dataset": "imagenet", "data": "s3://bucket/imagenet"},
            {"dataset": "imagenet", "data": "s3://bucket/imagenet", "input_mode": "FastFile"},
            {},
        )
    )
    assert "billed and not in the expected time" in copied[-1]
    assert streamed == own


def test_a_program_reads_facts_as_values() -> None:
    of_each_job = Quota("Maximum number of instances per training job", 20, 0, is_shared=False)
    known = replace(FACTS, quotas=(*FACTS.quotas, of_each_job))
    settings = {"instance_type": "ml.g5.12xlarge", "nodes": 2, "spot": True, "max_hours": 3}
    facts = json.loads(as_json(plan(known, **settings)))["facts"]
    assert (facts["account"], facts["region"], facts["processes"]) == ("123456789012", "us-east-1", 8)
    assert (facts["time_limit_h"], facts["wait_limit_h"]) == (3.0, 6.0)
    assert facts["quotas"] == [
        {"name": "ml.g5.2xlarge for training job usage", "needed": 2, "running": 1, "limit": 4},
        {"name": "Maximum number of instances per training job", "needed": 2, "running": 0, "limit": 20},
    ]
    assert facts["shared_quotas"] == [{**facts["quotas"][0], "held": 0}]
    assert facts["tags"]["aws-ddp-toolkit:job"] == NAME


def test_a_plan_has_what_its_running_job_uses_of_a_quota() -> None:
    across = Quota("Number of instances across all training jobs", 9, 3)
    own = training_job(name=NAME, instance_type="ml.g5.2xlarge", nodes=2)
    known = replace(FACTS, quotas=(*FACTS.quotas, across), running=own)

    def held(facts: Facts) -> dict[str, int]:
        return {need.name: need.held for need in needs_in(json.loads(as_json(plan(facts, nodes=2))))}

    assert held(known) == {"ml.g5.2xlarge for training job usage": 2, across.name: 2}
    assert set(held(replace(known, running=replace(own, is_spot=True))).values()) == {0}
    full = replace(known, quotas=(Quota("ml.g5.2xlarge for training job usage", 2, 2, 2, code="L-1"),))
    assert not [text for text in plan(full, nodes=2).warnings if "will refuse the job" in text]
    (text,) = [text for text in plan(replace(full, running=None), nodes=2).warnings if "will refuse the job" in text]
    assert text.splitlines()[-1].split() == [
        "aws", "service-quotas", "request-service-quota-increase", "--service-code", "sagemaker",
        "--quota-code", "L-1", "--desired-value", "4", "--region", "us-east-1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"instance_type": "ml.p3.8xlarge"}, "Take g5.12xlarge (ml.g5.12xlarge on SageMaker)"),
        ({"instance_type": "ml.p3.8xlarge"}, "old price list"),
        ({"instance_type": "ml.p3.8xlarge"}, "no security patches"),
        ({"checkpoints": False}, "without checkpoints"),
        ({"encrypt_traffic": True, "nodes": 2}, "encrypted traffic"),
        ({"nodes": 4}, "'ml.g5.2xlarge for training job usage' is 4"),
        ({"image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/ours:1"}, "this image is unknown"),
        ({"data": "s3://elsewhere/imagenet"}, "s3://elsewhere/imagenet/ is not in infra/iam/sagemaker.json"),
    ],
)
def test_what_may_go_wrong_is_a_warning(settings: dict[str, Any], warning: str) -> None:
    assert any(warning in sentence for sentence in plan(**settings).warnings)
    assert not any(warning in sentence for sentence in plan().warnings)


def test_what_of_a_script_is_lost_without_checkpoints_is_a_warning() -> None:
    asked = Job(Script(("t.py",), digest=64 * "a"), job(checkpoints=False).where)

    warnings = planner.plan(asked, checks.resolve(asked), NAME, FACTS, "boto3").warnings

    assert any("$DDP_RUN_DIR" in one for one in warnings)


def test_a_plain_job_has_no_warnings() -> None:
    assert plan(EARLIER).warnings == ()


def test_hugging_faces_image_is_one_that_the_role_may_pull() -> None:
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-training:2.9-transformers5.3-gpu-py312"
    assert not any("may pull it" in sentence for sentence in plan(image=image).warnings)
    assert any("may pull it" in sentence for sentence in plan(image=image.replace("face-", "faces-")).warnings)


def test_a_bucket_that_the_role_may_not_use_is_a_warning() -> None:
    assert "my-own" in plan(replace(EARLIER, bucket="my-own")).warnings[0]


# ---- prices of other regions

WEST = Prices({"ml.g5.2xlarge": 3.0}, storage=1.5, source="those of us-west-1 in AWS's price list, read 2026-11-21")


def test_outside_us_east_1_the_regions_own_price_counts_and_says_so() -> None:
    here = plan(instance_type="ml.g5.2xlarge", max_hours=1)
    there = plan(replace(FACTS, region="us-west-1", prices=WEST), instance_type="ml.g5.2xlarge", max_hours=1)
    assert here.not_counted.endswith("; prices are those of us-east-1")
    assert there.not_counted.endswith("; prices are those of us-west-1 in AWS's price list, read 2026-11-21")
    assert there.quotes[0].usd_per_hour == pytest.approx(3.0, abs=0.1)
    assert there.payload.description.tags["aws-ddp-toolkit:usd-per-hour"] == "3"
    assert "aws-ddp-toolkit:usd-per-hour" not in here.payload.description.tags


def test_a_limit_in_usd_is_one_in_the_region_of_the_job() -> None:
    facts = replace(FACTS, region="us-west-1", prices=WEST)
    wanted = {"instance_type": "ml.g5.2xlarge", "max_hours": 1, "max_usd": 2.5}
    assert plan(**wanted).problem is None
    assert "can cost" in str(plan(facts, **wanted).problem)


def test_without_the_regions_prices_there_is_no_limit_in_usd() -> None:
    facts = replace(FACTS, region="us-west-1", prices=replace(CATALOGS, are_known=False))
    assert "the price in us-west-1 is not known" in str(plan(facts, max_usd=1000).problem)
    assert plan(facts).problem is None


def test_a_jobs_cost_counts_with_the_price_in_its_tag() -> None:
    tags = {"aws-ddp-toolkit:job": NAME, "aws-ddp-toolkit:usd-per-hour": "10"}
    assert training_job(tags=tags).usd_per_hour == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ({"instance_type": "ml.g5.12xlarge"}, {}),
        ({"instance_type": "ml.g5.12xlarge", "health_check": True}, {"DDP_NODE_GPUS": "4", "DDP_NODE_GBPS": "40"}),
        (
            {"instance_type": "ml.g5.12xlarge", "health_check": True, "environment": ("DDP_NODE_GBPS=5",)},
            {"DDP_NODE_GPUS": "4", "DDP_NODE_GBPS": "5"},
        ),
    ],
)
def test_a_health_check_gets_the_catalogs_figures_of_the_type(
    settings: dict[str, Any], environment: dict[str, str]
) -> None:
    assert plan(**settings).payload.description.environment == environment
