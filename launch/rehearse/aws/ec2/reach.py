"""What an instance can reach: by its addresses, its subnet's route table and the VPC's endpoints, in moto's objects.

Written apart from launch/core/network.py, which it holds to AWS's rules.
https://docs.aws.amazon.com/vpc/latest/userguide/VPC_Internet_Gateway.html: a route to it, and a public address.
https://docs.aws.amazon.com/vpc/latest/privatelink/gateway-endpoints.html: by route table.
https://docs.aws.amazon.com/vpc/latest/privatelink/privatelink-access-aws-services.html: others by private DNS names.
"""

from __future__ import annotations

from typing import Any

Services = frozenset[str]  # by the names of endpoints, such as s3 and ecr.api


def reached(backend: Any, instance: Any) -> Services | None:
    """The services that the instance reaches; None for all of them, and the Internet."""
    table = _table_of(backend, instance.subnet_id, instance.vpc_id)
    for route in table.routes:
        if route.destination_cidr_block == "0.0.0.0/0" and _leads_out(route, has_address=has_address(instance)):
            return None
    ends = [end for end in backend.vpc_end_points.values() if end.vpc_id == instance.vpc_id]
    return frozenset(end.service_name.split(".", 3)[3] for end in ends if _serves(end, table))


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


def _serves(end: Any, table: Any) -> bool:
    if end.vpc_endpoint_type == "Gateway":
        return table.id in (end.route_table_ids or ())
    return bool(end.private_dns_enabled)


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
