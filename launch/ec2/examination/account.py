"""What launch.infra sets up once for jobs on EC2, logs, time limits and the sweeper; and what jobs left."""

from collections.abc import Iterator

from launch.aws.examination.case import Verdict, missing, ok, warning
from launch.aws.lookup import SET_UP
from launch.aws.machines import SCHEDULE_GROUP
from launch.aws.names import TOOLKIT
from launch.core.errors import AwsError
from launch.core.price import usd
from launch.ec2 import leaks
from launch.ec2.examination.shared import Ec2Case
from launch.ec2.inventory import find
from launch.ec2.lookup import log_group_exists
from launch.ec2.names import LOG_GROUP

SWEEPER = f"{TOOLKIT}-sweeper"


def log_group(case: Ec2Case) -> Iterator[Verdict]:
    yield ok(LOG_GROUP if log_group_exists(case.aws) else f"{LOG_GROUP}: the first job creates it")


def schedule_group(case: Ec2Case) -> Iterator[Verdict]:
    create = f"aws scheduler create-schedule-group --name {SCHEDULE_GROUP} --region {case.region}"
    try:
        state = case.aws.call("scheduler", "GetScheduleGroup", {"Name": SCHEDULE_GROUP})["State"]
    except AwsError as error:
        if error.aws_code != "ResourceNotFoundException":
            raise
        yield warning(f"there is no group {SCHEDULE_GROUP} for time limits; the first job creates it", create)
        return
    if state == "ACTIVE":
        yield ok(SCHEDULE_GROUP)
    else:
        yield missing(f"the group {SCHEDULE_GROUP} is {state}, so no time limit can be set", f"wait, then {create}")


def sweeper(case: Ec2Case) -> Iterator[Verdict]:
    fix = f"{SET_UP} --region {case.region}"
    try:
        state = case.aws.call("scheduler", "GetSchedule", {"Name": SWEEPER})["State"]
    except AwsError as error:
        if error.aws_code != "ResourceNotFoundException":
            raise
        yield warning(f"no schedule {SWEEPER}: nothing ends a node if its own timers fail", fix)
        return
    if state == "ENABLED":
        yield ok(SWEEPER)
    else:
        yield warning(f"{SWEEPER} is {state}", fix)


def left(case: Ec2Case) -> Iterator[Verdict]:
    found = leaks.judge(find(case.aws), case.region, case.now)
    leaking = [one for one in found if one.is_leak]
    if leaking:
        cost = usd(sum(one.usd_per_hour for one in leaking))
        jobs = ", ".join(one.job for one in leaking[:3])
        noun = "job" if len(leaking) == 1 else "jobs"
        delete = f"python -m launch.ec2 leaks --delete --region {case.region}"
        yield warning(f"{len(leaking)} {noun} left resources ({jobs}): {cost} per hour", delete)
    else:
        yield ok(f"none; jobs within their time limit: {len(found)}")
