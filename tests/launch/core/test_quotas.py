"""Quotas that jobs at the same time share."""

import json

import pytest

from launch.core.plan import Need, Plan, as_data, fact_of, needs_in, shortage

G = "Running On-Demand G and VT instances"


def jobs(*vcpus: float, running: float = 0, limit: float = 96) -> list[list[Need]]:
    return [[Need(G, count, running, limit)] for count in vcpus]


@pytest.mark.parametrize(("needs", "at_once", "fitting"), [
    (jobs(48, 48), 2, None),
    (jobs(48, 48, 48), 3, 2),
    (jobs(8, 48, 96), 2, 1),  # those that take most
    (jobs(48, 48, running=8), 2, 1),
    (jobs(192), 1, None),  # its own plan says so
    ([[Need(G, 48, 96, 192, held=48)]] * 2 + jobs(48, 48, running=96, limit=192), 4, None),  # held is not taken again
    ([[Need(G, 48, 96, 144, held=48)]] * 2 + jobs(48, 48, running=96, limit=144), 4, 3),
    ([[Need("a", 1, 0, 1), Need("b", 1, 0, 9)], [Need("a", 1, 0, 1)]], 2, 1),
    ([[], []], 2, None),
])  # fmt: skip
def test_so_many_jobs_at_a_time_fit_a_quota(needs: list[list[Need]], at_once: int, fitting: int | None) -> None:
    found = shortage(needs, at_once)

    assert (found[1] if found else None) == fitting


def test_a_plan_carries_them_to_programs() -> None:
    plan = Plan("job", None, facts=(fact_of([Need(G, 48, 0, 96)]),))

    assert needs_in(json.loads(json.dumps(as_data(plan)))) == (Need(G, 48, 0, 96),)
    assert needs_in({"facts": {}}) == ()
