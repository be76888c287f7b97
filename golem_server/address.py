"""Where a server listens: ``host:port``, ``[v6]:port``, ``:port`` or ``unix:/path``."""

import socket
from dataclasses import dataclass

from golem_core.settings import SettingsError


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


def listen(address: Address) -> socket.socket:
    """A TCP socket bound to the address and listening; port 0 takes a free one.

    Raises:
        SettingsError: when the address is not this machine's or is taken.
    """
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((address.host, address.port))
            made.listen(1024)
        except BaseException:
            made.close()
            raise
    except OSError as error:
        raise SettingsError(f"-addr {address}: {error.strerror or error}") from None
    return made
