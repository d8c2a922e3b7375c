"""The filled template of infra/cloudformation: which resources a stack of it has, and what they cost.  Pure."""

import ast
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from launch.aws.names import TOOLKIT, bucket_of
from launch.aws.regions import absent_types
from launch.core.plan import Fact
from launch.core.price import HOURS_PER_MONTH
from launch.core.templates import fill_yaml

STACK, QUEUE_STACK, NOTIFY_STACK = TOOLKIT, f"{TOOLKIT}-queue", f"{TOOLKIT}-notify"
TEMPLATE, QUEUE_TEMPLATE = "cloudformation/account.yaml", "cloudformation/queue.yaml"
NOTIFY_TEMPLATE = "cloudformation/notify.yaml"
POLICIES = ("builder", "data", "image-builder", "image-builder-trust", "launcher",
            "launcher-queue", "launcher-sagemaker", "node", "node-trust", "publisher", "reader",
            "sagemaker", "sagemaker-trust", "scheduler", "scheduler-trust", "sweeper")  # fmt: skip
QUEUE_POLICIES = ("controller-execution", "controller-trust", "launcher", "reader")
NOTIFY_POLICIES = ("notify", "notify-trust")

# Resources with data: kept when the stack is deleted, adopted if they exist.
KEPT = ("JobBucket", "Repository", "NodeLogs")
# Kept and deleted together with the bucket.
WITH_THEM = ("JobBucketPolicy",)

# Type -> rates by unit, and the same in words.  us-east-1, from AWS's price pages as of 2026-11-21.
RATES: Mapping[str, tuple[Mapping[str, float], str]] = {
    "AWS::S3::Bucket": ({"usd_per_gb_month": 0.023}, "0.023 USD per GB and month"),
    "AWS::ECR::Repository": ({"usd_per_gb_month": 0.10}, "0.10 USD per GB and month"),
    "AWS::Logs::LogGroup": (
        {"usd_per_gb_written": 0.50, "usd_per_gb_month": 0.03},
        "0.50 USD per GB written, 0.03 per GB and month",
    ),
    "AWS::Batch::JobQueue": (
        {"usd_per_month": 0},
        "free: AWS Batch costs nothing, and a job in the queue nothing until it starts",
    ),
    # https://aws.amazon.com/lambda/pricing: 8,760 runs a month of some seconds; a million runs are free.
    "AWS::Lambda::Function": ({"usd_per_month": 0}, "free: 8,760 short runs of a month's free million"),
    # https://aws.amazon.com/fargate/pricing: 0.04048 USD per vCPU and hour, 0.004445 per GB, 0.005 per public address.
    "AWS::Batch::ComputeEnvironment": (
        {"usd_per_hour": 0.02},
        "0.02 USD per hour of each job of launch.ec2 that is not in line any more, beside its machines",
    ),
    "AWS::CodeBuild::Project": (
        {"usd_per_minute": 0.005, "most_minutes": 60},
        "0.005 USD per minute of a build, at most 60 minutes",
    ),
}
# Systems Manager Automation: a sweep is one step, a script that takes some seconds.  Free runs ended for new customers
# on 2025-08-14 and for all others on 2025-12-31, as others quote AWS's page in 2026.
STEP_USD, SCRIPT_USD_PER_S, SWEEP_S = 0.002, 0.00003, 5
ENDPOINT_USD_PER_HOUR, ENDPOINT_USD_PER_GB = 0.01, 0.01  # in each subnet
INTERFACE = "Interface"


@dataclass(frozen=True)
class Resource:
    """A resource in the template.  name: its literal name, or ""."""

    id: str
    type: str
    name: str
    is_interface: bool

    @property
    def kind(self) -> str:
        """IAM Role, for AWS::IAM::Role."""
        return " ".join(self.type.split("::")[1:])


@cache
def filled(account: str, region: str) -> str:
    """The template for one region of an account."""
    values = {"BUCKET": bucket_of(account, region), "SWEEP": _program("sweep"), **_policies(POLICIES, account)}
    text = fill_yaml(TEMPLATE, values)
    for name in left_out(region):
        text = re.sub(rf"(?m)^  {name}:\n(?:    .*\n)*", "", text)  # the resource, and the output of its name
    return text


@cache
def filled_queue(account: str) -> str:
    """The template of the queues' stack."""
    return fill_yaml(QUEUE_TEMPLATE, _policies(QUEUE_POLICIES, account))


@cache
def filled_notify(account: str, region: str) -> str:
    """The template of the stack of --notify."""
    values = {"BUCKET": bucket_of(account, region), "SOURCE": _program("notify")}
    return fill_yaml(NOTIFY_TEMPLATE, {**values, **_policies(NOTIFY_POLICIES, account)})


def _program(name: str) -> str:
    return without_words(files("infra").joinpath(f"cloudformation/{name}.py").read_text())


def _policies(names: Iterable[str], account: str) -> dict[str, Any]:
    """The policies of infra/iam by the templates' names for them."""
    texts = {name: files("infra").joinpath(f"iam/{name}.json").read_text() for name in names}
    # Trust policies name the account, which the files cannot know.
    texts = {name: text.replace("@ACCOUNT@", account) for name, text in texts.items()}
    return {name.upper().replace("-", "_"): _without_sids(json.loads(text)) for name, text in texts.items()}


@cache
def left_out(region: str) -> Mapping[str, str]:
    """{logical id: type} of the resources whose type CloudFormation lacks in the region.

    They are cut out: CloudFormation may refuse an unknown type also where a condition excludes it.
    https://github.com/awslabs/aws-service-catalog-factory/issues/274
    """
    text = files("infra").joinpath(TEMPLATE).read_text()
    types = re.findall(r"(?m)^  (\w+):\n    Type: (AWS::\S+)$", text)
    return {name: kind for name, kind in types if kind in absent_types(region)}


def left_out_text(region: str) -> str:
    """What the region's stack goes without; "" for nothing."""
    rows = [f"{name}: CloudFormation has no {kind} in {region}" for name, kind in left_out(region).items()]
    return "; ".join(rows)


def _without_sids(policy: Any) -> Any:
    """Remove the statements' names of a policy, which have no effect in IAM, to save bytes as in without_words()."""
    rows = [{key: value for key, value in row.items() if key != "Sid"} for row in policy["Statement"]]
    return {**policy, "Statement": rows}


def without_words(source: str) -> str:
    """The same program without comments and docstrings: CloudFormation takes 51,200 bytes, and most are policies."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Module)) and ast.get_docstring(node):
            del node.body[0]
    return ast.unparse(tree) + "\n"


def keeping(text: str, adopted: Iterable[str]) -> str:
    """The template for a stack that adopts these resources: they stay if the stack is deleted or fails.

    RetainExceptOnCreate deletes, when an operation fails, what is in the stack since that operation; AWS does not say
    that this spares what was there before and is only imported by it.  The bucket's policy is imported with the bucket,
    and without it launchers could write into the data.
    https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-attribute-deletionpolicy.html
    """
    adopted = set(adopted)
    for name in (*adopted, *WITH_THEM) if "JobBucket" in adopted else adopted:
        text = re.sub(rf"(?m)(^  {name}:\n(?:    .*\n)*?    DeletionPolicy: )RetainExceptOnCreate$", r"\1Retain", text)
    return text


@cache
def read(text: str) -> Mapping[str, Any]:
    """The template as data, with CloudFormation's short forms, such as !Ref, written out.  Shared: do not change it."""
    content: Mapping[str, Any] = yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader
    return content


# The C parser, where available, takes a tenth of the time.
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Parser):  # type: ignore[misc]
    """Reads CloudFormation's tags."""


def _function(loader: Any, name: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if name == "GetAtt":
        value = value.split(".")
    return {name if name in ("Ref", "Condition") else f"Fn::{name}": value}


_Loader.add_multi_constructor("!", _function)


def resources(template: Mapping[str, Any], values: Mapping[str, str]) -> tuple[Resource, ...]:
    """Resources of a stack with these parameters; others have their defaults."""
    given = {name: str(values.get(name, slot["Default"])) for name, slot in template["Parameters"].items()}
    conditions, chosen = template["Conditions"], list[Resource]()
    for name, row in template["Resources"].items():
        if "Condition" in row and not _holds(conditions[row["Condition"]], given, conditions):
            continue
        is_interface = row["Properties"].get("VpcEndpointType") == INTERFACE
        chosen.append(Resource(name, row["Type"], _name(row), is_interface))
    return tuple(chosen)


def _holds(condition: Mapping[str, Any], values: Mapping[str, str], conditions: Mapping[str, Any]) -> bool:
    """Whether a condition is true; supports only the functions that the template uses."""
    ((function, rest),) = condition.items()
    if function == "Condition":
        return _holds(conditions[rest], values, conditions)
    if function == "Fn::And":
        return all(_holds(part, values, conditions) for part in rest)
    if function == "Fn::Not":
        return not _holds(rest[0], values, conditions)
    assert function == "Fn::Equals", function
    first, second = (_text(side, values) for side in rest)
    return first == second


def _text(value: Any, values: Mapping[str, str]) -> str:
    if isinstance(value, Mapping):
        ((function, rest),) = value.items()
        # The template joins only lists of texts, and only to see whether they are empty.
        return values[rest] if function == "Ref" else _text(rest[1], values)
    return str(value)


_NAMES = ("BucketName", "RepositoryName", "LogGroupName", "RoleName", "InstanceProfileName", "ManagedPolicyName",
          "Name")  # fmt: skip


def _name(row: Mapping[str, Any]) -> str:
    properties = row["Properties"]
    name = next((properties[key] for key in _NAMES if key in properties), "")
    return name if isinstance(name, str) else ""


def rates(kinds: Mapping[str, str], subnets: int, interfaces: int, sweep_minutes: float) -> tuple[Fact, ...]:
    """The stack's prices.  kinds: {name: type} of its resources; interfaces: endpoints in each subnet."""
    rows = [Fact(name, *RATES[kind], label=name) for name, kind in kinds.items() if kind in RATES]
    rows.append(_sweeps(sweep_minutes))
    if interfaces and subnets:
        month = interfaces * subnets * ENDPOINT_USD_PER_HOUR * HOURS_PER_MONTH
        value = {"usd_per_month": round(month, 2), "usd_per_gb": ENDPOINT_USD_PER_GB}
        count = f"{interfaces} in {subnets} subnet{'s' if subnets > 1 else ''}"
        rows.append(Fact("endpoints", value, f"{month:,.2f} USD per month for {count}, and 0.01 per GB"))
    return (*rows, Fact("everything_else", {"usd_per_month": 0}, "free"))


def _sweeps(minutes: float) -> Fact:
    runs = HOURS_PER_MONTH * 60 / minutes
    month = runs * (STEP_USD + SWEEP_S * SCRIPT_USD_PER_S)
    text = f"about {month:.2f} USD per month for {runs:,.0f} runs; --sweep-minutes changes how many"
    return Fact("Sweeper", {"usd_per_month": round(month, 2), "runs_per_month": round(runs)}, text)
