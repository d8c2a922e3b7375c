"""An AWS configuration that does not work ends a command with one sentence that names what to mend."""

from io import StringIO
from pathlib import Path

import pytest

from launch.data.__main__ import main

MFA = "[default]\nrole_arn = arn:aws:iam::1:role/rrrrr\nsource_profile = keys\nmfa_serial = arn:aws:iam::1:mfa/m\n"
KEYS = "[profile keys]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = wJalrXUtnFEMI\n"
SSO = "[default]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n[sso-session s]\nsso_region = us-east-1\n"
WEB = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/no/token", "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/r"}


@pytest.mark.parametrize(
    ("config", "env", "named"),
    [
        ("[default]\ncredential_process = /no/program --x\n", {}, "credential_process in profile default"),
        ("[default]\ncredential_process = echo hello\n", {}, "credential_process in profile default"),
        (MFA + KEYS, {}, "mfa_serial in profile default"),
        ("[default]\nrole_arn = r\nsource_profile = keys\n" + KEYS, {}, "role_arn in profile default"),
        ("[default]\nrole_arn = arn:aws:iam::1:role/r\n", {}, "missing: source_profile or credential_source"),
        (SSO + "sso_start_url = https://example.awsapps.com/start\n", {}, "run aws sso login"),
        (SSO, {}, "sso_start_url"),
        (KEYS, {"AWS_ENDPOINT_URL": "nonsense", "AWS_PROFILE": "keys"}, "AWS_ENDPOINT_URL"),
        ("[default]\nendpoint_url = no url\n" + KEYS, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
         "endpoint_url in profile default"),
        (KEYS, {"AWS_DEFAULT_REGION": "us-east-1\n", "AWS_PROFILE": "keys"}, "AWS_DEFAULT_REGION"),
        ("", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.com/x"}, "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        ("", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/x",
              "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/no/token"}, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
        ("", WEB, "AWS_WEB_IDENTITY_TOKEN_FILE"),
        ("", {**WEB, "AWS_WEB_IDENTITY_TOKEN_FILE": "/etc/hosts", "AWS_ROLE_ARN": "r"}, "AWS_ROLE_ARN"),
        ("", {"AWS_ACCESS_KEY_ID": "AKID"}, "missing: AWS_SECRET_ACCESS_KEY"),
        ("", {"AWS_PROFILE": "wrok"}, "AWS_PROFILE"),
        (KEYS, {"AWS_PROFILE": "keys", "HTTPS_PROXY": "http://[::1"}, "HTTPS_PROXY"),
        (KEYS, {"AWS_PROFILE": "keys", "AWS_CA_BUNDLE": "/no/bundle.pem"}, "AWS_CA_BUNDLE"),
        (KEYS, {"AWS_PROFILE": "keys", "AWS_STS_REGIONAL_ENDPOINTS": "moon"}, "AWS_STS_REGIONAL_ENDPOINTS"),
        ("[default\n", {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, "config"),
        ("", {"AWS_CONFIG_FILE": "/", "AWS_DEFAULT_REGION": ""}, "AWS_CONFIG_FILE"),
        ("", {"AWS_SHARED_CREDENTIALS_FILE": "/no/credentials"}, "AWS_SHARED_CREDENTIALS_FILE"),
    ],
)  # fmt: skip
def test_it_is_one_sentence_that_names_the_setting(
    config: str, env: dict[str, str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "config").write_text(config)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    usual = {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_DEFAULT_REGION": "us-east-1", "HOME": str(tmp_path)}
    for name, value in (usual | env).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdin", StringIO())  # no terminal

    code = main(["list"])

    printed = capfd.readouterr()
    assert code in (2, 4), printed
    (said,) = [line for line in printed.err.splitlines() if line.startswith("error: ")]
    assert named in said
    assert "Traceback" not in printed.err
