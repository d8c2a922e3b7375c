"""What is asked of AWS before a launch: role, bucket, quota, and what SageMaker has of the job already."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.core.errors import AwsError
from launch.core.manifest import Content
from launch.core.plan import as_text
from launch.rehearse.aws.sagemaker.changes import complete
from launch.sagemaker import checks, lookup
from launch.sagemaker.facts import Facts, Quota
from launch.sagemaker.lookup import look_up, quota_names
from launch.sagemaker.training_jobs import Listed, describe
from tests.launch.data.desk import prepared
from tests.launch.faults import Faults, injected, refused
from tests.launch.sagemaker.known import NAME, NOW, ROLE, job, plan, resolve
from tests.launch.sagemaker.test_stop import foreign
from tests.launch.sagemaker.world import Stage

QUOTA = "ml.g5.2xlarge for training job usage"


@pytest.fixture
def faults(stage: Stage) -> Iterator[Faults]:
    with injected(Faults()) as active:
        yield active


ACROSS = "Number of instances across all training jobs"
GENERAL = (
    Quota("Longest run time for a training job", 432_000, 0, 43_200, "seconds", "--max-hours", is_shared=False),
    Quota("Maximum number of instances per training job", 20, 0, is_shared=False),
    Quota(ACROSS, 20, 0),
)


def facts(stage: Stage, name: str = NAME, **settings: Any) -> Facts:
    return look_up(stage.aws, resolve(**settings), name, NOW)


def problems(found: Facts) -> list[str]:
    return [str(problem) for problem in found.problems]


# ---- the image


OURS = "123456789012.dkr.ecr.us-east-1.amazonaws.com/aws-ddp-toolkit"


def test_the_job_runs_the_image_that_the_tag_named_when_it_was_planned(stage: Stage) -> None:
    """registry/repository@digest: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_AlgorithmSpecification.html

    A tag can be moved, by AWS with each patch and by whoever may push; spot jobs start again by themselves.
    """
    made = stage.plan()

    (create,) = [step for step in made.steps if step.operation == "CreateTrainingJob"]  # type: ignore[union-attr]
    image = create.params["AlgorithmSpecification"]["TrainingImage"]
    registry = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
    assert re.fullmatch(rf"{re.escape(registry)}/pytorch-training@sha256:[0-9a-f]{{64}}", image)
    shown = {fact.name: fact.text for fact in made.facts}["image"]
    assert ":2.10.0-gpu-py313" in str(shown)
    assert image.rpartition("@")[2][:19] in str(shown)
    assert made.warnings == ()


def test_so_does_one_of_your_own(stage: Stage) -> None:
    digest = stage.account.make_image("aws-ddp-toolkit", "sagemaker")

    assert facts(stage, image=f"{OURS}:sagemaker").image == f"{OURS}@{digest}"
    assert facts(stage, image=f"{OURS}@{digest}").image == f"{OURS}@{digest}"
    assert len(stage.account.asked("BatchGetImage")) == 1  # what is a digest already needs no question


def test_an_image_that_is_not_there_is_found_before_the_job(stage: Stage) -> None:
    missing = f"{OURS}:sagemaker"
    assert "launch.image push" in problems(facts(stage, image=missing))[0]
    stage.account.make_image("aws-ddp-toolkit", "other")
    assert problems(facts(stage, image=missing)) == [
        "the registry of 123456789012 in us-east-1 has no image aws-ddp-toolkit:sagemaker; push it: python -m "
        "launch.image push --target sagemaker, or give another --image."
    ]


def test_where_the_digest_cannot_be_asked_for_the_plan_says_what_that_means(stage: Stage, faults: Faults) -> None:
    faults.on("BatchGetImage", refused("AccessDeniedException"))

    found = facts(stage)

    assert (found.image, found.problems) == (None, ())
    (said,) = found.unknown
    assert "the image is known by its tag only" in said
    assert "if the tag is moved, as AWS does with each patch, the job runs something else" in said
    assert "@sha256:" in said


@pytest.mark.parametrize("image", ["docker.io/me/mine:1", "123456789012.dkr.ecr.eu-west-1.amazonaws.com/mine:1"])
def test_other_registries_are_not_asked(image: str, stage: Stage) -> None:
    assert facts(stage, image=image).image == image
    assert stage.account.asked("BatchGetImage") == []


# ---- role and bucket


def test_an_account_that_is_set_up_has_nothing_against_a_launch(stage: Stage) -> None:
    found = facts(stage)
    assert (found.problems, found.unknown) == ((), ())
    assert (found.region, found.account) == ("us-east-1", "123456789012")
    assert found.quotas == (Quota(QUOTA, 20, 0), *GENERAL)


def test_nothing_is_written(stage: Stage) -> None:
    facts(stage)
    assert stage.account.operations
    assert not [
        name
        for name in stage.account.operations
        if not name.startswith(("Describe", "Get", "BatchGet", "List", "Head"))
    ]


def test_the_role_is_the_one_given_before_all_others(stage: Stage) -> None:
    mine, arn = stage.account.make_role("mine"), "arn:aws:iam::999999999999:role/theirs"
    stage.account.make_stack()
    assert (facts(stage, role="mine").role, facts(stage, role="mine").role_from) == (mine, "--role")
    assert facts(stage, role=arn).role == arn


def test_a_role_can_come_from_the_yaml_file(stage: Stage, tmp_path: Any) -> None:
    mine = stage.account.make_role("mine")
    (tmp_path / "job.yaml").write_text("role: mine\nbucket: none-such\n")
    assert stage.type("--config", str(tmp_path / "job.yaml"), "--dry-run") == 4
    assert stage.type("--config", str(tmp_path / "job.yaml"), "--bucket", stage.account.bucket, "--dry-run") == 0
    assert stage.account.asked("GetRole") == [{"RoleName": "mine"}, {"RoleName": "mine"}]
    assert mine.endswith(":role/mine")


def test_then_the_stacks(stage: Stage) -> None:
    other = stage.account.make_role("other")
    stage.account.make_bucket("other-bucket")
    stage.account.make_stack(SageMakerRole=other, Bucket="other-bucket")
    found = facts(stage)
    assert (found.role, found.role_from, found.bucket) == (other, "stack aws-ddp-toolkit", "other-bucket")
    assert found.problems == ()


def test_a_stack_may_name_the_role_by_its_name(stage: Stage) -> None:
    other = stage.account.make_role("other")
    stage.account.make_stack(SageMakerRole="other")
    assert facts(stage).role == other


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


def notebook(stage: Stage, monkeypatch: pytest.MonkeyPatch, role: str, partition: str = "aws") -> None:
    caller(stage, monkeypatch, f"arn:{partition}:sts::123456789012:assumed-role/{role}/SageMaker")


def test_a_notebook_without_the_stack_uses_the_bucket_of_sagemakers_sessions(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.account.make_role("NotebookRole")
    notebook(stage, monkeypatch, "NotebookRole")
    assert facts(stage).bucket == stage.account.bucket  # the toolkit's, where it is there
    sessions = "sagemaker-us-east-1-123456789012"
    delete_bucket(stage)
    assert problems(facts(stage)) == [
        f"there is no bucket {sessions}; create it (aws s3 mb s3://{sessions}), or choose another with --bucket."
    ]
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


def test_a_notebook_is_told_its_role_in_a_file(stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stage.account.make_role("NotebookRole")
    notebook(stage, monkeypatch, "NotebookRole")
    monkeypatch.setattr(lookup, "METADATA", tmp_path / "resource-metadata.json")
    lookup.METADATA.write_text('{"ExecutionRoleArn": "arn:aws:iam::123456789012:role/team/Told"}')
    assert facts(stage).role == "arn:aws:iam::123456789012:role/team/Told"
    assert stage.account.asked("GetRole") == []
    for nothing in ('{"ResourceName": "an older notebook"}', "{"):
        lookup.METADATA.write_text(nothing)
        assert facts(stage).role == "arn:aws:iam::123456789012:role/NotebookRole"


@pytest.mark.parametrize("partition", ["aws", "aws-cn"])
@pytest.mark.parametrize(
    ("role", "arn"),
    [
        (
            "AmazonSageMaker-ExecutionRole-20261121T140000",
            "arn:{}:iam::123456789012:role/service-role/AmazonSageMaker-ExecutionRole-20261121T140000",
        ),
        ("NotebookRole", "arn:{}:iam::123456789012:role/NotebookRole"),
    ],
)
def test_a_notebook_that_may_not_ask_for_its_role_has_one_by_its_name(
    stage: Stage, faults: Faults, monkeypatch: pytest.MonkeyPatch, partition: str, role: str, arn: str
) -> None:
    notebook(stage, monkeypatch, role, partition)
    faults.on("GetRole", refused("AccessDenied", 403), nth=None)
    found = facts(stage)
    assert (found.role, found.role_from) == (arn.format(partition), "this notebook")
    assert found.problems == ()


def test_then_the_name_that_infra_gives_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for arn in ("arn:aws:sts::123456789012:assumed-role/Admin/jane", "arn:aws:iam::123456789012:user/SageMaker"):
        caller(stage, monkeypatch, arn)
        found = facts(stage)
        assert (found.role, found.role_from) == (ROLE, "its name")
        assert found.bucket == stage.account.bucket


def test_a_role_that_is_missing_is_told_with_the_option(stage: Stage) -> None:
    assert problems(facts(stage, role="mien")) == [
        "the account has no role mien; create it with python -m launch.infra up, or choose another with --role."
    ]
    stage.account.delete_role()
    (sentence,) = problems(facts(stage))
    assert sentence.startswith(
        "the account has no role aws-ddp-toolkit-sagemaker; create it with python -m launch.infra up"
    )
    assert facts(stage).problems[0].code == 4


def test_a_bucket_that_is_missing_is_told_with_the_option(stage: Stage) -> None:
    assert problems(facts(stage, bucket="none-such")) == [
        "there is no bucket none-such; create it (aws s3 mb s3://none-such), or choose another with --bucket."
    ]


def test_every_problem_is_told_at_once(stage: Stage) -> None:
    assert len(problems(facts(stage, bucket="none-such", role="mien"))) == 2


# ---- quota


def test_a_quota_is_found_by_its_name(stage: Stage) -> None:
    stage.account.quota["ml.g5.2xlarge for spot training job usage"] = 7
    assert facts(stage, spot=True).quotas[0] == Quota("ml.g5.2xlarge for spot training job usage", 7, 0)


def test_a_warm_pool_has_a_quota_of_its_own(stage: Stage) -> None:
    stage.account.quota["ml.g5.2xlarge for training warm pool usage"] = 0
    assert quota_names(resolve(warm_pool_s=60)) == [QUOTA, "ml.g5.2xlarge for training warm pool usage"]
    stage.settings = {"warm_pool_s": 60}
    (warning,) = stage.plan().warnings
    assert warning.startswith("the quota 'ml.g5.2xlarge for training warm pool usage' is 0: SageMaker will refuse")


def test_only_jobs_with_a_warm_pool_count_against_that_quota(stage: Stage) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools-resource-limits.html"""
    stage.account.quota["ml.g5.2xlarge for training warm pool usage"] = 2
    stage.started("without", nodes=2)
    assert facts(stage, warm_pool_s=60).quotas[1].running == 0
    stage.started("with", warm_pool_s=60)
    of_type, of_pools = facts(stage, warm_pool_s=60).quotas[:2]
    assert (of_type.running, of_pools.running) == (3, 1)


def test_what_runs_is_counted_against_the_quota_of_its_own_market_and_type(stage: Stage) -> None:
    stage.started("one", nodes=2)
    stage.started("two", spot=True, nodes=4)
    stage.started("three", instance_type="ml.g5.12xlarge")
    complete(stage.started("four"))
    on_demand, spot = facts(stage).quotas, facts(stage, spot=True).quotas
    assert (on_demand[0], on_demand[-1]) == (Quota(QUOTA, 20, 2), Quota(ACROSS, 20, 3))
    assert spot[0] == Quota("ml.g5.2xlarge for spot training job usage", 20, 4)
    assert spot[-1] == Quota("Number of instances across all spot training jobs", 20, 4)


@pytest.mark.parametrize(
    ("quota", "value", "settings", "sentence"),
    [
        ("Longest run time for a training job", 432_000, {"max_hours": 121}, "432,000 seconds: SageMaker will refuse "
         "the job.  Ask for more under Service Quotas, Amazon SageMaker, or lower --max-hours."),
        ("Maximum number of instances per training job", 20, {"nodes": 21}, "20: SageMaker will refuse the job"),
        (ACROSS, 4, {"nodes": 4}, "4: SageMaker will refuse the job"),
        ("Maximum number of instances per spot training job", 2, {"nodes": 3, "spot": True}, "2: SageMaker will"),
    ],
)  # fmt: skip
def test_quotas_of_the_account_are_read_and_told_as_sagemaker_applies_them(
    stage: Stage, quota: str, value: int, settings: dict[str, Any], sentence: str
) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/feature-store-feature-processor-quotas.html, under Training
    limits; a new account has 4 instances in all."""
    stage.started("other")
    stage.account.quota[quota] = value
    stage.account.quota[QUOTA] = 40
    stage.settings = settings
    assert f"the quota {quota!r} is {sentence}" in str(stage.plan())

    with pytest.raises(AwsError, match=re.escape(f"the account's quota {quota!r} is {value}")):
        stage.launch()


def test_an_account_without_such_quotas_is_planned_without(stage: Stage) -> None:
    for name in [quota.name for quota in GENERAL]:
        del stage.account.quota[name]
    assert facts(stage).quotas == (Quota(QUOTA, 20, 0),)


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
    assert facts(stage).quotas == (Quota(QUOTA, 20, None), *GENERAL[:-1], Quota(ACROSS, 20, None))
    assert "1 needed + an unknown number running <= 20" in str(stage.plan())


def test_a_quota_that_aws_does_not_list_is_a_warning(stage: Stage) -> None:
    del stage.account.quota[QUOTA]
    found = facts(stage)
    assert found.problems == ()
    assert found.unknown == (
        f"the quotas could not be looked up: Service Quotas has no value for {QUOTA!r} in this account.",
    )


# ---- what may not be looked up


@pytest.mark.parametrize(
    ("operation", "permission", "what"),
    [
        ("DescribeStacks", "cloudformation:DescribeStacks", "the outputs of the CloudFormation stack"),
        ("ListServiceQuotas", "service-quotas:ListServiceQuotas", "the quotas"),
    ],
)
def test_what_a_launch_can_do_without_is_a_warning(
    stage: Stage, faults: Faults, operation: str, permission: str, what: str
) -> None:
    faults.on(operation, refused("AccessDenied", 403), nth=None)
    found = facts(stage)
    assert found.problems == ()
    (sentence,) = found.unknown
    assert sentence.startswith(f"{what} could not be looked up: these credentials may not ")
    assert operation in sentence
    assert found.role == ROLE
    assert permission.endswith(operation)


@pytest.mark.parametrize(
    ("operation", "code", "permission"),
    [
        ("GetRole", "AccessDenied", "iam:GetRole"),
        ("HeadBucket", "403", "bucket"),
        ("ListTrainingJobs", "AccessDeniedException", "sagemaker:ListTrainingJobs"),
    ],
)
def test_what_a_launch_needs_and_may_not_see_speaks_against_it(
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
    assert problems(found) == ["no AWS credentials; run aws configure or aws sso login, or set AWS_PROFILE."]
    assert found.unknown == ("nothing was looked up: account, role, bucket, quota",)
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


def test_a_job_of_another_backend_is_not_taken_over(stage: Stage) -> None:
    stage.account.put_json(f"jobs/{NAME}/job.json", {"job": NAME, "backend": "ec2"})
    (sentence,) = problems(facts(stage))
    assert sentence.startswith(f"{NAME} is a job of launch.ec2; see python -m launch.ec2 status {NAME}, or choose")


def test_somebody_elses_job_only_takes_the_name(stage: Stage) -> None:
    foreign(stage, NAME)
    found = facts(stage)
    assert (found.taken, found.running, found.problems) == ((NAME,), None, ())


def test_a_job_that_has_ended_since_it_was_listed_does_not_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    complete(stage.started())
    monkeypatch.setattr(lookup, "starts_of", lambda *_: (Listed(NAME, "InProgress"),))
    found = facts(stage)
    assert (found.taken, found.running) == ((NAME,), None)


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
