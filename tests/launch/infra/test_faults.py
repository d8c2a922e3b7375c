"""Every call that changes something goes wrong in every way; the same command again leads to where it should have."""

from contextlib import suppress

import pytest

from tests.launch.faults import EVERY, TOLD_APART, Died, Faults, injected
from tests.launch.infra.account import NewAccount

# Of how a call can fail, what `make test` tries; `make test-all` tries the others, too.
QUICK = ("answer lost once", "died after")
SLOW = pytest.mark.slow("no error or lost answer keeps the next `infra up` or `down` from its end")
FAULTS = [pytest.param(fault, marks=() if fault in QUICK else SLOW) for fault in TOLD_APART]


def broken(new: NewAccount, operation: str, fault: str, *words: str) -> None:
    """Types `words` while `operation` goes wrong."""
    with injected(Faults()) as faults:
        faults.on(operation, EVERY[fault]())
        with suppress(Died):
            new.type(*words)
        assert faults.count(operation) == 1, faults.calls


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", ["CreateChangeSet", "ExecuteChangeSet", "CreateServiceLinkedRole"])
def test_up_again_sets_the_account_up(new: NewAccount, operation: str, fault: str) -> None:
    broken(new, operation, fault, "up")
    assert new.type("up") == 0

    assert f"  Bucket          {new.bucket}" in new.out
    assert [stack.status for stack in new.stacks] == ["CREATE_COMPLETE"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", ["DeleteBudget", "CreateBudget"])
def test_up_again_makes_the_budget(new: NewAccount, operation: str, fault: str) -> None:
    new.type("up")
    words = ("up", "--monthly-usd", "5", "--email", "a@example.org")
    broken(new, operation, fault, *words)
    assert new.type(*words) == 0

    (budget,) = new.aws().pages("budgets", "DescribeBudgets", "Budgets", {"AccountId": new.id})
    assert budget["BudgetLimit"]["Amount"] == "5"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", ["DeleteStack", "DeleteBucket"])
def test_down_again_takes_the_stack_away(new: NewAccount, operation: str, fault: str) -> None:
    new.type("up")
    broken(new, operation, fault, "down")
    assert new.type("down") == 0

    assert (new.stacks, [role for role in new.roles if role.startswith("aws-ddp-toolkit")]) == ([], [])
    # What the stack no longer holds may be somebody's: it is named, with the command that deletes it.
    left = [bucket["Name"] for bucket in new.aws().call("s3", "ListBuckets")["Buckets"]]
    assert left == [] or f"aws s3 rb s3://{left[0]}" in new.out


@pytest.mark.parametrize("fault", FAULTS)
def test_plan_leaves_at_most_an_empty_stack_which_the_next_one_removes(new: NewAccount, fault: str) -> None:
    broken(new, "DeleteStack", fault, "plan")
    assert {stack.status for stack in new.stacks} <= {"REVIEW_IN_PROGRESS"}
    assert new.type("plan") == 0
    assert new.stacks == []
