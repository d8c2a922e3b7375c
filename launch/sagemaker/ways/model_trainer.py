"""Version 3 of SageMaker's Python SDK: its ModelTrainer.

It starts the ranks with drivers of its own, which it puts into S3 as a channel, and not with AWS's toolkit in the
image.  Here it runs against a session that sends nothing; what it would upload becomes requests of the plan.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from launch.core.aws import Aws
from launch.core.steps import Request, put_once
from launch.sagemaker.bundle import REQUIREMENTS
from launch.sagemaker.channels import FILE_SYSTEMS, Channel
from launch.sagemaker.description import Description
from launch.sagemaker.ways import OPERATION, Arguments, Way
from launch.sagemaker.ways.sdks import (
    CONFIGURATION,
    Answered,
    at_work,
    check_planned,
    environment,
    importing,
    nobodys_session,
)
from trainer.errors import SettingsError

# Into a venv of its own, and without our constraints: they are those of version 2.
INSTALL = "-r infra/locks/sagemaker-train.txt"

# mpirun's ranks on other hosts read where to meet; the SDK's MPI driver does not tell them.
MEETING = {"MASTER_ADDR": "algo-1", "MASTER_PORT": "7777"}

Params = Mapping[str, Any]


def arguments(description: Description) -> dict[str, Any]:
    """The arguments of sagemaker.train.ModelTrainer, but for those of its methods.  distributed: a class by name."""
    given: dict[str, Any] = {
        "training_image": description.image,
        "role": description.role,
        "base_job_name": description.name,
        "input_s3_key_prefix": f"{description.folder.prefix}model-trainer",
        "source_code": {
            "source_dir": description.source,
            "entry_script": description.script,
            **({"requirements": REQUIREMENTS} if description.has_requirements else {}),
        },
        "distributed": _distributed(description),
        "compute": _compute(description),
        "stopping_condition": _limits(description),
        "output_data_config": {"s3_output_path": description.output, **_key("kms_key_id", description.output_key)},
        "hyperparameters": dict(description.hyperparameters),
        "environment": _environment(description),
        "tags": [{"key": key, "value": value} for key, value in description.tags.items()],
    }
    if description.subnets or description.encrypt_traffic:
        given["networking"] = _networking(description)
    if description.checkpoints is not None:
        given["checkpoint_config"] = {"s3_uri": description.checkpoints, "local_path": description.checkpoints_path}
    return given


def _distributed(description: Description) -> dict[str, Any]:
    """The class of what starts the ranks, and what it is given."""
    if description.distribution != "pytorchddp":
        return {"Torchrun": {}}
    options = [word for name in MEETING for word in ("-x", name)]
    if description.nodes > 1:
        # The driver asks mpirun for the ranks of one host only; of two such numbers Open MPI takes the later.
        options += ["-np", str(description.processes)]
    return {"MPI": {"mpi_additional_options": options}}


def _environment(description: Description) -> dict[str, str]:
    meeting = MEETING if description.distribution == "pytorchddp" else {}
    return {**meeting, **description.environment}


def _compute(description: Description) -> dict[str, Any]:
    compute: dict[str, Any] = {**_types(description), "instance_count": description.nodes}
    if description.disk_gb:
        compute["volume_size_in_gb"] = description.disk_gb
    if description.keep_s:
        compute["keep_alive_period_in_seconds"] = description.keep_s
    if description.max_wait_s is not None:
        compute["enable_managed_spot_training"] = True
    return {**compute, **_key("volume_kms_key_id", description.disk_key)}


def _types(description: Description) -> dict[str, Any]:
    """Several types take a field of their own, which excludes that of a single one."""
    if len(description.instance_types) > 1:
        plan = description.training_plan
        first, *others = [{"instance_type": name} for name in description.instance_types]
        reserved = {} if plan is None else {"training_plan_arns": [plan]}
        return {"instance_preferences": [{**first, **reserved}, *others]}
    return {"instance_type": description.instance_type, **_key("training_plan_arn", description.training_plan)}


def _limits(description: Description) -> dict[str, int]:
    limits = {
        "max_runtime_in_seconds": description.max_run_s,
        "max_wait_time_in_seconds": description.max_wait_s,
        "max_pending_time_in_seconds": description.max_pending_s,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def _key(name: str, key: str | None) -> dict[str, str]:
    return {} if key is None else {name: key}


def _networking(description: Description) -> dict[str, Any]:
    networking = dict[str, Any]()
    if description.subnets:
        networking["subnets"] = list(description.subnets)
        networking["security_group_ids"] = list(description.security_groups)
    if description.encrypt_traffic:
        networking["enable_inter_container_traffic_encryption"] = True
    return networking


def capture(description: Description) -> tuple[Request, ...]:
    """The requests that the ModelTrainer makes, CreateTrainingJob last.  Nothing is sent; it takes no credentials.

    Raises NotSetUp without the SDK, SettingsError if it refuses the arguments.
    """
    _check(description)
    made = list[Request]()

    def create(params: Params) -> None:
        why = "start the job, through the SDK's ModelTrainer"
        made.append(Request("sagemaker", OPERATION, deepcopy(dict(params)), why))

    def upload(params: Params) -> None:
        why = "upload what starts the ranks, which the SDK brings"
        made.append(put_once(params["Bucket"], params["Key"], params["Body"].read(), why))

    _train(description, create, upload)
    *uploads, creation = made
    return (*sorted(uploads, key=lambda request: str(request.params["Key"])), creation)


def _check(description: Description) -> None:
    """Raises SettingsError for what SDK 3 cannot ask for."""
    if taken := {channel.name for channel in description.channels} & {"code", "sm_drivers"}:
        raise SettingsError(f"--data {min(taken)}=...: SageMaker's SDK 3 uses that name itself; choose another.")


def send(description: Description, planned: Params, aws: Aws) -> None:
    """Starts the training job.  The plan has uploaded the drivers.  Raises as ways.Way says."""

    def create(params: Params) -> None:
        check_planned(params, planned)
        aws.call("sagemaker", OPERATION, params)

    _train(description, create, lambda params: None)


@contextmanager
def _seeming(name: str) -> Iterator[None]:
    """Lets the SDK call the training job `name` inside the block: it takes the beginning of a name only."""
    from sagemaker.train import model_trainer

    module: Any = model_trainer
    before = module._get_unique_name
    module._get_unique_name = lambda *_: name
    try:
        yield
    finally:
        module._get_unique_name = before


@contextmanager
def _adding(description: Description) -> Iterator[None]:
    """Lets the ModelTrainer send fields that it has no argument for: what it calls, TrainingJob.create, takes them."""
    from sagemaker.core.shapes import ExperimentConfig, MlflowConfig, ProfilerConfig
    from sagemaker.train import ModelTrainer

    trainer: Any = ModelTrainer
    before = trainer._create_training_job_args
    profiler = {"s3_output_path": description.output} if description.profiler else {}
    fields = {"profiler_config": ProfilerConfig(disable_profiler=not description.profiler, **profiler)}
    if description.experiment is not None:
        fields["experiment_config"] = ExperimentConfig(
            experiment_name=description.experiment, trial_component_display_name=description.name
        )
    if description.mlflow:
        fields["mlflow_config"] = MlflowConfig(
            mlflow_resource_arn=description.mlflow["MlflowResourceArn"],
            mlflow_experiment_name=description.mlflow["MlflowExperimentName"],
            mlflow_run_name=description.mlflow["MlflowRunName"],
        )
    trainer._create_training_job_args = lambda self, *args, **named: {**before(self, *args, **named), **fields}
    try:
        yield
    finally:
        trainer._create_training_job_args = before


def _train(description: Description, create: Callable[[Params], None], upload: Callable[[Params], None]) -> None:
    """ModelTrainer(...).train(wait=False).  create, upload: called with what it would send."""
    # It would also ask IAM whether the role may train; the launcher has looked for itself.
    with environment(AWS_EC2_METADATA_DISABLED="true", SAGEMAKER_VALIDATE_ROLE="false"), ExitStack() as stack:
        with importing(INSTALL):
            from sagemaker.core.helper.session_helper import Session
            from sagemaker.train import ModelTrainer
        stack.enter_context(at_work())
        stack.enter_context(_seeming(description.name))
        stack.enter_context(_adding(description))
        asked, bucket = _nobodys_session(description, create, upload), description.folder.bucket
        session = Session(asked, default_bucket=bucket, sagemaker_config=CONFIGURATION)
        try:
            trainer = ModelTrainer(**_objects(arguments(description)), sagemaker_session=session)
            _complete(trainer, description)
            inputs = [_input(channel, description.input_mode) for channel in description.channels]
            # train() without its telemetry decorator, as in estimator.py.
            ModelTrainer.train.__wrapped__(trainer, input_data_config=inputs, wait=False, logs=False)
        except ValueError as error:  # pydantic's is one
            words = " ".join(str(error).split()).rstrip(".")
            raise SettingsError(f"SageMaker's SDK refuses the job: {words}.") from error


def _nobodys_session(
    description: Description, create: Callable[[Params], None], upload: Callable[[Params], None]
) -> Any:
    """A boto3 session that answers itself, so that nothing is sent."""
    session = nobodys_session(description.region)
    answers: Mapping[str, Params] = {
        "ListBuckets": {"Buckets": [{"Name": description.folder.bucket, "CreationDate": datetime.now(UTC)}]},
        OPERATION: {"TrainingJobArn": "-"},
        "DescribeTrainingJob": {"TrainingJobName": description.name},
    }

    def answer(model: Any, **_: Any) -> tuple[Any, Params]:
        return Answered(), answers.get(model.name, {})

    events = session.events
    events.register(f"provide-client-params.sagemaker.{OPERATION}", lambda params, **_: create(params))
    events.register("provide-client-params.s3.PutObject", lambda params, **_: upload(params))
    events.register("before-call", answer)
    return session


def _objects(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with objects of the SDK's classes where it takes no dictionary."""
    from sagemaker.train import distributed

    ((kind, options),) = given["distributed"].items()
    return {**deepcopy(dict(given)), "distributed": getattr(distributed, kind)(**options)}


def _complete(trainer: Any, description: Description) -> None:
    """Adds what the ModelTrainer takes by methods."""
    from sagemaker.train.configs import InfraCheckConfig, MetricDefinition, RemoteDebugConfig, RetryStrategy

    metrics = [MetricDefinition(name=name, regex=regex) for name, regex in description.metrics.items()]
    trainer.with_metric_definitions(metrics)
    if description.remote_debug:
        trainer.with_remote_debug_config(RemoteDebugConfig(enable_remote_debug=True))
    if description.infra_check:
        trainer.with_infra_check_config(InfraCheckConfig(enable_infra_check=True))
    if description.max_restarts:
        trainer.with_retry_strategy(RetryStrategy(maximum_retry_attempts=description.max_restarts))


def _input(channel: Channel, mode: str) -> Any:
    from sagemaker.train import configs

    if channel.kind == "s3":
        kind, distribution = "S3Prefix", "FullyReplicated"
        s3 = configs.S3DataSource(s3_data_type=kind, s3_uri=channel.place, s3_data_distribution_type=distribution)
        source = configs.DataSource(s3_data_source=s3)
        return configs.Channel(channel_name=channel.name, data_source=source, input_mode=mode)
    system = configs.FileSystemDataSource(
        file_system_id=channel.place,
        file_system_type=FILE_SYSTEMS[channel.kind],
        directory_path=channel.path,
        file_system_access_mode="ro",
    )
    return configs.Channel(channel_name=channel.name, data_source=configs.DataSource(file_system_data_source=system))


def _shown(description: Description) -> Arguments:
    heading = "the ModelTrainer, sagemaker.train.ModelTrainer, which makes the last requests:"
    return ((heading, arguments(description)),)


WAY = Way("model-trainer", capture, send, _shown)
