"""C7: a secret given in the wrong place is refused and repeated nowhere, on any backend."""

import string
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from launch.core.secrets import check_no_secret
from launch.ec2.__main__ import main as ec2
from launch.local.__main__ import main as local
from launch.sagemaker.__main__ import main as sagemaker
from launch.slurm.__main__ import main as slurm
from launch.sweep.__main__ import main as sweep
from trainer.errors import SettingsError, report_end
from trainer.settings.hidden import is_secret, without_secrets

# Made up, in the shapes that the services give them.
PLANTED = "pl4nt3d0pl4nt3d0pl4nt3d0"
SECRETS = {
    "a URL": f"postgres://user:{PLANTED}@db.example.com/x",
    "a URL whose password has an @": f"postgres://user:x@{PLANTED}@db.example.com/x",
    "a URL whose user is an address": f"smtp://me@example.com:{PLANTED}@smtp.example.com",
    "GitHub": f"ghp_{PLANTED}{PLANTED}",
    "a presigned URL of S3's": f"https://b.s3.amazonaws.com/k?X-Amz-Date=x&X-Amz-Signature={PLANTED}",
    "a signed URL of Azure's": f"https://a.blob.core.windows.net/c?sv=2024&sig={PLANTED}%3D",
    "Azure's storage": f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={PLANTED}==",
    "AWS's session": f"IQoJb3JpZ2lu{PLANTED}",
    "a header": f"Authorization: Bearer {PLANTED}",
    "a token in a URL": f"https://example.com/x?a=1&access_token={PLANTED}",
    "libpq": f"host=db user=me password={PLANTED} dbname=x",
    "ODBC": f"Server=db;Uid=me;PWD={PLANTED};",
}
LETTERS, DIGITS, HEX = string.ascii_letters, string.digits, "0123456789abcdef"
URL_SAFE = LETTERS + DIGITS + "-_"
# What stands before it and behind, its letters, how many: as the services document them.
ALPHABETS = {
    "Hugging Face": ("hf_", LETTERS, 34, ""),
    "AWS": ("AKIA", string.ascii_uppercase + "234567", 16, ""),
    "AWS, temporary": ("ASIA", string.ascii_uppercase + "234567", 16, ""),
    "AWS, secret": ("aws_secret_access_key = '", LETTERS + DIGITS + "/+", 40, "'"),
    "AWS, secret in JSON": ('"SecretAccessKey": "', LETTERS + DIGITS + "/+", 40, '"'),
    "GitHub": ("ghp_", LETTERS + DIGITS, 36, ""),
    "GitHub, app": ("ghs_", LETTERS + DIGITS, 36, ""),
    "GitHub, fine-grained": ("github_pat_", LETTERS + DIGITS, 82, ""),
    "OpenAI": ("sk-", LETTERS + DIGITS, 48, ""),
    "OpenAI, project": ("sk-proj-", URL_SAFE, 74, ""),
    "Anthropic": ("sk-ant-api03-", URL_SAFE, 93, "AA"),
    "OpenRouter": ("sk-or-v1-", HEX, 64, ""),
    "Slack": ("xoxb-123456789012-123456789012-", LETTERS + DIGITS, 24, ""),
    "GitLab": ("glpat-", URL_SAFE, 20, ""),
    "NVIDIA": ("nvapi-", URL_SAFE, 64, ""),
    "Docker": ("dckr_pat_", URL_SAFE, 27, ""),
    "Kaggle": ("KGAT_", HEX, 32, ""),
    "wandb": ("wandb.login(key='", HEX, 40, "')"),
    "wandb, variable": ("export WANDB_API_KEY=", HEX, 40, ""),
    "a JWT": ("eyJhbGciOiJIUzI1NiJ9.eyJ", LETTERS + DIGITS, 40, ".c2lnbmF0dXJl"),
    "a URL": ("postgres://user:", LETTERS, 12, "@db.example.com/x"),
}


def drawn(service: str) -> Iterator[tuple[str, str]]:
    """Texts with a token of that service, and the token: most of Hugging Face's have no digit, for one."""
    before, letters, length, behind = ALPHABETS[service]
    random = Random(service)
    for _ in range(100):
        token = "".join(random.choices(letters, k=length))
        yield f"{before}{token}{behind}", token


@pytest.mark.parametrize("service", ALPHABETS)
def test_tokens_drawn_from_a_services_own_letters_are_known(service: str) -> None:
    for text, token in drawn(service):
        assert is_secret("HARMLESS", text)
        assert token not in without_secrets(f"x = '{text}' # y")


BACKENDS = {"ec2": ec2, "local": local, "sagemaker": sagemaker, "slurm": slurm}


def test_a_long_text_is_looked_through_in_time() -> None:
    """`status` looks through what a training writes: 1 MB took an hour."""
    units = ("eyJ-", "://a:", ":/x", "-----BEGIN A", "xoxa-", "://a@", "://@a:b@", "&sig=", "AccountKey=",
             "Bearer ", "eyJhcGlf-", "FwoGZXIvYXdz.", "x-a:@", "sk-a", "?token=",
             " password=")  # fmt: skip
    for unit in units:
        before = time.process_time()
        without_secrets(unit * (40_000 // len(unit)))
        assert time.process_time() - before < 1, unit  # it took four


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_tokens_and_urls_with_passwords_are_known(secret: str) -> None:
    assert is_secret("HARMLESS", secret)
    assert PLANTED not in without_secrets(f"--mlflow {secret}: no such host")
    with pytest.raises(SettingsError, match="--mlflow holds what looks like a secret") as caught:
        check_no_secret({"mlflow": secret})
    assert PLANTED not in str(caught.value)


@pytest.mark.parametrize("name", ["DB_PASS", "GITHUB_PAT", "WANDB_API_KEY", "PGPASSWORD", "MY_TOKEN", "SMTP_AUTH",
                                  "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "GPG_PASSPHRASE"])  # fmt: skip
def test_names_of_secrets_are_known(name: str) -> None:
    assert [is_secret(name, value) for value in ("x", "/base64+of/something=", "123456")] == [True] * 3


@pytest.mark.parametrize(
    "variable",
    ["PAD_TOKEN_ID=50256", "token_dim=64", "IGNORE_TOKEN_INDEX=-100", "API_KEY_FILE=/run/x", "USE_AUTH_TOKEN=1",
     "HF_HUB_DISABLE_IMPLICIT_TOKEN=true", "WANDB_API_KEY=", "SSH_AUTH_SOCK=/tmp/agent.1", "PAD_TOKEN=[PAD]",
     "GOOGLE_APPLICATION_CREDENTIALS=/opt/ml/input/data/keys/adc.json", "EOS_TOKEN=</s>", "EOS_TOKEN=<|endoftext|>",
     "TOKEN_DROP=0.1", "TOKEN_DROP=.15", "PASS_THROUGH=128", "TOKEN_TYPE=word", "AUTH_METHOD=iam",
     "SECRET_NAME=ddp-toolkit/wandb", "HF_TOKEN_PATH=~/.cache/huggingface/token", "PAD_TOKEN=<extra_id_0>",
     "DB_SECRET_ARN=arn:aws:secretsmanager:us-east-1:123456789012:secret:ddp-toolkit/db-a1B2c3",
     "TOKEN_PARAMETER=arn:aws-cn:ssm:cn-north-1:123456789012:parameter/ddp-toolkit/token"],
)  # fmt: skip
def test_a_number_a_switch_a_word_or_a_place_is_no_secret(variable: str) -> None:
    name, _, value = variable.partition("=")
    assert not is_secret(name, value)


@pytest.mark.parametrize(
    "variable",
    [
        f"TOKEN_PATH=/{SECRETS['GitHub']}",
        "SECRET_KEY=123456789",
        "MY_TOKEN=0.1234567",
        "EOS_TOKEN=abc",
        "DB_PASS=/a+b",
        "DB_PASSWORD=/hunter2",
        "DB_PASSWORD=123456",
        "VAULT_SECRET_ID=0123abcd",
        "API_KEY=/run/x",
    ],
)
def test_what_may_be_one_under_such_a_name_is_refused(variable: str) -> None:
    name, _, value = variable.partition("=")
    assert is_secret(name, value)


@pytest.mark.parametrize(
    "text",
    ["MAX_TOKENS", "TOKENIZERS_PARALLELISM", "s3://bucket/key:1@x", "https://host:8080/a@b", "resnet18", "sk-learn",
     "PATH", "user@example.com", "docker://img@sha256:0123456789abcdef", "ssh://git@example.com:22/x",
     "s3://b/x?versionId=3sL4kqtJlcpXroDTDmJ", "glob-0123456789abcdef01", "sig=0123456789abcdef0123", "Bearer token",
     "sk-learn-contrib-imbalanced-ensembles", "Bearer token-classification-model", "a" * 40, "0123456789abcdef" * 4,
     "models:/resnet50-imagenet-prod@champion", "user@host:path", r"C:\data\x", "XYZQ~approx",
     "https://example.com/?to=https%3A%2F%2Fexample.com%2Fx%40y", "r8_alpha16_dropout05_lr1e4",
     "sbp_prediction_resnet50_v2", "KGAT_of_50_epochs_of_it", "glimt-resnet50-cifar10-v2", "a" * 10_000,
     "https://example.com/@someone:x@y", "abfss://training-images-v2@me.dfs.core.windows.net/x",
     "git+ssh://APKAEIBAERJR2EXAMPLE@git-codecommit.us-east-2.amazonaws.com/v1/repos/x",
     "codecommit::eu-west-1://PowerUserAccess-123456789012@x"],
)  # fmt: skip
def test_ordinary_words_are_left_alone(text: str) -> None:
    assert not is_secret(text, text)
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "text",
    ["host=db password=$PASSWORD", "x?password={password}", "password=x", "f(x, password=secret1)", "x?token=cls"],
)
def test_names_without_a_value_are_left_alone(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize("main", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize(
    "words",
    [
        ("--mlflow", SECRETS["a URL"], "--dry-run"),
        ("--wandb", SECRETS["GitHub"], "--dry-run"),
        ("--epochs", SECRETS["GitHub"]),
        (f"--{SECRETS['GitHub']}", "1"),
        ("--config", SECRETS["a URL"]),
    ],
    ids=["a setting", "another", "a number", "a flag", "a file"],
)
def test_no_backend_repeats_one(main: object, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2  # type: ignore[operator]
    shown = capsys.readouterr()
    assert PLANTED not in shown.out + shown.err
    assert shown.err.startswith("error: ")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--lr", "1", "--token", SECRETS["GitHub"]), "--script"),
        (("--api-key", PLANTED), "--api-key"),  # by its name: wandb's older keys look like any digest
        ((f"--wandb_api_key={PLANTED}",), "--wandb_api_key"),
        ((f"db.password={PLANTED}",), "db.password"),
        (("-p.passwd", PLANTED), "-p.passwd"),
    ],
)
@pytest.mark.parametrize("main", BACKENDS.values(), ids=BACKENDS)
def test_nor_one_among_the_arguments_of_a_script(
    main: object, words: tuple[str, ...], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").touch()

    assert main(("--dry-run", "--script", str(tmp_path / "train.py"), "--", *words)) == 2  # type: ignore[operator]

    shown = capsys.readouterr()
    assert "--script holds what looks like a secret" in shown.err
    assert named in shown.err
    assert PLANTED not in shown.out + shown.err


@pytest.mark.parametrize(
    "text", ["DB_PASS=" + PLANTED, "URL=" + SECRETS["a URL"], PLANTED, f"A-B={PLANTED}", f"={PLANTED}"]
)
def test_sagemakers_environment_takes_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sagemaker(("--environment", text, "--dry-run")) == 2
    assert PLANTED not in capsys.readouterr().err


@pytest.mark.parametrize("content", [f"{{DB: {PLANTED}}}", f"[[{PLANTED}]]", f"[{PLANTED}]"])
def test_nor_does_yaml(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"environment: {content}\n")
    assert sagemaker(("--config", str(path), "--dry-run")) == 2
    assert PLANTED not in capsys.readouterr().err


def test_a_reported_error_hides_them(capsys: pytest.CaptureFixture[str]) -> None:
    report_end(3, f"cannot reach {SECRETS['a URL']}.")
    assert capsys.readouterr().err == "error: cannot reach postgres://***@db.example.com/x.\n"


@pytest.mark.parametrize(
    "words",
    [("--pad-token", "<pad>"), ("--max-tokens", "512"), ("--token", "cls"), ("--api-key-file", "keys.txt"),
     ("--use-auth-token", "true"), ("--hub-token", "$HF_TOKEN"), ("--password",), ("--password", "--epochs", "5"),
     ("--hub-token", "-v"), ("--api-key", "env:KEY"), ("--auth-type", "none"), ("--pass-rate", "1"), ("--api-key=",),
     ("--sort-key", "loss"), ("train.access_key=None",)],
)  # fmt: skip
def test_flags_with_like_names_are_left_alone(words: tuple[str, ...]) -> None:
    check_no_secret({"script": ("train.py", *words)})


@pytest.mark.parametrize(
    "content",
    [
        f"fixed: {{wandb: ghp_{PLANTED}{PLANTED}}}\ngrid: {{batch_size: [32]}}",
        f"fixed: {{model: cnn}}\ngrid: {{mlflow: ['{SECRETS['a URL']}', b]}}",
        f"script: train.py\nargs: --url {SECRETS['a URL']}\ngrid: {{args.lr: [0.1]}}",
        f"script: train.py\ngrid: {{args.url: [ghp_{PLANTED}{PLANTED}, b]}}",
        f"script: train.py\nruns: [{{args.api_key: {PLANTED}}}]",
    ],
)
def test_nor_does_a_sweep_which_would_call_runs_and_jobs_by_it(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    Path("s.yaml").write_text(content)

    assert sweep(("s.yaml", "--dry-run"), {}) == 2

    shown = capsys.readouterr()
    assert "holds what looks like a secret" in shown.err
    assert PLANTED not in shown.out + shown.err
