"""launch.rehearse.environment: what a rehearsal takes from the user's environment."""

import os

from launch.rehearse.environment import cleaned, entered
from launch.rehearse.nodes.ec2.node import NodeSetup, environment

THE_USERS = {
    "AWS_PROFILE": "prod",
    "AWS_ACCESS_KEY_ID": "AKIAREAL",
    "AWS_SECRET_ACCESS_KEY": "real",
    "AWS_SESSION_TOKEN": "real",
    "AWS_ENDPOINT_URL_S3": "https://s3.example.com",
    "AWS_CA_BUNDLE": "/corp.pem",
    "MOTO_ACCOUNT_ID": "1",
    "TEST_SERVER_MODE": "yes",
    "https_proxy": "http://proxy.example.com",
    "HTTP_PROXY": "http://proxy.example.com",
    "no_proxy": ".example.com",
}


def test_the_users_account_and_proxy_are_ignored() -> None:
    env = cleaned({**THE_USERS, "PATH": "/bin", "OMP_NUM_THREADS": "2"})

    assert (env["PATH"], env["OMP_NUM_THREADS"]) == ("/bin", "2")
    assert (env["AWS_ACCESS_KEY_ID"], env["no_proxy"]) == ("rehearsal", "*")
    assert env["AWS_CONFIG_FILE"] == env["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull
    assert set(THE_USERS.values()).isdisjoint(env.values())


def test_a_node_finds_no_profiles_or_credential_process_of_the_user() -> None:
    env = environment(NodeSetup("http://127.0.0.1:1"), "/bin", "/tmp")

    assert env["AWS_CONFIG_FILE"] == env["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull
    assert (env["HOME"], env["AWS_ENDPOINT_URL"]) == ("/tmp", "http://127.0.0.1:1")


def test_the_environment_is_restored_afterwards() -> None:
    before = dict(os.environ)

    with entered({"PATH": "/bin", **THE_USERS}):
        inside = dict(os.environ)

    assert (inside["PATH"], inside["AWS_SECRET_ACCESS_KEY"]) == ("/bin", "rehearsal")
    assert "AWS_PROFILE" not in inside
    assert dict(os.environ) == before
