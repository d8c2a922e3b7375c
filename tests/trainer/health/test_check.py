"""Who leaves how where a machine is sick."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch import distributed

from trainer.contract import Exit
from trainer.distributed.heartbeat import SharedState
from trainer.distributed.ranks import Ranks
from trainer.errors import MachineError, SickNode
from trainer.health.check import Expected, agree, raise_if_sick, read_expected

HOST = socket.gethostname()


def errors(problems: dict[int, list[str]], nodes: int = 3, each: int = 2) -> list[MachineError | None]:
    """What each of nodes x each ranks raises."""
    store, world = distributed.HashStore(), nodes * each

    def one(rank: int) -> MachineError | None:
        ranks = Ranks(rank, world, rank % each, each, rank // each, nodes)
        try:
            agree(SharedState(store, rank, world, 10.0), ranks, problems.get(rank, []), 20.0)
        except MachineError as error:
            return error
        return None

    with ThreadPoolExecutor(world) as threads:
        return list(threads.map(one, range(world)))


def test_a_sick_machine_leaves_with_a_code_of_its_own_and_the_others_as_for_a_lost_one() -> None:
    left = errors({2: ["GPU 0: it is lost"], 3: ["GPU 1: it is lost", "GPU 0: it is lost"]})

    assert [error and error.code for error in left] == [6, 6, Exit.SICK, Exit.SICK, 6, 6]
    sentence = f"node 1 ({HOST}) failed its health check: GPU 0: it is lost, GPU 1: it is lost; "
    assert {str(error) for error in left} == {
        f"{sentence}take another machine.", f"{sentence}start again without it.",
    }  # fmt: skip
    assert [error.is_mine_to_report for error in left if error] == [False, False, True, False, False, False]


def test_a_rank_that_never_comes_is_an_error_in_time() -> None:
    shared = SharedState(distributed.HashStore(), 0, 2, 10.0)
    with pytest.raises(MachineError, match="1 of 2 ranks did not finish their health check in time"):
        agree(shared, Ranks(0, 2, 0, 2), [], 0.3)


def test_a_training_alone_ends_with_the_same_sentence() -> None:
    raise_if_sick([])
    with pytest.raises(SickNode, match="failed its health check: it is lost; take another machine"):
        raise_if_sick(["it is lost"])


def test_the_environment_says_what_to_expect() -> None:
    assert read_expected({}) == Expected()
    assert read_expected({"DDP_NODE_GPUS": "", "DDP_NODE_GBPS": "", "DDP_NODE_XIDS": " "}) == Expected()
    given = {"DDP_NODE_GPUS": "8", "DDP_NODE_GBPS": "0.781", "DDP_NODE_XIDS": "48 79 "}
    assert read_expected(given) == Expected(8, 0.781, (48, 79))


@pytest.mark.parametrize("text", ["many", "-1", "nan", "inf"])
def test_an_environment_that_holds_no_number_is_refused(text: str) -> None:
    from trainer.errors import SettingsError

    with pytest.raises(SettingsError, match="DDP_NODE_GBPS"):
        read_expected({"DDP_NODE_GBPS": text})
