"""Whether machines in a subnet can reach AWS and the internet: route table, network ACL, the VPC's endpoints."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any, Literal

from launch.aws.client import Aws
from trainer.errors import SettingsError

INTERNET = "internet"  # stands beside names of services, such as s3 and ecr.api
# Targets of routes.  An egress-only gateway is for IPv6.
TARGETS = ("NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "InstanceId", "VpcPeeringConnectionId",
           "CarrierGatewayId", "LocalGatewayId", "CoreNetworkArn", "GatewayId")  # fmt: skip


@dataclass(frozen=True)
class Exit:
    """How machines leave a subnet."""

    # Gateway: an internet gateway, for machines with a public address only; other: such as a NAT gateway.
    way: Literal["gateway", "other", "none"]
    endpoints: frozenset[str] = frozenset()  # services, such as s3 and ecr.api, reached by an endpoint
    nameless: frozenset[str] = frozenset()  # services that endpoints would serve if the VPC resolved their names
    vpc: str = ""  # id
    table: str = ""  # id of its route table
    acl: str = ""  # id
    cidr: str = ""  # the VPC's range of IPv4 addresses
    dns: tuple[str, ...] = ()  # IPv4 addresses of the VPC's own DNS servers; empty where it uses AWS's
    # What blocks all calls: no DNS, or the network ACL denies calls out or answers in.
    shut: Literal["dns", "out", "in"] | None = None

    def missing(self, services: Iterable[str], *, has_address: bool) -> tuple[str, ...]:
        """Those of `services` that a machine here cannot reach.  has_address: whether it gets a public IP address."""
        if self.shut:
            return tuple(sorted(services))
        if self.way == "other" or (self.way == "gateway" and has_address):
            return ()
        return tuple(sorted(set(services) - self.endpoints))


def look_up(aws: Aws, vpc: str, subnets: Sequence[str]) -> dict[str, Exit]:
    """The exits of subnets of one VPC, by id.  Takes four to seven requests for any number of subnets."""
    in_vpc = {"Filters": [{"Name": "vpc-id", "Values": [vpc]}]}
    tables = aws.pages("ec2", "DescribeRouteTables", "RouteTables", in_vpc)
    endpoints = aws.pages("ec2", "DescribeVpcEndpoints", "VpcEndpoints", in_vpc)
    acls = aws.pages("ec2", "DescribeNetworkAcls", "NetworkAcls", in_vpc)
    described = describe_vpc(aws, vpc)
    dns = own_dns(aws, described)
    resolves = bool(dns) or _has(aws, vpc, "enableDnsSupport")
    gives_names = not any(map(_is_named, endpoints)) or _has(aws, vpc, "enableDnsHostnames")
    network = Network(
        vpc, tables, endpoints, acls, dns, described["CidrBlock"], resolves=resolves, gives_names=gives_names
    )
    return {subnet: exit_of(subnet, network) for subnet in subnets}


@dataclass(frozen=True)
class Network:
    """A VPC with its route tables, endpoints and ACLs as EC2 describes them."""

    vpc: str
    tables: Sequence[Mapping[str, Any]]
    endpoints: Sequence[Mapping[str, Any]] = ()
    acls: Sequence[Mapping[str, Any]] = ()
    dns: tuple[str, ...] = ()  # see Exit
    cidr: str = ""  # see Exit
    resolves: bool = True  # whether machines in it can resolve names
    gives_names: bool = True  # whether it has private DNS names for its endpoints


def exit_of(subnet: str, network: Network) -> Exit:
    """The exit of one subnet of the VPC."""
    table, its_acl = _table_of(subnet, network.tables), of_subnet(subnet, network.acls)
    serving = [endpoint for endpoint in network.endpoints if _serves(endpoint, table)]
    reached = {_service(endpoint) for endpoint in serving if network.gives_names or not _is_named(endpoint)}
    return Exit(
        _way(table),
        frozenset(reached),
        nameless=frozenset(map(_service, serving)) - reached,
        vpc=network.vpc,
        table=table.get("RouteTableId", ""),
        acl=its_acl.get("NetworkAclId", ""),
        cidr=network.cidr,
        dns=network.dns,
        shut=shut(its_acl) if network.resolves else "dns",
    )


def _has(aws: Aws, vpc: str, attribute: str) -> bool:
    """An attribute of the VPC; AWS answers for one at a time."""
    answer = aws.call("ec2", "DescribeVpcAttribute", {"VpcId": vpc, "Attribute": attribute})
    return bool(answer[attribute[0].upper() + attribute[1:]]["Value"])


def describe_vpc(aws: Aws, vpc: str) -> Mapping[str, Any]:
    (found,) = aws.call("ec2", "DescribeVpcs", {"VpcIds": [vpc]})["Vpcs"]
    described: Mapping[str, Any] = found
    return described


def own_dns(aws: Aws, vpc: Mapping[str, Any]) -> tuple[str, ...]:
    """The IPv4 addresses of DNS servers in the VPC's DHCP options, for which security groups need a rule.

    They filter no requests to AWS's server, at 169.254.169.253 and the second address of the VPC.
    https://docs.aws.amazon.com/vpc/latest/userguide/AmazonDNS-concepts.html
    """
    if vpc.get("DhcpOptionsId", "default") == "default":
        return ()
    of_aws = {"AmazonProvidedDNS", "169.254.169.253", str(ip_network(vpc["CidrBlock"])[2])}
    servers = _dns_servers(aws, vpc["DhcpOptionsId"])
    return tuple(address for address in servers if address not in of_aws and ":" not in address)


def _dns_servers(aws: Aws, dhcp_options: str) -> list[str]:
    described = aws.call("ec2", "DescribeDhcpOptions", {"DhcpOptionsIds": [dhcp_options]})["DhcpOptions"]
    rows = [row for options in described for row in options["DhcpConfigurations"]]
    return [one["Value"] for row in rows if row["Key"] == "domain-name-servers" for one in row["Values"]]


DNS_PORT = 53


# A proxy's URL.  User data has it, which whatever runs on a node can read, so it must have no password.
_PROXY = re.compile(r"https?://(?P<host>[\w.-]+):(?P<port>\d{1,5})/?")


def read_proxy(url: str) -> tuple[str, int]:
    """Host and port of --proxy.  Raises SettingsError, which never repeats the URL."""
    match = _PROXY.fullmatch(url)
    if match is None and "@" in url:
        raise SettingsError(
            "--proxy has a user or password, which all programs on the nodes could read; let the proxy accept the "
            "nodes by their address, and give http://HOST:PORT."
        )
    if match is None:
        raise SettingsError("--proxy is not a proxy's URL; give http://HOST:PORT, such as http://10.0.0.5:3128.")
    return match["host"], int(match["port"])


def check_proxy(url: str | None) -> None:
    """Raise SettingsError if it is not the URL of a proxy."""
    if url is not None:
        read_proxy(url)


def direct_hosts(exits: Iterable[Exit], region: str) -> tuple[str, ...]:
    """The hosts that machines behind a proxy reach without it, for NO_PROXY.

    The instance metadata, their VPC, and the services that every subnet has an endpoint for, such as S3's gateway.
    https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-proxy.html
    https://repost.aws/knowledge-center/eks-http-proxy-configuration-automation
    """
    known = list(exits)
    shared = frozenset[str].intersection(*(found.endpoints for found in known)) if known else frozenset[str]()
    # The endpoint com.amazonaws.REGION.ecr.api has the host api.ecr.REGION.amazonaws.com.
    hosts = [f"{'.'.join(reversed(name.split('.')))}.{region}.amazonaws.com" for name in sorted(shared)]
    ranges = sorted({found.cidr for found in known if found.cidr})
    return ("localhost", "127.0.0.1", "169.254.169.254", ".internal", *ranges, *hosts)


def closed_to(servers: Sequence[str], groups: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The DNS servers if no security group lets requests out to any of them, as EC2 describes the groups."""
    rules = [(group["GroupId"], rule) for group in groups for rule in group.get("IpPermissionsEgress", ())]
    is_open = any(_lets_dns_out(*rule, server) for rule in rules for server in servers)
    return () if is_open else tuple(servers)


def without_dns(group: str | None, servers: Sequence[str]) -> str:
    """Why machines in `group` could not resolve names, with a remedy; empty if they can.  servers: see closed_to()."""
    if not servers:
        return ""
    ranges = ",".join(f"{{CidrIp={server}/32}}" for server in servers)
    rules = " ".join(
        f"'IpProtocol={protocol},FromPort={DNS_PORT},ToPort={DNS_PORT},IpRanges=[{ranges}]'"
        for protocol in ("udp", "tcp")
    )
    return (
        f"machines could not resolve names: {group} lets no requests out to the VPC's own DNS servers, "
        f"{' and '.join(servers)}; run aws ec2 authorize-security-group-egress --group-id {group} "
        f"--ip-permissions {rules}"
    )


def _lets_dns_out(group: str, rule: Mapping[str, Any], server: str) -> bool:
    """Whether a rule of the group may allow DNS over UDP to the server, as one for another group or a list may."""
    is_for_dns = rule["IpProtocol"] == "udp" and rule["FromPort"] <= DNS_PORT <= rule["ToPort"]
    if not is_for_dns and rule["IpProtocol"] != ANY_PROTOCOL:
        return False
    ranges = [ip_network(row["CidrIp"]) for row in rule.get("IpRanges", ())]
    others = [pair for pair in rule.get("UserIdGroupPairs", ()) if pair.get("GroupId") != group]
    return bool(others or rule.get("PrefixListIds")) or any(ip_address(server) in one for one in ranges)


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
    """Whether machines of the table's subnets use the endpoint without configuration."""
    if endpoint.get("State", "").lower() != "available":
        return False
    if endpoint.get("VpcEndpointType") == "Gateway":
        return table.get("RouteTableId") in endpoint.get("RouteTableIds", ())
    return _is_named(endpoint)


def _is_named(endpoint: Mapping[str, Any]) -> bool:
    """Whether the service's own name resolves to it within the VPC, as machines use that name."""
    return endpoint.get("VpcEndpointType") != "Gateway" and bool(endpoint.get("PrivateDnsEnabled"))


def _service(endpoint: Mapping[str, Any]) -> str:
    """ecr.api, for com.amazonaws.us-east-1.ecr.api."""
    return str(endpoint.get("ServiceName", "")).partition(".amazonaws.")[2].partition(".")[2]


HTTPS = (443, 443)
ANSWERS = (32768, 60999)  # net.ipv4.ip_local_port_range
EVERYWHERE = "0.0.0.0/0"
TCP, ANY_PROTOCOL = "6", "-1"


def of_subnet(subnet: str, acls: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The subnet's ACL, as EC2 describes it; empty if it is not in `acls`."""
    rows = (acl for acl in acls for tie in acl.get("Associations", ()) if tie.get("SubnetId") == subnet)
    return next(rows, {})


def shut(acl: Mapping[str, Any]) -> Literal["out", "in"] | None:
    """The direction in which it blocks all calls to AWS; None if some addresses or ports get through."""
    entries = acl.get("Entries", ())
    if not acl:
        return None
    if not _lets_through(entries, HTTPS, is_egress=True):
        return "out"
    return None if _lets_through(entries, ANSWERS, is_egress=False) else "in"


def _lets_through(entries: Sequence[Mapping[str, Any]], ports: tuple[int, int], *, is_egress: bool) -> bool:
    """Whether a rule allows one of these ports before another denies all of them; rules apply in order."""
    fitting = [entry for entry in entries if entry.get("Egress") is is_egress and _is_for_calls(entry)]
    for entry in sorted(fitting, key=lambda entry: int(entry["RuleNumber"])):
        if entry["RuleAction"] == "allow" and _meets(_ports(entry), ports):
            return True
        if entry["RuleAction"] == "deny" and entry["CidrBlock"] == EVERYWHERE and _holds(_ports(entry), ports):
            return False
    return False


def _meets(some: tuple[int, int], others: tuple[int, int]) -> bool:
    return some[0] <= others[1] and others[0] <= some[1]


def _holds(some: tuple[int, int], others: tuple[int, int]) -> bool:
    return some[0] <= others[0] and others[1] <= some[1]


def _is_for_calls(entry: Mapping[str, Any]) -> bool:
    return "CidrBlock" in entry and entry.get("Protocol") in (TCP, ANY_PROTOCOL)  # others are for IPv6


def _ports(entry: Mapping[str, Any]) -> tuple[int, int]:
    given = entry.get("PortRange") or {}
    return int(given.get("From", 0)), int(given.get("To", 65535))
