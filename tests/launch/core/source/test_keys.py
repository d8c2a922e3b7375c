"""Nothing that looks like a key leaves this machine with the source, and none is repeated."""

from importlib.resources import files
from pathlib import Path
from random import Random

import pytest

from launch.core.source.keys import check_name, check_text
from tests.launch.core.source.folder import source, write
from tests.launch.core.test_hidden import ALPHABETS, PLANTED, SECRETS, drawn
from trainer.errors import SettingsError
from trainer.settings.hidden import without_secrets

KEYS = [
    ".env", ".env.local", "prod.env", "certs/server.pem", "SERVER.KEY", "id_rsa", "id_ed25519", "id_rsa.bak",
    ".aws/config", "home/.ssh/known_hosts", ".netrc", ".pypirc", "credentials.json", "service-account-7.json",
    "service_account.json", "cert.pfx", "cert.p12", "kaggle.json", ".git-credentials", ".kube/config",
    "kubeconfig.yaml", "kubeconfig-prod.yml", ".azure/accessTokens.json", ".azure/msal_token_cache.bin",
    "terraform.tfstate", "terraform.tfstate.backup", ".docker/config.json", ".pgpass", ".boto", "store.jks",
    "home/.config/gcloud/credentials.db", "application_default_credentials.json", "rootkey.csv", "ann_accessKeys.csv",
    "client_secret_7.json", "server.key.bak", ".netrc~", ".server.pem.swp", "server.pem.orig.1",
    ".streamlit/secrets.toml",
]  # fmt: skip
NO_KEYS = [
    "train.py", ".env.example", "id_rsa.pub", "environment.yaml", "keys.py", "monkey", "tokenizer.json",
    "credentials.py", "aws/config", "service.json", "secrets/readme.md", ".docker/Dockerfile", "vars.tfvars",
    "train.py~", "model-checkpoint", "pip.conf",
    ".azure/gpu-tests.yml", ".kube/deployment.yaml", "kubeconfig_utils.py",
    "certs/global-bundle.pem", "rds-combined-ca-bundle.pem", "cacert.pem", "AmazonRootCA1.pem",
]  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_a_file_with_the_name_of_a_key_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"train.py": "", name: "harmless"})

    with pytest.raises(SettingsError, match=r"looks like a key.*\.gitignore, and pass the value by --secret"):
        source(tmp_path)
    write(tmp_path, {".gitignore": f"/{name}\n"})
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
def test_a_token_in_a_text_is_refused_by_its_line_and_not_repeated(tmp_path: Path, secret: str) -> None:
    write(tmp_path, {"train.py": f"import os\n\nTOKEN = '{secret}'\n"})

    with pytest.raises(SettingsError, match=r"train\.py, line 3, holds what looks like a secret") as caught:
        source(tmp_path)
    assert PLANTED not in str(caught.value)


@pytest.mark.parametrize("service", ALPHABETS)
def test_tokens_of_a_services_own_letters_are_refused(service: str) -> None:
    for text, token in drawn(service, 300):
        with pytest.raises(SettingsError, match=r"train\.py, line 2") as caught:
            check_text("train.py", f"import os\nTOKEN = {text}\n".encode())
        assert token not in str(caught.value)


BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ"


@pytest.mark.parametrize("between", ["\n", "\\n", '\\n"\n    "'])
def test_a_private_key_in_a_text_is_refused(between: str) -> None:
    text = f'a\nKEY = "-----BEGIN RSA PRIVATE KEY-----{between}{BODY}"\n'

    with pytest.raises(SettingsError, match="line 2"):
        check_text("keys.py", text.encode())


@pytest.mark.parametrize("first", ["BEGIN PGP PRIVATE KEY BLOCK", "BEGIN RSA PRIVATE KEY"])
@pytest.mark.parametrize("header", ["Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,8D5D\n\n", "Version: 2\n\n"])
def test_a_key_with_a_header_is_refused(first: str, header: str) -> None:
    with pytest.raises(SettingsError, match="line 2"):
        check_text("keys.txt", f"a\n-----{first}-----\n{header}{BODY}\n".encode())


AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYTUVWXYZ012"


@pytest.mark.parametrize(
    "text",
    [f"[default]\naws_secret_access_key = {AWS}\n", f'{{\n"SecretAccessKey": "{AWS}"}}',
     f"x\nexport AWS_SECRET_ACCESS_KEY={AWS}\n"],
)  # fmt: skip
def test_aws_secret_key_is_known_by_the_name_before_it(text: str) -> None:
    with pytest.raises(SettingsError, match="line 2"):
        check_text("credentials", text.encode())
    assert AWS not in without_secrets(text)
    check_text(
        "credentials", text.replace(AWS, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY").encode()
    )  # of AWS's own pages
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


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"])
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
def test_a_key_behind_its_name_is_found_as_programs_write_it(name: str, line: str) -> None:
    key = "".join(Random(1).choices("0123456789abcdef", k=40))
    with pytest.raises(SettingsError, match="holds what looks like a secret"):
        check_text("train.py", line.format(name, key).encode())
