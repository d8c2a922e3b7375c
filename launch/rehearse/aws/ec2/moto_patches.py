"""Patches for what moto lacks or gets wrong of the requests of a launch, in moto's own classes.

Everything that can be set, such as capacity and quotas, is in Rules.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from moto.core.responses import ActionResult
from moto.core.utils import method_names_from_class
from moto.ebs.models import EBSBackend
from moto.ebs.responses import EBSResponse
from moto.ec2.models import EC2Backend
from moto.ec2.models.amis import Ami
from moto.ec2.models.elastic_block_store import Volume
from moto.ec2.models.elastic_network_interfaces import Attachment
from moto.ec2.models.instances import Instance
from moto.ec2.responses import EC2Response
from moto.ec2.responses._base_response import EC2BaseResponse
from moto.ecr.responses import ECRResponse
from moto.iam.responses import IamResponse
from moto.kms.utils import generate_private_key
from moto.scheduler.models import EventBridgeSchedulerBackend
from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend
from moto.sts.models import STSBackend

from launch.rehearse.aws.ec2 import ebs, scheduler
from launch.rehearse.aws.ec2.instances import (
    describe_capacity_reservations,
    describe_instances,
    describe_spot_price_history,
    terminate,
)
from launch.rehearse.aws.ec2.network import (
    create_placement_group,
    create_security_group,
    delete_network_interface,
    delete_placement_group,
    delete_security_group,
    describe_placement_groups,
)
from launch.rehearse.aws.ec2.rules import Rules, consistency_check
from launch.rehearse.aws.ec2.run_instances import attachment, call_action, cpu_options, interfaces_of, run_instances
from launch.rehearse.aws.ec2.volumes import (
    attach_volume,
    attachments,
    create_volume,
    describe_snapshots,
    detach_volume,
    disks_of_image,
)
from launch.rehearse.aws.iam.callers import get_caller_identity, simulate_principal_policy
from launch.rehearse.aws.moto_patches import replaced


@contextmanager
def patched(rules: Rules) -> Iterator[None]:
    """Makes moto behave as AWS under `rules` inside the block, one request at a time."""
    changes: list[tuple[type, str, Any]] = [
        (EC2Response, "call_action", call_action),
        (EC2Response, "run_instances", run_instances),
        (EC2Response, "create_volume", create_volume),
        (EC2Response, "describe_instances", describe_instances),
        (EC2Response, "describe_spot_price_history", describe_spot_price_history),
        (EC2Response, "delete_network_interface", delete_network_interface),
        (EC2Response, "create_placement_group", create_placement_group),
        (EC2Response, "describe_placement_groups", describe_placement_groups),
        (EC2Response, "delete_placement_group", delete_placement_group),
        (EC2Response, "describe_capacity_reservations", describe_capacity_reservations),
        (EC2Backend, "describe_snapshots", describe_snapshots),
        (EC2Backend, "copy_snapshot", ebs.copy_snapshot),
        (EBSResponse, "start_snapshot", ebs.start_snapshot),
        (EBSResponse, "list_snapshot_blocks", ebs.list_snapshot_blocks),
        (EBSBackend, "complete_snapshot", ebs.complete_snapshot),
        (EC2Backend, "create_security_group", create_security_group),
        (EC2Backend, "delete_security_group", delete_security_group),
        (EC2Backend, "attach_volume", attach_volume),
        (EC2Backend, "detach_volume", detach_volume),
        (Instance, "terminate", terminate),
        (Attachment, "__init__", attachment),
        (EC2Response, "get_ebs_default_kms_key_id", get_ebs_default_kms_key_id),
        (EC2Response, "describe_vpc_block_public_access_options", describe_vpc_block_public_access_options),
        (EC2Response, "describe_vpc_block_public_access_exclusions", describe_vpc_block_public_access_exclusions),
        (IamResponse, "simulate_principal_policy", simulate_principal_policy),
        (STSBackend, "get_caller_identity", get_caller_identity),
        (ECRResponse, "get_download_url_for_layer", get_download_url_for_layer),
        (ServiceQuotasBackend, "get_service_quota", get_service_quota),
        (EventBridgeSchedulerBackend, "create_schedule_group", scheduler.create_schedule_group),
        (EventBridgeSchedulerBackend, "create_schedule", scheduler.create_schedule),
        (EventBridgeSchedulerBackend, "list_schedules", scheduler.list_schedules),
    ]
    with ExitStack() as stack:
        rules.access.others += [scheduler.check_of(rules), consistency_check(rules), ebs.check_of(rules)]
        stack.enter_context(rules.access.enforced())
        for owner, name, new in changes:
            stack.enter_context(replaced(owner, name, new, rules))
        stack.enter_context(mock.patch.object(Instance, "network_interfaces", property(interfaces_of)))
        stack.enter_context(mock.patch.object(Volume, "attachments", property(attachments)))
        stack.enter_context(mock.patch.object(Ami, "block_device_mappings", property(disks_of_image)))
        stack.enter_context(mock.patch.object(Instance, "cpu_options", property(cpu_options), create=True))
        # Otherwise every answer to RunInstances says pending, even one that is repeated much later.
        states = stack.enter_context(mock.patch.dict(EC2BaseResponse.RESPONSE_KEY_PATH_TO_TRANSFORMER))
        del states["RunInstances.Reservation.Instances.Instance.State"]
        # moto searches all methods of a service for each request, and makes an RSA key for each account.
        methods = functools.cache(method_names_from_class)
        stack.enter_context(mock.patch("moto.core.responses.method_names_from_class", methods))
        stack.enter_context(mock.patch("moto.kms.models.generate_private_key", _kms_key))
        yield


_kms_key = functools.cache(generate_private_key)


# ---- what moto does not know


LAYERS = "https://layers.invalid/"


def get_ebs_default_kms_key_id(rules: Rules, original: Any, response: Any) -> ActionResult:
    return ActionResult({"KmsKeyId": rules.default_key})


def describe_vpc_block_public_access_options(rules: Rules, original: Any, response: Any) -> ActionResult:
    return ActionResult({"VpcBlockPublicAccessOptions": {"InternetGatewayBlockMode": rules.public_access}})


def describe_vpc_block_public_access_exclusions(rules: Rules, original: Any, response: Any) -> ActionResult:
    rows = [{"ResourceArn": arn, "State": "create-complete"} for arn in rules.excluded]
    return ActionResult({"VpcBlockPublicAccessExclusions": rows})


def get_download_url_for_layer(rules: Rules, original: Any, response: Any) -> ActionResult:
    digest = response._get_param("layerDigest")
    return ActionResult({"downloadUrl": f"{LAYERS}{digest}", "layerDigest": digest})


def get_service_quota(rules: Rules, original: Any, backend: Any, service_code: str, quota_code: str) -> dict[str, Any]:
    if service_code != "ec2":
        return dict(original(backend, service_code, quota_code))
    if quota_code not in rules.quota:
        raise NoSuchResource
    return {"ServiceCode": "ec2", "QuotaCode": quota_code, "Value": rules.quota[quota_code]}
