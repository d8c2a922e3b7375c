"""The forecast against runs of this machine: one rank, two ranks, and two nodes joined by a link of 1 Gbit/s.

The run of one rank says how fast one computes; nothing else is measured before the other two are forecast.  The nodes
are network namespaces, which takes Linux and root.

    python -m tests.bench.forecast_error [--model resnet18] [--batch-size 16] [--steps 5] [--rate 1gbit]
        [--rounds 2]
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from launch.core import shell
from launch.core.catalog import Instance, Rate
from launch.core.estimate.calibrate import Measured, calibrate
from launch.core.estimate.forecast import Forecast, forecast
from launch.core.estimate.rates import rates_of
from launch.core.estimate.training import training
from launch.forecast.from_runs import measurements
from launch.rehearse.nodes.network import ip, slow_down, why_no_namespaces
from tests.bench.report import machine, say
from tests.warm import free_port
from trainer.config import TrainConfig
from trainer.settings.flags import to_argv

ADDRESSES = ("10.97.0.1", "10.97.0.2")


def config_of(given: argparse.Namespace, ranks: int) -> TrainConfig:
    """Two epochs of which the second counts, of so many steps each."""
    return TrainConfig(
        model=given.model, dataset="synthetic", synthetic_images=given.batch_size * given.steps * ranks,
        batch_size=given.batch_size, epochs=2, eval_every=2, precision="fp32", device="cpu", threads=1, plot=False,
        probe_steps=2,
    )  # fmt: skip


def run(config: TrainConfig, folder: Path, places: Sequence[Sequence[str]], address: str, nodes: int) -> Measured:
    """Trains with a rank in each of `places`: words to begin its command line with."""
    ranks, port = len(places), free_port()
    local = ranks // nodes
    command = [sys.executable, "-m", "trainer", *to_argv(config.model_copy(update={"run_dir": folder}))]
    started = []
    for rank, place in enumerate(places):
        env = {**os.environ, "MASTER_ADDR": address, "MASTER_PORT": str(port), "RANK": str(rank)}
        env |= {"WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank % local), "LOCAL_WORLD_SIZE": str(local)}
        env |= {"GLOO_SOCKET_IFNAME": "eth0"} if nodes > 1 else {}
        started.append(subprocess.Popen([*place, *command], env=env if ranks > 1 else dict(os.environ),
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))  # fmt: skip
    for process in started:
        said, _ = process.communicate()
        if process.returncode:
            sys.exit(f"{' '.join(process.args)} ended with {process.returncode}:\n{said}")
    (measured,) = measurements([folder])
    return measured


@contextmanager
def two_nodes(rate: str) -> Iterator[tuple[tuple[str, ...], ...]]:
    """How to begin a command line on each of two nodes, whose link carries `rate` each way."""
    with ExitStack() as stack:
        nodes = [shell.start_child(["unshare", "--net", "sh", "-c", "echo ready; cat"], os.environ) for _ in ADDRESSES]
        for node in nodes:
            stack.callback(node.close)
        first, second = (f"/proc/{node.pid}/ns/net" for node in nodes)
        ip(first, f"link add eth0 mtu 9000 type veth peer name eth0 mtu 9000 netns {nodes[1].pid}")
        for network, address in zip((first, second), ADDRESSES, strict=True):
            ip(network, f"addr add {address}/24 dev eth0", "link set lo up", "link set eth0 up")
            slow_down(network, "eth0", rate)
        yield tuple(("nsenter", f"--net={network}") for network in (first, second))


def measure(given: argparse.Namespace) -> list[tuple[str, Measured, int, int]]:
    """(what, its quickest run, nodes, ranks) of each, measured in turn."""
    found: dict[tuple[str, int, int], list[Measured]] = {}
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder:
            one, two, apart = (Path(folder, name) for name in ("one", "two", "apart"))
            alone = run(config_of(given, 1), one, [()], "127.0.0.1", 1)
            together = run(config_of(given, 2), two, [(), ()], "127.0.0.1", 1)
            found.setdefault(("one rank", 1, 1), []).append(alone)
            found.setdefault(("two ranks", 1, 2), []).append(together)
            if why_no_namespaces() is None:
                with two_nodes(given.rate) as places:
                    distant = run(config_of(given, 2), apart, places, ADDRESSES[0], 2)
                found.setdefault((f"two nodes, {given.rate}", 2, 2), []).append(distant)
    quickest = {key: min(runs, key=lambda measured: measured.step_s) for key, runs in found.items()}
    return [(what, measured, nodes, ranks) for (what, nodes, ranks), measured in quickest.items()]


def expect(config: TrainConfig, nodes: int, ranks: int, gbps: float, one: Measured) -> Forecast:
    """What launch.forecast would say of this machine, given what `one` rank did."""
    cores = len(os.sched_getaffinity(0))
    here = Instance("here", 0, cores, 1024, 0, 0, Rate(gbps, gbps), Rate(1000, 1000), 0.0, False)
    trained = training(config, here, nodes, gpus=ranks // nodes)
    known = [replace(one, instance_type=here.name)]
    return forecast(trained, here, calibrate(rates_of(here, trained.cost, trained.kind), trained, here, known).rates)


def show(what: str, found: Measured, expected: Forecast | None) -> None:
    measured = f"{what:<20}measured {found.step_s * 1e3:7.0f} ms a step, {found.images_per_s:6.1f} images/s"
    if expected is None:
        say(f"{measured}   (given)")
        return
    ratio = expected.step.step_s / found.step_s
    say(f"{measured}   forecast {expected.step.step_s * 1e3:7.0f} ms   error {ratio - 1:+.1%}")


def main() -> None:
    """Measures, forecasts and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=16, help="per rank")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rate", default="1gbit", help="of the link between the two nodes, such as 500mbit")
    parser.add_argument("--rounds", type=int, default=2, help="in turn; the quickest of each counts")
    given = parser.parse_args()
    gbps = int(given.rate[:-4]) * {"m": 1e-3, "g": 1.0}[given.rate[-4]]
    found = measure(given)
    alone = found[0][1]
    for what, run_of, nodes, ranks in found:
        config = config_of(given, ranks)
        show(what, run_of, None if ranks == 1 else expect(config, nodes, ranks, gbps, alone))
    if why := why_no_namespaces():
        say(f"two nodes: left out; it {why}")
    say(f"{given.model}, fp32, batch {given.batch_size} a rank, one thread each   ({machine()})")


if __name__ == "__main__":
    main()
