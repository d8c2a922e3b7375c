"""Sessions on machines of jobs by AWS's Session Manager: no keys and no open ports.  Pure."""

from launch.core.jobs import Connection

_DOCUMENTS = "https://docs.aws.amazon.com/systems-manager/latest/userguide"
PROGRAMS = {
    "aws": "the AWS CLI is not installed:\n  pip install awscli",
    "session-manager-plugin": f"""\
AWS's Session Manager plugin is not installed.  Debian, Ubuntu:
  curl -O https://s3.amazonaws.com/session-manager-downloads/plugin/latest/ubuntu_64bit/session-manager-plugin.deb
  sudo dpkg -i session-manager-plugin.deb
other systems: {_DOCUMENTS}/session-manager-working-with-install-plugin.html""",
}
_FORWARDS = "AWS-StartPortForwardingSession"


def shell_on(target: str, region: str, *notes: str) -> Connection:
    """A shell on `target`, such as an instance's id."""
    return Connection(("aws", "ssm", "start-session", "--target", target, "--region", region), PROGRAMS, notes)


def forwarding(target: str, region: str, port: int, local_port: int) -> Connection:
    """A tunnel from localhost to a port of `target`.

    https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-sessions-start.html
    """
    ports = f"portNumber={port},localPortNumber={local_port}"
    command = (*shell_on(target, region).command, "--document-name", _FORWARDS, "--parameters", ports)
    return Connection(command, PROGRAMS)
