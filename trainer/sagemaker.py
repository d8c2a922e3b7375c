"""The trainer in a SageMaker container: AWS's toolkit starts it, once per GPU, with the hyperparameters as flags.

The toolkit fetches our source bundle, installs its requirements.txt, and runs the bundle's train.py below
torchrun (distribution torch_distributed) or mpirun (pytorchddp).  In an image that has the trainer and no toolkit,
container.py does the same.  Only secrets.py talks to AWS: SageMaker itself copies folders to and from S3.

A container that is asked to stop gets SIGTERM, which the toolkit does not forward to the ranks
(https://github.com/aws/sagemaker-training-toolkit/issues/125).  So only the newest checkpoint survives a spot
interruption there; --checkpoint-every-s limits how old it can be.
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
ATTEMPTS = 10  # all ranks ask at once, and Systems Manager answers 40 questions a second
# Parts of error codes after which a retry would fail again.
_REFUSED = ("AccessDenied", "NotFound", "Invalid", "Validation", "Decryption")
# Without dependencies, as the list has them all; without building, which would run code without a hash.
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes",
       "--only-binary", ":all:")  # fmt: skip

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def start() -> NoReturn:
    """The whole content of the bundle's train.py: the toolkit can run files only, not modules."""
    end_with_parent(os.environ)
    leave(main(sys.argv[1:], os.environ))


def main(argv: Sequence[str], env: MutableMapping[str, str]) -> int:
    """Runs this rank of the training, and returns the exit code of trainer.contract.Exit.

    argv: the hyperparameters as flags; env: the toolkit's variables about the container, to which the secrets that they
    name are added.
    """
    flags = [*places(env), *argv]  # of two flags for one setting the later counts
    _meet_on_the_hosts_network(env)
    with ends_reported_to(_report_to_toolkit):
        try:
            env.update(read_secrets(env))
            if read_ranks(env).is_head:  # the one that tracks
                install(Path(sys.argv[0]).with_name(SAGEMAKER_PACKAGES))
            if (words := script_words(env)) is not None:
                return _run_script(words, env)
            code = train(flags, env)
            if code == Exit.DONE and read_ranks(env).is_head:
                _hand_over(read_settings(flags), _model_dir(env), with_code=SAGEMAKER_INFERENCE in env)
        except TrainerError as error:
            report_end(error.code, str(error))
            return error.code
        except Exception as bug:
            _report_to_toolkit(Exit.BUG, f"{type(bug).__name__}: {bug}")  # first: SageMaker truncates FailureReason
            traceback.print_exc()
            return Exit.BUG
    return code


def _meet_on_the_hosts_network(env: MutableMapping[str, str]) -> None:
    """Names gloo the interface between several hosts, as AWS's toolkit does for NCCL only.

    Left alone gloo looks up the address of its own host name.  That is "aws", which has none, unless the image's start
    script preloads another, which it cannot in AWS's images from 2.11 on (infra/images.yaml).
    """
    interface = env.get("SM_NETWORK_INTERFACE_NAME")
    if interface and len(json.loads(env.get("SM_HOSTS", "[]"))) > 1:
        env.setdefault("GLOO_SOCKET_IFNAME", interface)


def places(env: Mapping[str, str]) -> list[str]:
    """The flags for the folders of the container.

    The run folder is the one that SageMaker copies to S3 while the job runs, and back when it starts again.
    """
    base = _model_dir(env).parent
    flags = ["--run-dir", str(base / SAGEMAKER_CHECKPOINTS.name), "--progress", "false"]
    if "SM_CHANNEL_DATA" in env:
        return [*flags, "--data-dir", env["SM_CHANNEL_DATA"]]
    if "SM_CHANNEL_TRAIN" in env:  # and val, side by side
        return [*flags, "--data-dir", str(PurePosixPath(env.get("SM_INPUT_DIR", base / "input")) / "data")]
    return flags


def script_words(env: Mapping[str, str]) -> list[str] | None:
    """The command line for trainer.script that launch.sagemaker has put into one hyperparameter; None without it.

    https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html
    """
    file = Path(_model_dir(env).parent / SAGEMAKER_HYPERPARAMETERS)
    text = json.loads(file.read_text()).get(SAGEMAKER_HYPERPARAMETER) if file.is_file() else None
    return None if text is None else list(json.loads(text))


def _run_script(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs this rank of a script of the user's own, with the folders of the container."""
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
    place = words.index("--")
    config = parse([*words[:place], *given, *words[place:]])
    if config.processes == "one":
        if ranks.local_rank > 0:
            return Exit.DONE  # AWS's toolkit starts one per GPU, and the first of them starts the rest
        env = {**env, **_as_only_one(ranks)}
    code = run([*words[:place], *given, *words[place:]], env)
    if code == Exit.DONE and ranks.is_head:
        _copy_results(Path(base / SAGEMAKER_CHECKPOINTS.name), _model_dir(env), (*RESULTS, OUTCOME))
    return code


def _has_data(env: Mapping[str, str]) -> bool:
    """Whether there are channels beside the script's own, which lie side by side."""
    own = f"SM_CHANNEL_{SAGEMAKER_CHANNEL.upper()}"
    return any(name.startswith("SM_CHANNEL_") and name != own for name in env)


def _as_only_one(ranks: Ranks) -> dict[str, str]:
    """torchrun's variables for the first process of a host, as if it had started no other there."""
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


def _hand_over(config: TrainConfig, model_dir: PurePosixPath, *, with_code: bool) -> None:
    """Copies the results into the folder that SageMaker uploads as model.tar.gz.  Raises MachineError.

    with_code: and what an endpoint loads them with.
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
    """Prints the line that the toolkit puts into FailureReason."""
    line = SAGEMAKER_FAILURE.format(code=int(code), sentence=" ".join(sentence.split()))
    sys.stderr.write(line + "\n")  # one write: see report_end()
    sys.stderr.flush()


def read_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """{variable: value} for each DDP_SECRET_variable of `env`.  Raises SettingsError, MachineError."""
    start = len(SAGEMAKER_SECRET)
    wanted = {name[start:]: where for name, where in env.items() if name.startswith(SAGEMAKER_SECRET)}
    if not wanted:
        return {}
    try:
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError as error:
        raise SettingsError("--secret needs boto3, which this image lacks; add it, or drop --secret.") from error
    config = Config(retries={"mode": "standard", "total_max_attempts": ATTEMPTS})
    session = boto3.session.Session(region_name=env.get("AWS_REGION"))
    return {name: _value(session, config, name, where) for name, where in wanted.items()}


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
    # As the nodes of launch.ec2 read it: most ways to store a file keep the newline at its end.
    return str(found).rstrip("\n")


def _refusal(name: str, where: str, code: str) -> TrainerError:
    """The error without AWS's own message, which may contain part of the secret."""
    if any(part in code for part in _REFUSED):
        return SettingsError(
            f"--secret {name}: cannot read {where} ({code}); create it in the job's region, and allow the role to read "
            "it: see infra/account.md."
        )
    return MachineError(f"cannot read {where} for {name} ({code}); start again.")


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def install(listed: Path, run: Run = _run) -> None:
    """Makes what the list `listed` names importable; no list asks for nothing.

    Of what the image has, its own is imported, and nothing of it is replaced.  Raises MachineError.
    """
    lacking = _lacking(listed.read_text()) if listed.is_file() else ""
    if not lacking:
        return
    folder = Path(tempfile.mkdtemp(prefix="packages-"))
    (folder / "lacking.txt").write_text(lacking)
    ended = run([sys.executable, *PIP, "--target", str(folder), "-r", str(folder / "lacking.txt")])
    if ended.returncode != 0:
        why = one_line((ended.stderr.strip().splitlines() or ["pip says nothing"])[-1], 300)
        raise MachineError(f"the packages of --tensorboard, --wandb or --mlflow cannot be installed: {why}")
    sys.path.append(str(folder))  # at the end: the image's own come first


def _lacking(text: str) -> str:
    """The requirements, with their lines of hashes, of packages that are not installed."""
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
