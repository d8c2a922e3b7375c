"""SageMaker's `train` for an image without AWS's toolkit: `python -m trainer.container`, on each host of a job.

SageMaker describes the job in files.  Its hyperparameters are turned into flags as AWS's toolkit does it, and torchrun
starts one rank per GPU on each host, which runs sagemaker.py as under that toolkit.  Unlike there, a request to stop
reaches the ranks, so that they save and exit, and the exit code is the training's own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from trainer.contract import SAGEMAKER_FAILURE, SAGEMAKER_FAILURE_PATTERN, SAGEMAKER_MODEL, Exit
from trainer.errors import MachineError, SettingsError, TrainerError, report_end

WAIT_S, LOOK_EVERY_S = 900.0, 0.5  # for the names of the other hosts to resolve; they may start later
LAST_WORDS_S = 5.0  # to read the rest of the output after the process has ended
PORT = "7777"  # as in the toolkit

# Hyperparameters that the SDK adds: https://github.com/aws/sagemaker-training-toolkit/blob/master/src/sagemaker_training/params.py
_SDKS, _ALSO_SDKS = "sagemaker_", ("_tuning_objective_metric", "default_user_module_name")


def main(env: Mapping[str, str]) -> int:
    """Run this host's part of the training, and return the exit code."""
    base = Path(env.get("SAGEMAKER_BASE_DIR", SAGEMAKER_MODEL.parent))  # the toolkit's name for it
    relay, lines = Relay(), deque[str](maxlen=200)
    signal.signal(signal.SIGTERM, relay)  # first: without a handler, process 1 gets no SIGTERM at all
    try:
        inputs = read_inputs(base)
        if source := inputs.settings.get("sagemaker_submit_directory"):
            print(f"The trainer is the image's own; the source in {source} is left out.", flush=True)
        wait_for(inputs.hosts, relay)
        if relay.asked:
            return Exit.INTERRUPTED
        places = {**variables(inputs, base), **env}
        code = run_to_end(command(inputs, count_gpus(), env.get("MASTER_PORT", PORT)), places, relay, lines.append)
    except TrainerError as error:
        code = error.code
        lines.append(f"error: {error}")
        report_end(code, str(error))
    if code not in (Exit.DONE, Exit.INTERRUPTED):
        write_failure(base, code, reason_of(code, lines))
    return code


def reason_of(code: int, lines: Collection[str]) -> str:
    """The reason for exit code `code`, as printed by a rank or by torchrun."""
    return next(_reasons_in(code, lines), f"the training ended with exit code {code}; its log says more.")


def _reasons_in(code: int, lines: Collection[str]) -> Iterator[str]:
    matches = [SAGEMAKER_FAILURE_PATTERN.search(f"{line}\n") for line in lines]
    yield from (match["sentence"] for match in matches if match and int(match["code"]) == code)
    yield from (line.removeprefix("error: ") for line in [*lines][::-1] if line.startswith("error: "))


class Relay:
    """Forward SIGTERM to a process that may start later.  Only once: a second one makes torchrun stop waiting."""

    def __init__(self) -> None:
        self.asked, self._has_passed_on = False, False
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self.asked = True
        self._pass_on()

    def to(self, process: subprocess.Popen[str]) -> None:
        """Set the process that gets the signal."""
        self._process = process
        self._pass_on()

    def _pass_on(self) -> None:
        if self.asked and self._process is not None and not self._has_passed_on:
            self._has_passed_on = True
            self._process.terminate()


def count_gpus() -> int:
    """The number of GPUs of this machine, from NVML, as importing torch would take seconds."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except Exception:  # NVML has many error types for "no GPU", and may not be installed
        return 0


def wait_for(hosts: Sequence[str], relay: Relay) -> None:
    """Wait until all host names resolve, or until asked to stop.  Raises MachineError after WAIT_S."""
    end = time.monotonic() + WAIT_S
    for host in hosts:
        while not relay.asked:
            try:
                socket.gethostbyname(host)
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise MachineError(
                        f"the name of host {host} did not resolve within {WAIT_S:g} s; start again."
                    ) from error
                time.sleep(LOOK_EVERY_S)


def run_to_end(words: Sequence[str], env: Mapping[str, str], relay: Relay, on_line: Callable[[str], object]) -> int:
    """Run a command and return its exit code.  Its standard error is copied to ours, and to `on_line`."""
    process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True, errors="replace")
    # In a thread: a process left running by the ranks may keep the pipe open, and must not keep this machine running.
    listener = threading.Thread(target=_listen, args=(process, on_line), daemon=True)
    listener.start()
    relay.to(process)
    code = process.wait()
    listener.join(LAST_WORDS_S)
    if code == -signal.SIGTERM and relay.asked:  # before torchrun could pass it on
        return Exit.INTERRUPTED
    return code if code >= 0 else 128 - code


def _listen(process: subprocess.Popen[str], on_line: Callable[[str], object]) -> None:
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            sys.stderr.write(line)
            sys.stderr.flush()
            on_line(line.rstrip("\n"))


def write_failure(base: Path, code: int, sentence: str) -> None:
    """Write the file that SageMaker shows as FailureReason."""
    with suppress(OSError):  # the log has it too
        (base / "output").mkdir(parents=True, exist_ok=True)
        line = SAGEMAKER_FAILURE.format(code=int(code), sentence=" ".join(sentence.split()))
        (base / "output/failure").write_text(f"{line}\n")


@dataclass(frozen=True)
class Inputs:
    """SageMaker's description of the job to this container.  settings: the hyperparameters; hosts: in rank order."""

    host: str
    hosts: tuple[str, ...]
    interface: str
    channels: tuple[str, ...]
    settings: Mapping[str, Any]


def read_inputs(base: Path) -> Inputs:
    """Read the files in `base`/input/config.  Raises SettingsError."""
    resources, settings, channels = (
        _read(base / "input/config" / f"{name}.json")
        for name in ("resourceconfig", "hyperparameters", "inputdataconfig")
    )
    try:
        hosts = tuple(sorted(resources["hosts"]))
        host = resources["current_host"]
        hosts.index(host)
    except (KeyError, ValueError) as error:
        raise SettingsError(
            f"{base}/input/config/resourceconfig.json does not say which host this is; `train` is for SageMaker: "
            "elsewhere give the trainer's flags instead."
        ) from error
    interface = resources.get("network_interface_name", "eth0")
    return Inputs(host, hosts, interface, tuple(sorted(channels)), {name: value_of(v) for name, v in settings.items()})


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text()) if file.exists() else {}
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot read {file}: {error}; SageMaker writes it, so start the job again.") from error
    assert isinstance(found, dict)
    return found


def value_of(text: Any) -> Any:
    """The value of a hyperparameter, which the SDK writes as JSON and others as plain text."""
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        return text


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Hyperparameters as flags for the trainer, formatted as the toolkit does."""
    ours = [name for name in sorted(settings) if not name.startswith(_SDKS) and name not in _ALSO_SDKS]
    return [word for name in ours for word in (f"{'--' if len(name) > 1 else '-'}{name}", _text(settings[name]))]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={inner}" for key, inner in sorted(value.items()))
    return "" if value is None else str(value)


def variables(inputs: Inputs, base: Path) -> dict[str, str]:
    """Those of the toolkit's environment variables for the ranks that the trainer reads."""
    channels = {f"SM_CHANNEL_{name.upper()}": str(base / "input/data" / name) for name in inputs.channels}
    return {
        "SM_MODEL_DIR": str(base / "model"),
        "SM_INPUT_DIR": str(base / "input"),
        "SM_OUTPUT_DIR": str(base / "output"),
        "SM_HOSTS": json.dumps(inputs.hosts),
        "SM_CURRENT_HOST": inputs.host,
        "NCCL_SOCKET_IFNAME": inputs.interface,
        "GLOO_SOCKET_IFNAME": inputs.interface,  # else gloo looks up its own host name, which is not inputs.host
        **channels,
    }


def command(inputs: Inputs, gpus: int, port: str) -> list[str]:
    """The torchrun command for this host.  gpus: the number in this machine; with none, it starts one rank."""
    ranks = inputs.settings.get("sagemaker_mpi_num_of_processes_per_host") or gpus or 1
    return [
        sys.executable, "-m", "trainer.torchrun", "--nnodes", str(len(inputs.hosts)), "--nproc-per-node", str(ranks),
        "--node-rank", str(inputs.hosts.index(inputs.host)), "--master-addr", inputs.hosts[0], "--master-port", port,
        "-m", "trainer.sagemaker", *flags(inputs.settings),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(os.environ))
