"""The verbs plan, up, show, down and template: each looks up, decides in planner.py, and acts here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from launch.aws.client import Aws
from launch.aws.names import TOOLKIT, bucket_of
from launch.aws.regions import check_region, regions_of
from launch.core.clock import Clock
from launch.core.errors import AwsError, NotSetUp
from launch.core.perform import perform
from launch.core.plan import Plan, Request, dry_run
from launch.core.terminal import Say, columns, table
from launch.infra import changes, in_use, planner, problems, queue
from launch.infra.changes import Change, detect_drift, drifted, events_of, follow
from launch.infra.lookup import Facts, Stack, look_up, stack_of
from launch.infra.options import (
    DOWN,
    UP,
    DownOptions,
    PlanOptions,
    SetUpOptions,
    ShowOptions,
    TemplateOptions,
    UpOptions,
    text_of,
    up_command,
)
from launch.infra.planner import SetUp
from launch.infra.template import (
    KEPT,
    NOTIFY_STACK,
    QUEUE_STACK,
    STACK,
    filled,
    filled_notify,
    filled_queue,
    left_out_text,
)
from trainer.contract import Exit
from trainer.errors import TrainerError

# AWS may start something else, such as a rollback, after what it was busy with; it is followed this often.
MAX_WAITS = 2


@dataclass(frozen=True)
class Runtime:
    """What the commands need from outside."""

    make_aws: Callable[[str | None], Aws]  # calls to a region, None for the configured one
    clock: Clock
    say: Say
    confirm: Callable[[str], None]  # raises SettingsError unless the user agrees
    regions_of: Callable[[Aws], list[str]] = regions_of  # the account's regions


class Commands:
    """Each verb takes its options and returns the exit code."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._clock, self._say = runtime, runtime.clock, runtime.say

    def template(self, options: TemplateOptions) -> int:
        """Prints the template; needs no account."""
        problems.check_account(options.account)
        check_region(options.region or "us-east-1")
        account, region = options.account, options.region or "us-east-1"
        if options.notify:
            self._say(filled_notify(account, region))
        else:
            self._say(filled_queue(account) if options.queue else filled(account, region))
        return Exit.DONE

    def plan(self, options: PlanOptions) -> int:
        """Prints what `up` would change, and leaves nothing behind."""
        problems.check_settings(options)
        aws = self._runtime.make_aws(options.region)
        plan = self._planned(aws, options, look_up(aws, text_of(options, "vpc_id")))
        if plan.problem:
            self._say(_brief(plan, _resources(plan.payload)))
            return Exit.DONE if isinstance(plan.problem, NotSetUp) else plan.problem.code
        text, is_change = self._previewed(aws, plan)
        self._say(_brief(plan, text))
        if is_change:
            self._say(f"\napply it: {up_command(options)}")
        return Exit.DONE

    def up(self, options: UpOptions) -> int:
        """Creates or changes the stack; what is up to date stays."""
        problems.check_settings(options)
        aws = self._runtime.make_aws(options.region)
        facts = look_up(aws, text_of(options, "vpc_id"))
        if not options.dry_run:
            facts = self._when_idle(aws, facts, options)
        plan = self._planned(aws, options, facts)
        if options.dry_run:
            return dry_run(plan, options.dry_run, self._say)
        if plan.problem:
            raise plan.problem
        self._apply(aws, plan.payload.create, plan.payload.execute, options, partial(_brief, plan))
        self._set_up_beside(aws, QUEUE_STACK, plan.payload.queue, options)
        self._set_up_beside(aws, NOTIFY_STACK, plan.payload.notify, options)
        perform(plan.payload.budget, aws.call, self._say, self._clock.sleep)
        self._allow_spot(aws, plan.payload.spot)
        return self._show_outputs(aws)

    def show(self, options: ShowOptions) -> int:
        """Prints the state of the stack.  Raises AwsError if there is none."""
        aws = self._runtime.make_aws(options.region)
        stack = stack_of(aws)
        if stack is None:
            raise AwsError(f"there is no stack {STACK} in {aws.region}; create it with {UP}.", "NoStack")
        if options.drift:
            self._say("checking for drift")
            stack = detect_drift(aws, stack, self._clock)
        self._say(_stack_text(stack, aws.region))
        if stack.drift == "DRIFTED":
            self._say("changed outside the stack:\n" + table(("name", "difference"), drifted(aws, stack)))
            self._say(f"revert it: {UP}")
        for name in (QUEUE_STACK, NOTIFY_STACK):
            if beside := stack_of(aws, name):
                self._say(f"\nstack {name}: {beside.status}\n{_parameters(beside)}")
        return Exit.DONE

    def down(self, options: DownOptions) -> int:
        """Deletes the stack, and the resources that it keeps if they are empty."""
        aws = self._runtime.make_aws(options.region)
        facts = look_up(aws)
        queues = stack_of(aws, QUEUE_STACK) if facts.stack else None
        plan = planner.down(facts, options.keep_data, queues=queues)
        if options.dry_run:
            return dry_run(plan, options.dry_run, self._say)
        if plan.problem:
            raise plan.problem
        if facts.stack is None:
            self._say(f"there is no stack {STACK} in {facts.region}")
            self._show_kept(facts)
            return Exit.DONE
        warnings = self._check_unused(aws, facts.stack, options.keep_data, facts.messages)
        plan = planner.down(facts, options.keep_data, warnings, queues)
        rows = planner.resource_rows(facts.stack, options.keep_data)
        self._say(_brief(plan, "resources:\n" + table(("action", "name", "id"), rows)) + "\n")
        if not options.yes:
            self._runtime.confirm(f"this deletes the stack {STACK} in {facts.region}")
        self._delete(aws, plan, facts.stack)
        return self._verify_deleted(aws)

    # ---- parts of plan and up

    def _planned(self, aws: Aws, options: SetUpOptions, facts: Facts) -> Plan[SetUp]:
        queues = None
        if facts.account:
            vpc = text_of(options, "vpc_id")
            vpc = vpc if vpc is not None else facts.stack.parameters.get("VpcId", "") if facts.stack else ""
            queues = queue.look_up(aws, options, facts.account, vpc)
        return planner.plan(options, facts, self._clock.utc(), queues)

    def _previewed(self, aws: Aws, plan: Plan[SetUp]) -> tuple[str, bool]:
        """What would change in each stack, and whether anything would."""
        creates = [one for one in plan.requests if one.operation == "CreateChangeSet"]
        changed = {one.params["StackName"]: self._preview(aws, one) for one in creates}
        texts = [(f"stack {name}, " if name != STACK else "") + changes.as_text(it) for name, it in changed.items()]
        is_deleted = any(one.operation == "DeleteStack" for one in plan.requests)
        is_change = is_deleted or any(it is not None for it in changed.values())
        return "\n\n".join(texts), is_change

    def _preview(self, aws: Aws, create: Request) -> tuple[Change, ...] | None:
        """The changes of a stack.  Leaves no change set."""
        try:
            return changes.preview(aws, create, self._clock)
        finally:
            self._forget(aws, create)

    def _when_idle(self, aws: Aws, facts: Facts, options: SetUpOptions) -> Facts:
        """The facts once AWS has finished an earlier change, such as one whose terminal was closed."""
        for _ in range(MAX_WAITS):
            if facts.stack is None or not facts.stack.is_busy:
                break
            self._say(f"AWS is still busy with {facts.stack.status}:")
            follow(aws, facts.stack.id, self._known_events(aws), self._clock, self._say)
            facts = look_up(aws, text_of(options, "vpc_id"))
        return facts

    def _apply(
        self, aws: Aws, create: Request, execute: Request, options: UpOptions, text: Callable[[str], str]
    ) -> None:
        """Makes the changes of a stack, if there are any, and waits until AWS is done."""
        known = self._known_events(aws, create.params["StackName"])
        if self._agreed(aws, create, options, text) is None:
            self._forget(aws, create)
            return
        name = changes.named(create)
        stack = aws.call("cloudformation", "DescribeChangeSet", name)["StackId"]
        perform([execute], aws.call, self._say, self._clock.sleep)
        follow(aws, stack, known, self._clock, self._say)

    def _agreed(
        self, aws: Aws, create: Request, options: UpOptions, text: Callable[[str], str]
    ) -> tuple[Change, ...] | None:
        """Shows the changes, and has them confirmed if something would be lost.  Leaves no change set if it raises."""
        try:
            changed = changes.preview(aws, create, self._clock)
            self._say(text(changes.as_text(changed)) + "\n")
            lost = changes.lost(changed or ())
            if lost and not options.yes:
                self._runtime.confirm(f"this deletes or replaces {', '.join(lost)}")
        except (TrainerError, KeyboardInterrupt):
            self._forget(aws, create)
            raise
        return changed

    def _set_up_beside(self, aws: Aws, name: str, requests: Sequence[Request], options: UpOptions) -> None:
        """Makes, changes or deletes another stack of the region."""
        if len(requests) > 1:
            create, execute = requests
            self._apply(aws, create, execute, options, lambda text: f"stack {name}, {text}")
        for delete in requests if len(requests) == 1 else ():
            if not options.yes:
                self._runtime.confirm(f"this deletes the stack {name} in {aws.region}")
            self._delete_stack(aws, delete)

    def _delete_stack(self, aws: Aws, delete: Request) -> None:
        known = self._known_events(aws, delete.params["StackName"])
        perform([delete], aws.call, self._say, self._clock.sleep)
        follow(aws, delete.params["StackName"], known, self._clock, self._say)

    def _allow_spot(self, aws: Aws, request: Request) -> None:
        """A failure is a warning: jobs without --spot do not need it."""
        try:
            perform([request], aws.call, self._say, self._clock.sleep)
        except AwsError as error:
            self._say(f"warning: {error}")

    def _known_events(self, aws: Aws, name: str = STACK) -> set[str]:
        """Ids of a stack's events so far."""
        stack = stack_of(aws, name)
        return {event["EventId"] for event in events_of(aws, stack.id, set())} if stack else set()

    def _forget(self, aws: Aws, create: Request) -> None:
        """Deletes the change set.  A failure is a warning, so that it does not hide an earlier error."""
        try:
            changes.forget(aws, create)
        except AwsError as error:
            self._say(f"warning: could not delete change set {create.params['ChangeSetName']}: {error}")

    def _show_outputs(self, aws: Aws) -> int:
        stack = stack_of(aws)
        assert stack is not None
        self._say("\nthe account is set up:\n" + table(("output", "value"), sorted(stack.outputs.items())))
        self._say("next:\n  python -m launch.image push\n  python -m launch.ec2 --nodes 2 --dry-run")
        return Exit.DONE

    # ---- parts of down

    def _check_unused(self, aws: Aws, stack: Stack, keep_data: bool, messages: Stack | None) -> tuple[str, ...]:
        """Warnings.  Raises AwsError if jobs run, others use the stack, or data would be lost."""
        clients = [aws]
        if stack.has_roles:  # jobs and stacks in all regions use them
            others = [region for region in self._runtime.regions_of(aws) if region != aws.region]
            clients += [self._runtime.make_aws(region) for region in others]
        warnings = in_use.check_regions(in_use.look_up_regions(clients, self._clock.utc()), aws.region)
        in_use.check_nothing_attached(aws, stack)
        if not keep_data:
            in_use.check_no_data(aws, stack, messages)
        return warnings

    def _delete(self, aws: Aws, plan: Plan[None], stack: Stack) -> None:
        for request in plan.requests:
            if request.operation == "DeleteStack":
                self._delete_stack(aws, request)
            elif request.name != "NodeLogs" or not in_use.has_logs(aws, stack.resources["NodeLogs"]):
                perform([request], aws.call, self._say, self._clock.sleep)

    def _verify_deleted(self, aws: Aws) -> int:
        facts = look_up(aws)
        if facts.problems:
            raise facts.problems[0]
        if facts.stack is not None:
            raise AwsError(f"the stack still exists: {facts.stack.status}; run {DOWN} again.", "StillThere")
        self._say(f"\ndeleted: stack {STACK}")
        self._show_kept(facts)
        return Exit.DONE

    def _show_kept(self, facts: Facts) -> None:
        region = facts.region
        commands = {
            "JobBucket": f"aws s3 rb s3://{bucket_of(facts.account, region)}",
            "Repository": f"aws ecr delete-repository --repository-name {TOOLKIT} --region {region}",
            "NodeLogs": f"aws logs delete-log-group --log-group-name /{TOOLKIT}/ec2 --region {region}",
        }
        rows = [(name, commands[name]) for name in KEPT if name in facts.adopted]
        if rows:
            self._say("kept, and adopted by the next up:\n" + table(("name", "delete it with"), rows))
        if facts.budget is not None and facts.owner_region is None:
            delete = f"aws budgets delete-budget --account-id {facts.account} --budget-name {TOOLKIT}"
            self._say(f"the account still has its budget; delete it: {delete}")


DRIFT = {
    "NOT_CHECKED": "not checked; --drift checks it",
    "UNKNOWN": "unknown",
    "IN_SYNC": "none when last checked",
    "DRIFTED": "found when last checked",
}


def _parameters(stack: Stack) -> str:
    return table(("parameter", "value"), sorted((name, value) for name, value in stack.parameters.items() if value))


def _stack_text(stack: Stack, region: str) -> str:
    """Everything about a stack."""
    return "\n".join(
        [
            f"stack {STACK} in {region}: {stack.status}",
            f"drift: {DRIFT.get(stack.drift, stack.drift)}",
            *([f"left out: {absent}"] if (absent := left_out_text(region)) else []),
            "",
            table(("output", "value"), sorted(stack.outputs.items())),
            "",
            _parameters(stack),
            "",
            table(("resource", "id"), sorted(stack.resources.items())),
        ]
    )


def _resources(setup: SetUp) -> str:
    """The stack's resources, where AWS cannot say what would change."""
    rows = [(thing.id, thing.kind, thing.name) for thing in setup.holds]
    return "resources of the stack:\n" + table(("name", "kind", "id"), rows)


def _brief(plan: Plan[Any], middle: str) -> str:
    """The plan with `middle` in place of its requests."""
    title, _, rest = plan.brief.partition("\n\n")
    facts = "\n".join(columns([line for fact in plan.facts for line in fact.lines]))
    return "\n\n".join(paragraph for paragraph in (title, facts, middle, rest) if paragraph)
