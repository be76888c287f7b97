"""The tools that a request offers to the model, and whether it must call one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from golem_core.text.sorter import CallFormat
from golem_server.body import json_type
from golem_server.errors import Refusal
from golem_server.schema import ChatRequest


@dataclass(frozen=True)
class Offer:
    """What may be called.

    declarations: the tools as the client declared them, for the template. parameters: the JSON
    schema of each tool's arguments, by name. forced: names of which one must be called, empty
    when the model is free. single: at most one call.
    """

    declarations: list[dict[str, Any]] = field(default_factory=list)
    parameters: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    forced: tuple[str, ...] = ()
    single: bool = False

    def __bool__(self) -> bool:
        return bool(self.parameters)


def read_offer(request: ChatRequest, notation: CallFormat | None, architecture: str) -> Offer:
    """The tools of a request; none when it says that none is to be called.

    Raises:
        Refusal: for a declaration or a choice that is wrong, or a model that writes no calls.
    """
    declared = request.tools
    if declared is not None and not isinstance(declared, list):
        raise Refusal(
            f"Failed to parse tools: Expected 'tools' to be an array, got {json_type(declared)}"
        )
    parameters: dict[str, Mapping[str, Any]] = {}
    for place, one in enumerate(declared or []):
        name, its = _tool(place, one)
        if name in parameters:
            raise Refusal(
                f"tool {place}: there is a function {json.dumps(name)} already, and a call says "
                "only the name: give each its own"
            )
        parameters[name] = its
    forced = _forced(request.tool_choice, parameters)
    if not parameters or request.tool_choice == "none":
        return Offer()
    if notation is None:
        raise Refusal(
            f'"tools" cannot be served with this model: golem does not know how {architecture} '
            "models with its chat template write calls; leave it out or send []"
        )
    single = request.parallel_tool_calls is False or isinstance(request.tool_choice, dict)
    single = single or notation.leads
    return Offer(declared, parameters, forced, single)


def _tool(place: int, given: Any) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(given, dict):
        raise Refusal(f"tool {place} is {json_type(given)}, and an object is expected")
    kind = given.get("type")
    if kind != "function":
        shown = f'"{kind}"' if isinstance(kind, str) else json_type(kind)
        raise Refusal(f"tool {place}: tool type {shown} is not implemented; only functions are")
    function = given.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise Refusal(f"tool {place}: a tool with no function name")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise Refusal(
            f"tool {place}: 'parameters' must be an object, it is {json_type(parameters)}"
        )
    return name, parameters or {}


def _forced(choice: Any, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of which one must be called."""
    if choice is None or choice in ("auto", "none"):
        return ()
    if choice == "required":
        names = tuple(parameters)
    elif isinstance(choice, str):
        raise Refusal(f"Invalid tool_choice: {choice}")
    else:
        function = choice.get("function") if isinstance(choice, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str):
            raise Refusal('tool_choice as an object names a function: {"function": {"name": …}}')
        if parameters and name not in parameters:
            raise Refusal(f'tool_choice names "{name}", which is none of the tools')
        names = (name,)
    if not parameters:
        raise Refusal("tool_choice asks for a call, and there are no tools to call")
    return names
