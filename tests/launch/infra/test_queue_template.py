"""infra/cloudformation/queue.yaml as it is sent: its names are those that launchers look for."""

import json
from typing import Any

import botocore.session
from botocore.validate import ParamValidator

from launch.aws.instances.facts import FAMILIES
from launch.aws.names import CONTROLLER, CONTROLLER_LOGS, FOR_EC2, queue_name, vcpus_name
from launch.infra.queue import parameter_of
from launch.infra.template import filled_queue, read
from tests.launch.infra.test_template import policy
from trainer.contract import Exit

TEXT = filled_queue("123456789012")
THINGS: dict[str, Any] = read(TEXT)["Resources"]


def properties(kind: str) -> list[dict[str, Any]]:
    return [row["Properties"] for row in THINGS.values() if row["Type"] == f"AWS::{kind}"]


def named(text: dict[str, str]) -> str:
    """A name in the template, for the queue demo."""
    return text["Fn::Sub"].replace("${QueueName}", "demo")


def test_aws_takes_the_template_for_its_length() -> None:
    assert len(TEXT.encode()) <= 51_200


def test_the_queues_have_the_names_that_launchers_look_for() -> None:
    queues = {named(row["JobQueueName"]): row["JobQueueType"] for row in properties("Batch::JobQueue")}
    assert queues == {queue_name("demo"): "SAGEMAKER_TRAINING", queue_name("demo", FOR_EC2): "ECS_FARGATE"}
    (logs,) = properties("Logs::LogGroup")
    assert logs["LogGroupName"] == CONTROLLER_LOGS
    limits = {named(row["ConsumableResourceName"]): row for row in properties("Batch::ConsumableResource")}
    assert {name: row["TotalQuantity"] for name, row in limits.items()} == {
        vcpus_name("demo", family.kind): {"Ref": parameter_of(family.kind)} for family in FAMILIES
    }
    assert {row["ResourceType"] for row in limits.values()} == {"REPLENISHABLE"}


def test_the_controller_is_a_small_job_on_fargate_that_ends_only_by_what_would_fail_again() -> None:
    (job,) = properties("Batch::JobDefinition")
    container = job["ContainerProperties"]

    assert (job["JobDefinitionName"], job["PlatformCapabilities"]) == (CONTROLLER, ["FARGATE"])
    assert container["ResourceRequirements"][0] == {"Type": "VCPU", "Value": "0.25"}
    assert container["NetworkConfiguration"] == {"AssignPublicIp": "ENABLED"}
    rules = job["RetryStrategy"]["EvaluateOnExit"]
    assert {rule["Action"] for rule in rules} == {"EXIT"}
    final = (Exit.SETTINGS, Exit.DATA, Exit.AWS, Exit.TRAINING, Exit.DISK)
    assert [rule["OnExitCode"] for rule in rules] == [str(int(code)) for code in final]


def camel(value: Any) -> Any:
    """The template's properties as the API calls them, with text for what CloudFormation fills in."""
    if isinstance(value, list):
        return [camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() <= {"Ref", "Fn::Sub", "Fn::GetAtt"}:
        return "x"
    return {key if key.startswith("awslogs") else key[0].lower() + key[1:]: camel(one) for key, one in value.items()}


def test_batch_knows_the_job_definition() -> None:
    """CloudFormation sends RegisterJobDefinition with these properties."""
    (job,) = properties("Batch::JobDefinition")
    shape = botocore.session.Session().get_service_model("batch").operation_model("RegisterJobDefinition").input_shape
    assert not ParamValidator().validate(camel(job), shape).has_errors()


def test_nothing_reaches_the_controllers_and_they_may_do_what_launchers_may() -> None:
    (group,) = properties("EC2::SecurityGroup")
    assert "SecurityGroupIngress" not in group
    assert [(rule["FromPort"], rule["ToPort"]) for rule in group["SecurityGroupEgress"]] == [(443, 443)]
    roles = {row["RoleName"]["Fn::Sub"]: row for row in properties("IAM::Role")}
    controller = roles[f"{CONTROLLER}-${{AWS::Region}}"]
    assert {one["PolicyName"]: one["PolicyDocument"] for one in controller["Policies"]} == {
        "launcher": policy("launcher"),
        "reader": policy("reader"),
    }
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html: all that is in one role
    assert sum(len("".join(json.dumps(one["PolicyDocument"]).split())) for one in controller["Policies"]) <= 10_240
    trusts = [row["AssumeRolePolicyDocument"]["Statement"] for row in roles.values()]
    assert {trust["Principal"]["Service"] for (trust,) in trusts} == {"ecs-tasks.amazonaws.com"}
