"""Patches for what moto lacks or gets wrong of the requests of a launch, in moto's own classes.

Everything that can be set, such as capacity and quotas, is in Rules.
"""

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from moto.core.utils import method_names_from_class
from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_block_store import Volume
from moto.ec2.models.elastic_network_interfaces import Attachment
from moto.ec2.models.instances import Instance
from moto.ec2.responses import EC2Response
from moto.ec2.responses._base_response import EC2BaseResponse
from moto.kms.utils import generate_private_key
from moto.scheduler.models import EventBridgeSchedulerBackend
from moto.servicequotas.models import ServiceQuotasBackend

from launch.rehearse.aws.ec2.instances import (
    attachment,
    call_action,
    cpu_options,
    describe_instances,
    interfaces_of,
    run_instances,
    terminate,
)
from launch.rehearse.aws.ec2.network_resources import (
    create_placement_group,
    delete_network_interface,
    delete_placement_group,
    delete_security_group,
    describe_capacity_reservations,
    describe_placement_groups,
    describe_spot_price_history,
)
from launch.rehearse.aws.ec2.rules import Rules
from launch.rehearse.aws.ec2.services import create_schedule_group, get_service_quota, in_a_group
from launch.rehearse.aws.ec2.volumes import attach_volume, attachments, create_volume, describe_snapshots, detach_volume
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
        (EC2Backend, "delete_security_group", delete_security_group),
        (EC2Backend, "attach_volume", attach_volume),
        (EC2Backend, "detach_volume", detach_volume),
        (Instance, "terminate", terminate),
        (Attachment, "__init__", attachment),
        (ServiceQuotasBackend, "get_service_quota", get_service_quota),
        (EventBridgeSchedulerBackend, "create_schedule_group", create_schedule_group),
        (EventBridgeSchedulerBackend, "create_schedule", in_a_group("group_name")),
        (EventBridgeSchedulerBackend, "list_schedules", in_a_group(0)),
    ]
    with ExitStack() as stack:
        for owner, name, new in changes:
            stack.enter_context(replaced(owner, name, new, rules))
        stack.enter_context(mock.patch.object(Instance, "network_interfaces", property(interfaces_of)))
        stack.enter_context(mock.patch.object(Volume, "attachments", property(attachments)))
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
