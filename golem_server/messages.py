"""The messages of a conversation, checked one by one, as chat templates take them.

Contents become plain text, roles those that templates know, the arguments of past calls objects.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from golem_core.arguments import ROLES
from golem_core.sample.params import shown
from golem_server.body import json_type
from golem_server.errors import Refusal
from golem_server.media import KINDS, Sight, unsupported

Message = dict[str, Any]

NO_MESSAGE = (
    "a conversation with no message: 'messages' is empty, and at least one is needed, such as "
    '{"role": "user", "content": "Hello"}'
)


def read_messages(given: Any, sight: Sight | None = None) -> list[Message]:
    """``[{"role", "content", …}, …]`` with roles of :data:`ROLES` and contents of plain text.

    A content with pictures or sound is a list of parts instead: texts, and ``{"type": "image"}`` or
    ``{"type": "audio"}`` where one is. sight: what takes them; None takes none.

    Those of the assistant may have ``tool_calls`` and ``reasoning_content``, results of tools
    have ``tool_call_id`` and ``name`` where the client gave them.

    Raises:
        Refusal: for the first message that is wrong, with its place.
    """
    messages = [_message(place, one, sight) for place, one in enumerate(listed(given))]
    _check_results(messages)
    if [m["role"] for m in messages[-2:]] == ["assistant", "assistant"]:
        raise Refusal("Cannot have 2 or more assistant messages at the end of the list.")
    return messages


def listed(given: Any) -> list[Any]:
    """``messages`` of a request as they came. Raises Refusal where they are no list with one."""
    if given is None:
        raise Refusal("'messages' is required")
    if not isinstance(given, list):
        raise Refusal("Expected 'messages' to be an array")
    if not given:
        raise Refusal(NO_MESSAGE)
    return given


def _message(place: int, given: Any, sight: Sight | None) -> Message:
    if not isinstance(given, dict):
        raise Refusal(f"message {place} is {json_type(given)}, and an object is expected")
    role = given.get("role")
    if not isinstance(role, str):
        raise Refusal(f"message {place}: 'role' must be a string")
    if role not in ROLES:
        known = ", ".join(ROLES)
        raise Refusal(f'message {place} has role "{role}"; the roles are {known}')
    name = ROLES[role]
    calls = _calls(place, given.get("tool_calls")) if name == "assistant" else []
    if name != "assistant" and "content" not in given:
        raise Refusal(
            f"All non-assistant messages must contain 'content': message {place} has none"
        )
    if name == "assistant" and given.get("content") is None and not calls:
        raise Refusal("Assistant message must contain either 'content' or 'tool_calls'!")
    _text(place, given, "name")
    message: Message = {"role": name, "content": _content(place, given.get("content"), sight)}
    if name == "assistant" and isinstance(message["content"], list):
        raise Refusal(f"message {place}: a message of the assistant holds no pictures or sound")
    if name == "assistant":
        thought = _text(place, given, "reasoning_content") or _text(place, given, "reasoning")
        message |= {"reasoning_content": thought} if thought else {}
    if name == "tool":
        texts = {key: _text(place, given, key) for key in ("tool_call_id", "name")}
        message |= {key: text for key, text in texts.items() if text}
    return message | ({"tool_calls": calls} if calls else {})


def _text(place: int, given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise Refusal(f"message {place}: '{key}' must be a string, it is {json_type(value)}")
    return value or ""


# ---- content ----


def _content(place: int, given: Any, sight: Sight | None) -> str | list[Message]:
    if given is None or isinstance(given, str):
        return given or ""
    if not isinstance(given, list):
        raise Refusal(
            f"Expected 'content' to be a string or an array: message {place} has {json_type(given)}"
        )
    parts = [_part(place, part, sight) for part in given]
    if any(part["type"] != "text" for part in parts):
        return parts
    return "\n".join(part["text"] for part in parts)


def _part(place: int, part: Any, sight: Sight | None) -> Message:
    if not isinstance(part, dict):
        raise Refusal(f"message {place}: a part of its content is {json_type(part)}, not an object")
    kind = part.get("type")
    if isinstance(kind, str) and kind in KINDS:
        if sight is None:
            raise unsupported(KINDS[kind])
        return sight.part(place, part)
    if kind != "text":
        raise Refusal(
            f"unsupported content[].type: message {place} has {shown(kind)}; the types are text, "
            + ", ".join(KINDS)
        )
    if not isinstance(part.get("text"), str):
        raise Refusal(f"message {place}: a part of type text needs a 'text' that is a string")
    return {"type": "text", "text": part["text"]}


# ---- calls and their results ----


def _calls(place: int, given: Any) -> list[Message]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise Refusal(f"message {place}: 'tool_calls' must be an array")
    return [_call(place, one) for one in given]


def _call(place: int, given: Any) -> Message:
    function = given.get("function") if isinstance(given, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise Refusal(f"message {place}: a tool call with no function name")
    call_id = given.get("id")
    if call_id is not None and not isinstance(call_id, str):
        raise Refusal(f"message {place}: the 'id' of a tool call must be a string")
    call: Message = {"id": call_id} if call_id else {}
    arguments = _arguments(place, function.get("arguments"))
    return call | {"type": "function", "function": {"name": name, "arguments": arguments}}


def _arguments(place: int, given: Any) -> dict[str, Any]:
    """The object that a call's arguments are; clients send its text."""
    problem = ""
    if isinstance(given, str):
        try:
            given = json.loads(given, strict=False) if given.strip() else {}
        except RecursionError:
            problem = ": they are nested too deep"
        except ValueError as error:
            problem = f": {error}"
    given = {} if given is None else given
    if problem or not isinstance(given, dict):
        raise Refusal(f"message {place}: tool call arguments are not a JSON object{problem}")
    return given


def _check_results(messages: Sequence[Message]) -> None:
    """A result of a tool follows the message that called it, or another result."""
    caller = -1
    for place, message in enumerate(messages):
        if message["role"] != "tool":
            caller = place
            continue
        if caller < 0:
            raise Refusal(
                f"message {place} is a tool result, and a result answers a call that came before it"
            )
        calls = messages[caller].get("tool_calls")
        if not calls:
            raise Refusal(f"message {place} is a tool result, but message {caller} made no call")
        known = [call.get("id") for call in calls]
        wanted = message.get("tool_call_id")
        if wanted and None not in known and wanted not in known:
            raise Refusal(
                f'message {place} answers the call "{wanted}", which message {caller} did not '
                f"make; it made {', '.join(known)}"
            )
