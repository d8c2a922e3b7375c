"""Limits of an account that jobs which run at the same time share: as facts of a plan, and summed over jobs.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from launch.core.plan import Fact

SHARED_QUOTAS = "shared_quotas"


@dataclass(frozen=True)
class Need:
    """What one job takes of a quota.  running: by other jobs; 0 where that is not known."""

    name: str
    needed: float
    running: float
    limit: float


def fact_of(needs: Sequence[Need]) -> Fact:
    """For programs; the text of a plan has the quotas of its own backend."""
    return Fact(SHARED_QUOTAS, [asdict(need) for need in needs], ())


def needs_in(plan: Mapping[str, Any]) -> tuple[Need, ...]:
    """The needs in a plan that was written as JSON."""
    facts = plan.get("facts") or {}
    return tuple(Need(**need) for need in facts.get(SHARED_QUOTAS) or ())


def shortage(jobs: Sequence[Sequence[Need]], at_once: int) -> tuple[str, int] | None:
    """The quota that has no room for so many of the jobs at a time, in words, and for how many it has; None for none.

    For the jobs that take most.  What a single job lacks is its own plan's to say.
    """
    needs = [need for job in jobs for need in job]
    for name in dict.fromkeys(need.name for need in needs):
        alike = sorted((need for need in needs if need.name == name), key=lambda need: -need.needed)[:at_once]
        first, wanted, fitting = alike[0], 0.0, 0
        for need in alike:
            wanted += need.needed
            fitting += wanted + first.running <= first.limit
        if 0 < fitting < len(alike):
            sentence = (
                f"{len(alike)} runs at a time need {wanted:g} of {name!r}, {first.running:g} are in use, and the "
                f"quota is {first.limit:g}"
            )
            return sentence, fitting
    return None
