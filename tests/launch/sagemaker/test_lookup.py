"""The look-ups before a launch: role, bucket, quota, and what SageMaker has of the job already."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.core.errors import AwsError, NotSetUp
from launch.core.manifest import Content
from launch.core.plan import as_text
from launch.rehearse.aws.sagemaker.changes import complete
from launch.rehearse.aws.sagemaker.moto_patches import quota_code
from launch.sagemaker import checks, lookup
from launch.sagemaker.facts import Facts, Quota
from launch.sagemaker.lookup import look_up
from launch.sagemaker.training_jobs import describe
from tests.launch.data.desk import prepared
from tests.launch.faults import Faults, refused
from tests.launch.sagemaker.known import NAME, NOW, ROLE, job, plan, resolve
from tests.launch.sagemaker.world import Stage

QUOTA = "ml.g5.2xlarge for training job usage"


ACROSS = "Number of instances across all training jobs"


def of(name: str, limit: float, running: int | None, *more: Any, **options: Any) -> Quota:
    """The quota with its code in the embedded Service Quotas."""
    return Quota(name, limit, running, *more, **options, code=quota_code(name))


GENERAL = (
    of("Longest run time for a training job", 432_000, 0, 43_200, "seconds", "--max-hours", is_shared=False),
    of("Maximum number of instances per training job", 20, 0, is_shared=False),
    of(ACROSS, 20, 0),
)


def facts(stage: Stage, name: str = NAME, **settings: Any) -> Facts:
    return look_up(stage.aws, resolve(**settings), name, NOW)


def problems(found: Facts) -> list[str]:
    return [str(problem) for problem in found.problems]


# ---- the image


OURS = "123456789012.dkr.ecr.us-east-1.amazonaws.com/aws-ddp-toolkit"


def test_the_job_runs_the_image_that_the_tag_named_when_it_was_planned(stage: Stage) -> None:
    """registry/repository@digest: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_AlgorithmSpecification.html

    A tag can be moved, by AWS with each patch and by everybody who may push; spot jobs start again by themselves.
    """
    made = stage.plan()

    (create,) = [step for step in made.steps if step.operation == "CreateTrainingJob"]  # type: ignore[union-attr]
    image = create.params["AlgorithmSpecification"]["TrainingImage"]
    registry = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
    assert re.fullmatch(rf"{re.escape(registry)}/pytorch-training@sha256:[0-9a-f]{{64}}", image)
    shown = {fact.name: fact.text for fact in made.facts}["image"]
    assert ":2.10.0-gpu-py313" in str(shown)
    assert image.rpartition("@")[2][:19] in str(shown)


def test_so_does_one_of_your_own_unless_it_has_a_digest_or_lies_elsewhere(stage: Stage) -> None:
    digest = stage.account.make_image("aws-ddp-toolkit", "sagemaker")

    assert facts(stage, image=f"{OURS}:sagemaker").image == f"{OURS}@{digest}"
    for known in (f"{OURS}@{digest}", "docker.io/me/mine:1", OURS.replace("us-east-1", "eu-west-1")):
        assert facts(stage, image=known).image == known
    assert len(stage.account.asked("BatchGetImage")) == 1


def test_an_image_that_is_not_there_is_found_before_the_job(stage: Stage) -> None:
    missing = f"{OURS}:sagemaker"
    assert "launch.image push --target sagemaker" in problems(facts(stage, image=missing))[0]
    stage.account.make_image("aws-ddp-toolkit", "other")
    assert "launch.image push --target sagemaker" in problems(facts(stage, image=missing))[0]


def test_a_digest_that_cannot_be_looked_up_is_a_warning(stage: Stage, faults: Faults) -> None:
    faults.on("BatchGetImage", refused("AccessDeniedException"))

    found = facts(stage)

    assert (found.image, found.problems) == (None, ())
    assert "@sha256:" in found.unknown[0]


# ---- role and bucket


def test_an_account_that_is_set_up_has_nothing_against_a_launch(stage: Stage) -> None:
    found = facts(stage)
    assert (found.problems, found.unknown) == ((), ())
    assert (found.region, found.account) == ("us-east-1", "123456789012")
    assert found.quotas == (of(QUOTA, 20, 0), *GENERAL)


def test_the_role_is_the_one_given_before_all_others(stage: Stage) -> None:
    mine, arn = stage.account.make_role("mine"), "arn:aws:iam::999999999999:role/theirs"
    stage.account.make_stack()
    assert (facts(stage, role="mine").role, facts(stage, role="mine").role_from) == (mine, "--role")
    assert facts(stage, role=arn).role == arn


@pytest.mark.parametrize("is_arn", [True, False], ids=["by its ARN", "by its name"])
def test_then_the_stacks(stage: Stage, is_arn: bool) -> None:
    other = stage.account.make_role("other")
    stage.account.make_bucket("other-bucket")
    stage.account.make_stack(SageMakerRole=other if is_arn else "other", Bucket="other-bucket")
    found = facts(stage)
    assert (found.role, found.role_from, found.bucket) == (other, "stack aws-ddp-toolkit", "other-bucket")
    assert found.problems == ()


def caller(stage: Stage, monkeypatch: pytest.MonkeyPatch, arn: str) -> None:
    call = type(stage.aws).call

    def who(aws: Any, service: str, operation: str, *params: Any) -> Any:
        if operation == "GetCallerIdentity":
            return {"Account": stage.account.id, "Arn": arn}
        return call(aws, service, operation, *params)

    monkeypatch.setattr(type(stage.aws), "call", who)


def test_then_the_notebooks_own(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    own = stage.account.make_role("NotebookRole")
    caller(stage, monkeypatch, "arn:aws:sts::123456789012:assumed-role/NotebookRole/SageMaker")
    assert (facts(stage).role, facts(stage).role_from) == (own, "this notebook")
    stage.account.make_stack()
    assert facts(stage).role_from == "stack aws-ddp-toolkit"


def notebook(stage: Stage, monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    caller(stage, monkeypatch, f"arn:aws:sts::123456789012:assumed-role/{role}/SageMaker")


def test_a_notebook_without_the_stack_uses_the_bucket_of_sagemakers_sessions(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.account.make_role("NotebookRole")
    notebook(stage, monkeypatch, "NotebookRole")
    assert facts(stage).bucket == stage.account.bucket  # the toolkit's, where it is there
    sessions = "sagemaker-us-east-1-123456789012"
    delete_bucket(stage)
    assert f"aws s3 mb s3://{sessions}" in problems(facts(stage))[0]
    stage.account.make_bucket(sessions)
    made = stage.plan()
    assert made.problems == ()
    assert made.payload.folder.bucket == sessions
    assert sessions not in "".join(made.warnings)  # what the notebook's role may use, as a rule


def test_elsewhere_the_bucket_of_sagemakers_sessions_is_not_used(stage: Stage) -> None:
    stage.account.make_bucket("sagemaker-us-east-1-123456789012")
    delete_bucket(stage)
    assert facts(stage).bucket == stage.account.bucket


def delete_bucket(stage: Stage) -> None:
    stage.aws.call("s3", "DeleteBucket", {"Bucket": stage.account.bucket})


def test_a_notebooks_role_is_read_from_its_metadata_file(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage.account.make_role("NotebookRole")
    notebook(stage, monkeypatch, "NotebookRole")
    monkeypatch.setattr(lookup, "METADATA", tmp_path / "resource-metadata.json")
    lookup.METADATA.write_text('{"ExecutionRoleArn": "arn:aws:iam::123456789012:role/team/FromFile"}')
    assert facts(stage).role == "arn:aws:iam::123456789012:role/team/FromFile"
    assert stage.account.asked("GetRole") == []
    for nothing in ('{"ResourceName": "an older notebook"}', "{"):
        lookup.METADATA.write_text(nothing)
        assert facts(stage).role == "arn:aws:iam::123456789012:role/NotebookRole"


def test_a_notebook_that_may_not_read_its_role_has_one_by_its_name(
    stage: Stage, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = "AmazonSageMaker-ExecutionRole-20261121T140000"
    notebook(stage, monkeypatch, role)
    faults.on("GetRole", refused("AccessDenied", 403), nth=None)
    found = facts(stage)
    assert (found.role, found.role_from) == (f"arn:aws:iam::123456789012:role/service-role/{role}", "this notebook")
    assert found.problems == ()


def test_then_the_name_that_infra_gives_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for arn in ("arn:aws:sts::123456789012:assumed-role/Admin/jane", "arn:aws:iam::123456789012:user/SageMaker"):
        caller(stage, monkeypatch, arn)
        found = facts(stage)
        assert (found.role, found.role_from) == (ROLE, "its name")
        assert found.bucket == stage.account.bucket


def test_a_missing_role_and_bucket_are_both_reported_with_their_options(stage: Stage) -> None:
    role, bucket = problems(facts(stage, bucket="none-such", role="mien"))
    assert "mien" in role
    assert "--role" in role
    assert "none-such" in bucket
    assert "--bucket" in bucket
    stage.account.delete_role()
    (problem,) = facts(stage).problems
    assert problem.code == 4
    assert "python -m launch.infra up" in str(problem)


# ---- quota


def test_only_jobs_with_a_warm_pool_count_against_its_quota(stage: Stage) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools-resource-limits.html"""
    stage.account.quota["ml.g5.2xlarge for training warm pool usage"] = 1
    stage.started("without", nodes=2)
    assert facts(stage, warm_pool_s=60).quotas[1].running == 0
    stage.started("with", warm_pool_s=60)
    of_type, of_pools = facts(stage, warm_pool_s=60).quotas[:2]
    assert (of_type.running, of_pools.running) == (3, 1)
    stage.settings = {"warm_pool_s": 60}
    assert "'ml.g5.2xlarge for training warm pool usage' is 1" in stage.plan().warnings[0]


def test_what_runs_is_counted_against_the_quota_of_its_own_market_and_type(stage: Stage) -> None:
    stage.started("one", nodes=2)
    stage.started("two", spot=True, nodes=4)
    stage.started("three", instance_type="ml.g5.12xlarge")
    complete(stage.started("four"))
    on_demand, spot = facts(stage).quotas, facts(stage, spot=True).quotas
    assert (on_demand[0], on_demand[-1]) == (of(QUOTA, 20, 2), of(ACROSS, 20, 3))
    assert spot[0] == of("ml.g5.2xlarge for spot training job usage", 20, 4)
    assert spot[-1] == of("Number of instances across all spot training jobs", 20, 4)


@pytest.mark.parametrize(
    ("quota", "value", "settings", "option"),
    [
        ("Longest run time for a training job", 432_000, {"max_hours": 121}, "--max-hours"),
        (ACROSS, 4, {"nodes": 4}, ""),
    ],
)
def test_quotas_of_the_account_are_checked_as_sagemaker_applies_them(
    stage: Stage, quota: str, value: int, settings: dict[str, Any], option: str
) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/feature-store-feature-processor-quotas.html, under Training
    limits; a new account has 4 instances in all."""
    stage.started("other")
    stage.account.quota[quota] = value
    stage.account.quota[QUOTA] = 40
    stage.settings = settings
    (warning,) = [text for text in stage.plan().warnings if f"{quota!r} is {value:,}" in text]
    assert "SageMaker will refuse the job" in warning
    assert option in warning

    with pytest.raises(AwsError, match=re.escape(f"the account's quota {quota!r} is {value}")):
        stage.launch()


def test_an_account_without_such_quotas_is_planned_without(stage: Stage) -> None:
    for name in [quota.name for quota in GENERAL]:
        del stage.account.quota[name]
    assert facts(stage).quotas == (of(QUOTA, 20, 0),)


def test_listings_are_bounded_by_a_date(stage: Stage) -> None:
    """ListTrainingJobs filters after it has taken a page, so without a date it goes through all that there ever was:
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ListTrainingJobs.html"""
    stage.started()
    stage.type("status")
    stage.type("stop", NAME)
    stage.type("leaks")
    stage.plan()
    listed = stage.account.asked("ListTrainingJobs")
    assert len(listed) > 8
    assert all("CreationTimeAfter" in params for params in listed)


def test_with_very_many_jobs_the_sum_stays_unknown(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.sagemaker.lookup.MOST_DESCRIBED", 1)
    stage.started("one")
    stage.started("two")
    assert facts(stage).quotas == (of(QUOTA, 20, None), *GENERAL[:-1], of(ACROSS, 20, None))
    assert "1 needed + an unknown number running <= 20" in str(stage.plan())


def test_a_quota_that_aws_does_not_list_is_a_warning(stage: Stage) -> None:
    del stage.account.quota[QUOTA]
    found = facts(stage)
    assert found.problems == ()
    assert QUOTA in found.unknown[0]


# ---- what may not be looked up


@pytest.mark.parametrize("operation", ["DescribeStacks", "ListServiceQuotas"])
def test_what_a_launch_can_do_without_is_a_warning(stage: Stage, faults: Faults, operation: str) -> None:
    faults.on(operation, refused("AccessDenied", 403), nth=None)
    found = facts(stage)
    assert (found.problems, found.role) == ((), ROLE)
    (sentence,) = found.unknown
    assert operation in sentence


@pytest.mark.parametrize(
    ("operation", "code", "permission"),
    [
        ("GetRole", "AccessDenied", "iam:GetRole"),
        ("HeadBucket", "403", "bucket"),
        ("ListTrainingJobs", "AccessDeniedException", "sagemaker:ListTrainingJobs"),
    ],
)
def test_a_permission_that_a_launch_lacks_is_a_problem(
    stage: Stage, faults: Faults, operation: str, code: str, permission: str
) -> None:
    faults.on(operation, refused(code, 403), nth=None)
    found = facts(stage)
    assert any("these credentials may not" in sentence and permission in sentence for sentence in problems(found))


def test_one_who_may_not_look_up_roles_can_give_an_arn(stage: Stage, faults: Faults) -> None:
    faults.on("GetRole", refused("AccessDenied", 403), nth=None)
    assert facts(stage, role=ROLE).problems == ()


def test_without_credentials_nothing_is_looked_up_and_nothing_raised(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    found = look_up(stage.account.aws(), resolve(), NAME, NOW)
    (problem,) = found.problems
    assert isinstance(problem, NotSetUp)
    assert len(found.unknown) == 1
    assert (found.region, found.role, found.bucket) == ("us-east-1", None, None)


# ---- what there is of the job


def test_the_starts_of_a_job_are_found_newest_first_and_no_others(stage: Stage) -> None:
    for name in (NAME, f"{NAME}0", f"my-{NAME}"):
        complete(stage.started(name))
    complete(stage.started(NAME))
    stage.started(NAME)
    found = facts(stage)
    assert found.taken == (f"{NAME}--3", f"{NAME}--2", NAME)
    assert found.running is not None
    assert (found.running.name, found.running.status) == (f"{NAME}--3", "InProgress")


def test_what_earlier_starts_cost_is_known(stage: Stage) -> None:
    """A sweep that was killed does not know what its job cost in the meantime."""
    assert facts(stage).spent_usd is None
    complete(stage.started(), 3600)
    stage.started()

    assert facts(stage).spent_usd == describe(stage.aws, NAME).cost(stage.clock().utc()) > 0


# ---- the data


@pytest.mark.parametrize("streamed", [False, True])
def test_the_images_of_prepared_data_are_counted_and_forecast(streamed: bool, stage: Stage) -> None:
    bucket = stage.account.bucket
    stage.account.put_json("data/photos/manifest.json", prepared(90_000, 10_000, 3_000_000_000))
    place = f"s3://{bucket}/data/photos"
    where = {"data_url": place} if streamed else {"data": [place]}

    asked = job(dataset="imagefolder", **where)
    found = look_up(stage.aws, checks.resolve(asked), NAME, NOW, data_url=asked.train.data_url)
    assert found.content == Content(90_000, 10_000, 3_000_000_000, 3, 256)
    made = plan(replace(found, problems=()), dataset="imagefolder", **where)
    assert "90,000 images to train, 10,000 to evaluate, 3.0 GB" in as_text(made)
    (quote,) = made.quotes
    assert quote.forecast is not None
    assert 90_000 / quote.forecast.images_per_s == pytest.approx(quote.forecast.epoch_s, rel=0.2)


def test_data_that_may_not_be_read_here_are_not_forecast(stage: Stage, faults: Faults) -> None:
    faults.on("GetObject", refused("AccessDenied", 403), nth=None)

    found = facts(stage, dataset="imagefolder", data=["s3://somebodys/photos"])
    assert found.content is None
    assert not [words for words in found.unknown if "photos" in words]
