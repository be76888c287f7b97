"""What ``/v1/responses`` is sent, as a request of OpenAI's chat: items become messages."""

from collections.abc import Mapping
from typing import Any

import msgspec

from golem_server.body import json_type
from golem_server.errors import Refusal
from golem_server.media import Where
from golem_server.schema import INT_MAX, typed, whole

Item = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")
TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
MEDIA = ("input_image", "input_file", "input_audio")
KEPT = {
    "previous_response_id": "this server keeps no responses: send the whole conversation as input",
    "conversation": "this server keeps no conversations: send all of it as input",
    "prompt": "this server keeps no prompts: send instructions and input",
}


class ResponsesRequest(msgspec.Struct, kw_only=True):
    """The fields that this dialect has of its own."""

    input: Any = None
    instructions: str | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    max_output_tokens: int | float | None = None
    background: bool | None = None
    include: list[Any] | None = None


# Fields of the chat request that are written from others here, or have no place in the answer.
OWN = frozenset(
    {
        *ResponsesRequest.__struct_fields__,
        *KEPT,
        *("messages", "max_tokens", "max_completion_tokens", "n_predict", "n", "stream_options"),
        *("logprobs", "top_logprobs", "response_format", "reasoning_effort", "metadata"),
    }
)


def chat_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request as one of OpenAI's chat; further fields stay as they are.

    Raises:
        Refusal: for what is wrong in it, or not served.
    """
    request = typed(ResponsesRequest, body)
    for name, why in KEPT.items():
        if body.get(name) is not None:
            raise Refusal(f'"{name}" cannot be served: {why}')
    if request.background:
        raise Refusal('"background" cannot be served: an answer is sent to the request it is of')
    if body.get("top_logprobs") or "message.output_text.logprobs" in (request.include or ()):
        raise Refusal(
            "probabilities are not told by /v1/responses: leave top_logprobs and "
            "message.output_text.logprobs out, or use /v1/chat/completions"
        )
    made = {name: value for name, value in body.items() if name not in OWN}
    made["messages"] = _messages(request)
    if request.tools:
        made["tools"] = [_tool(one) for one in request.tools]
    if request.tool_choice is not None:
        made["tool_choice"] = _choice(request.tool_choice)
    if request.max_output_tokens is not None:
        length = whole("max_output_tokens", request.max_output_tokens, -1, INT_MAX)
        made["max_tokens"] = length
    if (effort := (request.reasoning or {}).get("effort")) is not None:
        if not isinstance(effort, str):
            raise Refusal(f"reasoning.effort must be a string, it is {json_type(effort)}")
        made["reasoning_effort"] = effort
    return made | _format(request.text or {})


def _messages(request: ResponsesRequest) -> list[Item]:
    given = request.input
    if given is None:
        raise Refusal("'input' is required")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise Refusal("'input' must be a string or an array of items")
    if not given:
        raise Refusal("'input' must not be empty")
    messages: list[Item] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    called: set[str] = set()
    for place, item in enumerate(given):
        _add(messages, f"input item {place}", item, called)
    return messages


def _add(messages: list[Item], where: str, item: Any, called: set[str]) -> None:
    """Adds an item; what the assistant did in one turn is one message."""
    if not isinstance(item, dict):
        raise Refusal(f"{where} is {json_type(item)}, and an object is expected")
    match item.get("type", "message"):
        case "message":
            content = _content(where, item.get("content"))
            role = item.get("role")
            if role not in ROLES:
                raise Refusal(f"{where}: 'role' must be one of {', '.join(ROLES)}")
            if role == "assistant":
                _turn(messages)["content"] += content
            else:
                messages.append({"role": role, "content": content})
        case "reasoning":
            parts = _content(where, item.get("content") or item.get("summary") or [])
            thought = "\n".join(part.get("text", "") for part in parts)
            turn = _turn(messages)
            before = turn.get("reasoning_content")
            turn["reasoning_content"] = f"{before}\n{thought}" if before else thought
        case "function_call":
            call = _string(where, item, "call_id")
            called.add(call)
            function = {
                "name": _string(where, item, "name"),
                "arguments": _string(where, item, "arguments"),
            }
            made = {"id": call, "type": "function", "function": function}
            _turn(messages).setdefault("tool_calls", []).append(made)
        case "function_call_output":
            call = _string(where, item, "call_id")
            if call not in called:
                raise Refusal(
                    f'{where} is the output of "{call}", and no function_call before it has '
                    "that call_id"
                )
            output = _content(where, item.get("output"), "output")
            messages.append({"role": "tool", "tool_call_id": call, "content": output})
        case kind:
            shown = f'"{kind}"' if isinstance(kind, str) else json_type(kind)
            raise Refusal(
                f"{where} has the type {shown}; the types are message, reasoning, function_call "
                "and function_call_output"
            )


def _turn(messages: list[Item]) -> Item:
    """The message of the assistant that is at the end, a new one where none is."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": []})
    return messages[-1]


def _content(where: str, given: Any, name: str = "content") -> list[Item]:
    """Parts as the chat has them, a plain text being one."""
    if isinstance(given, str):
        return [{"type": "text", "text": given}]
    if not isinstance(given, list):
        raise Refusal(f"{where}: '{name}' must be a string or an array")
    return [_part(where, part) for part in given]


def _part(where: str, part: Any) -> Item:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind in MEDIA:
        return _medium(where, part, kind)
    if kind == "refusal":
        return {"type": "text", "text": _string(where, part, "refusal")}
    if kind not in TEXTS:
        shown = f'"{kind}"' if isinstance(kind, str) else json_type(kind)
        raise Refusal(f"{where}: a part of type {shown} cannot be used here")
    return {"type": "text", "text": _string(where, part, "text")}


def _medium(where: str, part: Item, kind: str) -> Item:
    """A picture or a recording as a part of a chat."""
    if part.get("file_id") is not None or part.get("file_url") is not None:
        raise Refusal(f"{where}: this server keeps and fetches no files; send the bytes themselves")
    if kind == "input_image":
        url = part.get("image_url")
        return {"type": "image_url", "image_url": {"url": url}, "where": Where(where)}
    if kind == "input_audio":
        return {"type": kind, "input_audio": part.get("input_audio"), "where": Where(where)}
    data = part.get("file_data")
    if not isinstance(data, str):
        raise Refusal(f"{where}: a part of type input_file needs a 'file_data' that is a string")
    if data.startswith("data:audio/"):
        return {"type": "input_audio", "input_audio": {"data": data}, "where": Where(where)}
    if data.startswith("data:image/"):
        return {"type": "image_url", "image_url": {"url": data}, "where": Where(where)}
    raise Refusal(
        f"{where}: of files this server takes pictures and recordings, as data:image/… or "
        "data:audio/… URIs"
    )


def _string(where: str, item: Mapping[str, Any], key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise Refusal(f"{where}: '{key}' must be a string")
    return value


def _tool(given: Any) -> Any:
    """A tool as the chat has it, whose own checks tell what is wrong."""
    if not isinstance(given, dict) or given.get("type") != "function":
        return given
    function = {name: given[name] for name in given if name != "type"}
    return {"type": "function", "function": function}


def _choice(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    if given.get("type") != "function":
        raise Refusal("tool_choice as an object must be of type function, with a 'name'")
    return {"type": "function", "function": {"name": given.get("name")}}


def _format(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the text is held to."""
    wanted = given.get("format")
    if wanted is None:
        return {}
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        raise Refusal("text.format: 'type' must be text, json_object or json_schema")
    if kind == "json_schema":
        schema = {"schema": wanted.get("schema")}
        return {"response_format": {"type": kind, "json_schema": schema}}
    return {"response_format": {"type": kind}}
