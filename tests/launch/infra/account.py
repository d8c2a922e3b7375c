"""An AWS account that is not set up yet: moto in this process, with patches to its CloudFormation.

with NewAccount.opened() as account:
    assert account.type("up") == 0
    assert "CREATE_COMPLETE" in account.out
"""

import contextlib
import functools
import io
import json
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import yaml
from moto import mock_aws
from moto.cloudformation.models import cloudformation_backends
from moto.cloudformation.utils import yaml_tag_constructor
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ecr.models import ecr_backends
from moto.iam.models import IAMBackend

from launch.aws.client import Aws
from launch.aws.regions import regions_of
from launch.core.clock import Clock
from launch.core.terminal import say
from launch.infra import __main__
from launch.infra.commands import Runtime
from launch.rehearse.aws.account import MANIFEST
from launch.rehearse.aws.ec2 import moto_patches as ec2
from launch.rehearse.aws.ec2.account import Ec2Account
from tests.launch.account import leave_what_stays_alone
from tests.launch.faults import Request, listen, watched
from tests.launch.infra.moto_patches import patched
from tests.launch.privilege.watch import granted
from trainer.errors import SettingsError


class _Parser(yaml.CLoader):
    """What moto reads templates with, in a tenth of the time."""


_Parser.add_multi_constructor("", yaml_tag_constructor)


@dataclass
class NewAccount:
    """requests: every call since it was opened; happens: what happens at each sleep, in turn; answer: the user's to a
    confirmation; questions: the confirmations; make_aws: how commands get at this account.
    """

    id: str = DEFAULT_ACCOUNT_ID
    region: str = "us-east-1"
    bucket: str = f"aws-ddp-toolkit-{DEFAULT_ACCOUNT_ID}-us-east-1"
    requests: list[Request] = field(default_factory=list)
    happens: Iterator[Callable[[], None]] = field(default_factory=lambda: iter(()))
    answer: str = "yes"
    questions: list[str] = field(default_factory=list)
    out: str = ""
    err: str = ""
    make_aws: Callable[[str | None], Aws] = field(default_factory=lambda: way_in)

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator["NewAccount"]:
        """A new account, until the end of the block.  Only one at a time."""
        listen()
        account = cls()
        logging.getLogger("moto").setLevel(logging.ERROR)  # of what it does not know
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "Tried to parse AWS::")
            stack.enter_context(mock_aws(config={"core": {"mock_credentials": False}}))
            stack.enter_context(ec2.patched(ec2.Rules()))
            stack.enter_context(patched())
            # No role has any of AWS's own policies; moto would read all 1,600 of them.
            stack.enter_context(mock.patch.object(IAMBackend, "_init_aws_policies", return_value=[]))
            stack.enter_context(mock.patch("yaml.Loader", _Parser))
            stack.enter_context(watched(lambda call, _protocol: account.requests.append(call)))
            stack.enter_context(granted())
            yield account
        leave_what_stays_alone()

    def aws(self, region: str | None = None) -> Aws:
        """A way into this account."""
        return way_in(region or self.region)

    def type(self, *words: str) -> int:
        """The exit code of `python -m launch.infra WORDS`; its output is in `out` and `err`."""
        out, err = io.StringIO(), io.StringIO()
        runtime = Runtime(self.make_aws, self._clock(), say, self._confirm, _two_regions)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = __main__.main(words, runtime)
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    def push_launcher(self) -> None:
        """The image that queues of launch.ec2 need, and the route to the internet that the default VPC has on AWS."""
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "layers": [], "config": {"digest": "sha256:1"}}
        ecr_backends[self.id][self.region].put_image("aws-ddp-toolkit", json.dumps(manifest), "launcher", MANIFEST)
        Ec2Account(self.region).add_internet_route()

    @property
    def calls(self) -> list[str]:
        """Every call, as service:Operation."""
        return [str(request) for request in self.requests]

    @property
    def stacks(self) -> list[Any]:
        """moto's stacks."""
        return list(cloudformation_backends[self.id][self.region].stacks.values())

    @property
    def roles(self) -> list[str]:
        """The names of all roles."""
        return sorted(role["RoleName"] for role in self.aws().pages("iam", "ListRoles", "Roles"))

    def _clock(self) -> Clock:
        """Sleeping takes no time, but the clock does not know."""
        slept = [0.0]

        def sleep(seconds: float) -> None:
            slept[0] += seconds
            next(self.happens, lambda: None)()

        return Clock(lambda: time.time() + slept[0], sleep)

    def _confirm(self, what: str) -> None:
        self.questions.append(what)
        if self.answer != "yes":
            raise SettingsError("not confirmed")


@functools.cache
def way_in(region: str | None) -> Aws:
    """One for all accounts and commands: it keeps nothing between calls, and clients take as long as ten calls."""
    return Aws(region, policy="administrator")


def _two_regions(aws: Aws) -> list[str]:
    """Of the account's: asking moto for all of them takes seconds."""
    return [region for region in regions_of(aws) if region in ("eu-west-1", "us-east-1")]
