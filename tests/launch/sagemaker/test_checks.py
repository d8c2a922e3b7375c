"""What cannot work, or may cost too much, is refused in a sentence before any request to AWS."""

from pathlib import Path

import pytest

from launch.core.job import Job
from launch.core.source.find import find
from launch.core.training.script import Script
from launch.sagemaker import checks
from launch.sagemaker.checks import DATA_DISK_GB, DISK_GB, STOP_RETRY_S
from tests.launch.sagemaker import known
from tests.launch.sagemaker.known import resolve
from tests.launch.sagemaker.world import Stage
from trainer.errors import SettingsError
from trainer.sagemaker import folder_flags

SERVER = "arn:aws:sagemaker:us-east-1:111122223333:mlflow-app/team"
VPC = "--subnet subnet-1 --security-group sg-1"


def test_what_cannot_work_is_refused_before_any_call(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        # names
        ("--node 2", "unknown flag --node; did you mean --nodes?"),
        ("--job-name my_job", "--job-name my_job: "),
        ("--job-name j--2", "--job-name j--2: "),
        # trackers
        ("--mlflow v --mlflow-server http://x", "--mlflow-server http://x: must look like arn:aws:sagemaker:"),
        (f"--mlflow-server {SERVER}", "add --mlflow EXPERIMENT"),
        (f"--mlflow v --mlflow-server {SERVER} --environment MLFLOW_TRACKING_URI=http://x", "leave one of them out"),
        (f"--mlflow v --mlflow-server {SERVER} --mlflow-config --through estimator", "--through boto3"),
        ("--mlflow-config", "--mlflow-server"),
        ("--experiment my_own", "--experiment my_own: "),
        # sizes and prices
        ("--nodes 0", "--nodes 0: "),
        ("--nodes 65", "--max-nodes 64"),
        ("--instance-type ml.c5.2xlarge", "--allow-cpu"),
        ("--nodes 2 --max-usd 20", "can cost 36.87 USD, more than --max-usd 20"),
        ("--max-usd 20 --warm-pool-s 3600 --max-hours 13", "can cost 21.46 USD"),
        ("--max-hours 673", "--max-hours 673: "),
        ("--warm-pool-s 3601", "--warm-pool-s 3601: "),
        ("--volume-gb 451", "--volume-gb 451: "),
        # who starts the ranks
        ("--distribution smddp", "--distribution smddp"),
        ("--instance-type ml.p5.48xlarge", "--distribution torch_distributed"),
        # the container's folders
        ("--run-dir /tmp/x", "--run-dir and --checkpoint-dir are fixed"),
        ("--checkpoint-dir /tmp/x", "--run-dir and --checkpoint-dir are fixed"),
        ("--data-dir /tmp/x", "--data s3://BUCKET/"),
        ("--init-from runs/a/model.pt", "bring it as a channel"),
        # what a shell in the container would read
        ("--mlflow http://x/?a=1&b=2", "--mlflow 'http://x/?a=1&b=2': a shell in SageMaker's container"),
        # data
        ("--dataset imagefolder", "give --data s3://BUCKET/"),
        ("--dataset imagenet --data train=s3://bucket/a", "give --data s3://"),
        ("--dataset imagenet --data weights=s3://bucket/a", "give --data s3://"),
        ("--input-mode FastFile", "give --data"),
        (f"--input-mode FastFile --data efs://fs-0123456789abcdef0 {VPC}", "--input-mode FastFile"),
        # network
        ("--subnet subnet-1", "--subnet and --security-group go together"),
        ("--security-group sg-1", "--subnet and --security-group go together"),
        ("--data fsx://fs-0123456789abcdef0/fsx/a", "give its --subnet and a --security-group"),
        ("--data efs://fs-0123456789abcdef0", "give its --subnet"),
        # spot
        ("--spot --warm-pool-s 600", "--warm-pool-s"),
        ("--spot --no-checkpoints", "drop --no-checkpoints"),
        ("--max-wait-hours 20", "add --spot"),
        ("--spot --max-hours 10 --max-wait-hours 9.5", "--max-wait-hours 9.5"),
        # tags and environment
        ("--tags aws:x=1", "--tags aws:x: this name is reserved"),
        ("--tags AWS-DDP-Toolkit:job=x", "--tags AWS-DDP-Toolkit:job: this name is reserved"),
        ("--tags Name=x", "--tags Name: this name is reserved"),
        ("--tags team", "--tags: write it as KEY=VALUE,KEY=VALUE."),
        ("--environment 1A=x", "--environment: names have letters, digits and _"),
        ("--environment A=1,db_password=x", "--environment db_password looks like a secret"),
        # the training
        ("--instance-type ml.g5.12xlarge --nodes 2 --batch-ramp 0:256,2:252", "among 8 replicas"),
        # images
        ("--image public.ecr.aws/deep-learning-containers/pytorch:2.8.0", "images from ECR in your region"),
    ]
    for argv, sentence in cases:
        assert stage.type(*argv.split(), "--dry-run") == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert sentence in err
        assert stage.account.requests == []


@pytest.mark.parametrize("name", ["my project", "it's", "a\nb", "*", "~/a", "a\\b", "a`b`"])
def test_what_a_shell_would_split_or_change_is_refused(name: str) -> None:
    """sagemaker-training 5.1.0, process.py: create_subprocess_shell(" ".join(cmd)); 5.1.4 needs no shell."""
    with pytest.raises(SettingsError, match=r"--wandb .* a shell in SageMaker's container"):
        resolve(wandb=name)


def test_every_other_setting_is_one_word_for_a_shell() -> None:
    weights = {"init_from": "/opt/ml/input/data/weights/model.pt", "data": "weights=s3://bucket/w"}
    resolve(wandb="my-project_1", mlflow="https://host:5000/a%20b", batch_ramp={0: 512, 2: 2048}, **weights)
    resolve(schedule="multistep", milestones=[2, 3], lr=1e-5)


@pytest.mark.parametrize(
    ("settings", "processes"),
    [({"instance_type": "ml.g5.12xlarge"}, 8), ({"instance_type": "ml.c5.2xlarge", "allow_cpu": True}, 2)],
)
def test_a_node_has_a_process_for_each_gpu_or_one(settings: dict[str, object], processes: int) -> None:
    assert resolve(nodes=2, **settings).processes == processes


@pytest.mark.parametrize(
    ("settings", "disk_gb"),
    [
        ({}, 0),  # g5's own disks
        ({"volume_gb": 400}, 0),
        ({"instance_type": "ml.p3.8xlarge"}, DISK_GB),
        ({"instance_type": "ml.p3.8xlarge", "data": "s3://bucket/x"}, DATA_DISK_GB),
        ({"instance_type": "ml.p3.8xlarge", "data": "s3://bucket/x", "input_mode": "FastFile"}, DISK_GB),
        ({"instance_type": "ml.p3.8xlarge", "data": "s3://bucket/x", "volume_gb": 500}, 500),
    ],
)
def test_a_disk_is_requested_where_the_type_has_none(settings: dict[str, object], disk_gb: int) -> None:
    assert resolve(**settings).disk_gb == disk_gb


def test_the_highest_price_counts_every_node_its_disk_and_the_kept_machines() -> None:
    one = resolve(instance_type="ml.p3.8xlarge", max_hours=10)
    assert one.usd_per_hour == pytest.approx(14.688 + 30 * 0.14 / 730)
    ending_h = STOP_RETRY_S / 3600
    assert one.most_usd == pytest.approx((10 + ending_h) * one.usd_per_hour)
    two = resolve(instance_type="ml.p3.8xlarge", max_hours=10, nodes=2, warm_pool_s=1800)
    assert two.most_usd == pytest.approx(2 * (10.5 + ending_h) * one.usd_per_hour)


def test_a_price_just_at_the_limit_is_accepted() -> None:
    most = resolve(nodes=2).most_usd
    assert resolve(nodes=2, max_usd=most).most_usd == most
    with pytest.raises(SettingsError, match="more than --max-usd"):
        resolve(nodes=2, max_usd=most - 0.01)


def test_a_spot_job_may_take_twice_its_training_by_default() -> None:
    assert resolve(spot=True, max_hours=3).max_wait_s == 6 * 3600
    assert resolve(spot=True, max_hours=3, max_wait_hours=3).max_wait_s == 3 * 3600
    assert resolve().max_wait_s is None


@pytest.mark.parametrize("hours", [336.5, 672])
def test_the_longest_spot_job_is_within_sagemakers_limit(hours: float) -> None:
    waits_s = resolve(spot=True, max_hours=hours).max_wait_s
    assert waits_s is not None
    assert hours * 3600 <= waits_s <= 28 * 86_400


def test_weights_come_from_a_channel_and_the_data_set_from_elsewhere() -> None:
    place = "/opt/ml/input/data/weights/model.pt"
    resolved = resolve(dataset="cifar10", init_from=place, data="weights=s3://bucket/w")
    assert [channel.name for channel in resolved.channels] == ["weights"]
    assert "--data-dir" not in folder_flags({"SM_CHANNEL_WEIGHTS": "/opt/ml/input/data/weights"})


def test_shards_that_are_read_from_s3_need_no_channel() -> None:
    resolved = resolve(dataset="imagefolder", data_url="s3://bucket/data/pets")
    assert resolved.channels == ()


def test_own_tags_and_environment_are_kept_with_their_equals_signs() -> None:
    given = {"NCCL_DEBUG": "INFO", "MAX_TOKENS": "-x=1", "TOKENIZERS_PARALLELISM": "false"}
    resolved = resolve(tags="team=vision,cost=a=b", environment=",".join(f"{name}={given[name]}" for name in given))
    assert resolved.tags == {"team": "vision", "cost": "a=b"}
    assert resolved.environment == given


def test_a_scripts_arguments_are_within_sagemakers_limits() -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html, HyperParameters"""
    options = known.job().where
    with pytest.raises(SettingsError, match=r"arguments: 3,\d+ characters, and SageMaker takes 2,500 in a setting"):
        checks.resolve(Job(Script(("train.py", "x" * 3000)), options))
    assert checks.resolve(Job(Script(("train.py", "a b", "$(c)", "é")), options)).channels == ()


def test_the_scripts_own_channel_is_no_name_for_data(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("1")
    script = Script(("train.py",), source=find(Path("train.py"), None, None, tmp_path))
    options = known.job(data="script=s3://bucket/a").where

    with pytest.raises(SettingsError, match=r"--data script=...: the channel of that name brings the script"):
        checks.resolve(Job(script, options))


@pytest.mark.parametrize(
    ("names", "sentence"),
    [("loss,a b", "--metrics a b: give names as in"), (",".join(f"m{n}" for n in range(41)), "takes 40")],
)
def test_metrics_that_sagemaker_cannot_draw_are_refused(names: str, sentence: str) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_AlgorithmSpecification.html, MetricDefinitions"""
    with pytest.raises(SettingsError, match=sentence):
        resolve(metrics=names)


def test_a_folder_of_data_among_a_scripts_arguments_must_be_there() -> None:
    script = Script(("train.py", "{data_dir}"))
    with pytest.raises(SettingsError, match=r"names \{data_dir\}, and this job has no data"):
        checks.resolve(Job(script, known.job().where))
    assert checks.resolve(Job(script, known.job(data="s3://bucket/a").where)).channels
