"""Whether a job's nodes could reach what they need from a subnet.  Pure.

A node that cannot is cut off: it neither logs nor leaves a record, and ends itself after its boot script's waiting.
"""

from launch.aws.machines import Subnet
from launch.aws.network import INTERNET, Exit
from launch.core.catalog import Instance
from launch.core.secrets import read_references
from launch.ec2 import machines
from launch.ec2.facts import Facts
from launch.ec2.requests import Cluster


def services(cluster: Cluster) -> tuple[str, ...]:
    """The services that a node must reach: by the names of VPC endpoints, or INTERNET."""
    wanted = {"s3", "logs"}
    # Endpoints lead to the registry of their own region alone.
    is_near = cluster.image.startswith("<") or f".dkr.ecr.{cluster.region}." in cluster.registry
    wanted |= {"ecr.api", "ecr.dkr"} if is_near else {INTERNET}
    if cluster.downloads:
        wanted.add(INTERNET)
    wanted |= {reference.partition(":")[0] for reference in read_references(cluster.resolved.options.secret).values()}
    return tuple(sorted(wanted))


def why_unreachable(cluster: Cluster, facts: Facts, instance: Instance, subnet: Subnet) -> str:
    """Why nodes of this type could not report from `subnet`, with a remedy; empty if they could, as far as is known."""
    way_out = facts.exits.get(subnet.id)
    if way_out is None:
        return ""
    has_one = machines.interfaces(cluster.resolved, instance) == 1
    missing = way_out.missing(services(cluster), has_address=subnet.gives_addresses and has_one)
    return _sentence(instance, subnet, way_out, missing, has_one=has_one) if missing else ""


def _sentence(instance: Instance, subnet: Subnet, way_out: Exit, missing: tuple[str, ...], *, has_one: bool) -> str:
    place, names = f"{subnet.id} in {subnet.zone}", ", ".join(missing)
    if way_out.shut:
        return f"nodes could not reach {names} from {place}: {_shut(way_out)}"
    if way_out.nameless & set(missing):
        return (
            f"nodes could not reach {names} from {place}: {way_out.vpc} gives its endpoints no DNS names; run aws ec2 "
            f"modify-vpc-attribute --vpc-id {way_out.vpc} --enable-dns-hostnames"
        )
    if way_out.way == "gateway" and not has_one:
        return (
            f"nodes could not reach {names} from {place}: AWS gives an instance with several network cards, such as "
            f"{instance.name} with EFA, no public address; give a --subnet with a route to a NAT gateway, or --no-efa."
        )
    if way_out.way == "gateway":
        return (
            f"nodes could not reach {names} from {place}: it gives them no public address; run aws ec2 "
            f"modify-subnet-attribute --subnet-id {subnet.id} --map-public-ip-on-launch, or give a --subnet with a "
            "route to a NAT gateway."
        )
    return (
        f"nodes could not reach {names} from {place}: it has no route to the internet, and no endpoints for them; "
        "give another --subnet, or make the endpoints: python -m launch.infra up --vpc-id VPC --endpoint-subnets SUBNET"
    )


def _shut(way_out: Exit) -> str:
    """What stops every call, and the command that fixes it."""
    if way_out.shut == "dns":
        return (
            f"{way_out.vpc} has DNS support off, so they find no name; run aws ec2 modify-vpc-attribute "
            f"--vpc-id {way_out.vpc} --enable-dns-support"
        )
    entry = f"run aws ec2 create-network-acl-entry --network-acl-id {way_out.acl} --rule-number 1 --rule-action allow"
    if way_out.shut == "out":
        return (
            f"its network ACL {way_out.acl} lets no HTTPS out; {entry} --egress --protocol tcp --port-range "
            "From=443,To=443 --cidr-block 0.0.0.0/0, or give another --subnet"
        )
    return (
        f"its network ACL {way_out.acl} lets no answers in, which come to ports 32768 to 60999; {entry} --ingress "
        "--protocol tcp --port-range From=32768,To=60999 --cidr-block 0.0.0.0/0, or give another --subnet"
    )


def unreachable(cluster: Cluster, facts: Facts) -> tuple[str, ...]:
    """A sentence for each type and subnet in which nodes of the job could not report."""
    pairs = [(instance, subnet) for instance in cluster.resolved.instances for subnet in facts.subnets]
    sentences = [why_unreachable(cluster, facts, instance, subnet) for instance, subnet in pairs]
    return tuple(dict.fromkeys(sentence for sentence in sentences if sentence))
