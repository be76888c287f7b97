"""From a conversation to the ids of a prompt: every message checked, then the template.

A last message of the assistant is a beginning to go on from: its text ends the prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from golem_server.body import json_type
from golem_server.errors import Refusal
from golem_server.schema import ChatRequest

# What templates know each role as.
ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
}
MEDIA = {
    "image_url": "image",
    "input_audio": "audio",
    "input_video": "video",
    "video_url": "video",
}
OWN_ARGUMENTS = ("self", "messages", "tools", "add_generation_prompt")
REASONING_FORMATS = ("none", "auto", "deepseek", "deepseek-legacy")


@dataclass(frozen=True)
class Prompt:
    """A prompt as text, and the beginning of the answer that the client gave."""

    text: str  # the beginning included
    beginning: str


def read_messages(given: Any) -> list[dict[str, str]]:
    """``[{"role", "content"}, …]`` with roles of :data:`ROLES` and contents of plain text.

    Raises:
        Refusal: for the first message that is wrong, with its place.
    """
    if given is None:
        raise Refusal("'messages' is required")
    if not isinstance(given, list):
        raise Refusal("Expected 'messages' to be an array")
    if not given:
        raise Refusal("a conversation with no message")
    messages = [_message(place, one) for place, one in enumerate(given)]
    if [m["role"] for m in messages[-2:]] == ["assistant", "assistant"]:
        raise Refusal("Cannot have 2 or more assistant messages at the end of the list.")
    return messages


def _message(place: int, given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise Refusal(f"message {place} is {json_type(given)}, and an object is expected")
    role = given.get("role")
    if not isinstance(role, str):
        raise Refusal(f"message {place}: 'role' must be a string")
    if role == "tool" or given.get("tool_calls"):
        what = "a tool result" if role == "tool" else "tool_calls"
        raise Refusal(f"message {place}: {what} is not implemented by this server yet")
    if role not in ROLES:
        known = ", ".join(ROLES)
        raise Refusal(f'message {place} has role "{role}"; the roles are {known}')
    name = ROLES[role]
    if name != "assistant" and "content" not in given:
        raise Refusal("All non-assistant messages must contain 'content'")
    if name == "assistant" and given.get("content") is None:
        raise Refusal("Assistant message must contain either 'content' or 'tool_calls'!")
    return {"role": name, "content": _content(place, given["content"])}


def _content(place: int, given: Any) -> str:
    if given is None or isinstance(given, str):
        return given or ""
    if not isinstance(given, list):
        raise Refusal("Expected 'content' to be a string or an array")
    return "\n".join(_part(place, part) for part in given)


def _part(place: int, part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in MEDIA:
        raise _no_media(place, MEDIA[kind], part)
    if kind != "text":
        raise Refusal("unsupported content[].type")
    if not isinstance(part.get("text"), str):
        raise Refusal(f"message {place}: a part of type text needs a 'text' that is a string")
    return part["text"]


def _no_media(place: int, what: str, part: Mapping[str, Any]) -> Refusal:
    address = part.get(f"{what}_url")
    address = address.get("url") if isinstance(address, dict) else address
    if isinstance(address, str) and address.lower().startswith(("http://", "https://")):
        return Refusal(
            f"message {place}: this server does not fetch {what}s over the network; "
            "send the bytes as a data: URI"
        )
    return Refusal(f"{what} input is not supported by this server")


def template_arguments(request: ChatRequest) -> dict[str, Any]:
    """What the request hands to the template; thinking is off unless it could be served.

    Raises:
        Refusal: for a wrong type, an argument that is not the client's to give, or for thinking,
            which has no way into the answer yet.
    """
    chosen = request.reasoning_format
    if chosen is not None and chosen not in REASONING_FORMATS:
        raise Refusal(f"Unknown reasoning format: {chosen}")
    arguments = dict(request.chat_template_kwargs or {})
    for name in OWN_ARGUMENTS:
        if name in arguments:
            raise Refusal(
                f'"chat_template_kwargs" cannot hold "{name}": the server gives that to the '
                "template itself, from the request's own fields"
            )
    thinking = arguments.setdefault("enable_thinking", False)
    if not isinstance(thinking, bool):
        raise Refusal(
            f'invalid type for "enable_thinking" (expected boolean, got {json_type(thinking)})'
        )
    if thinking:
        raise Refusal(
            '"enable_thinking" is not implemented by this server yet: leave it out or send false'
        )
    return arguments


def render(template: Any, request: ChatRequest) -> Prompt:
    """Check a conversation and write it as the model was taught to read it.

    Args:
        template: a ``ChatTemplate`` of golem_core.text.

    Raises:
        Refusal: for a message or an argument that is wrong.
        TemplateError: when the template cannot render the conversation.
    """
    messages = read_messages(request.messages)
    arguments = template_arguments(request)
    last = messages[-1]
    goes_on = last["role"] == "assistant" and request.continue_final_message is not False
    beginning = messages.pop()["content"] if goes_on else ""
    if not messages:
        raise Refusal("a conversation cannot begin with the answer: no message comes before it")
    text = template.render(
        messages,
        add_generation_prompt=request.add_generation_prompt is not False,
        **arguments,
    )
    return Prompt(text + beginning, beginning)
