"""`python -m launch.infra`: the clock, the terminal and AWS, handed to what decides."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from launch.core import cli
from launch.core.cli import Verb
from launch.infra.options import DownOptions, PlanOptions, ShowOptions, TemplateOptions, UpOptions

if TYPE_CHECKING:
    from launch.core.aws import Aws

ABOUT = """\
Sets an account up for launches, once per region: bucket, repository, roles, logs, leak sweeper, as one CloudFormation
stack.

  python -m launch.infra plan
  python -m launch.infra up --monthly-usd 500 --email you@example.org
"""

PLAN = """\
what up would create, change or delete; makes nothing that lasts

  python -m launch.infra plan
  python -m launch.infra plan --vpc-id vpc-0123456789abcdef0

Works without an account, too: it then lists what the stack would hold.
"""

UP = """\
shows the plan, carries it out, and says what launchers will find

  python -m launch.infra up
  python -m launch.infra up --monthly-usd 500 --email you@example.org

The same command again changes what is not as it shall be, and nothing else.  It asks before it deletes or replaces
something; --yes answers.
"""

SHOW = """\
the stack: its state, what it tells launchers, what was changed by hand

  python -m launch.infra show --drift
"""

DOWN = """\
deletes the stack; refuses while jobs run or others use it, or bucket or repository hold something

  python -m launch.infra down
  python -m launch.infra down --keep-data --yes

Shows what goes, and asks.
"""

TEMPLATE = """\
prints the CloudFormation template as it is sent, for linters and reviewers

  python -m launch.infra template > account.yaml
"""


def main(argv: list[str]) -> int:
    """Runs the command line and returns its exit code."""
    verbs = {
        "plan": Verb(PLAN, PlanOptions, _act("plan")),
        "up": Verb(UP, UpOptions, _act("up")),
        "show": Verb(SHOW, ShowOptions, _act("show")),
        "down": Verb(DOWN, DownOptions, _act("down")),
        "template": Verb(TEMPLATE, TemplateOptions, _act("template")),
    }
    return cli.main_of_verbs("python -m launch.infra", ABOUT, verbs, argv)


def _act(name: str) -> Callable[[Any], int]:
    def do(options: Any) -> int:
        from launch.core.clock import Clock  # --help needs none of it
        from launch.infra.commands import Acts

        done: int = getattr(Acts(_aws, Clock(), cli.say, cli.confirm), name)(options)
        return done

    return do


def _aws(region: str | None) -> "Aws":
    from launch.core.aws import Aws

    return Aws(region, policy="administrator")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
