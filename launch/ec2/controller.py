"""`python -m launch.ec2.controller JOB --region R --bucket B`: the launcher that a queue runs on Fargate.

It starts the job of queued.json, or continues it, as launch.ec2 would without a terminal.  If it is ended or cannot
reach AWS, it leaves the nodes and exits with 75: AWS Batch then runs the next one.  Other exit codes are final.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from launch.aws.client import Aws
from launch.aws.instances.inventory import find
from launch.aws.lookup import spec_of
from launch.aws.names import Folder
from launch.aws.progress import put_outcome
from launch.aws.retry import retrying
from launch.core.errors import Ended, LeftRunning
from launch.core.plan import short_text
from launch.core.signals import Hangup, hangups
from launch.ec2.backend import BACKEND_NAME, Runtime
from launch.ec2.job_folder import folder_of
from launch.ec2.lease import leading
from launch.ec2.queue import is_of, job_in, mark_ended, read_queued
from launch.ec2.records import completed, of_records
from launch.ec2.regions import Plans, plan_regions
from launch.ec2.search import launch_in_regions
from launch.ec2.start import is_unreachable
from launch.ec2.status import View, view
from launch.ec2.stop import Target, outcome_by, remove
from trainer.contract import Exit
from trainer.errors import TrainerError
from trainer.outcome import Outcome, state_of

# Exit codes after which the job definition has no next launcher run: infra/cloudformation/queue.yaml.
FINAL = (Exit.DONE, Exit.SETTINGS, Exit.DATA, Exit.AWS, Exit.TRAINING, Exit.DISK)


def lead(folder: Folder, region: str, runtime: Runtime) -> int:
    """Lead the job until it has ended; return an exit code of FINAL, or 75 if the next launcher has to go on."""
    try:
        code = _lead_to_end(folder, region, runtime)
    except (Hangup, LeftRunning) as error:
        runtime.say(f"the next launcher goes on: {error}")
        return Exit.INTERRUPTED
    return code if code in FINAL else Exit.TRAINING


def _lead_to_end(folder: Folder, region: str, runtime: Runtime) -> int:
    """The job's exit code.  Raises Hangup or LeftRunning if the next launcher has to go on."""
    aws = runtime.make_aws(region)
    try:
        with hangups(), leading(aws, folder, runtime.clock, runtime.say) as clock:
            runtime = replace(runtime, clock=clock, has_successor=True, may_detach=lambda: True)
            return _lead(folder, region, runtime)
    except LeftRunning:
        raise
    except Ended as error:
        runtime.say(str(error))
        return error.code
    except TrainerError as error:
        if is_unreachable(error):
            raise LeftRunning(str(error), Exit.INTERRUPTED) from error
        runtime.say(str(error))
        return error.code


def _lead(folder: Folder, region: str, runtime: Runtime) -> int:
    aws = runtime.make_aws(region)
    content = retrying(partial(read_queued, aws, folder), runtime.clock, runtime.say)
    if content is None:
        runtime.say(f"{folder.uri}/queued.json does not exist: there is nothing to start")
        return Exit.SETTINGS
    job = job_in(content)
    for place in dict.fromkeys((region, *job.where.region)):
        if (ended := _ended(folder, place, content, runtime)) is not None:
            return ended
    plans = plan_regions(job, runtime)
    if plans.problem is not None:
        return _refused(plans, folder, runtime)
    runtime.say(short_text(plans.tried[0].plan))
    outcome = launch_in_regions(plans, runtime)
    if outcome is None:
        raise LeftRunning("interrupted", Exit.INTERRUPTED)
    return outcome.exit_code


def _ended(folder: Folder, region: str, content: Mapping[str, Any], runtime: Runtime) -> int | None:
    """The exit code of a job that has ended, after the removal of what an earlier launcher left; None if it goes on."""
    aws = runtime.make_aws(region)
    fleet = retrying(partial(find, aws), runtime.clock, runtime.say)
    if region != content["region"]:
        folder = folder_of(aws, fleet, folder.job, None)
    spec = retrying(partial(spec_of, aws, folder, BACKEND_NAME), runtime.clock, runtime.say) or {}
    known, is_stopped = view(aws, fleet, folder, runtime.clock.utc()), "ended" in content
    if not (is_stopped or (is_of(spec, content) and ("ended" in spec or _is_over(known)))):
        return None
    remove(Target(aws, folder.job, fleet, folder.bucket), runtime.clock, runtime.say)
    had_no_capacity = len(content["regions"]) > 1 and not known.records
    return None if had_no_capacity and not is_stopped else _recorded(known, aws, runtime)


def _recorded(known: View, aws: Aws, runtime: Runtime) -> int:
    """The exit code of a job that has ended, after its outcome was written, if its launcher died before that."""
    now = runtime.clock.utc()
    after = view(aws, known.fleet, known.folder, now)
    if after.unread:
        raise LeftRunning(after.unread, Exit.INTERRUPTED)
    outcome = after.outcome
    if outcome is None:
        outcome = completed(outcome_by(known), known.job, known.started, now, None)
        put_outcome(aws, known.folder, outcome, runtime.say)
    return outcome.exit_code


def _is_over(known: View) -> bool:
    """Whether the nodes have all ended while no launcher led them, with the training done or failed."""
    records = known.last_records
    outcome = None if known.fleet.living else of_records(records)
    if outcome is None or known.members is None:
        return False
    return outcome.exit_code != Exit.DONE or len(records) == len(known.members["nodes"])


def _refused(plans: Plans, folder: Folder, runtime: Runtime) -> int:
    """Record that the job cannot start; return its exit code.  Raises TrainerError if AWS could not be reached."""
    assert plans.problem is not None
    if is_unreachable(plans.problem):
        raise plans.problem
    if any(place.facts.fleet.living for place in plans.places):
        raise LeftRunning(f"the job runs, and cannot be planned now: {plans.problem}", Exit.INTERRUPTED)
    runtime.say(str(plans.problem))
    now, code = runtime.clock.utc(), plans.problem.code
    outcome = completed(Outcome(state_of(code), code, str(plans.problem)), folder.job, None, now, None)
    aws = runtime.make_aws(plans.places[0].region)
    mark_ended(aws, folder, read_queued(aws, folder) or {}, now.timestamp())
    put_outcome(aws, folder, outcome, runtime.say)
    return code


def main(argv: Sequence[str], runtime: Runtime | None = None) -> int:
    """Runs the command line and returns its exit code."""
    parser = argparse.ArgumentParser("python -m launch.ec2.controller", description=__doc__)
    parser.add_argument("job")
    parser.add_argument("--region", required=True)
    parser.add_argument("--bucket", required=True)
    given = parser.parse_args(argv)
    return lead(Folder(given.bucket, given.job), given.region, runtime or Runtime())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
