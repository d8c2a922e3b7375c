"""`python -m trainer.health`: the health check alone, started the same way as the training it precedes."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from trainer.__main__ import leave, reported
from trainer.contract import STOPPED, Exit
from trainer.distributed.ranks import Ranks, read_ranks
from trainer.errors import TrainerError
from trainer.process.parent import end_with_parent
from trainer.settings import flags
from trainer.terminal import say

ABOUT = """Check this machine's GPUs, a matrix product on each, and the network between the nodes.

  python -m trainer.torchrun --nproc-per-node 4 -m trainer.health
  srun python -m trainer.health --timeout-s 120"""
SECTIONS = {"device": "check"}


class Options(BaseModel):
    """The trainer's settings of the same names."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    device: Literal["auto", "cuda", "cpu"] = Field("auto", description="auto is a GPU if there is one")
    timeout_s: float = Field(
        600.0, gt=0, le=86_400, description="seconds to wait for a rank that does not answer before failing"
    )


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run the check and return the exit code."""
    ranks = Ranks()
    try:
        (options,) = flags.parse(argv, [Options], prog="python -m trainer.health", about=ABOUT, sections=SECTIONS)
        assert isinstance(options, Options)
        ranks = read_ranks(env)
        _check(options, ranks, env)
        return Exit.DONE
    except TrainerError as error:
        return reported(error, ranks)
    except KeyboardInterrupt:
        return STOPPED


def _check(options: Options, ranks: Ranks, env: Mapping[str, str]) -> None:
    from trainer.distributed.session import session  # torch takes seconds to import
    from trainer.health.check import Check, read_expected

    check = Check(options.device, options.timeout_s, ranks, read_expected(env))
    connect = ranks.world_size > 1
    device = check.look(connected=connect)
    with session(ranks, device, options.timeout_s, connect=connect, before=check.agree) as joined:
        check.measure(joined, say if ranks.is_head else lambda line: None)


if __name__ == "__main__":
    end_with_parent(os.environ)
    leave(main(sys.argv[1:], os.environ))
