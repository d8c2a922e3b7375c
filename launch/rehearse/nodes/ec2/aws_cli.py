"""AWS's command line for nodes, read once: reading it takes a second, ten times a boot.

python aws_cli.py --serve SOCKET   reads it once, and runs each command in a fork of itself
python aws_cli.py SOCKET WORDS...  runs aws WORDS..., with the caller's files, folder and environment

A program: nothing imports it.  The second form imports little, as it runs often.
"""

import json
import os
import socket
import sys

SERVE = "--serve"
ENDED_WITHOUT_A_CODE = 255
DATA_PATH = "AWS_DATA_PATH"  # which the command line sets for itself, once it is read
LISTENS_S = 30.0  # at the latest; it takes a tenth of a second


def run(path: str, words: list[str]) -> int:
    """One command, which ends when this process does; its exit code."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as there:
        _connect(there, path)
        folder = os.open(".", os.O_RDONLY)
        message = json.dumps([words, dict(os.environ)]).encode()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(message) + 65536)
        socket.send_fds(there, [message], [0, 1, 2, folder])
        answer = there.recv(1)
    return answer[0] if answer else ENDED_WITHOUT_A_CODE


def _connect(there: socket.socket, path: str) -> None:
    """Connects; retries while a node that has just been switched on does not listen yet."""
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
    """Serves for ever.  Clients that connect while the command line is being read wait."""
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
    """Imports what commands import, also late, and keeps what they parse: the descriptions of S3 and of endpoints."""
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
    unsigned = {"aws_access_key_id": "-", "aws_secret_access_key": "-"}  # nosec B105  # nothing is signed with these
    driver.session.create_client("s3", region_name="us-east-1", **unsigned)


def _answer(client: socket.socket) -> None:
    """Runs the client's command in this process, and ends it."""
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
    """Ends this process when the client has gone."""
    client.recv(1)
    os._exit(ENDED_WITHOUT_A_CODE)


if __name__ == "__main__":
    if sys.argv[1] == SERVE:
        serve(sys.argv[2])
    sys.exit(run(sys.argv[1], sys.argv[2:]))
