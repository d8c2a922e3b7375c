"""The AWS CLI for nodes, preloaded by a server: importing it takes a second, and a boot runs it ten times.

python aws_cli.py --serve SOCKET   imports it once, and runs each command in a fork of itself
python aws_cli.py SOCKET WORDS...  runs aws WORDS..., with the caller's files, folder and environment

A program that nothing imports.  The second form imports little, as it runs often.
"""

import json
import os
import socket
import sys

SERVE = "--serve"
ENDED_WITHOUT_A_CODE = 255
DATA_PATH = "AWS_DATA_PATH"  # set by the AWS CLI itself once it is imported
LISTENS_S = 30.0  # timeout for the server to listen; usually it takes a tenth of a second


def run(path: str, words: list[str]) -> int:
    """Run one command, which ends when this process does.  Return its exit code."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as there:
        _connect(there, path)
        folder = os.open(".", os.O_RDONLY)
        message = json.dumps([words, dict(os.environ)]).encode()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(message) + 65536)
        socket.send_fds(there, [message], [0, 1, 2, folder])
        answer = there.recv(1)
    return answer[0] if answer else ENDED_WITHOUT_A_CODE


def _connect(there: socket.socket, path: str) -> None:
    """Connect; retry while the server of a node that has just started does not listen yet."""
    import time

    until = time.monotonic() + LISTENS_S
    while True:
        try:
            there.connect(path)
            return
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def serve(path: str) -> None:
    """Serve forever.  Clients that connect while the AWS CLI is being imported wait."""
    import signal

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as here:
        here.bind(path)
        here.listen(64)
        _read()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets those that have ended
        while True:
            client, _ = here.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                here.close()
                _answer(client)
            client.close()


def _read() -> None:
    """Import what commands import, including lazily, and cache what they parse: S3's model and the endpoints."""
    import contextlib
    import functools
    import io

    from awscli import clidriver
    from awscli.botocore.loaders import JSONFileLoader

    load = functools.cache(functools.partial(JSONFileLoader.load_file, JSONFileLoader()))
    JSONFileLoader.load_file = lambda _self, path: load(path)
    driver = clidriver.create_clidriver()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        driver.main(["--version"])
    unsigned = {"aws_access_key_id": "-", "aws_secret_access_key": "-"}  # nothing is signed with these
    driver.session.create_client("s3", region_name="us-east-1", **unsigned)


def _answer(client: socket.socket) -> None:
    """Run the client's command in this process, and end it."""
    import threading

    message, files, _, _ = socket.recv_fds(client, 1 << 20, 4)
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.fchdir(files[3])
    for file in files:
        os.close(file)
    words, variables = json.loads(message)
    data_path = os.environ[DATA_PATH]
    os.environ.clear()
    os.environ.update({**variables, DATA_PATH: data_path})
    sys.argv = ["aws", *words]
    threading.Thread(target=_end_with, args=[client], daemon=True).start()
    code = _main()
    client.send(bytes([code & 255]))
    os._exit(0)


def _main() -> int:
    from awscli import clidriver

    try:
        code = clidriver.main()
    except SystemExit as end:
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = code or 1
    return code if isinstance(code, int) else 1


def _end_with(client: socket.socket) -> None:
    """End this process when the client has gone."""
    client.recv(1)
    os._exit(ENDED_WITHOUT_A_CODE)


if __name__ == "__main__":
    if sys.argv[1] == SERVE:
        serve(sys.argv[2])
    sys.exit(run(sys.argv[1], sys.argv[2:]))
