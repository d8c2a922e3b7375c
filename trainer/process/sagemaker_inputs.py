"""SageMaker's description of a job, and the flags, variables and command made from it, as AWS's toolkit makes them.

Pure, except that it reads the files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.errors import SettingsError

PORT = "7777"  # as in the toolkit

# Names that are not the user's: https://github.com/aws/sagemaker-training-toolkit/blob/master/src/sagemaker_training/params.py
_SDKS, _ALSO_SDKS = "sagemaker_", ("_tuning_objective_metric", "default_user_module_name")


@dataclass(frozen=True)
class Inputs:
    """SageMaker's description of the job to this container.  settings: the hyperparameters; hosts: in rank order."""

    host: str
    hosts: tuple[str, ...]
    interface: str
    channels: tuple[str, ...]
    settings: Mapping[str, Any]


def read_inputs(base: Path) -> Inputs:
    """Reads the files in `base`/input/config.  Raises SettingsError."""
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
    """The trainer's flags, as the toolkit would write them."""
    ours = [name for name in sorted(settings) if not name.startswith(_SDKS) and name not in _ALSO_SDKS]
    return [word for name in ours for word in (f"{'--' if len(name) > 1 else '-'}{name}", _text(settings[name]))]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={inner}" for key, inner in sorted(value.items()))
    return "" if value is None else str(value)


def variables(inputs: Inputs, base: Path) -> dict[str, str]:
    """The environment variables that the toolkit sets for the ranks, as far as the trainer reads them."""
    channels = {f"SM_CHANNEL_{name.upper()}": str(base / "input/data" / name) for name in inputs.channels}
    return {
        "SM_MODEL_DIR": str(base / "model"),
        "SM_INPUT_DIR": str(base / "input"),
        "SM_OUTPUT_DIR": str(base / "output"),
        "SM_HOSTS": json.dumps(inputs.hosts),
        "SM_CURRENT_HOST": inputs.host,
        "NCCL_SOCKET_IFNAME": inputs.interface,
        "GLOO_SOCKET_IFNAME": inputs.interface,  # else it looks its own host name up, which is not inputs.host
        **channels,
    }


def command(inputs: Inputs, gpus: int, port: str) -> list[str]:
    """The torchrun command for this host.  gpus: the number in this machine; with none, one rank is started."""
    ranks = inputs.settings.get("sagemaker_mpi_num_of_processes_per_host") or gpus or 1
    return [
        sys.executable, "-m", "trainer.torchrun", "--nnodes", str(len(inputs.hosts)), "--nproc-per-node", str(ranks),
        "--node-rank", str(inputs.hosts.index(inputs.host)), "--master-addr", inputs.hosts[0], "--master-port", port,
        "-m", "trainer.sagemaker", *flags(inputs.settings),
    ]  # fmt: skip
