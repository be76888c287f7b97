"""Serving on a unix socket and on IPv6, under both servers."""

import http.client
import json
import socket

import pytest

from tests.server.conftest import PATIENCE, chat_body


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.host)


def test_a_unix_socket(start, tmp_path):
    path = tmp_path / "golem.sock"
    server = start(GOLEM_ADDR=f"unix:{path}")
    server.wait_for_line(rf"listening on unix:{path} — ")
    connection = UnixConnection(str(path))
    # No browser reaches it, so any name in the Host header is fine.
    connection.request("POST", "/v1/chat/completions", json.dumps(chat_body("hello")))
    body = json.loads(connection.getresponse().read())
    assert body["choices"][0]["message"]["content"] == "you said: hello"
    connection.close()
    server.terminate()
    assert server.process.wait(PATIENCE) == 0
    assert not path.exists()


def test_ipv6(start):
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            port = probe.getsockname()[1]
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    server = start(GOLEM_ADDR=f"[::1]:{port}")
    server.wait_for_line(rf"listening on http://\[::1\]:{port}/v1 — ")
    server.host, server.port = "::1", port
    assert server.chat("hello")[0] == 200
