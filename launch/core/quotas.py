"""Limits of an account that jobs which run at the same time share: as facts of a plan, and summed over jobs.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from launch.core.plan import Fact

SHARED_QUOTAS = "shared_quotas"


@dataclass(frozen=True)
class Need:
    """What one job takes of a quota.  running: by all jobs; 0 where that is not known.

    held: of it by this very job, which a sweep that was killed has left running.
    """

    name: str
    needed: float
    running: float
    limit: float
    held: float = 0


def fact_of(needs: Sequence[Need]) -> Fact:
    """For programs; the text of a plan has the quotas of its own backend."""
    return Fact(SHARED_QUOTAS, [asdict(need) for need in needs], ())


def needs_in(plan: Mapping[str, Any]) -> tuple[Need, ...]:
    """The needs in a plan that was written as JSON."""
    facts = plan.get("facts") or {}
    return tuple(Need(**need) for need in facts.get(SHARED_QUOTAS) or ())


def shortage(jobs: Sequence[Sequence[Need]], at_once: int) -> tuple[str, int] | None:
    """The quota that has no room for so many of the jobs at a time, in words, and for how many it has; None for none.

    For the jobs that take most.  What they hold already is not counted twice.  What a single job lacks is its own
    plan's to say.
    """
    needs = [need for job in jobs for need in job]
    for name in dict.fromkeys(need.name for need in needs):
        known = sorted((need for need in needs if need.name == name), key=lambda need: -need.needed)
        alike, first = known[:at_once], known[0]
        others, wanted, fitting = max(0, first.running - sum(need.held for need in known)), 0.0, 0
        for need in alike:
            wanted += need.needed
            fitting += wanted + others <= first.limit
        if 0 < fitting < len(alike):
            sentence = (
                f"{len(alike)} runs at a time need {wanted:g} of {name!r}, {others:g} are in use, and the quota is "
                f"{first.limit:g}"
            )
            return sentence, fitting
    return None
