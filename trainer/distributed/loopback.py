"""Keep the communication of a single-machine training on loopback, where no other machine can reach it.

By default torch's store listens on every address of the machine, without authentication.
"""

import socket
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch takes seconds to import
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

ADDRESS = "127.0.0.1"


def environment() -> Mapping[str, str]:
    """Variables that keep gloo and NCCL on the loopback interface: lo on Linux, lo0 on macOS."""
    names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    return {"GLOO_SOCKET_IFNAME": names[0], "NCCL_SOCKET_IFNAME": f"={names[0]}"} if names else {}


def is_loopback(address: str) -> bool:
    """Whether `address` is a loopback IP address; False for a host name."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def serve_store(port: int, timeout: timedelta, address: str = ADDRESS) -> "TCPStore":
    """A store that listens on a loopback address only.  port: 0 for any.  Raises OSError if it is taken."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(socket.SOMAXCONN)
    except OSError:
        listener.close()
        raise
    port = listener.getsockname()[1]
    # multi_tenant: torchrun's own store in this process then joins this one, where it would open another.
    return TCPStore(
        address, port, is_master=True, timeout=timeout, wait_for_workers=False, multi_tenant=True,
        master_listen_fd=listener.detach(),
    )  # fmt: skip
