"""A mistake in a plugin's model class is told as one line that leads to it."""

import pytest

from golem_core.model import ModelError, open_decoder
from golem_core.plugins import Plugins
from golem_plugins.llama.model import Llama


class Slips(Llama):
    """Fails where it is told to."""

    at = ""

    def read(self):
        if self.at == "read":
            self.number = self.hyper.metadata["no.such.key"]

    def write(self, p, w):
        if self.at == "write":
            raise AttributeError("first\nsecond")
        return self.norm(p, w, "no_such_norm", super().write(p, w))


def refusal(path, at):
    plugins = Plugins()
    model = type("Slip", (Slips,), {"at": at})
    plugins._architectures["llama"] = ("mine", model)
    with pytest.raises(ModelError) as caught:
        open_decoder(path, executor="reference", plugins=plugins)
    return str(caught.value)


@pytest.mark.parametrize(("at", "error"), [("read", "KeyError"), ("write", "AttributeError")])
def test_an_error_nobody_meant_names_plugin_and_line(tiny_model, at, error):
    text = refusal(tiny_model("llama"), at)
    assert text.startswith("the plugin of llama fails at ")
    assert f"{error}: " in text and "\n" not in text
    if at == "write":
        line = Slips.write.__code__.co_firstlineno + 2
        assert f"{__file__}:{line}, in write: AttributeError: first; second" in text


def test_a_tensor_that_is_missing_is_still_the_files_fault(tiny_model):
    path = tiny_model("llama")
    text = refusal(path, "")
    assert text.startswith(f"{path}: ") and "no_such_norm" in text
