"""Whether the job's nodes could reach S3, ECR and CloudWatch from each of its subnets."""

from collections.abc import Iterator

from launch.aws.examination.case import Verdict, missing, ok, split, warning
from launch.ec2 import connectivity
from launch.ec2.examination import shared
from launch.ec2.examination.shared import Ec2Case
from launch.ec2.facts import Facts

EXCLUDED = ("create-complete", "update-complete")  # states of an exclusion that holds
DEFAULT_VPC = "aws ec2 create-default-vpc, or give --subnet subnet-..."


def subnets(case: Ec2Case) -> Iterator[Verdict]:
    """The default VPC's, or those that the job names."""
    zones = ", ".join(subnet.zone for subnet in shared.subnets(case))
    yield ok(f"{len(shared.subnets(case))} in {shared.subnets(case)[0].vpc}: {zones}")


def way_out(case: Ec2Case) -> Iterator[Verdict]:
    """A node that reaches none of them neither logs nor leaves a record, and is paid for."""
    facts = Facts(case.region, case.account, subnets=shared.subnets(case), exits=shared.exits(case), now=case.now)
    cluster = shared.cluster(case, facts)
    problems, reached = list[str](), set[str]()
    for instance in case.resolved.instances:
        for subnet in shared.subnets(case):
            why = connectivity.why_unreachable(cluster, facts, instance, subnet)
            if why:
                problems.append(why)
            else:
                reached.add(subnet.id)
    if not problems:
        yield ok(f"from all {len(shared.subnets(case))} subnets")
    elif reached:
        for sentence in dict.fromkeys(problems):
            yield warning(*split(sentence))
    else:
        yield missing(*split(problems[0]))


def public_access(case: Ec2Case) -> Iterator[Verdict]:
    """Whether the region lets traffic through internet gateways at all, which the routes do not show.

    https://docs.aws.amazon.com/vpc/latest/userguide/security-vpc-bpa.html
    """
    options = case.aws.call("ec2", "DescribeVpcBlockPublicAccessOptions")["VpcBlockPublicAccessOptions"]
    mode, vpc = options.get("InternetGatewayBlockMode", "off"), shared.subnets(case)[0].vpc
    by_gateway = [subnet for subnet in shared.subnets(case) if shared.exits(case)[subnet.id].way == "gateway"]
    if mode == "off" or not by_gateway:
        yield ok("internet gateways are not blocked" if mode == "off" else f"{mode}; no subnet has an internet gateway")
        return
    excluded = _excluded(case)
    blocked = [subnet.id for subnet in by_gateway if not {vpc, subnet.id} & excluded]
    if not blocked:
        yield ok(f"{mode}, and the job's subnets are excluded from it")
        return
    fix = f"aws ec2 create-vpc-block-public-access-exclusion --region {case.region} --vpc-id {vpc}"
    yield missing(
        f"VPC Block Public Access is {mode} in {case.region}: nodes in {', '.join(blocked)} could not report",
        f"{fix} --internet-gateway-exclusion-mode allow-bidirectional",
    )


def _excluded(case: Ec2Case) -> set[str]:
    """The VPCs and subnets to which the block does not apply."""
    rows = case.aws.pages("ec2", "DescribeVpcBlockPublicAccessExclusions", "VpcBlockPublicAccessExclusions")
    return {row["ResourceArn"].rpartition("/")[2] for row in rows if row.get("State") in EXCLUDED}
