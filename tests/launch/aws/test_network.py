"""Whether machines in a subnet reach AWS, from route tables and endpoints as EC2 describes them.

https://docs.aws.amazon.com/vpc/latest/userguide/subnet-route-tables.html: a subnet without a table of its own uses the
main one.  https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/working-with-ip-addresses.html: no public address with
several network interfaces.  An internet gateway serves only those that have one.
"""

from typing import Any

import pytest

from launch.aws import network
from launch.aws.network import INTERNET, Exit, Network, exit_of
from tests.launch.ec2.account import Account

LOCAL = {"DestinationCidrBlock": "172.31.0.0/16", "GatewayId": "local", "State": "active"}
NEEDED = ("ecr.api", "logs", "s3")


def table(*routes: dict[str, str], subnet: str = "", name: str = "rtb-1") -> dict[str, Any]:
    """The table of one subnet, or the VPC's main one."""
    association = {"SubnetId": subnet, "Main": False} if subnet else {"Main": True}
    return {"RouteTableId": name, "Associations": [association], "Routes": [LOCAL, *routes]}


def default(**target: str) -> dict[str, str]:
    return {"DestinationCidrBlock": "0.0.0.0/0", "State": "active", **target}


@pytest.mark.parametrize(
    ("routes", "way"),
    [
        ([], "none"),
        ([default(GatewayId="igw-1")], "gateway"),
        ([default(NatGatewayId="nat-1")], "other"),
        ([default(TransitGatewayId="tgw-1")], "other"),
        ([default(NetworkInterfaceId="eni-1", InstanceId="i-1")], "other"),
        ([default(NatGatewayId="nat-1", State="blackhole")], "none"),
        ([{"DestinationIpv6CidrBlock": "::/0", "GatewayId": "igw-1", "State": "active"}], "none"),
        ([{"DestinationCidrBlock": "10.0.0.0/8", "TransitGatewayId": "tgw-1", "State": "active"}], "none"),
    ],
)
def test_the_default_route_is_the_way_out(routes: list[dict[str, str]], way: str) -> None:
    assert exit_of("subnet-1", Network("vpc-1", [table(*routes)])).way == way


def test_a_subnets_own_table_counts_before_the_main_one() -> None:
    own = table(subnet="subnet-1", name="rtb-2")
    tables = [table(default(GatewayId="igw-1")), own]
    assert exit_of("subnet-1", Network("vpc-1", tables)).way == "none"
    assert exit_of("subnet-2", Network("vpc-1", tables)).way == "gateway"


def test_only_machines_with_a_public_address_get_through_an_internet_gateway() -> None:
    assert Exit("gateway").missing(NEEDED, has_address=True) == ()
    assert Exit("gateway").missing(NEEDED, has_address=False) == NEEDED
    assert Exit("other").missing((*NEEDED, INTERNET), has_address=False) == ()


def endpoint(service: str, kind: str = "Interface", *, named: bool = True) -> dict[str, Any]:
    place = {"RouteTableIds": ["rtb-1"]} if kind == "Gateway" else {"PrivateDnsEnabled": named}
    return {"VpcEndpointType": kind, "State": "available", "ServiceName": f"com.amazonaws.us-east-1.{service}", **place}


ENDPOINTS = [endpoint("s3", "Gateway"), endpoint("ecr.api"), endpoint("logs", named=False)]


def test_endpoints_make_up_for_a_way_out_but_only_to_their_services() -> None:
    assert exit_of("subnet-1", Network("vpc-1", [table()], ENDPOINTS)).missing(NEEDED, has_address=False) == ("logs",)
    elsewhere = exit_of("subnet-1", Network("vpc-1", [table(name="rtb-9")], ENDPOINTS))
    assert elsewhere.missing(NEEDED, has_address=False) == ("logs", "s3")
    pending = [{**one, "State": "pending"} for one in ENDPOINTS]
    assert exit_of("subnet-1", Network("vpc-1", [table()], pending)).endpoints == frozenset()
    nameless = exit_of("subnet-1", Network("vpc-1", [table()], ENDPOINTS, gives_names=False))
    assert (nameless.endpoints, nameless.nameless) == ({"s3"}, {"ecr.api"})


def rule(number: int, action: str, *ports: int, egress: bool, cidr: str = "0.0.0.0/0", protocol: str = "6") -> Any:
    given = {"PortRange": {"From": ports[0], "To": ports[1]}} if ports else {}
    return {"RuleNumber": number, "RuleAction": action, "Egress": egress, "CidrBlock": cidr, "Protocol": protocol,
            **given}  # fmt: skip


LAST = [rule(32767, "deny", egress=egress, protocol="-1") for egress in (True, False)]
ALL_IN, ALL_OUT = (rule(100, "allow", egress=egress, protocol="-1") for egress in (False, True))


@pytest.mark.parametrize(
    ("rules", "shut"),
    [
        pytest.param([ALL_IN, ALL_OUT], None, id="as AWS makes it"),
        pytest.param([], "out", id="as a custom one is made"),
        pytest.param([ALL_IN, ALL_OUT, rule(50, "deny", 443, 443, egress=True)], "out", id="a lower number counts"),
        pytest.param([ALL_IN, ALL_OUT, rule(150, "deny", 443, 443, egress=True)], None, id="a higher one does not"),
        pytest.param([ALL_OUT, rule(100, "allow", 443, 443, egress=False)], "in", id="answers come to other ports"),
        pytest.param([ALL_OUT, rule(100, "allow", 1024, 65535, egress=False)], None, id="answers"),
        pytest.param(
            [ALL_OUT, rule(100, "allow", 1024, 65535, egress=False, protocol="17")], "in", id="UDP is not TCP"
        ),
        pytest.param([ALL_OUT, ALL_IN, rule(9, "deny", 32768, 61000, egress=False)], "in", id="Linux's ports denied"),
        pytest.param([ALL_IN, rule(9, "allow", 443, 443, egress=True, cidr="10.0.0.0/16")], None, id="to endpoints"),
        pytest.param(
            [ALL_IN, ALL_OUT, rule(9, "deny", egress=True, cidr="10.0.0.0/8", protocol="-1")], None, id="some"
        ),
    ],
)
def test_a_network_acl_that_stops_every_call_or_answer_is_known(rules: list[Any], shut: str | None) -> None:
    """https://docs.aws.amazon.com/vpc/latest/userguide/custom-network-acl.html"""
    its_own = {"NetworkAclId": "acl-1", "Associations": [{"SubnetId": "subnet-1"}], "Entries": [*LAST, *rules]}
    made = exit_of("subnet-1", Network("vpc-1", [table(default(NatGatewayId="nat-1"))], acls=[its_own]))

    assert (made.shut, made.acl) == (shut, "acl-1")
    assert made.missing(NEEDED, has_address=True) == (NEEDED if shut else ())


def test_a_default_network_has_a_way_out_which_takes_five_requests_to_see(account: Account) -> None:
    aws, subnets = account.aws(), account.subnets
    vpc = aws.call("ec2", "DescribeSubnets")["Subnets"][0]["VpcId"]
    account.requests.clear()
    exits = network.look_up(aws, vpc, list(subnets.values()))
    assert {(found.way, found.shut, found.vpc) for found in exits.values()} == {("gateway", None, vpc)}
    assert account.operations == [
        "DescribeRouteTables", "DescribeVpcEndpoints", "DescribeNetworkAcls", "DescribeVpcs", "DescribeVpcAttribute",
    ]  # fmt: skip


@pytest.mark.parametrize(("servers", "shut"), [("", "dns"), ("AmazonProvidedDNS", "dns"), ("10.0.0.2", None)])
def test_a_vpc_without_dns_support_finds_no_name_unless_it_has_servers_of_its_own(
    servers: str, shut: str | None, account: Account
) -> None:
    """https://docs.aws.amazon.com/vpc/latest/userguide/AmazonDNS-concepts.html"""
    aws, subnets = account.aws(), account.subnets
    vpc = aws.call("ec2", "DescribeSubnets")["Subnets"][0]["VpcId"]
    aws.call("ec2", "ModifyVpcAttribute", {"VpcId": vpc, "EnableDnsSupport": {"Value": False}})
    if servers:
        account.use_dns(servers)

    exits = network.look_up(aws, vpc, list(subnets.values()))

    assert {found.shut for found in exits.values()} == {shut}


@pytest.mark.parametrize(
    ("servers", "own"),
    [
        (["AmazonProvidedDNS"], ()),
        (["169.254.169.253", "172.31.0.2"], ()),
        (["10.0.0.2", "172.31.0.2"], ("10.0.0.2",)),
        (["10.0.0.2", "fd00::2", "10.0.1.2"], ("10.0.0.2", "10.0.1.2")),
    ],
    ids=["by name", "by address", "beside its own", "IPv6"],
)
def test_security_groups_need_no_rule_for_awss_dns_server(
    servers: list[str], own: tuple[str, ...], account: Account
) -> None:
    """https://docs.aws.amazon.com/vpc/latest/userguide/AmazonDNS-concepts.html: at the base of the VPC plus two."""
    vpc = account.use_dns(*servers)
    exits = network.look_up(account.aws(), vpc, list(account.subnets.values()))
    assert {found.dns for found in exits.values()} == {own}


UDP, TCP = ({"IpProtocol": name, "FromPort": 53, "ToPort": 53} for name in ("udp", "tcp"))


def to(cidr: str) -> dict[str, Any]:
    return {"IpRanges": [{"CidrIp": cidr}]}


@pytest.mark.parametrize(
    ("rule", "is_open"),
    [
        ({"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, **to("0.0.0.0/0")}, False),
        ({"IpProtocol": "-1", **to("0.0.0.0/0")}, True),
        ({"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-1"}]}, False),
        ({**UDP, "UserIdGroupPairs": [{"GroupId": "sg-2"}]}, True),
        ({**UDP, "PrefixListIds": [{"PrefixListId": "pl-1"}]}, True),
        ({**UDP, **to("10.0.0.0/16")}, True),
        ({**UDP, **to("10.1.0.0/16")}, False),
        ({**TCP, **to("10.0.0.2/32")}, False),
        ({**UDP, **to("10.0.9.2/32")}, True),
    ],
    ids=["HTTPS", "all", "itself", "another group", "a list", "their range", "another range", "TCP", "one of them"],
)
def test_a_security_group_may_be_closed_to_the_vpcs_own_dns_servers(rule: dict[str, Any], is_open: bool) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_IpPermission.html"""
    servers = ("10.0.0.2", "10.0.9.2")
    group = {"GroupId": "sg-1", "IpPermissionsEgress": [rule]}
    assert network.closed_to(servers, [group]) == (() if is_open else servers)
