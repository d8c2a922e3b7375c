# PYTHON_ARGCOMPLETE_OK
"""`python -m launch.infra`."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from launch.core.terminal import confirm, say
from launch.core.verbs import Table, main_of_verbs, verbs_of
from launch.infra.options import DownOptions, PlanOptions, ShowOptions, TemplateOptions, UpOptions

if TYPE_CHECKING:
    from launch.infra.commands import Runtime

ABOUT = """\
Sets up an account for launches, once per region, as one CloudFormation stack: bucket, repository, roles, logs and leak
sweeper.

  python -m launch.infra plan
  python -m launch.infra up --monthly-usd 500 --email you@example.org
"""

PLAN = """\
show what up would create, change or delete; leaves nothing behind

  python -m launch.infra plan
  python -m launch.infra plan --vpc-id vpc-0123456789abcdef0

Without an account it lists the resources of the stack.
"""

UP = """\
create or change the stack, and show its outputs

  python -m launch.infra up
  python -m launch.infra up --monthly-usd 500 --email you@example.org

Shows the plan first, and asks before it deletes or replaces a resource.  Running it again changes only what differs.
"""

SHOW = """\
show state, outputs, parameters and resources of the stack

  python -m launch.infra show --drift
"""

DOWN = """\
delete the stack; refuses while jobs run, others use it, or it holds data

  python -m launch.infra down
  python -m launch.infra down --keep-data --yes

Lists the resources first, and asks.
"""

TEMPLATE = """\
print the CloudFormation template

  python -m launch.infra template > account.yaml
"""


def main(argv: Sequence[str], runtime: "Runtime | None" = None) -> int:
    """Runs the command line and returns its exit code."""

    def commands() -> object:
        from launch.infra.commands import Commands  # slow to import, and --help does not need it

        return Commands(runtime or _runtime())

    table: Table = {
        "plan": (PLAN, PlanOptions),
        "up": (UP, UpOptions),
        "show": (SHOW, ShowOptions),
        "down": (DOWN, DownOptions),
        "template": (TEMPLATE, TemplateOptions),
    }
    return main_of_verbs("python -m launch.infra", ABOUT, verbs_of(commands, table), argv)


def _runtime() -> "Runtime":
    from launch.aws.client import Aws
    from launch.core.clock import Clock
    from launch.infra.commands import Runtime

    return Runtime(partial(Aws, policy="administrator"), Clock(), say, confirm)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
