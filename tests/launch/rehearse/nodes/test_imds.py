"""The metadata service of a rehearsed node."""

import socket
import struct
import threading
from typing import Any

import pytest

from launch.rehearse.nodes.ec2.imds import Imds


def test_who_gives_up_before_the_answer_is_no_page_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service would print a traceback among the rehearsal's own lines."""
    ended, errors = threading.Event(), list[object]()
    close = Imds.shutdown_request

    def close_and_tell(service: Imds, request: Any) -> None:
        close(service, request)
        ended.set()

    monkeypatch.setattr(Imds, "handle_error", lambda _self, _request, address: errors.append(address))
    monkeypatch.setattr(Imds, "shutdown_request", close_and_tell)
    service = Imds("i-1", ("127.0.0.1", 0))
    try:
        with socket.create_connection(service.server_address[:2]) as asks:  # type: ignore[arg-type]
            asks.sendall(b"PUT /latest/api")
            asks.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed at once, by a reset
        assert ended.wait(10)
    finally:
        service.close()
    assert errors == []
