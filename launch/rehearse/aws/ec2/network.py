"""Placement groups, interfaces and security groups where moto differs from EC2, and what an instance can reach."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from types import SimpleNamespace
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.exceptions import EC2ClientError

from launch.rehearse.aws.ec2.rules import Rules, mark_new


def create_placement_group(rules: Rules, original: Any, response: Any) -> ActionResult:
    name, backend = response._get_param("GroupName"), response.ec2_backend
    if name in rules.placement_groups:
        raise EC2ClientError("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
    tags = response._parse_tag_specification("placement-group").get("placement-group", {})
    group = SimpleNamespace(
        group_name=name,
        group_id=f"pg-{uuid.uuid4().hex[:17]}",
        state="available",
        strategy=response._get_param("Strategy"),
        tags=[{"Key": key, "Value": value} for key, value in tags.items()],
        region=backend.region_name,
    )
    rules.placement_groups[name] = group
    mark_new(rules, name)
    return ActionResult({"PlacementGroup": vars(group)})


def describe_placement_groups(rules: Rules, original: Any, response: Any) -> ActionResult:
    requested, filters = response._get_param("GroupNames", []), response._filters_from_querystring()
    for name in requested:
        _known_group(rules, name)
    groups = [
        group
        for group in rules.placement_groups.values()
        if group.region == response.region
        and (not requested or group.group_name in requested)
        and all(_matches(group, name, values) for name, values in filters.items())
    ]
    return ActionResult({"PlacementGroups": [vars(group) for group in groups]})


def _matches(group: Any, name: str, values: Any) -> bool:
    tags = {tag["Key"]: tag["Value"] for tag in group.tags}
    if name == "tag-key":
        return any(value in tags for value in values)
    if name.startswith("tag:"):
        return tags.get(name.removeprefix("tag:")) in values
    return getattr(group, name.replace("-", "_")) in values


def delete_placement_group(rules: Rules, original: Any, response: Any) -> EmptyResult:
    name = response._get_param("GroupName")
    _known_group(rules, name)
    nodes = response.ec2_backend.all_instances()
    if any(node.placement.group_name == name and node.state != "terminated" for node in nodes):
        raise EC2ClientError("InvalidPlacementGroup.InUse", f"The placement group {name} is in use")
    del rules.placement_groups[name]
    return EmptyResult()


def create_tags(rules: Rules, original: Any, response: Any) -> EmptyResult:
    """Tag also placement groups, which moto lacks; here they are identified by ID, elsewhere by name."""
    requested, tags = response._get_param("Resources", []), response._get_param("Tags", [])
    groups = {group.group_id: group for group in rules.placement_groups.values() if group.group_id in requested}
    others, backend = [name for name in requested if name not in groups], response.ec2_backend
    backend.do_resources_exist(others)
    backend.create_tags(others, {tag["Key"]: tag["Value"] for tag in tags})
    for group in groups.values():
        keys = {tag["Key"] for tag in tags}
        group.tags = [*(tag for tag in group.tags if tag["Key"] not in keys), *tags]
    return EmptyResult()


def _known_group(rules: Rules, name: str) -> None:
    if name not in rules.placement_groups:
        raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")


def delete_network_interface(rules: Rules, original: Any, response: Any) -> Any:
    interface = response.ec2_backend.enis.get(response._get_param("NetworkInterfaceId"))
    if interface is not None and interface.instance is not None:
        raise EC2ClientError("InvalidParameterValue", f"Network interface '{interface.id}' is currently in use.")
    return original(response)


def create_security_group(rules: Rules, original: Any, backend: Any, *args: Any, **named: Any) -> Any:
    group = original(backend, *args, **named)
    mark_new(rules, group.id)
    return group


def delete_security_group(
    rules: Rules, original: Any, backend: Any, name: str | None = None, group_id: str | None = None
) -> None:
    group = backend.get_security_group_from_id(group_id) if group_id else None
    if group is not None and (_is_named_by_others(backend, group) or _has_interfaces(backend, group)):
        raise EC2ClientError("DependencyViolation", f"resource {group.id} has a dependent object")
    original(backend, name, group_id)


def _is_named_by_others(backend: Any, group: Any) -> bool:
    """Whether a rule of another security group names this one."""
    for groups in backend.groups.values():
        for other in groups.values():
            sources = [rule.source_group.get("GroupId") for rule in (*other.ingress_rules, *other.egress_rules)]
            if other.id != group.id and group.id in sources:
                return True
    return False


def _has_interfaces(backend: Any, group: Any) -> bool:
    return any(group in interface._group_set for interface in backend.enis.values())


# ---- what an instance can reach


# An address of AWS and a port that Linux calls from, for every other one.
SOME_ADDRESS, SOME_PORT = "52.216.0.1", 45000
Services = frozenset[str]  # by the names of endpoints, such as s3 and ecr.api


def reached(backend: Any, instance: Any) -> Services | None:
    """The services that the instance reaches; None for all of them, and the Internet."""
    vpc = backend.get_vpc(instance.vpc_id)
    if not _resolves_names(vpc, instance):
        return frozenset()
    table = _table_of(backend, instance.subnet_id, instance.vpc_id)
    acl = _acl_of(backend, instance.subnet_id)
    for route in table.routes:
        leads_out = route.destination_cidr_block == "0.0.0.0/0" and _leads_to_internet(
            route, has_address=has_address(instance)
        )
        if leads_out and _allows_https(acl, SOME_ADDRESS):
            return None
    return frozenset(_by_endpoints(backend, vpc, table, acl))


def _resolves_names(vpc: Any, instance: Any) -> bool:
    """Whether the instance reaches a DNS server: AWS's, or one in the VPC's DHCP options that its groups allow.

    https://docs.aws.amazon.com/vpc/latest/userguide/VPC_DHCP_Options.html
    """
    servers = _dns_servers(vpc)
    if not servers or "AmazonProvidedDNS" in servers:
        return bool(vpc.enable_dns_support)
    groups = {group.id: group for interface in instance.network_interfaces for group in interface.group_set}
    rules = [rule for group in groups.values() for rule in group.egress_rules]
    return any(_lets_dns_out(rule, server) for rule in rules for server in servers)


def _dns_servers(vpc: Any) -> list[str]:
    configured = vpc.dhcp_options.dhcp_configurations if vpc.dhcp_options else []
    return [one["Value"] for row in configured if row["Key"] == "domain-name-servers" for one in row["Values"]]


def _lets_dns_out(rule: Any, server: str) -> bool:
    if rule.ip_protocol != "-1" and not (rule.ip_protocol == "udp" and rule.from_port <= 53 <= rule.to_port):
        return False
    return "CidrIp" in rule.ip_range and ip_address(server) in ip_network(rule.ip_range["CidrIp"])


def _by_endpoints(backend: Any, vpc: Any, table: Any, acl: Any) -> Iterator[str]:
    for end in backend.vpc_end_points.values():
        address = SOME_ADDRESS if end.vpc_endpoint_type == "Gateway" else vpc.cidr_block.partition("/")[0]
        is_ours = end.vpc_id == vpc.id and _serves(end, table, has_names=vpc.enable_dns_hostnames)
        if is_ours and _allows_https(acl, address):
            yield end.service_name.split(".", 3)[3]


def has_address(instance: Any) -> bool:
    """Whether it has a public address."""
    return any(interface.public_ip for interface in instance.network_interfaces)


def _table_of(backend: Any, subnet: str, vpc: str) -> Any:
    tables = [table for table in backend.route_tables.values() if table.vpc_id == vpc]
    own = [table for table in tables if any(row.get("SubnetId") == subnet for row in table.associations)]
    return next(iter(own), None) or next(table for table in tables if table.main_association_id)


def _leads_to_internet(route: Any, *, has_address: bool) -> bool:
    if (route.gateway_id or "").startswith("igw-"):
        return has_address
    return any(
        (route.nat_gateway, route.transit_gateway, route.interface, route.instance, route.vpc_pcx, route.gateway)
    )


def _serves(end: Any, table: Any, *, has_names: bool) -> bool:
    if end.vpc_endpoint_type == "Gateway":
        return table.id in (end.route_table_ids or ())
    return bool(end.private_dns_enabled and has_names)


def _acl_of(backend: Any, subnet: str) -> Any:
    acls = backend.network_acls.values()
    return next(acl for acl in acls if any(tie.subnet_id == subnet for tie in acl.associations))


def _allows_https(acl: Any, address: str) -> bool:
    """Whether HTTPS to that address gets out, and its answer in."""
    return _decides(acl, address, 443, is_egress=True) and _decides(acl, address, SOME_PORT, is_egress=False)


def _decides(acl: Any, address: str, port: int, *, is_egress: bool) -> bool:
    for entry in sorted(acl.network_acl_entries, key=lambda entry: int(entry.rule_number)):
        goes_this_way = str(entry.egress).lower() == str(is_egress).lower()
        if goes_this_way and _is_for_port(entry, port) and _is_for_address(entry, address):
            return str(entry.rule_action) == "allow"
    return False


def _is_for_address(entry: Any, address: str) -> bool:
    return bool(entry.cidr_block) and ip_address(address) in ip_network(entry.cidr_block)


def _is_for_port(entry: Any, port: int) -> bool:
    first, last = entry.port_range_from, entry.port_range_to
    is_tcp = str(entry.protocol) in ("-1", "6")
    return is_tcp and (not first or not last or int(first) <= port <= int(last))


def give_addresses(backend: Any, instance: Any, requested: list[dict[str, Any]]) -> None:
    """Give a new instance a public address if it asks for one; with several interfaces it cannot.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-instance-addressing.html#concepts-public-addresses
    """
    interfaces = instance.network_interfaces
    asked = [one.get("AssociatePublicIpAddress") for one in requested]
    by_subnet = backend.get_subnet(instance.subnet_id).map_public_ip_on_launch
    gives = len(interfaces) == 1 and (asked[0] if asked and asked[0] is not None else by_subnet)
    for interface in interfaces:
        interface.public_ip_auto_assign, interface.public_ip = bool(gives), None
        interface.check_auto_public_ip()
