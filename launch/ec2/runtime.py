"""The dependencies of the commands, for tests to replace.  Light to import: --help needs it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from launch.core.clock import Clock
from launch.core.terminal import confirm, may_detach, say

if TYPE_CHECKING:
    from launch.aws.client import Aws

Say = Callable[[str], None]


def _connect(region: str | None) -> "Aws":
    from launch.aws.client import Aws

    return Aws(region)


@dataclass(frozen=True)
class Runtime:
    """AWS, time and the user; tests bring their own.

    make_aws: calls to a region, or to the configured one for None; may_detach: asks the user who pressed Ctrl-C
    whether the job keeps running; confirm: asks before something is removed; env: of the user, for rehearsals.
    """

    make_aws: Callable[[str | None], "Aws"] = _connect
    clock: Clock = field(default_factory=Clock)
    say: Say = say
    may_detach: Callable[[], bool] = may_detach
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    confirm: Callable[[str], None] = confirm
