"""What moto's CloudFormation leaves out or gets wrong, as far as launch.infra meets it.

* A change set shows what conditions let in and out, what parameters change, and what is adopted; and leaves outputs.
* What exists already is adopted if that was asked for, and an error otherwise.
* RetainExceptOnCreate keeps, too.  Log groups can be changed, and parameters that are lists are texts with commas.
* A change set's name can be taken, and DeleteChangeSet asked for twice; a stack that is only planned is planned again.
* With a stack go its change sets, as they do once one is carried out, and its managed policies; not if one is attached.

Four types it does not know at all: UNKNOWN_TO_MOTO.  In a stack of its they just are not there.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from moto.cloudformation import models, parsing
from moto.cloudformation.exceptions import AlreadyExistsException
from moto.core.common_models import CloudFormationModel
from moto.ecr.models import ecr_backends
from moto.iam.exceptions import DeleteConflictException
from moto.iam.models import iam_backends
from moto.logs.models import logs_backends
from moto.s3.models import s3_backends

UNKNOWN_TO_MOTO = ("AWS::S3::BucketPolicy", "AWS::Scheduler::Schedule", "AWS::CodeBuild::Project",
                   "AWS::EC2::SecurityGroupEgress")  # fmt: skip


def existing(kind: str, row: Any, account: str, region: str) -> Any:
    """moto's own object of that name, if it is a type that holds data."""
    properties = row["Properties"]
    if kind == "AWS::S3::Bucket":
        return s3_backends[account]["aws"].buckets.get(properties["BucketName"])
    if kind == "AWS::ECR::Repository":
        return ecr_backends[account][region].repositories.get(properties["RepositoryName"])
    if kind == "AWS::Logs::LogGroup":
        return logs_backends[account][region].groups.get(properties["LogGroupName"])
    return None


@contextmanager
def patched() -> Iterator[None]:
    """moto with the patches above inside the block."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(models.ChangeSet, "apply", _apply))
        stack.enter_context(mock.patch.object(models.ChangeSet, "diff", _diff))
        stack.enter_context(mock.patch.object(parsing, "parse_and_create_resource", _create))
        stack.enter_context(mock.patch.object(parsing, "parse_and_update_resource", _update))
        stack.enter_context(mock.patch.object(models.Stack, "parameter_list", property(_parameter_list)))
        stack.enter_context(mock.patch.object(models.CloudFormationBackend, "create_change_set", _create_change_set))
        stack.enter_context(mock.patch.object(models.CloudFormationBackend, "execute_change_set", _execute_change_set))
        stack.enter_context(mock.patch.object(parsing.ResourceMap, "delete", _delete))
        stack.enter_context(mock.patch.object(models.Stack, "has_parameters", _has_parameters))
        stack.enter_context(mock.patch.object(models.CloudFormationBackend, "delete_change_set", _delete_change_set))
        stack.enter_context(mock.patch.object(models.CloudFormationBackend, "delete_stack", _delete_stack))
        yield


_apply_as_moto, _diff_as_moto = models.ChangeSet.apply, models.ChangeSet.diff
_update_as_moto = parsing.parse_and_update_resource
_create_as_moto, _delete_stack_as_moto = parsing.parse_and_create_resource, models.CloudFormationBackend.delete_stack
_delete_as_moto = parsing.ResourceMap.delete
_create_change_set_as_moto = models.CloudFormationBackend.create_change_set
_execute_change_set_as_moto = models.CloudFormationBackend.execute_change_set


def _plain(values: Any) -> dict[str, str]:
    """Parameters as they are sent: lists with commas, numbers as text."""
    return {name: ",".join(v) if isinstance(v, list) else str(v) for name, v in values.items()}


def _apply(self: models.ChangeSet) -> None:
    things = self.stack.resource_map
    before = _plain(things.resolved_parameters)
    things.input_parameters = before
    self.parameters = {**before, **_plain(self.parameters)}
    _apply_as_moto(self)
    self.stack.output_map = parsing.OutputMap(things, self.template_dict, self.stack.stack_id)


def _diff(self: models.ChangeSet) -> list[Any]:
    stack, rows = self.stack, self.template_dict["Resources"]
    before, now = _plain(stack.resource_map.resolved_parameters), _plain(self.parameters)
    held = _held(self, {**before, **now})
    changes = [one for one in _diff_as_moto(self) if one.action != "Add" or one.logical_resource_id in held]
    known = {one.logical_resource_id for one in changes}
    changed = {name for name, value in now.items() if before.get(name) != value}
    for name in _lacking(self, held, changed):
        if name not in known:
            changes.append(models.Change("Modify" if name in held else "Remove", name, rows[name]["Type"]))
    for one in changes:
        row = rows.get(one.logical_resource_id)
        if one.action == "Add" and existing(one.resource_type, row, stack.account_id, stack.region_name):
            one.action = "Import"
    return changes


def _lacking(self: models.ChangeSet, held: list[str], changed: set[str]) -> list[str]:
    """Resources that use a changed parameter, and those that exist and are not held any more."""
    rows = self.template_dict["Resources"]
    existed = {thing.logical_resource_id for thing in self.stack.stack_resources if thing is not None}
    using = [name for name in held if changed & set(parsing.get_references_from_template(rows[name]))]
    return using + [name for name in rows if name in existed and name not in held]


def _held(self: models.ChangeSet, parameters: dict[str, str]) -> list[str]:
    """The resources whose conditions hold."""
    stack, rows = self.stack, self.template_dict["Resources"]
    things = parsing.ResourceMap(
        stack.stack_id, stack.name, parameters, {}, stack.region_name, stack.account_id, self.template_dict, {}
    )
    things.load()
    return [name for name, row in rows.items() if "Condition" not in row or things.lazy_condition_map[row["Condition"]]]


class BatchResource(CloudFormationModel):
    """One of the queues' stack: moto does not know most of their types.  row: its properties."""

    def __init__(self, name: str, row: Any, things: Any) -> None:
        self.cf_resource_type, self.logical_resource_id = row["Type"], name
        self.row = parsing.clean_json(row["Properties"], things)

    @property
    def physical_resource_id(self) -> str:
        named = [value for key, value in self.row.items() if key.endswith("Name")]
        return f"arn:aws:batch:us-east-1:123456789012:{named[0]}"

    def get_cfn_attribute(self, _name: str) -> str:
        return self.physical_resource_id

    def delete(self, _account: str, _region: str) -> None:
        pass


def _create(name: str, row: Any, things: Any, account_id: str, region_name: str) -> Any:
    if row["Type"].startswith("AWS::Batch::"):
        made = "Condition" not in row or things.lazy_condition_map[row["Condition"]]
        return BatchResource(name, row, things) if made else None
    found = existing(row["Type"], row, account_id, region_name)
    if found is None:
        return _create_as_moto(name, row, things, account_id=account_id, region_name=region_name)
    if row.get("DeletionPolicy") not in ("Retain", "RetainExceptOnCreate"):
        raise AlreadyExistsException(f"{name} already exists")
    found.cf_resource_type, found.logical_resource_id = row["Type"], name
    return found


def _update(name: str, row: Any, things: Any, account_id: str, region_name: str) -> Any:
    if row["Type"].startswith("AWS::Batch::"):
        return BatchResource(name, row, things)
    if row["Type"] != "AWS::Logs::LogGroup":
        return _update_as_moto(name, row, things, account_id=account_id, region_name=region_name)
    found = existing(row["Type"], row, account_id, region_name)
    found.set_retention_policy(parsing.clean_json(row["Properties"], things)["RetentionInDays"])
    return found


def _parameter_list(self: models.Stack) -> list[dict[str, str]]:
    values = _plain(self.resource_map.resolved_parameters)
    return [{"ParameterKey": name, "ParameterValue": value} for name, value in values.items()]


def _create_change_set(self: models.CloudFormationBackend, **asked: Any) -> Any:
    name = (asked["stack_name"], asked["change_set_name"])
    if any((one.stack_name, one.change_set_name) == name for one in self.change_sets.values()):
        raise AlreadyExistsException(f"ChangeSet {name[1]} already exists")
    for key, stack in list(self.stacks.items()):
        if asked["change_set_type"] == "CREATE" and (stack.name, stack.status) == (name[0], "REVIEW_IN_PROGRESS"):
            del self.stacks[key]  # AWS adds to it; moto would make another of the same name
    return _create_change_set_as_moto(self, **asked)


def _execute_change_set(
    self: models.CloudFormationBackend, change_set_name: str, stack_name: str | None = None
) -> None:
    if not any(change_set_name in (key, one.change_set_name) for key, one in self.change_sets.items()):
        return  # the same request again, as its ClientRequestToken says, which moto does not look at
    _execute_change_set_as_moto(self, change_set_name, stack_name)
    _forget_change_sets(self, stack_name)


def _forget_change_sets(self: models.CloudFormationBackend, stack: str | None) -> None:
    for key, one in list(self.change_sets.items()):
        if stack in (one.stack_id, one.stack_name):
            del self.change_sets[key]


def _has_parameters(self: models.Stack, other_parameters: Any) -> bool:
    return _plain(self.resource_map.resolved_parameters).items() >= _plain(other_parameters).items()


def _delete_change_set(self: models.CloudFormationBackend, change_set_name: str) -> None:
    for key, one in list(self.change_sets.items()):
        if change_set_name in (key, one.change_set_name):
            del self.change_sets[key]


def _delete(self: parsing.ResourceMap) -> None:
    for row in self._resource_json_map.values():
        if row.get("DeletionPolicy") == "RetainExceptOnCreate":  # moto knows Retain only
            row["DeletionPolicy"] = "Retain"
    _delete_as_moto(self)


def _delete_stack(self: models.CloudFormationBackend, name_or_stack_id: str) -> None:
    policies = [
        thing
        for stack in self.stacks.values()
        if name_or_stack_id in (stack.stack_id, stack.name)
        for thing in stack.stack_resources
        if getattr(thing, "cf_resource_type", "") == "AWS::IAM::ManagedPolicy"
    ]
    if any(policy.attachment_count for policy in policies):
        raise DeleteConflictException("Cannot delete a policy attached to entities.")
    _forget_change_sets(self, name_or_stack_id)
    _delete_stack_as_moto(self, name_or_stack_id)
    for policy in policies:
        iam_backends[self.account_id]["aws"].managed_policies.pop(policy.arn, None)
