"""The template in infra/cloudformation, filled: what a stack of it holds, and what that costs.  Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from launch.core.names import TOOLKIT, bucket_of
from launch.core.templates import fill_yaml

STACK = TOOLKIT
STACK_TAG = f"{TOOLKIT}:stack"  # on what a stack makes: its region
TEMPLATE = "cloudformation/account.yaml"
POLICIES = ("builder", "image-builder", "image-builder-trust", "launcher", "node", "node-trust", "sagemaker",
            "sagemaker-trust", "scheduler", "scheduler-trust", "sweeper")  # fmt: skip

# What stays when the stack goes, because it holds data, and is adopted if it is there already.
KEPT = ("JobBucket", "Repository", "NodeLogs")
# And what stays with the bucket and goes with it.
WITH_THEM = ("JobBucketPolicy",)

# Words for the plan.  USD of us-east-1, from AWS's price pages as remembered on 2026-11-21.
COSTS = {
    "AWS::S3::Bucket": "0.023 USD per GB and month",
    "AWS::ECR::Repository": "0.10 USD per GB and month",
    "AWS::Logs::LogGroup": "0.50 USD per GB that nodes say, 0.03 per GB and month",
    "AWS::CodeBuild::Project": "0.005 USD per minute of a build, which ends after 60 at most",
}
# Systems Manager Automation: a sweep is one step, of a script that takes some seconds.  Its free runs ended for new
# customers on 2025-08-14 and for all others on 2025-12-31, as others quote AWS's page in 2026.
STEP_USD, SCRIPT_USD_PER_S, SWEEP_S = 0.002, 0.00003, 5
HOURS_PER_MONTH = 730
ENDPOINT_USD_PER_HOUR = 0.01  # in each subnet
INTERFACE = "Interface"


@dataclass(frozen=True)
class Resource:
    """One thing that the template makes.  name: its literal name, or nothing."""

    id: str
    type: str
    name: str
    is_interface: bool

    @property
    def kind(self) -> str:
        """IAM Role, for AWS::IAM::Role."""
        return " ".join(self.type.split("::")[1:])


def filled(account: str, region: str) -> str:
    """The template for one region of an account."""
    folder = files("infra")
    texts = {name: folder.joinpath(f"iam/{name}.json").read_text() for name in POLICIES}
    # A role that services take on for this account only: the files know no account.
    texts = {name: text.replace("@ACCOUNT@", account) for name, text in texts.items()}
    policies = {name.upper().replace("-", "_"): json.loads(text) for name, text in texts.items()}
    sweep = folder.joinpath("cloudformation/sweep.py").read_text()
    return fill_yaml(TEMPLATE, {"BUCKET": bucket_of(account, region), "SWEEP": sweep, **policies})


def read(text: str) -> dict[str, Any]:
    """The template as data, with CloudFormation's short forms written out."""
    content: dict[str, Any] = yaml.load(text, Loader=_Loader)  # nosec B506  # a SafeLoader
    return content


# The parser in C, where there is one, takes a tenth of the time.
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Parser):  # type: ignore[misc]
    """Knows !Ref and the like."""


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
    """What a stack with these parameters holds; those that are not given have their defaults."""
    given = {name: str(values.get(name, slot["Default"])) for name, slot in template["Parameters"].items()}
    conditions = template["Conditions"]
    return tuple(
        Resource(name, row["Type"], _name(row), row["Properties"].get("VpcEndpointType") == INTERFACE)
        for name, row in template["Resources"].items()
        if "Condition" not in row or _holds(conditions[row["Condition"]], given, conditions)
    )


def _holds(condition: Mapping[str, Any], values: Mapping[str, str], conditions: Mapping[str, Any]) -> bool:
    """As CloudFormation decides it, for the functions that the template has."""
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
        # A list of texts is all that is joined, and only to see whether it is empty.
        return values[rest] if function == "Ref" else _text(rest[1], values)
    return str(value)


_NAMES = ("BucketName", "RepositoryName", "LogGroupName", "RoleName", "InstanceProfileName", "ManagedPolicyName",
          "Name")  # fmt: skip


def _name(row: Mapping[str, Any]) -> str:
    found = [row["Properties"][key] for key in _NAMES if key in row["Properties"]]
    return str(found[0]) if found else ""


def costs(kinds: Mapping[str, str], subnets: int, interfaces: int, sweep_minutes: float) -> tuple[tuple[str, str], ...]:
    """Lines for the plan.  kinds: {name: type} of what will be there."""
    rows = [(name, COSTS[kind]) for name, kind in kinds.items() if kind in COSTS]
    rows.append(("Sweeper", _sweeps(sweep_minutes)))
    if interfaces and subnets:
        month = interfaces * subnets * ENDPOINT_USD_PER_HOUR * HOURS_PER_MONTH
        rows.append(("endpoints", f"{month:,.2f} USD per month for {interfaces} in {subnets} subnets, and 0.01 per GB"))
    return (*rows, ("everything else", "free"))


def _sweeps(minutes: float) -> str:
    runs = HOURS_PER_MONTH * 60 / minutes
    month = runs * (STEP_USD + SWEEP_S * SCRIPT_USD_PER_S)
    return f"about {month:.2f} USD a month for {runs:,.0f} runs; --sweep-minutes makes them fewer or more"
