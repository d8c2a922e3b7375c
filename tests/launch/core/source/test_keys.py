"""Nothing that looks like a key leaves this machine with the source, and none is repeated."""

from importlib.resources import files
from pathlib import Path
from random import Random

import pytest

from launch.core.source.keys import check_name, check_text
from tests.launch.core.source.folder import source, write
from tests.launch.core.test_hidden import PLANTED, SECRETS
from trainer.errors import SettingsError

KEYS = [
    ".env", ".env.local", "prod.env", "certs/server.pem", "SERVER.KEY", "id_rsa", "id_rsa.bak", ".aws/config", ".netrc",
    "home/.ssh/known_hosts", "credentials.json", "service-account-7.json", "kaggle.json", ".kube/config",
    "kubeconfig-prod.yml", ".azure/accessTokens.json", ".azure/msal_token_cache.bin", "terraform.tfstate.backup",
    ".docker/config.json", "home/.config/gcloud/credentials.db", "ann_accessKeys.csv", "server.key.bak", ".netrc~",
    ".server.pem.swp", "server.pem.orig.1", ".streamlit/secrets.toml",
]  # fmt: skip
NO_KEYS = [
    "train.py", ".env.example", "id_rsa.pub", "environment.yaml", "keys.py", "monkey", "tokenizer.json",
    "credentials.py", "aws/config", "service.json", "secrets/readme.md", ".docker/Dockerfile", "train.py~",
    "model-checkpoint", ".azure/gpu-tests.yml", ".kube/deployment.yaml", "certs/global-bundle.pem", "cacert.pem",
    "rds-combined-ca-bundle.pem", "AmazonRootCA1.pem",
]  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_a_file_with_the_name_of_a_key_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"looks like a key.*\.gitignore, and pass the value by --secret"):
        check_name(name)


def test_a_key_that_gitignore_names_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "", ".env": "harmless"})

    with pytest.raises(SettingsError, match="looks like a key"):
        source(tmp_path)
    write(tmp_path, {".gitignore": "/.env\n"})
    assert source(tmp_path).files == (".gitignore", "train.py")


@pytest.mark.parametrize("name", NO_KEYS)
def test_ordinary_names_are_sent(name: str) -> None:
    assert check_name(name) is None


def test_a_bundle_of_certificates_is_sent_but_not_with_a_private_key(tmp_path: Path) -> None:
    lines = "MIIEBjCCAu6gAwIBAgIJAMc0ZzaSUK51MA0G\n"
    write(tmp_path, {"train.py": "", "global-bundle.pem": f"-----BEGIN CERTIFICATE-----\n{lines}"})
    assert source(tmp_path).files == ("global-bundle.pem", "train.py")

    write(tmp_path, {"global-bundle.pem": f"-----BEGIN RSA PRIVATE KEY-----\n{lines}"})
    with pytest.raises(SettingsError, match=r"global-bundle\.pem, line 1, holds what looks like a secret"):
        source(tmp_path)


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_token_in_a_text_is_refused_by_its_line_and_not_repeated(secret: str) -> None:
    with pytest.raises(SettingsError, match=r"train\.py, line 3, holds what looks like a secret") as caught:
        check_text("train.py", f"import os\n\nTOKEN = '{secret}'\n".encode())
    assert PLANTED not in str(caught.value)


BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ"


@pytest.mark.parametrize(
    "between",
    ["\n", "\\n", '\\n"\n    "', "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,8D5D\n\n", "\nVersion: 2\n\n"],
)
@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_a_private_key_in_a_text_is_refused(kind: str, between: str) -> None:
    with pytest.raises(SettingsError, match="line 2"):
        check_text("keys.py", f'a\nKEY = "-----BEGIN {kind}-----{between}{BODY}"\n'.encode())


def test_the_key_of_awss_own_pages_is_none() -> None:
    check_text("credentials", b"[default]\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n")
    check_text("train.py", b"aws_secret_access_key=os.environ['AWS_SECRET_ACCESS_KEY'],")


@pytest.mark.parametrize("code", ["utf-16", "utf-8-sig"])
def test_a_text_that_windows_wrote_is_looked_through(code: str) -> None:
    with pytest.raises(SettingsError, match="line 2"):
        check_text("keys.txt", f"a\n{SECRETS['GitHub']}\n".encode(code))


@pytest.mark.parametrize("password", ["p%40ss1", "Ab1$xyz9", "a1*b2(c)", "s3cr3t^x", "1%2Fz", "x$1", "p%d51"])
def test_a_password_with_signs_in_it_is_no_placeholder(password: str) -> None:
    """As programs make them, and as a URL writes them: %40 is an @."""
    with pytest.raises(SettingsError, match=r"x\.py, line 1") as caught:
        check_text("x.py", f"DB = 'postgres://me:{password}@db'".encode())
    assert password not in str(caught.value)


HARMLESS = {
    "a placeholder": "postgres://{user}:{password}@{host}/x1",
    "an old placeholder": "https://user1:%s@host",
    "a named placeholder": "https://user1:%(password)s@host",
    "stars": "https://user1:***@host",
    "a program's answer": "https://user1:$(cat token)@host",
    "a variable": "https://$USER1:$PASSWORD1@example.com",
    "an example": "postgres://user:password@localhost/x",
    "a class of a style sheet": "sk-toggleable__label-arrow",
    "a header": "if line == '-----BEGIN PRIVATE KEY-----':",
    "a pattern": r"://[^/\s:@0-9]*:[^/\s]+@",
    "a key of AWS's documents": "AKIAIOSFODNN7EXAMPLE",
    "detect-secrets' word for it": f"ghp_{PLANTED}  # pragma: allowlist secret",
    "gitleaks' word for it": f"ghp_{PLANTED}  # gitleaks:allow",
    "a binary file": f"\0ghp_{PLANTED}",
    "a file that no person wrote": f"ghp_{PLANTED}" + " " * 1_000_000,
}


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS)
def test_what_only_resembles_a_secret_is_sent(text: str) -> None:
    assert check_text("x.py", text.encode()) is None


def test_ordinary_sources_hold_none() -> None:
    """Ours, and those of a library of models, in which many a word looks like the beginning of a token."""
    for package in ("launch", "trainer", "torchvision"):
        for path in Path(str(files(package))).rglob("*.py"):
            check_text(path.name, path.read_bytes())


@pytest.mark.parametrize(
    "line",
    [
        'os.environ["{}"] = "{}"',
        "os.environ['{}'] = '{}'",
        'os.environ.setdefault("{}", "{}")',
        "export {}={}",
        "{}: {}",
    ],
)
def test_a_key_behind_its_name_is_found_as_programs_write_it(line: str) -> None:
    key = "".join(Random(1).choices("0123456789abcdef", k=40))
    for name in ("WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        with pytest.raises(SettingsError, match="holds what looks like a secret"):
            check_text("train.py", line.format(name, key).encode())
