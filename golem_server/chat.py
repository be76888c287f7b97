"""From a chat request to the ids of a prompt, and to how the answer to it is read.

A last message of the assistant is a beginning to go on from: its text ends the prompt. Nothing
here knows how a dialect writes its answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from golem_core.media import MediaError
from golem_core.sample.params import shown
from golem_core.schedule import ContextExceeded, Thinking
from golem_core.schedule.ending import ending
from golem_core.schedule.places import hidden, new_salt, place
from golem_core.schedule.places import shown as shown_marks
from golem_core.text.rendered import encode_rendered
from golem_core.text.sorter import Sorter, shown_tokens
from golem_server.body import json_type
from golem_server.constraint import constraint
from golem_server.errors import Refusal
from golem_server.logprobs import Entries
from golem_server.media import Sight
from golem_server.messages import Message, read_messages
from golem_server.prompts import refuse_overlong
from golem_server.reply import Reply
from golem_server.schema import ChatRequest
from golem_server.tools import Offer, read_offer

OWN_ARGUMENTS = ("self", "messages", "tools", "add_generation_prompt")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
REASONING_FORMATS = ("none", "auto", "deepseek", "deepseek-legacy")
NO_EFFORTS: Mapping[str, str] = {}
THINKING = {"off": False, "on": True, "auto": None}  # what -reasoning makes of silence


@dataclass(frozen=True)
class Turn:
    """A conversation as the model reads it, and how its answer is read.

    text, tokens: the whole prompt. beginning: the part of it that the client wrote of the answer.
    inside: what comes before that ends in an open thought. options: fields of golem_core's
    Request.
    """

    text: str
    tokens: list[int]
    beginning: str
    inside: bool
    inline: bool  # thoughts stay in the content
    both: bool  # … and leave apart as well
    offer: Offer
    model: Any
    options: Mapping[str, Any] = field(default_factory=dict)

    def reply(self, entries: Entries | None = None, *, inline: bool | None = None) -> Reply:
        """A fresh reader of one answer to this prompt. inline: over the turn's own."""
        sorter = Sorter(
            self.model.reasoning,
            self.model.call if self.offer else None,
            self.offer.parameters,
            inside=self.inside,
            inline=self.inline if inline is None else inline,
            single=self.offer.single,
            strays=self.model.strays,
        )
        return Reply(sorter, self.beginning, entries)


def prepare(
    model: Any,
    request: ChatRequest,
    reasoning: str = "off",
    sight: Sight | None = None,
    context: int | None = None,
) -> Turn:
    """Check a chat request and write its prompt as the model was taught to read it.

    Args:
        model: as golem_core opens it.
        reasoning: whether the model thinks when the request does not say: a key of THINKING.
        sight: what pictures and recordings are read with; None refuses them.
        context: positions of a slot, where the prompt has to fit one.

    Raises:
        ContextExceeded: for a conversation that is far too long, before it is written.
        Refusal: for a message, a tool, an argument or a picture that is wrong.
        TemplateError: when the template cannot render the conversation.
    """
    if context is not None:
        _refuse_overlong(model, request.messages, context)
    messages = read_messages(request.messages, sight)
    offer = read_offer(request, model.call, model.architecture)
    arguments = template_arguments(request, reasoning, model.efforts)
    media = sight is not None and bool(sight.media)
    declarations = offer.declarations or None
    if media:
        salt = new_salt()
        messages, declarations = (
            hidden(value, model.marks, salt) for value in (messages, declarations)
        )
    last = _beginning(messages, request)
    render = partial(
        model.template.render,
        tools=declarations,
        add_generation_prompt=last is not None or request.add_generation_prompt is not False,
        **arguments,
    )
    text = render(messages)
    inside = model.reasoning is not None and text.rstrip().endswith(model.reasoning[0])
    beginning = _written(last, model, inside) if last else ""
    options = {
        "shown": _shown(model, offer),
        "thinking": _thinking(model, request, beginning, inside),
        "grammar": constraint(
            request,
            offer,
            model,
            beginning=beginning,
            inside=inside,
            thinks=arguments.get("enable_thinking") is not False,
        ),
    }
    legacy = request.reasoning_format == "deepseek-legacy"
    text += beginning
    if media:
        try:
            tokens, options["media"] = place(model, text, sight.rows(), salt)
        except MediaError as error:
            raise Refusal(str(error)) from None
        text, beginning = (shown_marks(one, model.marks, salt) for one in (text, beginning))
    else:
        tokens = encode_rendered(model.tokenizer, text)
        options["ending"] = ending(model, messages, text, tokens, render)
    return Turn(
        text,
        tokens,
        beginning,
        inside,
        request.reasoning_format == "none" or (legacy and bool(request.stream)),
        legacy and not request.stream,
        offer,
        model,
        options,
    )


def _refuse_overlong(model: Any, messages: Any, context: int) -> None:
    """Refuse a conversation whose messages, whatever is made of them, cannot fit."""
    if not isinstance(messages, list):
        return
    if len(messages) >= context:  # each is a token at the very least
        raise ContextExceeded(len(messages), context, counted=False)
    characters = 0
    for content in (message.get("content") for message in messages if isinstance(message, dict)):
        parts = content if isinstance(content, list) else [content]
        texts = (part.get("text") if isinstance(part, dict) else part for part in parts)
        # Templates cut white space off at the ends.
        characters += sum(len(text.strip()) for text in texts if isinstance(text, str))
    refuse_overlong(model.tokenizer, context, characters)


def template_arguments(
    request: ChatRequest, reasoning: str = "off", efforts: Mapping[str, str] = NO_EFFORTS
) -> dict[str, Any]:
    """What the request hands to the template.

    The model thinks when ``enable_thinking`` says so, else when ``reasoning_effort`` asks for
    some, else as the server was told. efforts: words of ``reasoning_effort`` that the model's
    template has others for.

    Raises:
        Refusal: for a wrong type or an argument that is not the client's to give.
    """
    chosen = request.reasoning_format
    if chosen is not None and chosen not in REASONING_FORMATS:
        raise Refusal(
            f"Unknown reasoning format: {chosen}; there are {', '.join(REASONING_FORMATS)}"
        )
    arguments = dict(request.chat_template_kwargs or {})
    for name in OWN_ARGUMENTS:
        if name in arguments:
            raise Refusal(
                f'"chat_template_kwargs" cannot hold "{name}": the server gives that to the '
                "template itself, from the request's own fields"
            )
    effort = request.reasoning_effort
    if effort not in (None, *EFFORTS, *efforts.values()):
        raise Refusal(f"Field 'reasoning_effort': {shown(effort)} is none of {', '.join(EFFORTS)}")
    thinks = THINKING[reasoning] if effort is None else effort != "none"
    if thinks is not None:
        arguments.setdefault("enable_thinking", thinks)
    if effort is not None and effort != "none":
        arguments.setdefault("reasoning_effort", efforts.get(effort, effort))
    given = arguments.get("enable_thinking")
    if "enable_thinking" in arguments and not isinstance(given, bool):
        raise Refusal(
            f'invalid type for "enable_thinking" (expected boolean, got {json_type(given)})'
        )
    return arguments


def _beginning(messages: list[Message], request: ChatRequest) -> Message | None:
    """Takes the last message off where it is the beginning of the answer."""
    last = messages[-1]
    wanted = request.continue_final_message
    if wanted is None and request.add_generation_prompt is False:
        return None  # the prompt ends after it
    if last["role"] != "assistant" or wanted is False:
        if wanted and last["role"] != "assistant":
            raise Refusal(
                "continue_final_message goes on from a message of the assistant, and the last one "
                f"is the {last['role']}'s"
            )
        return None
    if "tool_calls" in last:
        raise Refusal("Cannot continue an assistant message that contains tool calls.")
    messages.pop()
    if not messages:
        raise Refusal("a conversation cannot begin with the answer: no message comes before it")
    return last


def _written(last: Message, model: Any, inside: bool) -> str:
    """The beginning of an answer as the model would have written it.

    inside: the template has opened a thought for it.
    """
    content, thought, marks = last["content"], last.get("reasoning_content", ""), model.reasoning
    if marks is None or not (thought or inside):
        return content
    text = ("" if inside else marks[0] + "\n") + thought.lstrip("\n")
    return f"{text.rstrip(chr(10))}\n{marks[1]}{model.after_thought}{content}" if content else text


def _shown(model: Any, offer: Offer) -> frozenset[int]:
    """The control tokens whose texts the sorter looks for."""
    texts = (*(model.reasoning or ()), *(model.call.texts if offer else ()))
    return shown_tokens(model.tokenizer, texts, model.eog)


def _thinking(model: Any, request: ChatRequest, beginning: str, inside: bool) -> Thinking | None:
    """The bound of a thought, where the request names one."""
    budget = request.thinking_budget
    if model.reasoning is None or budget < 0:
        return None
    opened, closed = (beginning.rfind(mark) for mark in model.reasoning)
    if opened != closed:
        inside = opened > closed
    closing = model.tokenizer.encode(model.reasoning[1], parse_special=True)
    return Thinking(model.reasoning, inside, budget, tuple(closing))
