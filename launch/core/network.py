"""Whether machines in a subnet can reach AWS and the internet: its route table and the VPC's endpoints.

look_up() reads; the rest is pure.  A machine without a route out can neither log nor fetch its image.
https://docs.aws.amazon.com/vpc/latest/userguide/VPC_Route_Tables.html
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from launch.core.aws import Aws

INTERNET = "internet"  # beside the names of services, such as s3 and ecr.api
# Where a route can lead.  An egress-only gateway is for IPv6.
TARGETS = ("NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "InstanceId", "VpcPeeringConnectionId",
           "CarrierGatewayId", "LocalGatewayId", "CoreNetworkArn", "GatewayId")  # fmt: skip


@dataclass(frozen=True)
class Exit:
    """How machines leave a subnet.

    way: gateway is an internet gateway, which serves machines with a public address only; other is anything else, such
    as a NAT gateway.  endpoints: the services that the subnet reaches without a way out, such as s3 and ecr.api.
    """

    way: Literal["gateway", "other", "none"]
    endpoints: frozenset[str] = frozenset()

    def missing(self, services: Iterable[str], *, has_address: bool) -> tuple[str, ...]:
        """Those of `services` that a machine here cannot reach.  has_address: whether it gets a public one."""
        if self.way == "other" or (self.way == "gateway" and has_address):
            return ()
        return tuple(sorted(set(services) - self.endpoints))


def look_up(aws: Aws, vpc: str, subnets: Sequence[str]) -> dict[str, Exit]:
    """The exits of subnets of one VPC, by their ids.  Two requests, for any number of subnets."""
    in_vpc = {"Filters": [{"Name": "vpc-id", "Values": [vpc]}]}
    tables = aws.pages("ec2", "DescribeRouteTables", "RouteTables", in_vpc)
    endpoints = aws.pages("ec2", "DescribeVpcEndpoints", "VpcEndpoints", in_vpc)
    return {subnet: exit_of(subnet, tables, endpoints) for subnet in subnets}


def exit_of(subnet: str, tables: Sequence[Mapping[str, Any]], endpoints: Sequence[Mapping[str, Any]]) -> Exit:
    """The exit of one subnet of the VPC with these route tables and endpoints, as EC2 describes them."""
    table = _table_of(subnet, tables)
    reached = {_service(endpoint) for endpoint in endpoints if _serves(endpoint, table)}
    return Exit(_way(table), frozenset(reached))


def _table_of(subnet: str, tables: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The subnet's own route table, or else the VPC's main one."""
    main: Mapping[str, Any] = {}
    for table in tables:
        for association in table.get("Associations", ()):
            if association.get("SubnetId") == subnet:
                return table
            if association.get("Main"):
                main = table
    return main


def _way(table: Mapping[str, Any]) -> Literal["gateway", "other", "none"]:
    for route in table.get("Routes", ()):
        is_default = route.get("DestinationCidrBlock") == "0.0.0.0/0"
        if not is_default or route.get("State") == "blackhole":  # its target was deleted
            continue
        target = next((route[name] for name in TARGETS if route.get(name)), "")
        if target:
            return "gateway" if target.startswith("igw-") else "other"
    return "none"


def _serves(endpoint: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
    """Whether machines of the table's subnets use the endpoint without being told to."""
    if endpoint.get("State", "").lower() != "available":
        return False
    if endpoint.get("VpcEndpointType") == "Gateway":
        return table.get("RouteTableId") in endpoint.get("RouteTableIds", ())
    return bool(endpoint.get("PrivateDnsEnabled"))


def _service(endpoint: Mapping[str, Any]) -> str:
    """ecr.api, for com.amazonaws.us-east-1.ecr.api."""
    return str(endpoint.get("ServiceName", "")).partition(".amazonaws.")[2].partition(".")[2]
