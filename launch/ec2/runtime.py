"""The commands' dependencies on AWS, time and the terminal, for tests to replace.  Fast to import for --help."""

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
    """AWS, time and the user."""

    make_aws: Callable[[str | None], "Aws"] = _connect  # by region, None for the configured one
    clock: Clock = field(default_factory=Clock)
    say: Say = say
    may_detach: Callable[[], bool] = may_detach  # after Ctrl-C: asks whether the job keeps running
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)  # the user's, for rehearsals
    confirm: Callable[[str], None] = confirm  # asks before resources are removed
