"""The trainer in a SageMaker container: AWS's toolkit starts it, once per GPU, with the hyperparameters as flags.

The toolkit downloads our source bundle, installs its requirements.txt, and runs the bundle's train.py under
torchrun (distribution torch_distributed) or mpirun (pytorchddp).  In an image with the trainer but without the toolkit,
container.py does the same.  Only read_secrets() calls AWS: SageMaker itself copies folders to and from S3.

A container that is stopped gets SIGTERM, which the toolkit does not forward to the ranks
(https://github.com/aws/sagemaker-training-toolkit/issues/125).  So after a spot interruption the run resumes from the
newest regular checkpoint; --checkpoint-every-s limits how old it can be.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from trainer.__main__ import leave, read_settings
from trainer.__main__ import main as train
from trainer.config import TrainConfig
from trainer.contract import (
    CURVES,
    METRICS,
    OUTCOME,
    PLAIN_WEIGHTS,
    SAGEMAKER_ARCHIVE,
    SAGEMAKER_CHANNEL,
    SAGEMAKER_CHECKPOINTS,
    SAGEMAKER_FAILURE,
    SAGEMAKER_HYPERPARAMETER,
    SAGEMAKER_HYPERPARAMETERS,
    SAGEMAKER_INFERENCE,
    SAGEMAKER_MODEL,
    SAGEMAKER_PACKAGES,
    SAGEMAKER_SECRET,
    SETTINGS,
    SIGNATURE,
    WEIGHTS,
    Exit,
)
from trainer.distributed.ranks import Ranks, read_ranks
from trainer.errors import MachineError, SettingsError, TrainerError, ends_reported_to, one_line, report_end
from trainer.process.parent import end_with_parent

# Everything but the checkpoints, which would make model.tar.gz several times as large.
RESULTS = (WEIGHTS, PLAIN_WEIGHTS, SIGNATURE, METRICS, SETTINGS, CURVES)
ATTEMPTS = 10  # all ranks call at once, and Systems Manager allows 40 requests a second
# Parts of the AWS error codes for which a retry would fail again.
_REFUSED = ("AccessDenied", "NotFound", "Invalid", "Validation", "Decryption")
# --no-deps, because the list includes them; --only-binary, because building would run code that has no hash.
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes",
       "--only-binary", ":all:")  # fmt: skip

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def start() -> NoReturn:
    """Entry point of the bundle's train.py, which exists because the toolkit can run files only, not modules."""
    end_with_parent(os.environ)
    leave(main(sys.argv[1:], os.environ))


def main(argv: Sequence[str], env: MutableMapping[str, str]) -> int:
    """Run this rank of the training, and return the exit code.

    argv: the hyperparameters as flags; env: the toolkit's variables that describe the container, to which the secrets
    named there are added.
    """
    flags = [*folder_flags(env), *argv]  # the later of two flags for one setting wins
    _set_gloo_interface(env)
    with ends_reported_to(_report_to_toolkit):
        try:
            env.update(read_secrets(env))
            if read_ranks(env).is_head:  # the rank that logs to trackers
                install(Path(sys.argv[0]).with_name(SAGEMAKER_PACKAGES))
            if (words := script_command(env)) is not None:
                return _run_script(words, env)
            code = train(flags, env)
            if code == Exit.DONE and read_ranks(env).is_head:
                _copy_to_model_dir(read_settings(flags), _model_dir(env), with_code=SAGEMAKER_INFERENCE in env)
        except TrainerError as error:
            report_end(error.code, str(error))
            return error.code
        except Exception as bug:
            _report_to_toolkit(Exit.BUG, f"{type(bug).__name__}: {bug}")  # first: SageMaker truncates FailureReason
            traceback.print_exc()
            return Exit.BUG
    return code


def _set_gloo_interface(env: MutableMapping[str, str]) -> None:
    """Set the network interface for gloo if there are several hosts, as AWS's toolkit does for NCCL only.

    By default gloo looks up the address of its host name, "aws", which does not resolve.  The start script of AWS's
    images works around that with a preloaded library, but not from 2.11 on (infra/images.yaml).
    """
    interface = env.get("SM_NETWORK_INTERFACE_NAME")
    if interface and len(json.loads(env.get("SM_HOSTS", "[]"))) > 1:
        env.setdefault("GLOO_SOCKET_IFNAME", interface)


def folder_flags(env: Mapping[str, str]) -> list[str]:
    """The trainer's flags for the folders of the container.

    The run folder is the one that SageMaker copies to S3 while the job runs, and back when it is restarted.
    """
    base = _model_dir(env).parent
    flags = ["--run-dir", str(base / SAGEMAKER_CHECKPOINTS.name), "--progress", "false"]
    if "SM_CHANNEL_DATA" in env:
        return [*flags, "--data-dir", env["SM_CHANNEL_DATA"]]
    if "SM_CHANNEL_TRAIN" in env:  # with val beside it
        return [*flags, "--data-dir", str(PurePosixPath(env.get("SM_INPUT_DIR", base / "input")) / "data")]
    return flags


def script_command(env: Mapping[str, str]) -> list[str] | None:
    """The arguments for trainer.script, which launch.sagemaker passes in a hyperparameter, or None.

    https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html
    """
    file = Path(_model_dir(env).parent / SAGEMAKER_HYPERPARAMETERS)
    text = json.loads(file.read_text()).get(SAGEMAKER_HYPERPARAMETER) if file.is_file() else None
    return None if text is None else list(json.loads(text))


def _run_script(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Run this rank of a user's script with the folders of the container."""
    from trainer.script.__main__ import main as run
    from trainer.script.config import parse

    ranks, base = read_ranks(env), _model_dir(env).parent
    channel = PurePosixPath(env.get(f"SM_CHANNEL_{SAGEMAKER_CHANNEL.upper()}", base / "input/data" / SAGEMAKER_CHANNEL))
    folders = {
        "--run-dir": base / SAGEMAKER_CHECKPOINTS.name,
        "--source": channel / SAGEMAKER_ARCHIVE,
        "--work": base / "source",
    }
    if "SM_CHANNEL_DATA" in env:
        folders["--data-dir"] = PurePosixPath(env["SM_CHANNEL_DATA"])
    elif _has_data(env):
        folders["--data-dir"] = PurePosixPath(env.get("SM_INPUT_DIR", base / "input")) / "data"
    given = [word for flag, folder in folders.items() for word in (flag, str(folder))]
    separator = words.index("--")
    command = [*words[:separator], *given, *words[separator:]]
    config = parse(command)
    if config.processes == "one":
        if ranks.local_rank > 0:
            return Exit.DONE  # AWS's toolkit starts one process per GPU, and the script starts its own from the first
        env = {**env, **_one_process_env(ranks)}
    code = run(command, env)
    if code == Exit.DONE and ranks.is_head:
        _copy_results(Path(base / SAGEMAKER_CHECKPOINTS.name), _model_dir(env), (*RESULTS, OUTCOME))
    return code


def _has_data(env: Mapping[str, str]) -> bool:
    """Whether there are data channels besides the script's own."""
    own = f"SM_CHANNEL_{SAGEMAKER_CHANNEL.upper()}"
    return any(name.startswith("SM_CHANNEL_") and name != own for name in env)


def _one_process_env(ranks: Ranks) -> dict[str, str]:
    """torchrun's variables for the first process of a host, as if it were the only one there."""
    return {
        "RANK": str(ranks.node_rank),
        "WORLD_SIZE": str(ranks.nodes),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(ranks.node_rank),
        "GROUP_WORLD_SIZE": str(ranks.nodes),
        "MASTER_ADDR": ranks.master_addr,
        "MASTER_PORT": str(ranks.master_port),
    }


def _model_dir(env: Mapping[str, str]) -> PurePosixPath:
    return PurePosixPath(env.get("SM_MODEL_DIR", SAGEMAKER_MODEL))


def _copy_to_model_dir(config: TrainConfig, model_dir: PurePosixPath, *, with_code: bool) -> None:
    """Copy the results into the folder that SageMaker uploads as model.tar.gz.  Raises MachineError.

    with_code: add the inference code for an endpoint.
    """
    assert config.run_dir is not None
    _copy_results(config.run_dir, model_dir, RESULTS)
    if with_code:
        _add_code(model_dir)


def _copy_results(run_dir: Path, model_dir: PurePosixPath, names: Sequence[str]) -> None:
    for name in names:
        try:
            if (run_dir / name).exists():
                shutil.copy(run_dir / name, model_dir)
        except OSError as error:
            raise MachineError(
                f"cannot copy {name} to {model_dir} ({error.strerror}); start again with a larger volume: "
                "the training itself is done and saved."
            ) from error


def _add_code(model_dir: PurePosixPath) -> None:
    from trainer.trained import write_code

    try:
        write_code(model_dir)
    except OSError as error:
        raise MachineError(
            f"cannot write the inference code to {model_dir} ({error.strerror}); start again with a larger volume: "
            "the training itself is done and saved."
        ) from error


def _report_to_toolkit(code: int, sentence: str) -> None:
    """Print the line that the toolkit puts into FailureReason."""
    line = SAGEMAKER_FAILURE.format(code=int(code), sentence=" ".join(sentence.split()))
    sys.stderr.write(line + "\n")  # one write: see report_end()
    sys.stderr.flush()


def read_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """{variable: value} for each DDP_SECRET_variable of `env`.  Raises SettingsError, MachineError."""
    start = len(SAGEMAKER_SECRET)
    sources = {name[start:]: where for name, where in env.items() if name.startswith(SAGEMAKER_SECRET)}
    if not sources:
        return {}
    try:
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError as error:
        raise SettingsError("--secret needs boto3, which this image lacks; add it, or drop --secret.") from error
    config = Config(retries={"mode": "standard", "total_max_attempts": ATTEMPTS})
    session = boto3.session.Session(region_name=env.get("AWS_REGION"))
    return {name: _value(session, config, name, where) for name, where in sources.items()}


def _value(session: Any, config: Any, name: str, where: str) -> str:
    from botocore.exceptions import BotoCoreError, ClientError

    service, _, key = where.partition(":")
    try:
        client = session.client(service, config=config)
        if service == "ssm":
            found = client.get_parameter(Name=key, WithDecryption=True)["Parameter"]["Value"]
        else:
            found = client.get_secret_value(SecretId=key).get("SecretString")
    except ClientError as error:
        raise _refusal(name, where, error.response["Error"].get("Code", "")) from error
    except BotoCoreError as error:
        raise MachineError(f"cannot read {where} for {name} ({type(error).__name__}); start again.") from error
    if found is None:
        raise SettingsError(f"--secret {name}: {where} is binary; store it as text.")
    # As launch.ec2 does it: a secret stored from a file usually ends with a newline.
    return str(found).rstrip("\n")


def _refusal(name: str, where: str, code: str) -> TrainerError:
    """An error without AWS's message, which may contain part of the secret."""
    if any(part in code for part in _REFUSED):
        return SettingsError(
            f"--secret {name}: cannot read {where} ({code}); create it in the job's region, and allow the role to read "
            "it: see infra/account.md."
        )
    return MachineError(f"cannot read {where} for {name} ({code}); start again.")


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def install(listed: Path, run: Run = _run) -> None:
    """Install the packages of the requirements file `listed`, if it exists, that the image lacks.

    They go into a new folder at the end of sys.path, so that the image's own packages are not replaced.  Raises
    MachineError.
    """
    missing = _missing(listed.read_text()) if listed.is_file() else ""
    if not missing:
        return
    folder = Path(tempfile.mkdtemp(prefix="packages-"))
    (folder / "missing.txt").write_text(missing)
    result = run([sys.executable, *PIP, "--target", str(folder), "-r", str(folder / "missing.txt")])
    if result.returncode != 0:
        why = one_line((result.stderr.strip().splitlines() or ["pip printed nothing"])[-1], 300)
        raise MachineError(f"the packages of --tensorboard, --wandb or --mlflow cannot be installed: {why}")
    sys.path.append(str(folder))


def _missing(text: str) -> str:
    """The requirements, with their hashes, of packages that are not installed."""
    rows = re.findall(r"^(([\w.-]+)==.*(?:\n[ \t]+--hash=.*)*\n)", text, re.MULTILINE)
    return "".join(requirement for requirement, name in rows if not _is_installed(name))


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    start()
