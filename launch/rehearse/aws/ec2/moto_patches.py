"""Patch moto's classes where they lack or differ from EC2's behaviour in a launch.

Everything configurable, such as capacity and quotas, is in Rules.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from moto.batch.responses import BatchResponse
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
from moto.kms.utils import generate_private_key
from moto.scheduler.models import EventBridgeSchedulerBackend
from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend

from launch.rehearse.aws import access
from launch.rehearse.aws.access import replaced
from launch.rehearse.aws.batch.moto_patches import OPERATIONS, routed
from launch.rehearse.aws.ec2 import ebs, instances, network, run_instances, scheduler
from launch.rehearse.aws.ec2.rules import Rules, consistency_check


@contextmanager
def patched(rules: Rules) -> Iterator[None]:
    """Make moto behave as AWS under `rules` inside the block, one request at a time."""
    with ExitStack() as stack:
        rules.access.others += [scheduler.check_of(rules), consistency_check(rules), ebs.check_of(rules)]
        stack.enter_context(access.patched(rules, METHODS))
        stack.enter_context(routed(rules))
        stack.enter_context(replaced(Attachment, "__init__", run_instances.attachment, rules))
        stack.enter_context(mock.patch.object(Instance, "network_interfaces", property(run_instances.interfaces_of)))
        stack.enter_context(mock.patch.object(Volume, "attachments", property(ebs.attachments)))
        stack.enter_context(mock.patch.object(Ami, "block_device_mappings", property(ebs.disks_of_image)))
        stack.enter_context(
            mock.patch.object(Instance, "cpu_options", property(run_instances.cpu_options), create=True)
        )
        # Otherwise every answer to RunInstances says pending, even one that is repeated much later.
        states = stack.enter_context(mock.patch.dict(EC2BaseResponse.RESPONSE_KEY_PATH_TO_TRANSFORMER))
        del states["RunInstances.Reservation.Instances.Instance.State"]
        # moto searches all methods of a service for each request, and makes an RSA key for each account.
        find_methods = functools.cache(method_names_from_class)
        stack.enter_context(mock.patch("moto.core.responses.method_names_from_class", find_methods))
        stack.enter_context(mock.patch("moto.kms.models.generate_private_key", _kms_key))
        yield


_kms_key = functools.cache(generate_private_key)


# ---- operations that moto lacks


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


# A class of moto's -> replacements of its methods with the same names.
METHODS: access.Replacements = {
    EC2Response: [
        run_instances.call_action,
        run_instances.run_instances,
        instances.describe_instances,
        instances.describe_capacity_reservations,
        instances.describe_spot_price_history,
        instances.get_spot_placement_scores,
        network.create_placement_group,
        network.create_tags,
        network.delete_network_interface,
        network.delete_placement_group,
        network.describe_placement_groups,
        ebs.create_volume,
        get_ebs_default_kms_key_id,
        describe_vpc_block_public_access_options,
        describe_vpc_block_public_access_exclusions,
    ],
    EC2Backend: [
        network.create_security_group,
        network.delete_security_group,
        ebs.attach_volume,
        ebs.detach_volume,
        ebs.describe_snapshots,
        ebs.copy_snapshot,
    ],
    Instance: [instances.terminate],
    EBSResponse: [ebs.start_snapshot, ebs.list_snapshot_blocks],
    EBSBackend: [ebs.complete_snapshot],
    ECRResponse: [get_download_url_for_layer],
    ServiceQuotasBackend: [get_service_quota],
    BatchResponse: OPERATIONS,
    EventBridgeSchedulerBackend: [
        scheduler.create_schedule,
        scheduler.create_schedule_group,
        scheduler.list_schedules,
    ],
}
