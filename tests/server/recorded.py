"""The tiny model that a llama-server was recorded on, served in this process."""

import gzip
import json

from falcon.testing import TestClient

from golem_core.plugins import load_plugins
from golem_server import config
from golem_server.app import create_app
from golem_server.service import Service
from tests.paths import data

RECORDED = json.loads(data("server/llama_server_native.json").read_text())
BANNED = [[token, False] for token in RECORDED["banned"]]
HELLO = [{"role": "user", "content": "hello"}]


class Recorded(TestClient):
    """A client of the application, as the recorded server was started."""

    def __init__(self, folder, *flags):
        path = folder / "tiny.gguf"
        path.write_bytes(gzip.decompress(data("server/tiny_qwen3_320.gguf.gz").read_bytes()))
        plugins = load_plugins()
        given = ["-model", str(path), "-alias", "tiny.gguf", "-parallel", "2", "-context", "512"]
        settings = config.load([*given, *flags], plugins, {}).settings
        self.service = Service(settings, plugins)
        application = create_app(self.service)
        self.log = []
        application.write = self.log.append
        self.service.load()
        super().__init__(application)

    def ask(self, path, body, status=200):
        """The JSON that answers a POST."""
        answer = self.simulate_post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json

    def look(self, path, status=200):
        """The JSON that answers a GET."""
        answer = self.simulate_get(path)
        assert answer.status_code == status, answer.text
        return answer.json

    def native(self, prompt, **fields):
        """A native answer of the tokens that were allowed when it was recorded."""
        asked = {"prompt": prompt, "seed": 1, "logit_bias": BANNED} | fields
        return self.ask("/completion", asked)

    def events(self, path, body):
        """The payloads of a stream, as JSON where they are."""
        answer = self.simulate_post(path, json=body | {"stream": True})
        assert answer.headers["Content-Type"] == "text/event-stream", answer.text
        found = [f.removeprefix("data: ") for f in answer.text.split("\n\n") if f[:1] == "d"]
        return [json.loads(one) if one.startswith("{") else one for one in found]

    def erase(self):
        """Empty slots, as before the first request."""
        for slot in range(2):
            self.ask(f"/slots/{slot}?action=erase", {})
