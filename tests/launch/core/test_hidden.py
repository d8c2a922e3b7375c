"""C7: a secret given in the wrong place is refused and repeated nowhere, on any backend."""

import time

import pytest

from launch.core.secrets import check_no_secret
from launch.ec2.__main__ import main as ec2
from launch.local.__main__ import main as local
from launch.sagemaker.__main__ import main as sagemaker
from launch.slurm.__main__ import main as slurm
from trainer.errors import SettingsError, report_end
from trainer.settings.hidden import is_secret, without_secrets

# Made up, in the shapes that the services give them.
PLANTED = "pl4nt3d0pl4nt3d0pl4nt3d0"
SECRETS = {
    "a URL": f"postgres://user:{PLANTED}@db.example.com/x",
    "a URL whose password has an @": f"postgres://user:x@{PLANTED}@db.example.com/x",
    "a URL with a token": f"https://{PLANTED}@git.example.com/x.git",
    "GitHub": f"ghp_{PLANTED}",
    "GitHub's newer": f"github_pat_{PLANTED}",
    "GitLab": f"glpat-{PLANTED}",
    "Hugging Face": f"hf_{PLANTED}",
    "OpenAI": f"sk-proj-{PLANTED}",
    "Slack": f"xoxb-{PLANTED}",
    "a hook of Slack's": f"https://hooks.slack.com/services/T0/B0/{PLANTED}",
    "Stripe": f"sk_live_{PLANTED}",
    "Docker": f"dckr_pat_{PLANTED}",
    "Vault": f"hvs.{PLANTED}",
    "SendGrid": f"SG.{PLANTED}.{PLANTED}",
    "a JWT": f"eyJ{PLANTED}.{PLANTED}.{PLANTED}",
}
BACKENDS = {"ec2": ec2, "local": local, "sagemaker": sagemaker, "slurm": slurm}


@pytest.mark.parametrize("unit", ["eyJ-", "SG.", "://a:", ":/x", "-----BEGIN A", "xoxa-", "sk-"])
def test_what_a_stranger_writes_is_looked_through_in_time(unit: str) -> None:
    """A training, or another launcher, writes the outcome that `status` of everybody reads: 1 MB took an hour."""
    before = time.process_time()
    without_secrets(unit * (40_000 // len(unit)))
    assert time.process_time() - before < 1  # it took four


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_tokens_and_urls_with_passwords_are_known(secret: str) -> None:
    assert is_secret("HARMLESS", secret)
    assert PLANTED not in without_secrets(f"--mlflow {secret}: no such host")
    with pytest.raises(SettingsError, match="--mlflow holds what looks like a secret") as caught:
        check_no_secret({"mlflow": secret})
    assert PLANTED not in str(caught.value)


@pytest.mark.parametrize("name", ["DB_PASS", "GITHUB_PAT", "WANDB_API_KEY", "PGPASSWORD", "MY_TOKEN", "SMTP_AUTH"])
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret(name, "x")


@pytest.mark.parametrize(
    "text",
    ["MAX_TOKENS", "TOKENIZERS_PARALLELISM", "s3://bucket/key:1@x", "https://host:8080/a@b", "resnet18", "sk-learn",
     "PATH", "user@example.com", "ssh://git@example.com/x", "https://example.com/@someone:x@y", "a" * 10_000],
)  # fmt: skip
def test_ordinary_words_are_left_alone(text: str) -> None:
    assert not is_secret(text, text)
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
    "words",
    [
        ("--environment", "DB_PASS=" + PLANTED),
        ("--environment", "URL=" + SECRETS["a URL"]),
        ("--environment", PLANTED),
        ("--environment", f"A-B={PLANTED}"),
        ("--environment", f"={PLANTED}"),
    ],
)
def test_sagemakers_environment_takes_none(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert sagemaker((*words, "--dry-run")) == 2
    assert PLANTED not in capsys.readouterr().err


@pytest.mark.parametrize("content", [f"{{DB: {PLANTED}}}", f"[[{PLANTED}]]", f"[{PLANTED}]"])
def test_nor_does_yaml(content: str, tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"  # type: ignore[operator]
    path.write_text(f"environment: {content}\n")
    assert sagemaker(("--config", str(path), "--dry-run")) == 2
    assert PLANTED not in capsys.readouterr().err


def test_whatever_ends_a_process_is_told_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    report_end(3, f"cannot reach {SECRETS['a URL']}.")
    assert capsys.readouterr().err == "error: cannot reach postgres://***@db.example.com/x.\n"
