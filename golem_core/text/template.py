"""Writes a conversation as the text a model was trained to read, by the model file's own template.

The dialect is Hugging Face transformers': what renders there renders here, character for
character. A template is a program by a stranger, so it runs in a sandbox, for two seconds at the
most and to a text of one mebibyte at the most, beside what the conversation itself holds.
"""

import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from jinja2 import Template, TemplateSyntaxError

from golem_core.text.budget import Budget, OverBudget, budget
from golem_core.text.errors import TemplateError
from golem_core.text.sandbox import Sandbox

__all__ = ["ChatTemplate", "TemplateError"]

SOURCE_CHARACTERS = 1 << 18


class ChatTemplate:
    """A compiled template. ``TemplateError`` names the line where ``source`` is not Jinja.

    ``source``, ``bos_token`` and ``eos_token`` are kept as given. Safe for several threads.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = ""):
        self.source = source
        self.bos_token = bos_token
        self.eos_token = eos_token
        if len(source) > SOURCE_CHARACTERS:
            raise TemplateError(
                f"the chat template has {len(source)} characters; {SOURCE_CHARACTERS} is the most"
            )
        failure = ""
        try:
            with budget():
                self._template = Sandbox().from_string(source)
        except TemplateSyntaxError as error:
            failure = f", line {error.lineno}: {error.message}"
        except Exception as error:
            failure = f": {_short(error)}"
        if failure:
            raise TemplateError(f"the chat template cannot be read{failure}")

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt of ``messages``: plain dicts, lists and scalars, as decoded from JSON.

        ``variables`` are what else the template may ask for (enable_thinking, documents ...).
        ``TemplateError``: with the template's own words where it refuses the conversation
        (``refused``), else with its line and what failed there.
        """
        names = {
            "messages": messages,
            "tools": tools or None,
            "add_generation_prompt": add_generation_prompt,
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            **variables,
        }
        try:
            with budget(_characters(messages)) as limits:
                return self._write(names, limits)
        except TemplateError:
            raise
        except Exception as error:
            line = _line(self._template, error.__traceback__)
            failure = f"the chat template failed{line}: {_short(error)}"
        # Outside of the handler, so that nothing keeps the frames that failed and what they hold.
        raise TemplateError(failure)

    def _write(self, names: dict[str, Any], limits: Budget) -> str:
        chunks = []
        size = 0
        for chunk in self._template.root_render_func(self._template.new_context(names)):
            limits.tick()
            size += len(chunk) if chunk.isascii() else len(chunk.encode("utf-8", "replace"))
            if size > limits.output:
                raise OverBudget(f"its text is longer than {limits.output} bytes")
            if chunk:
                chunks.append(chunk)
        return "".join(chunks)


def _characters(messages: Sequence[Mapping[str, Any]]) -> int:
    """Of all texts of a conversation."""
    parts = (m.get(key) for m in messages for key in ("content", "reasoning_content"))
    return sum(len(part) for part in parts if isinstance(part, str))


def _short(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it nests too deep"
    text = str(error) or type(error).__name__
    return text if len(text) <= 300 else text[:300] + "…"


def _line(template: Template, trace: TracebackType | None) -> str:
    """Where in the template an error arose, as ", line 12", or nothing."""
    lines = [
        template.get_corresponding_lineno(line)
        for frame, line in traceback.walk_tb(trace)
        if frame.f_globals.get("__jinja_template__") is template
        or frame.f_code.co_filename == template.filename
        or frame.f_code.co_filename == "<template>"
    ]
    return f", line {lines[-1]}" if lines else ""
