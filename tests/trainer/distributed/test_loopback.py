"""C1: a training on one machine is reached by nobody else, and nobody's bytes are run."""

import io
import os
import pickle
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import RendezvousParameters, RendezvousStateError, dynamic_rendezvous
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend

from tests.listening import Listening, below
from trainer import torchrun
from trainer.distributed import join, loopback
from trainer.distributed.ranks import read_ranks

SOON = timedelta(seconds=10)


def here() -> set[Listening]:
    return below(os.getpid())


def test_the_store_of_one_machine_is_on_loopback_only() -> None:
    before = here()
    store = loopback.serve_store(0, SOON)
    assert [(one.address, one.port) for one in here() - before] == [("127.0.0.1", store.port)]
    TCPStore("127.0.0.1", store.port, timeout=SOON, wait_for_workers=False).set("x", "1")
    assert store.get("x") == b"1"


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


@pytest.mark.parametrize(
    ("endpoint", "conf"),
    [("10.0.0.1:29400", "is_host=1"), ("127.0.0.9:29400", "is_host=0"), ("node17:29400", "is_host=1"), ("", "")],
)
def test_several_machines_meet_where_they_are_told(endpoint: str, conf: str) -> None:
    args = Namespace(standalone=False, nnodes="2", rdzv_backend="c10d", rdzv_endpoint=endpoint, rdzv_conf=conf)
    assert torchrun._keep_to_this_machine(args) is None
    assert args.rdzv_endpoint == endpoint


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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a machine has one loopback address")
def test_so_do_its_ranks() -> None:
    env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "2",
           "MASTER_ADDR": "127.0.0.9", "MASTER_PORT": "0", "TORCHELASTIC_USE_AGENT_STORE": "False"}  # fmt: skip
    ranks = read_ranks(env)
    assert ranks.nodes == 2
    before = here()
    store = join._meeting_place(ranks, SOON)
    assert {one.address for one in here() - before} == {"127.0.0.9"}
    del store


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
    assert {one.address for one in here() - before} == {"127.0.0.1"}
    del store


# ---- what nodes tell each other


class Attack:
    """Pickled, it makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_what_somebody_writes_into_the_rendezvous_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_rendezvous, "pickle", pickle)
    attack = pickle.dumps(Attack(tmp_path / "ran"))
    backend = SimpleNamespace(get_state=lambda: (attack, b"token"))
    settings = SimpleNamespace(keep_alive_interval=SOON, keep_alive_max_attempt=3)
    torchrun._read_only_states()
    holder = dynamic_rendezvous._BackendRendezvousStateHolder(backend, settings)  # type: ignore[arg-type]
    with pytest.raises(RendezvousStateError):
        holder.sync()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name", ["builtins eval", "builtins getattr", "os system", "posix system", "subprocess Popen", "datetime sys",
             "torch load", "functools partial", "builtins set.__class__"],
)  # fmt: skip
def test_nothing_else_has_a_name_there(name: str) -> None:
    module, _, inner = name.partition(" ")
    with pytest.raises(pickle.UnpicklingError, match="no part of a rendezvous"):
        torchrun._States(io.BytesIO(f"c{module}\n{inner}\n.".encode())).load()


def test_torchrun_reads_no_more_of_it_before_it_meets_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_rendezvous, "pickle", pickle)
    for beside in ("_leave_quietly_when_asked", "keep_workers", "_kill_workers_left"):  # what they change stays
        monkeypatch.setattr(torchrun, beside, dict)
    monkeypatch.setattr(torchrun, "_fork_ranks", lambda _args: [])
    readers: list[Any] = []
    monkeypatch.setattr("torch.distributed.run.run", lambda _args: readers.append(dynamic_rendezvous.pickle.loads))
    words = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "10.0.0.1:29400", "-m", "trainer"]

    assert torchrun.main(words, verbose=True) == 0
    with pytest.raises(pickle.UnpicklingError, match="no part of a rendezvous"):
        readers[0](pickle.dumps(Attack(Path("nowhere"))))


def test_what_nodes_write_there_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_rendezvous, "pickle", pickle)
    torchrun._read_only_states()
    state = dynamic_rendezvous._RendezvousState()
    node = dynamic_rendezvous._NodeDesc("node-1", 7, 0)
    state.participants[node] = 0
    state.wait_list.add(node)
    state.last_heartbeats[node] = state.deadline = dynamic_rendezvous.datetime.now(dynamic_rendezvous.timezone.utc)
    read = dynamic_rendezvous.pickle.loads(dynamic_rendezvous.pickle.dumps(state))
    assert vars(read) == vars(state)


# ---- whole trainings

TRAINING = (
    "--model",
    "cnn",
    "--dataset",
    "digits",
    "--max-steps",
    "4",
    "--device",
    "cpu",
    "--threads",
    "1",
    "--no-plot",
)


@pytest.mark.slow("no way to start a training on one machine listens beyond loopback")
@pytest.mark.parametrize(
    "command",
    [
        ("-m", "launch.local", "--nproc-per-node", "1"),
        ("-m", "launch.local", "--nproc-per-node", "2"),
        ("-m", "trainer"),
        ("-m", "trainer.torchrun", "--nproc-per-node", "2", "--master-port", "0", "-m", "trainer"),
        (
            "-c",
            "from launch import local; local.train(model='cnn', dataset='digits', max_steps=4, threads=1, plot=False)",
        ),
    ],
    ids=["one rank", "two ranks", "alone", "torchrun", "notebook"],
)
def test_a_training_on_one_machine_listens_on_loopback_only(command: Sequence[str], tmp_path: Path) -> None:
    words = command if command[0] == "-c" else (*command, *TRAINING, "--run-dir", str(tmp_path / "run"))
    env = {name: value for name, value in os.environ.items() if not name.endswith("_SOCKET_IFNAME")}
    seen = set[Listening]()
    with subprocess.Popen([sys.executable, *words], env=env, stdout=subprocess.DEVNULL) as training:
        while training.poll() is None:
            seen |= below(training.pid)
            time.sleep(0.05)
    assert training.returncode == 0
    assert [one for one in seen if not one.is_loopback] == []
    assert bool(seen) is ("--nproc-per-node" in command)
