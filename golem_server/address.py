"""Where a server listens: ``host:port``, ``[v6]:port``, ``:port`` or ``unix:/path``."""

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from golem_core.settings import SettingsError

BACKLOG = 1024  # connections that wait to be taken


@dataclass(frozen=True)
class Address:
    """A place to listen: a host and a port, or the path of a socket."""

    host: str = ""
    port: int = 0
    path: str = ""  # of a unix socket; then host and port mean nothing

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """What a client is given."""
        return str(self) if self.path else f"http://{self}"


def parse_address(text: str) -> Address:
    """Read ``-addr``.

    Raises:
        SettingsError: with the forms that exist.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path:
            raise SettingsError("-addr unix: names no path; write unix:/run/golem.sock")
        return Address(path=path)
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isascii() or not port.isdigit() or (":" in host and not bracketed):
        raise SettingsError(
            f'-addr "{text}" is not an address; write 127.0.0.1:8080, [::1]:8080 or unix:/path'
        )
    if int(port) > 65535:
        raise SettingsError(f'-addr "{text}": a port is at most 65535')
    return Address(host.strip("[]") or "0.0.0.0", int(port))


def listen(address: Address) -> tuple[socket.socket, Address]:
    """A socket bound to the address and listening, and the address it has: port 0 takes a free one.

    A unix socket may be opened by the same user only.

    Raises:
        SettingsError: when the address is not this machine's or is taken.
    """
    try:
        made = _listen_unix(address.path) if address.path else _listen_tcp(address)
    except OSError as error:
        raise SettingsError(f"-addr {address}: {error.strerror or error}") from None
    return made, address if address.path else Address(address.host, made.getsockname()[1])


def _listen_tcp(address: Address) -> socket.socket:
    family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
    with _closed_on_failure(socket.socket(family, socket.SOCK_STREAM)) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((address.host, address.port))
        made.listen(BACKLOG)
    return made


def _listen_unix(path: str) -> socket.socket:
    with _closed_on_failure(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as made:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.stat(path).st_mode) and not _answers(path):
                os.unlink(path)  # left behind by a server that was killed
        made.bind(path)
        os.chmod(path, 0o600)
        made.listen(BACKLOG)
    return made


def _answers(path: str) -> bool:
    """Whether somebody listens on a unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.setblocking(False)
        try:
            asked.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # busy, or not ours to ask
        return True


@contextlib.contextmanager
def _closed_on_failure(made: socket.socket) -> Iterator[socket.socket]:
    try:
        yield made
    except BaseException:
        made.close()
        raise
