"""A training on one machine is reached from nowhere else.  A whole one: tests/launch/local/test_local.py."""

import os
import socket
import sys
from argparse import Namespace
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend

from tests.listening import Listening, below
from trainer import torchrun
from trainer.distributed import join, loopback
from trainer.distributed.ranks import read_ranks

SOON = timedelta(seconds=10)


def here() -> set[Listening]:
    return below(os.getpid())


@pytest.mark.parametrize(
    "flags",
    [{"standalone": True}, {}, {"master_port": None},
     {"rdzv_backend": "c10d", "rdzv_endpoint": "10.0.0.1:29400", "rdzv_conf": "join_timeout=9,is_host=1"}],
    ids=["standalone", "one node", "no port", "one node of EC2"],
)  # fmt: skip
def test_torchrun_itself_meets_there(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its static rendezvous makes a store of its own, which must be ours."""
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

    for name in loopback.environment():
        monkeypatch.delenv(name, raising=False)
    args = Namespace(standalone=False, nnodes="1:1", rdzv_backend="static", rdzv_endpoint="", rdzv_id="none",
                     master_addr="127.0.0.1", master_port=0, node_rank=0)  # fmt: skip
    before = here()
    vars(args).update(flags)
    store = torchrun._keep_to_this_machine(args)
    handler = StaticTCPRendezvous(args.master_addr, args.master_port, args.node_rank, 1, args.rdzv_id, 10)
    assert handler.next_rendezvous().world_size == 1
    assert {one.address for one in here() - before} == {"127.0.0.1"}
    assert len(here() - before) == 1
    assert args.rdzv_backend == "static"  # the other one unpickles
    assert os.environ["GLOO_SOCKET_IFNAME"] in ("lo", "lo0")
    del store


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a machine has one loopback address")
def test_the_agents_of_a_rehearsal_without_root_meet_on_loopback_only() -> None:
    """Each node has a loopback address; torch's own store would be on every address."""
    with socket.create_server(("127.0.0.9", 0)) as free:
        port = free.getsockname()[1]
    endpoint = f"127.0.0.9:{port}"
    args = Namespace(standalone=False, nnodes="2", rdzv_backend="c10d", rdzv_endpoint=endpoint,
                     rdzv_conf="join_timeout=9,is_host=1")  # fmt: skip
    before = here()
    store = torchrun._keep_to_this_machine(args)
    backend, joined = create_backend(RendezvousParameters("c10d", endpoint, "job", 1, 2, is_host="1"))
    assert backend.get_state() is None
    assert [(one.address, one.port) for one in here() - before] == [("127.0.0.9", port)]
    del store, joined, backend


@pytest.mark.parametrize(
    "env",
    [
        {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0",
         "SLURM_STEP_NUM_NODES": "1", "MASTER_ADDR": "node17", "MASTER_PORT": "0"},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
         "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_PORT": "0"},
    ],
    ids=["Slurm", "Open MPI"],
)  # fmt: skip
def test_rank_0_of_one_machine_serves_on_loopback_only(env: dict[str, str]) -> None:
    before = here()
    store = join._meeting_place(read_ranks(env), SOON)
    assert [(one.address, one.port) for one in here() - before] == [("127.0.0.1", store.port)]
    TCPStore("127.0.0.1", store.port, timeout=SOON, wait_for_workers=False).set("x", "1")
    assert store.get("x") == b"1"
