"""What plan, up, show, down and template do: each looks up, decides in planner.py, and acts here."""

from collections.abc import Callable
from dataclasses import dataclass

from launch.core.aws import Aws
from launch.core.clock import Clock
from launch.core.errors import AwsError, NotSetUp
from launch.core.names import bucket_of
from launch.core.perform import perform, table
from launch.core.plan import Plan, Request, as_json, as_text
from launch.core.regions import regions_of
from launch.infra import attached, changes, contents, planner, regions
from launch.infra.checks import check, check_account, check_region
from launch.infra.facts import Facts, Stack
from launch.infra.follow import Say, events_of, follow
from launch.infra.lookup import look_up, stack_of
from launch.infra.options import (
    DownOptions,
    PlanOptions,
    SetUpOptions,
    ShowOptions,
    TemplateOptions,
    UpOptions,
    text_of,
)
from launch.infra.show import detect_drift, drifted, stack_text
from launch.infra.template import KEPT, STACK, filled
from trainer.contract import Exit
from trainer.errors import TrainerError

# What AWS is at may be followed by something else, such as a roll-back; but not for ever.
AGAIN = 2


@dataclass(frozen=True)
class Acts:
    """make_aws: a region, or None for the configured one -> calls to it; confirm: raises if what it is told is not
    meant.
    """

    make_aws: Callable[[str | None], Aws]
    clock: Clock
    say: Say
    confirm: Callable[[str], None]

    def template(self, options: TemplateOptions) -> int:
        """Prints the template; asks nobody."""
        check_account(options.account)
        check_region(options.region or "us-east-1")
        self.say(filled(options.account, options.region or "us-east-1"))
        return Exit.DONE

    def plan(self, options: PlanOptions) -> int:
        """Says what `up` would change, and leaves nothing."""
        check(options)
        aws = self.make_aws(options.region)
        facts = look_up(aws, text_of(options, "vpc_id"))
        made = planner.plan(options, facts, self.clock.utc())
        if made.problems:
            self.say(_brief(made, _all_of(made)))
            problem = made.problems[0]
            return Exit.DONE if isinstance(problem, NotSetUp) else problem.code
        create = planner.inner(made).create
        try:
            found = changes.ask(aws, create, self.clock)
        finally:
            self._forget(aws, create)
        self.say(_brief(made, changes.as_text(found)))
        if found is not None:
            self.say(f"\nto do it: {planner.UP}")
        return Exit.DONE

    def up(self, options: UpOptions) -> int:
        """Makes the account as it was asked for; what is so already stays."""
        check(options)
        aws = self.make_aws(options.region)
        made = self._plan_when_idle(aws, options, wait=not options.dry_run)
        if options.dry_run:
            return self._show(made, options.dry_run)
        if made.problems:
            raise made.problems[0]
        setup = planner.inner(made)
        known = self._known_events(aws)
        found = self._agreed(aws, made, options)
        if found is not None:
            name = {"StackName": STACK, "ChangeSetName": setup.create.params["ChangeSetName"]}
            stack = aws.call("cloudformation", "DescribeChangeSet", name)["StackId"]
            perform([setup.execute], aws.call, self.say, self.clock.sleep)
            follow(aws, stack, known, self.clock, self.say)
        else:
            self._forget(aws, setup.create)
        self._allow_spot(aws, setup.spot)
        return self._say_stack(aws)

    def show(self, options: ShowOptions) -> int:
        """Says how the stack is; 4 if there is none."""
        aws = self.make_aws(options.region)
        stack = stack_of(aws)
        if stack is None:
            raise AwsError(f"there is no stack {STACK} in {aws.region}; make it with {planner.UP}.", "NoStack")
        if options.drift:
            self.say("asking what was changed by hand")
            stack = detect_drift(aws, stack, self.clock)
        self.say(stack_text(stack, aws.region))
        if stack.drift == "DRIFTED":
            self.say("changed by hand:\n" + table(("name", "how"), drifted(aws, stack)))
            self.say(f"{planner.UP} changes it back")
        return Exit.DONE

    def down(self, options: DownOptions) -> int:
        """Deletes the stack, and what it leaves if that is empty."""
        aws = self.make_aws(options.region)
        facts = look_up(aws)
        made = planner.down(facts, options.keep_data)
        if options.dry_run:
            return self._show(made, options.dry_run)
        if made.problems:
            raise made.problems[0]
        stack = facts.stack
        if stack is None:
            self.say(f"there is no stack {STACK} in {facts.region}")
            self._say_what_stays(facts)
            return Exit.DONE
        made = planner.down(facts, options.keep_data, self._nobody_needs(aws, stack, options.keep_data))
        rows = planner.goes(stack, options.keep_data)
        self.say(_brief(made, "goes:\n" + table(("what", "name", "id"), rows)) + "\n")
        if not options.yes:
            self.confirm(f"this deletes the stack {STACK} in {facts.region}")
        known = self._known_events(aws)
        perform(made.steps[:1], aws.call, self.say, self.clock.sleep)
        follow(aws, stack.id, known, self.clock, self.say)
        for request in made.steps[1:]:
            if request.name != "NodeLogs" or not contents.has_logs(aws, stack.resources["NodeLogs"]):
                perform([request], aws.call, self.say, self.clock.sleep)
        return self._verify(aws)

    # ---- parts of them

    def _plan_when_idle(self, aws: Aws, options: SetUpOptions, wait: bool) -> Plan:
        """The plan, once AWS is done with what it is at: an earlier `up` whose terminal was closed."""
        facts = look_up(aws, text_of(options, "vpc_id"))
        for _ in range(AGAIN):
            if facts.stack is None or not facts.stack.is_busy or not wait:
                break
            self.say(f"AWS is still at {facts.stack.status}:")
            follow(aws, facts.stack.id, self._known_events(aws), self.clock, self.say)
            facts = look_up(aws, text_of(options, "vpc_id"))
        return planner.plan(options, facts, self.clock.utc())

    def _agreed(self, aws: Aws, made: Plan, options: UpOptions) -> tuple[changes.Change, ...] | None:
        """What changes, shown, and confirmed where something would be lost.  Leaves no change set if it raises."""
        create = planner.inner(made).create
        try:
            found = changes.ask(aws, create, self.clock)
            self.say(_brief(made, changes.as_text(found)) + "\n")
            if (gone := changes.taken_away(found or ())) and not options.yes:
                self.confirm(f"this deletes or replaces {', '.join(gone)}")
        except (TrainerError, KeyboardInterrupt):
            self._forget(aws, create)
            raise
        return found

    def _allow_spot(self, aws: Aws, request: Request) -> None:
        """Jobs without --spot do as well without it."""
        try:
            perform([request], aws.call, self.say, self.clock.sleep)
        except AwsError as error:
            self.say(f"warning: {error}")

    def _known_events(self, aws: Aws) -> set[str]:
        """What was said of the stack before."""
        stack = stack_of(aws)
        return {event["EventId"] for event in events_of(aws, stack.id, set())} if stack else set()

    def _forget(self, aws: Aws, create: Request) -> None:
        """Leaves nothing of a change set; if that fails, what came before matters more."""
        try:
            changes.forget(aws, create)
        except AwsError as error:
            self.say(f"warning: change set {create.params['ChangeSetName']} is still there: {error}")

    def _say_stack(self, aws: Aws) -> int:
        stack = stack_of(aws)
        assert stack is not None
        rows = sorted(stack.outputs.items())
        self.say("\nthe account is set up:\n" + table(("output", "value"), rows))
        self.say("next: python -m launch.image push, and python -m launch.ec2 --nodes 2 --dry-run")
        return Exit.DONE

    def _nobody_needs(self, aws: Aws, stack: Stack, keep_data: bool) -> tuple[str, ...]:
        """Warnings.  Raises AwsError if jobs run or others use the stack, or data would be lost."""
        places = [aws]
        if stack.has_roles:  # jobs and stacks of all regions use them
            places += [self.make_aws(region) for region in regions_of(aws) if region != aws.region]
        warnings = regions.check(regions.look(places, self.clock.utc()), aws.region)
        attached.check_nothing_attached(aws, stack)
        if not keep_data:
            contents.check_no_data(aws, stack)
        return warnings

    def _verify(self, aws: Aws) -> int:
        after = look_up(aws)
        if after.problems:
            raise after.problems[0]
        if after.stack is not None:
            raise AwsError(f"the stack is still there: {after.stack.status}; run {planner.DOWN} again.", "StillThere")
        self.say(f"\nthe stack {STACK} is gone")
        self._say_what_stays(after)
        return Exit.DONE

    def _say_what_stays(self, facts: Facts) -> None:
        region = facts.region
        commands = {
            "JobBucket": f"aws s3 rb s3://{bucket_of(facts.account, region)}",
            "Repository": f"aws ecr delete-repository --repository-name aws-ddp-toolkit --region {region}",
            "NodeLogs": f"aws logs delete-log-group --log-group-name /aws-ddp-toolkit/ec2 --region {region}",
        }
        stays = [name for name in KEPT if name in facts.adopted]
        if stays:
            rows = [(name, commands[name]) for name in stays]
            self.say("still there, and taken over by the next up:\n" + table(("what", "deleted with"), rows))

    def _show(self, made: Plan, how: bool | str) -> int:
        self.say(as_json(made) if how == "json" else as_text(made))
        problem = made.problems[0] if made.problems else None
        return problem.code if problem and not isinstance(problem, NotSetUp) else Exit.DONE


def _all_of(made: Plan) -> str:
    """What the stack would hold, where AWS cannot say what that changes."""
    rows = [(thing.id, thing.kind, thing.name) for thing in planner.inner(made).holds]
    return "the stack would hold:\n" + table(("name", "kind", "named"), rows)


def _brief(made: Plan, what: str) -> str:
    """The plan without its requests, with what changes."""
    width = max(len(label) for label, _ in made.facts)
    facts = [f"  {label:<{width}}  {text}" for label, text in made.facts]
    head, rest = made.brief.split("\n", 1)
    return "\n".join([head, "", *facts, "", what, rest])
