"""What an instance can reach: by its addresses, its subnet's route table and network ACL, and the VPC's endpoints and
DNS, in moto's objects.

Written apart from launch/aws/network.py, which it holds to AWS's rules.
https://docs.aws.amazon.com/vpc/latest/userguide/VPC_Internet_Gateway.html: a route to it, and a public address.
https://docs.aws.amazon.com/vpc/latest/privatelink/gateway-endpoints.html: by route table.
https://docs.aws.amazon.com/vpc/latest/privatelink/privatelink-access-aws-services.html: others by private DNS names,
for which the VPC needs DNS hostnames.
https://docs.aws.amazon.com/vpc/latest/userguide/vpc-dns.html: without DNS support AWS's server answers nobody.
https://docs.aws.amazon.com/vpc/latest/userguide/nacl-basics.html: the rule with the lowest number that fits decides; no
rule, no traffic; and answers need one of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

# An address of AWS and a port that Linux calls from, for every other one.
SOME_ADDRESS, SOME_PORT = "52.216.0.1", 45000
Services = frozenset[str]  # by the names of endpoints, such as s3 and ecr.api


def reached(backend: Any, instance: Any) -> Services | None:
    """The services that the instance reaches; None for all of them, and the Internet."""
    vpc = backend.get_vpc(instance.vpc_id)
    if not vpc.enable_dns_support:
        return frozenset()
    table = _table_of(backend, instance.subnet_id, instance.vpc_id)
    acl = _acl_of(backend, instance.subnet_id)
    for route in table.routes:
        is_way = route.destination_cidr_block == "0.0.0.0/0" and _leads_out(route, has_address=has_address(instance))
        if is_way and _lets_call(acl, SOME_ADDRESS):
            return None
    return frozenset(_by_endpoints(backend, vpc, table, acl))


def _by_endpoints(backend: Any, vpc: Any, table: Any, acl: Any) -> Iterator[str]:
    for end in backend.vpc_end_points.values():
        address = SOME_ADDRESS if end.vpc_endpoint_type == "Gateway" else vpc.cidr_block.partition("/")[0]
        is_ours = end.vpc_id == vpc.id and _serves(end, table, has_names=vpc.enable_dns_hostnames)
        if is_ours and _lets_call(acl, address):
            yield end.service_name.split(".", 3)[3]


def has_address(instance: Any) -> bool:
    """Whether it has a public address."""
    return any(interface.public_ip for interface in instance.network_interfaces)


def _table_of(backend: Any, subnet: str, vpc: str) -> Any:
    tables = [table for table in backend.route_tables.values() if table.vpc_id == vpc]
    own = [table for table in tables if any(row.get("SubnetId") == subnet for row in table.associations)]
    return next(iter(own), None) or next(table for table in tables if table.main_association_id)


def _leads_out(route: Any, *, has_address: bool) -> bool:
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


def _lets_call(acl: Any, address: str) -> bool:
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


def give_addresses(backend: Any, instance: Any, wanted: list[dict[str, Any]]) -> None:
    """Gives a new instance a public address, or none: none has one that has several interfaces.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-instance-addressing.html#concepts-public-addresses
    """
    interfaces = instance.network_interfaces
    asked = [one.get("AssociatePublicIpAddress") for one in wanted]
    by_subnet = backend.get_subnet(instance.subnet_id).map_public_ip_on_launch
    gives = len(interfaces) == 1 and (asked[0] if asked and asked[0] is not None else by_subnet)
    for interface in interfaces:
        interface.public_ip_auto_assign, interface.public_ip = bool(gives), None
        interface.check_auto_public_ip()
