"""The plan of a SageMaker job: the requests, the price, and what speaks against it."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from launch.core.job import Job
from launch.core.plan import as_json, as_text, needs_in
from launch.core.price import CATALOGS, Prices
from launch.core.training.script import Script
from launch.sagemaker import checks, planner
from launch.sagemaker.checks import STOP_RETRY_S
from launch.sagemaker.facts import Facts, Quota
from launch.sagemaker.planner import SageMakerPlan
from tests.launch.sagemaker.known import BUCKET, FACTS, NAME, job, plan, training_job
from tests.launch.sagemaker.test_sdk import EVERYTHING, FILE_SYSTEMS

TYPES = ("ml.p3.8xlarge", "ml.p3.16xlarge", "ml.g5.2xlarge", "ml.g5.12xlarge", "ml.g5.48xlarge")
JOBS: dict[str, dict[str, Any]] = {
    **{f"{kind}-x{nodes}": {"instance_type": kind, "nodes": nodes} for kind in TYPES for nodes in (1, 2)},
    "everything": EVERYTHING,
    "warm-pool-fsx": FILE_SYSTEMS,
}


BASE = "ml.g5.2xlarge-x1"


@cache
def planned(name: str) -> SageMakerPlan:
    """With the SDK's own request."""
    return plan(replace(FACTS, quotas=()), through="estimator", **JOBS[name])


def request_of(name: str) -> dict[str, Any]:
    """The job's CreateTrainingJob, without the digest."""
    made = planned(name)
    text = without_digest(made, json.dumps(made.steps[-1].params))  # type: ignore[union-attr]
    assert "<digest>" in text
    request: dict[str, Any] = json.loads(text)
    return request


def flat(content: dict[str, Any], path: str = "") -> dict[str, Any]:
    """{dotted path: value}; lists are values."""
    paths = dict[str, Any]()
    for name, value in content.items():
        here = f"{path}{name}"
        paths |= flat(value, f"{here}.") if isinstance(value, dict) else {here: value}
    return paths


def differences(base: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What `other` has that `base` has not, by path; None for what it lacks."""
    before, after = flat(base), flat(other)
    paths = sorted({*before, *after})
    return {path: after.get(path) for path in paths if before.get(path) != after.get(path)}


def without_digest(made: SageMakerPlan, text: str) -> str:
    """`text` without what changes with every line of the trainer, and every option."""
    (digest,) = re.findall(r"/source/(\w{16})/", as_text(made))[:1]
    text = re.sub(r"\d+ files, [\d,]+ bytes", "<size>", text.replace(digest, "<digest>"))
    text = re.sub(r"\([\d,]+ characters", "(<size>", text)
    return re.sub(r"[\d,]+ bytes, SHA-256 \w{64}", "<size>, SHA-256 <digest>", text)


def test_the_request_of_a_job_is_as_it_was(golden: Callable[[str, str], None]) -> None:
    golden("request.json", json.dumps(request_of(BASE), indent=2, sort_keys=True) + "\n")


def test_the_requests_of_other_jobs_differ_in_what_was_asked_for(golden: Callable[[str, str], None]) -> None:
    table = {name: differences(request_of(BASE), request_of(name)) for name in JOBS if name != BASE}
    golden("differences.json", json.dumps(table, indent=2) + "\n")


def test_the_whole_dry_run_is_as_it_was(golden: Callable[[str, str], None]) -> None:
    quotas = (Quota("ml.p3.8xlarge for training job usage", 4, 1),)
    made = plan(replace(FACTS, quotas=quotas), through="estimator", instance_type="ml.p3.8xlarge", nodes=2)
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
    source, spec, create = plan(through="estimator").steps
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


def test_a_job_that_runs_is_left_alone() -> None:
    made = plan(running())
    assert (made.steps, made.problems) == ((), ())
    assert made.payload.description.name == f"{NAME}--2"
    assert made.title.endswith(f"already running as {NAME}--2; nothing to start")


@pytest.mark.parametrize("text", ["{", "NaN'", "[" * 100_000, '"x"'])
def test_settings_that_nobody_can_read_stop_no_plan(text: str) -> None:
    assert len(plan(running(hyperparameters={"epochs": text})).problems) == 1


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
    assert made.payload.description.checkpoints == f"s3://{BUCKET}/jobs/{NAME}/run"


# ---- text and facts


def test_the_price_is_expected_and_at_most() -> None:
    text = str(plan(nodes=2, max_hours=10))
    assert "ml.g5.2xlarge  3.03 USD per hour on demand, for all 2 nodes, disks included" in text
    assert re.search(r"at most +30\.8\d USD in 10\.2 h", text)
    epoch = r"[\d,.]+ s per epoch \([\d,.]+ to [\d,.]+\), [\d,]+ images/s, limited by"
    assert re.search(rf"expected +[\d.]+ USD in [\d.]+ (h|min): {epoch}", text)


def test_spot_and_warm_pools_are_in_the_price() -> None:
    assert "up to 90% less" in str(plan(spot=True))
    assert "600 s in the warm pool" in str(plan(warm_pool_s=600))


def test_a_quote_has_every_figure_as_a_number() -> None:
    (quote,) = plan(nodes=2, max_hours=10).quotes
    assert (quote.instance, quote.nodes, quote.market) == ("ml.g5.2xlarge", 2, "on demand")
    assert quote.usd_per_hour == pytest.approx(3.03)
    assert quote.most_s == 10 * 3600 + STOP_RETRY_S
    assert quote.most_usd == pytest.approx(3.03 * (10 + STOP_RETRY_S / 3600))
    assert 0 < (quote.expected_usd or 0) < 30


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


def test_a_warm_pool_is_in_the_maximum() -> None:
    (kept,), (plain,) = plan(warm_pool_s=600).quotes, plan().quotes
    assert kept.most_s is not None
    assert plain.most_s is not None
    assert kept.most_s - plain.most_s == 600


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
    ]  # fmt: skip
    assert facts["shared_quotas"] == [{**facts["quotas"][0], "held": 0}]
    assert facts["tags"]["aws-ddp-toolkit:job"] == NAME


def test_what_a_running_start_has_of_a_quota_is_told_to_whoever_runs_others_beside_it() -> None:
    across = Quota("Number of instances across all training jobs", 9, 3)
    own = training_job(name=NAME, instance_type="ml.g5.2xlarge", nodes=2)
    known = replace(FACTS, quotas=(*FACTS.quotas, across), running=own)

    held = {need.name: need.held for need in needs_in(json.loads(as_json(plan(known, nodes=2))))}
    spot = {need.name: need.held for need in needs_in(
        json.loads(as_json(plan(replace(known, running=replace(own, is_spot=True)), nodes=2)))
    )}  # fmt: skip

    assert held == {"ml.g5.2xlarge for training job usage": 2, across.name: 2}
    full = replace(known, quotas=(Quota("ml.g5.2xlarge for training job usage", 2, 2),))
    assert not [text for text in plan(full, nodes=2).warnings if "will refuse the job" in text]
    assert [text for text in plan(replace(full, running=None), nodes=2).warnings if "will refuse the job" in text]
    assert set(spot.values()) == {0}


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"instance_type": "ml.p3.8xlarge"}, "p3.8xlarge is being retired: AWS asks users to move off it by"),
        ({"instance_type": "ml.p3.8xlarge"}, "Take g5.12xlarge (ml.g5.12xlarge on SageMaker), which has as many GPUs."),
        ({"instance_type": "ml.p3.8xlarge"}, "the price of ml.p3.8xlarge is from an old price list."),
        (
            {"instance_type": "ml.p3.8xlarge"},
            "cu129-ubuntu22.04-sagemaker has had no security patches from AWS since",
        ),
        ({"checkpoints": False}, "without checkpoints a job that ends early has lost everything."),
        ({"encrypt_traffic": True, "nodes": 2}, "encrypted traffic between the nodes slows every all-reduce."),
        ({"nodes": 4}, "the quota 'ml.g5.2xlarge for training job usage' is 4: SageMaker will refuse the job."),
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

    assert any("nothing that the script writes to $DDP_RUN_DIR is kept but metrics.jsonl" in one for one in warnings)


def test_a_plain_job_has_no_warnings() -> None:
    assert plan().warnings == ()


def test_the_plan_says_where_the_numbers_go() -> None:
    server = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/team"
    text = str(plan(mlflow="vision", mlflow_server=server, experiment="augmentation"))
    assert re.search(rf"\n *MLflow +{server}\n", text)
    assert re.search(r"\n *experiment +augmentation, which must exist in SageMaker Experiments\n", text)


def test_hugging_faces_image_is_one_that_the_role_may_pull() -> None:
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-training:2.9-transformers5.3-gpu-py312"
    assert not any("may pull it" in sentence for sentence in plan(image=image).warnings)
    assert any("may pull it" in sentence for sentence in plan(image=image.replace("face-", "faces-")).warnings)


def test_a_bucket_that_the_role_may_not_use_is_a_warning() -> None:
    made = plan(replace(FACTS, bucket="my-own"))
    assert made.warnings == ("bucket my-own is not in infra/iam/sagemaker.json; make sure that the role may use it.",)


@pytest.mark.parametrize(("running", "words"), [(3, "3 running"), (None, "an unknown number running")])
def test_the_quota_is_shown_with_what_runs(running: int | None, words: str) -> None:
    made = plan(replace(FACTS, quotas=(Quota("q", 4, running),)))
    assert f"1 needed + {words} <= 4 (q)" in str(made)


def test_without_an_account_the_plan_says_what_it_does_not_know() -> None:
    text = str(plan(replace(FACTS, account=None, role=None, role_from="", bucket=None, quotas=())))
    assert "account     <unknown>, us-east-1" in text
    assert "s3://aws-ddp-toolkit-<account>-us-east-1/jobs/" in text


# ---- prices of other regions

WEST = Prices({"ml.g5.2xlarge": 3.0}, storage=1.5, source="those of us-west-1 in AWS's price list, read 2026-11-21")


def test_outside_us_east_1_the_regions_own_price_counts_and_says_so() -> None:
    """A10: us-east-1's was taken, and said to be."""
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
    assert "those of us-east-1 are no limit there" in str(plan(facts, max_usd=1000).problem)
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
def test_a_health_check_is_told_what_the_catalog_says_of_the_type(
    settings: dict[str, Any], environment: dict[str, str]
) -> None:
    assert plan(**settings).payload.description.environment == environment
