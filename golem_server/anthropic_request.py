"""A request of Anthropic's dialect, written as one of OpenAI's chat."""

from collections.abc import Mapping
from typing import Any

import msgspec

from golem_server.body import json_type
from golem_server.errors import Refusal
from golem_server.media import Where
from golem_server.messages import listed
from golem_server.schema import INT_MAX, typed, whole

THOUGHT_TOKENS = 10000  # of a thought that is asked for without a budget
ROLES = ("user", "assistant")


class MessagesRequest(msgspec.Struct, kw_only=True):
    """The fields that this dialect has of its own."""

    messages: Any = None
    system: Any = None
    tools: list[Any] | None = None
    tool_choice: dict[str, Any] | None = None
    stop_sequences: list[str] | None = None
    max_tokens: int | float | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


# Fields of the chat request that are written from others here, or have no place in the answer.
OWN = frozenset(
    {
        *MessagesRequest.__struct_fields__,
        *("metadata", "n", "n_predict", "max_completion_tokens", "stop", "stream_options"),
        *("logprobs", "top_logprobs", "response_format", "reasoning_effort"),
        "parallel_tool_calls",
    }
)


def chat_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request as one of OpenAI's chat; further fields stay as they are.

    Raises:
        Refusal: for what is wrong in it, or not served.
    """
    request = typed(MessagesRequest, body)
    made = {name: value for name, value in body.items() if name not in OWN}
    made["messages"] = _messages(request)
    if request.tools:
        made["tools"] = [_tool(place, one) for place, one in enumerate(request.tools)]
    made |= _choice(request.tool_choice)
    if request.stop_sequences:
        made["stop"] = request.stop_sequences
    if request.max_tokens is not None:
        made["max_tokens"] = whole("max_tokens", request.max_tokens, -1, INT_MAX)
    made |= _thinking(request.thinking, request.chat_template_kwargs or {})
    return made | _output(request.output_config or {})


def _messages(request: MessagesRequest) -> list[dict[str, Any]]:
    given = listed(request.messages)
    made: list[dict[str, Any]] = []
    if request.system:
        made.append({"role": "system", "content": _texts("system", request.system)})
    called: set[str] = set()
    for place, one in enumerate(given):
        role = one.get("role") if isinstance(one, dict) else None
        if role not in ROLES:
            raise Refusal(f"message {place}: 'role' must be user or assistant")
        where = f"message {place}"
        if role == "assistant":
            message = _assistant(where, one.get("content"))
            called = {call["id"] for call in message.get("tool_calls", ())}
            made.append(message)
        else:
            made += _user(where, one.get("content"), called)
            called = set()
    return made


def _blocks(where: str, given: Any) -> list[dict[str, Any]]:
    """The blocks of a content, a plain text being one."""
    if isinstance(given, str):
        return [{"type": "text", "text": given}]
    if not isinstance(given, list):
        raise Refusal(f"{where}: 'content' must be a string or an array of blocks")
    for block in given:
        if not isinstance(block, dict):
            raise Refusal(f"{where}: a block is {json_type(block)}, and an object is expected")
    return given


def _texts(where: str, given: Any) -> list[dict[str, Any]]:
    """Text blocks alone."""
    return [_text(where, block) for block in _blocks(where, given)]


def _text(where: str, block: Mapping[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "document":
        raise Refusal(f"{where}: document input is not supported by this server")
    if kind != "text":
        shown = f'"{kind}"' if isinstance(kind, str) else json_type(kind)
        raise Refusal(f"{where}: a block of type {shown} cannot be used here")
    return {"type": "text", "text": _string(where, block, "text")}


def _seen(where: str, block: Mapping[str, Any]) -> dict[str, Any]:
    """A text block, or a picture as a part of a chat."""
    if block.get("type") != "image":
        return _text(where, block)
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    match kind:
        case "base64":
            data = source.get("data")
            if not isinstance(data, str):
                raise Refusal(f"{where}: an image's source needs a 'data' that is a string")
            url = f"data:image/png;base64,{data}"  # which kind it is, its own bytes say
        case "url":
            url = source.get("url")
        case _:
            raise Refusal(f"{where}: an image's source must be of the type base64 or url")
    return {"type": "image_url", "image_url": {"url": url}, "where": Where(where)}


def _string(where: str, block: Mapping[str, Any], key: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise Refusal(f"{where}: a {block.get('type')} block needs a '{key}' that is a string")
    return value


def _user(where: str, given: Any, called: set[str]) -> list[dict[str, Any]]:
    """What tools gave, in messages of their own, then what the user says."""
    results, texts = [], []
    blocks = _blocks(where, given)
    for block in blocks:
        if block.get("type") != "tool_result":
            texts.append(_seen(where, block))
            continue
        call = _string(where, block, "tool_use_id")
        if call not in called:
            raise Refusal(
                f'{where} has the result of "{call}", and the message before it has no tool_use '
                "block of that id"
            )
        of = f"{where}, result of {call}"
        content = [_seen(of, one) for one in _blocks(of, block.get("content") or "")]
        results.append({"role": "tool", "tool_call_id": call, "content": content})
    return results + ([{"role": "user", "content": texts}] if texts or not results else [])


def _assistant(where: str, given: Any) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    for block in _blocks(where, given):
        match block.get("type"):
            case "thinking":
                thoughts.append(_string(where, block, "thinking"))
            case "redacted_thinking":
                pass  # of another model: nothing that can be read
            case "tool_use":
                name, call = _string(where, block, "name"), _string(where, block, "id")
                arguments = block.get("input")
                if not isinstance(arguments, dict):
                    raise Refusal(f"{where}: a tool_use block needs an 'input' that is an object")
                function = {"name": name, "arguments": arguments}
                calls.append({"id": call, "type": "function", "function": function})
            case _:
                texts.append(_text(where, block))
    message: dict[str, Any] = {"role": "assistant", "content": texts}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    return message | ({"tool_calls": calls} if calls else {})


def _tool(place: int, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise Refusal(f"tool {place} is {json_type(given)}, and an object is expected")
    kind = given.get("type")
    if kind not in (None, "custom"):
        shown = f'"{kind}"' if isinstance(kind, str) else json_type(kind)
        raise Refusal(f"tool {place}: tool type {shown} is not implemented; only custom ones are")
    schema = given.get("input_schema")
    if not isinstance(schema, dict):
        raise Refusal(f"tool {place}: 'input_schema' must be an object")
    function = {"name": given.get("name"), "parameters": schema}
    if isinstance(given.get("description"), str):
        function["description"] = given["description"]
    return {"type": "function", "function": function}


def _choice(given: Mapping[str, Any] | None) -> dict[str, Any]:
    if given is None:
        return {}
    choices: dict[Any, Any] = {
        "auto": "auto",
        "any": "required",
        "none": "none",
        "tool": {"type": "function", "function": {"name": given.get("name")}},
    }
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in choices:
        raise Refusal("tool_choice: 'type' must be auto, any, tool or none")
    if kind == "tool" and not isinstance(given.get("name"), str):
        raise Refusal("tool_choice of type tool needs a 'name' that is a string")
    single = {"parallel_tool_calls": False} if given.get("disable_parallel_tool_use") else {}
    return {"tool_choice": choices[kind]} | single


def _thinking(given: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if given is None:
        return {"chat_template_kwargs": arguments}
    kind = given.get("type")
    if kind not in ("enabled", "disabled", "adaptive"):
        raise Refusal("thinking: 'type' must be enabled, disabled or adaptive")
    made: dict[str, Any] = {
        "chat_template_kwargs": {**arguments, "enable_thinking": kind != "disabled"}
    }
    if kind == "enabled":
        budget = given.get("budget_tokens", THOUGHT_TOKENS)
        if isinstance(budget, bool) or not isinstance(budget, int | float):
            raise Refusal("thinking: 'budget_tokens' must be a number")
        made["thinking_budget_tokens"] = whole("thinking.budget_tokens", budget, -1, INT_MAX)
    return made


def _output(given: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that the answer is held to."""
    wanted = given.get("format")
    if wanted is None:
        return {}
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        raise Refusal("output_config.format: 'type' must be json_schema")
    schema = {"schema": wanted.get("schema")}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
