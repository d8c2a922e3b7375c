"""The sockets on which a process and its children listen, read from Linux's /proc."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

LISTEN = "0A"
SOCKET = re.compile(r"socket:\[(\d+)\]")


class Listening(NamedTuple):
    """protocol: tcp, tcp6, udp, udp6."""

    protocol: str
    address: str
    port: int

    @property
    def is_loopback(self) -> bool:
        address = ip_address(self.address)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback


def below(pid: int) -> set[Listening]:
    """What the process and all processes below it listen on now, in the network that the first one is in."""
    return of(tree(pid))


def of(pids: Iterable[int]) -> set[Listening]:
    """What these processes listen on now, in the network that the first one is in."""
    pids = list(pids)
    inodes = {inode for process in pids for inode in _sockets(process)}
    found = set[Listening]()
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for line in _table(pids[0], protocol) if pids else ():
            words = line.split()
            waits = words[3] == LISTEN if protocol.startswith("tcp") else words[2].endswith(":0000")
            if waits and words[9] in inodes:
                address, port = words[1].split(":")
                found.add(Listening(protocol, _address(address), int(port, 16)))
    return found


def marked(word: str) -> set[Listening]:
    """What the processes that have `word`, NAME=value, in their environment listen on now, such as a container's."""
    return of(_with(word.encode()))


def _with(word: bytes) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def watching(pid: int) -> AbstractContextManager[set[Listening]]:
    """Inside the block, another thread collects what the process, and all below it, come to listen on."""
    return collecting(lambda: below(pid))


@contextmanager
def collecting(look: Callable[[], set[Listening]]) -> Iterator[set[Listening]]:
    """Inside the block, another thread collects what `look` comes to find."""
    before, seen, is_over = look(), set[Listening](), threading.Event()

    def collect() -> None:
        while not is_over.wait(0.2):
            seen.update(look() - before)

    collector = threading.Thread(target=collect)
    collector.start()
    try:
        yield seen
    finally:
        is_over.set()
        collector.join()


def _table(pid: int, protocol: str) -> list[str]:
    """The sockets of the process's network; none once it has ended."""
    try:
        return Path(f"/proc/{pid}/net/{protocol}").read_text().splitlines()[1:]
    except OSError:
        return []


def tree(pid: int) -> list[int]:
    """The process and all below it."""
    parents = dict[int, list[int]]()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found, new = list[int](), [pid]
    while new:
        found += new
        new = [child for process in new for child in parents.get(process, ())]
    return found


def _sockets(pid: int) -> set[str]:
    found = set[str]()
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if match := SOCKET.fullmatch(str(link.readlink())):
                    found.add(match[1])
    return found


def _address(words: str) -> str:
    """Linux writes each 32-bit word with its bytes turned around."""
    octets = b"".join(bytes.fromhex(words[place : place + 8])[::-1] for place in range(0, len(words), 8))
    return str(ip_address(octets))
