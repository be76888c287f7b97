"""What every request passes before its route is looked up.

In this order: the Host header, CORS, whether it is a request at all, a preflight's answer, whether
the server is ready, the key.
"""

import hmac
import ipaddress
import socket

import falcon

from golem_server.config import ServerSettings, api_keys
from golem_server.edge import REFUSAL
from golem_server.errors import Refusal, not_found
from golem_server.service import Phase, Service

HEALTH = ("/health", "/v1/health", "/health/live", "/health/ready")


class Guards:
    """Falcon middleware."""

    def __init__(self, service: Service):
        server: ServerSettings = service.server
        self.service = service
        self.origins = frozenset(server.cors)
        self.keys = [key.encode() for key in sorted(api_keys(server))]
        named = {"localhost", socket.gethostname().lower(), *map(str.lower, server.allowed_hosts)}
        self.hosts = frozenset(named)

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        self._check_host(req)
        ours = bool(self.origins) and self._cross_origin(req, resp)
        if (refusal := req.env.get(REFUSAL)) is not None:
            raise refusal
        if req.method == "OPTIONS":  # which the framework would answer for every route
            if not ours:
                raise not_found()
            resp.complete = True
            return
        if req.path in HEALTH:
            return
        if self.service.phase is not Phase.READY:
            raise self.service.unavailable()
        self._check_key(req)

    def _check_host(self, req: falcon.Request) -> None:
        """Refuse a page that made its own name point at this machine (DNS rebinding)."""
        name = _host_name(req.get_header("Host") or "")
        if not name or "*" in self.hosts or name in self.hosts or name.endswith(".localhost"):
            return
        if _is_address(name) or not _is_loopback(req.env.get("REMOTE_ADDR", "")):
            return
        raise Refusal(
            f'a request from this machine names the host "{name[:100]}", which is not this '
            "server's: use localhost, or start the server with -allowed-hosts",
            "permission_error",
        )

    def _cross_origin(self, req: falcon.Request, resp: falcon.Response) -> bool:
        """Set the headers that let a page read the answer; whether its origin is one of ours."""
        origin = req.get_header("Origin")
        resp.append_header("Vary", "Origin")
        if origin is None or not (origin in self.origins or "*" in self.origins):
            return False
        resp.set_header("Access-Control-Allow-Origin", origin)
        if origin in self.origins:
            resp.set_header("Access-Control-Allow-Credentials", "true")
        if req.method == "OPTIONS":
            resp.set_header("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS")
            asked = req.get_header("Access-Control-Request-Headers") or "*"
            resp.set_header("Access-Control-Allow-Headers", asked)
            resp.content_type = "text/html"
        return True

    def _check_key(self, req: falcon.Request) -> None:
        if not self.knows(req):
            raise Refusal("Invalid API Key", "authentication_error")

    def knows(self, req: falcon.Request) -> bool:
        """Whether a request carries a key, or none is needed."""
        given = req.get_header("Authorization") or req.get_header("X-Api-Key") or ""
        scheme, _, token = given.partition(" ")
        token = token if scheme.lower() == "bearer" else given
        key = token.strip().encode("latin-1", "replace")  # as WSGI brings headers
        # Every key is compared, so that the time says nothing about which one was near.
        return not self.keys or sum(hmac.compare_digest(key, known) for known in self.keys) > 0


def _host_name(header: str) -> str:
    """The name of a Host header, without port and brackets, lower case."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False  # a unix socket's peer has no address, and no browser reaches it
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback
