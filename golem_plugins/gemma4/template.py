"""The chat template for Gemma 4 files that carry none, by the family's rules of July 2026.

Declarations, calls and results have a notation of their own: strings stand between ``<|"|>``,
keys are sorted, types are in capitals. A thought is shown again only behind the last question, an
answer goes on in one turn through its calls and their results. Sizes without block embeddings were
trained to see an empty thought where thinking is off.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from golem_core.text.template import ChatTemplate

_VALUES = """\
{%- macro quoted(text) -%}{{ '<|"|>' ~ text ~ '<|"|>' }}{%- endmacro -%}
{%- macro quoted_all(texts) -%}
{%- for text in texts -%}{{ ',' if not loop.first }}{{ quoted(text) }}{%- endfor -%}
{%- endmacro -%}
{%- macro value(v, quotes_keys) -%}
{%- if v is none -%}null
{%- elif v is string -%}{{ quoted(v) }}
{%- elif v is boolean -%}{{ 'true' if v else 'false' }}
{%- elif v is mapping -%}
{{ '{' }}
{%- for key, part in v | dictsort -%}
{{ ',' if not loop.first }}{{ quoted(key) if quotes_keys else key }}:{{ value(part, quotes_keys) }}
{%- endfor -%}
{{ '}' }}
{%- elif v is sequence -%}
{{ '[' }}
{%- for part in v -%}{{ ',' if not loop.first }}{{ value(part, quotes_keys) }}{%- endfor -%}
{{ ']' }}
{%- else -%}{{ v }}
{%- endif -%}
{%- endmacro -%}
"""

_DECLARATIONS = """\
{%- macro items(schema) -%}
{%- set first = namespace(one=true) -%}
{%- for key, part in schema | dictsort if part is not none -%}
{{ ',' if not first.one }}
{%- set first.one = false -%}
{%- if key == 'properties' -%}
{{ 'properties:{' }}{% if part is mapping %}{{ properties(part) }}{% endif %}{{ '}' }}
{%- elif key == 'required' -%}
{{ 'required:[' ~ quoted_all(part) ~ ']' }}
{%- elif key == 'type' and part is string -%}
{{ 'type:' ~ quoted(part | upper) }}
{%- elif key == 'type' -%}
{{ 'type:' ~ value(part | map('upper') | list, true) }}
{%- else -%}
{{ key ~ ':' ~ value(part, true) }}
{%- endif -%}
{%- endfor -%}
{%- endmacro -%}
{%- macro property(schema) -%}
{%- set kind = schema.type | upper -%}
{%- if schema.description -%}{{ 'description:' ~ quoted(schema.description) ~ ',' }}{%- endif -%}
{%- if kind == 'STRING' and schema.enum -%}{{ 'enum:' ~ value(schema.enum, true) ~ ',' }}
{%- elif kind == 'ARRAY' and schema['items'] is mapping and schema['items'] -%}
{{ 'items:{' ~ items(schema['items']) ~ '},' }}
{%- endif -%}
{%- if schema.nullable -%}nullable:true,{%- endif -%}
{%- if kind == 'OBJECT' -%}
{{ 'properties:{' }}
{%- if schema.properties is mapping -%}{{ properties(schema.properties) }}
{%- elif 'properties' not in schema -%}{{ properties(schema, true) }}
{%- endif -%}
{{ '},' }}
{%- if schema.required -%}{{ 'required:[' ~ quoted_all(schema.required) ~ '],' }}{%- endif -%}
{%- endif -%}
{{ 'type:' ~ quoted(kind) }}
{%- endmacro -%}
{%- macro properties(schemas, own_keys_too) -%}
{%- set first = namespace(one=true) -%}
{%- set left_out = ['description', 'type', 'properties', 'required', 'nullable'] -%}
{%- for key, schema in schemas | dictsort -%}
{%- if not (own_keys_too and key in left_out) -%}
{{ ',' if not first.one }}
{%- set first.one = false -%}
{{ key ~ ':{' ~ property(schema) ~ '}' }}
{%- endif -%}
{%- endfor -%}
{%- endmacro -%}
{%- macro declaration(tool) -%}
{%- set given = tool.parameters -%}
{{ 'declaration:' ~ tool.name ~ '{description:' ~ quoted(tool.description or '') }}
{%- if given -%}
{{ ',parameters:{' }}
{%- if given.properties -%}{{ 'properties:{' ~ properties(given.properties) ~ '},' }}{%- endif -%}
{%- if given.required -%}{{ 'required:[' ~ quoted_all(given.required) ~ '],' }}{%- endif -%}
{{ 'type:' ~ quoted((given.type or 'object') | upper) ~ '}' }}
{%- endif -%}
{%- if tool.response -%}
{{ ',response:{' }}
{%- if tool.response.description -%}
{{ 'description:' ~ quoted(tool.response.description) ~ ',' }}
{%- endif -%}
{{ 'type:' ~ quoted('OBJECT') ~ '}' }}
{%- endif -%}
{{ '}' }}
{%- endmacro -%}
"""

_PARTS = """\
{%- macro clean(text, is_model) -%}
{%- if is_model -%}
{%- set kept = namespace(text='') -%}
{%- for piece in text.split('<channel|>') -%}
{%- set kept.text = kept.text ~ piece.split('<|channel>')[0] -%}
{%- endfor -%}
{{ kept.text | trim }}
{%- else -%}
{{ text | trim }}
{%- endif -%}
{%- endmacro -%}
{%- macro medium(part) -%}
{%- if part.type in ('image', 'image_url') -%}{{ '<|image|>' }}
{%- elif part.type in ('audio', 'input_audio') -%}{{ '<|audio|>' }}
{%- elif part.type == 'video' -%}{{ '<|video|>' }}
{%- endif -%}
{%- endmacro -%}
{%- macro content(given, is_model) -%}
{%- if given is string -%}{{ clean(given, is_model) }}
{%- elif given -%}
{%- for part in given -%}
{{ clean(part.text, is_model) if part.type == 'text' else medium(part) }}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- macro result(message, calls) -%}
{%- set found = namespace(name=message.name or 'unknown', text='') -%}
{%- for call in calls if call.id and call.id == message.tool_call_id -%}
{%- set found.name = call.function.name -%}
{%- endfor -%}
{%- if message.content is mapping -%}
{{ raise_exception('the content of a tool message is a text or a list of parts') }}
{%- elif message.content is string -%}
{%- set found.text = message.content -%}
{%- else -%}
{%- for part in message.content or [] if part.type == 'text' -%}
{%- set found.text = found.text ~ part.text -%}
{%- endfor -%}
{%- endif -%}
{{ '<|tool_response>response:' ~ found.name ~ '{value:' ~ quoted(found.text) }}
{{- '}<tool_response|>' }}
{%- if message.content is not string -%}
{%- for part in message.content or [] -%}{{ medium(part) }}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
"""

_CONVERSATION = """\
{%- set opens = messages and messages[0].role in ('system', 'developer') -%}
{{ bos_token }}
{%- if enable_thinking or tools or opens -%}
{{ '<|turn>system\\n' }}
{%- if enable_thinking -%}{{ '<|think|>\\n' }}{%- endif -%}
{%- if opens -%}
{%- if messages[0].content is string -%}{{ messages[0].content | trim }}
{%- else -%}
{%- for part in messages[0].content or [] -%}{{ part.text | trim ~ ' ' }}{%- endfor -%}
{%- endif -%}
{%- endif -%}
{%- for tool in tools or [] -%}
{{ '<|tool>' ~ declaration(tool.function or tool) ~ '<tool|>' }}
{%- endfor -%}
{{ '<turn|>\\n' }}
{%- endif -%}
{%- set talk = messages[1:] if opens else messages -%}
{%- set at = namespace(question=-1, last='', state='') -%}
{%- for m in talk -%}
{%- if m.role == 'user' -%}{%- set at.question = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for m in talk -%}
{%- if m.role != 'tool' -%}
{%- set is_model = m.role == 'assistant' -%}
{%- set calls = m.tool_calls or [] -%}
{%- if not (is_model and at.last == 'assistant') -%}
{{ '<|turn>' ~ ('model' if is_model else m.role) ~ '\\n' }}
{%- endif -%}
{%- set at.last = m.role -%}
{%- set thought = m.reasoning or m.reasoning_content -%}
{%- if thought and (loop.index0 > at.question or preserve_thinking and calls) -%}
{{ '<|channel>thought\\n' ~ thought ~ '\\n<channel|>' }}
{%- endif -%}
{%- for call in calls -%}
{%- set given = call.function.arguments -%}
{%- if given is string -%}
{{ raise_exception('the arguments of a call are an object, not the text of one') }}
{%- endif -%}
{{ '<|tool_call>call:' ~ call.function.name }}
{{- value(given if given is not none else {}, false) ~ '<tool_call|>' }}
{%- endfor -%}
{%- set next = namespace(role='', answered=false, over=false) -%}
{%- for other in talk[loop.index:] -%}
{%- if other.role != 'tool' and not next.over -%}
{%- set next.over = true -%}
{%- set next.role = other.role -%}
{%- elif calls and not next.over -%}
{{ result(other, calls) }}
{%- set next.answered = true -%}
{%- endif -%}
{%- endfor -%}
{%- for old in (m.tool_responses or []) if not next.answered -%}
{{ '<|tool_response>response:' ~ (old.name or 'unknown') }}
{{- value(old.response if old.response is mapping else {'value': old.response}, false) }}
{{- '<tool_response|>' }}
{%- if loop.last -%}{%- set next.answered = true -%}{%- endif -%}
{%- endfor -%}
{%- set said = content(m.content, is_model) -%}
{{ said }}
{%- set at.state = '' -%}
{%- if calls and not next.answered -%}
{%- set at.state = 'called' -%}
{{ '<|tool_response>' }}
{%- else -%}
{%- if next.answered -%}{%- set at.state = 'answered' -%}{%- endif -%}
{%- if not (is_model and next.role == 'assistant') -%}
{%- if not (next.answered and not said and not next.over) -%}{{ '<turn|>\\n' }}{%- endif -%}
{%- endif -%}
{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt and at.state == 'answered' and enable_thinking -%}
{{ '<|channel>thought\\n' }}
{%- elif add_generation_prompt and not at.state -%}
{{ '<|turn>model\\n' }}
{%- if empty_thought and not enable_thinking -%}{{ '<|channel>thought\\n<channel|>' }}{%- endif -%}
{%- endif -%}
"""

TEMPLATE = _VALUES + _DECLARATIONS + _PARTS + _CONVERSATION
WITH_EMPTY_THOUGHT = "{%- set empty_thought = true -%}\n" + TEMPLATE

_TURN = "<|turn>model\n"


class Gemma4Template(ChatTemplate):
    """What the family's templates leave to whoever renders them.

    Those from before results had a role of their own take results as a field of the message that
    called. And none opens a turn behind one that said something, called and was answered.
    """

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        if "tool_call_id" not in self.source and "tool_responses" in self.source:
            messages = _with_results(messages)
        text = super().render(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, **variables
        )
        return text + _TURN if add_generation_prompt and text.endswith("<turn|>\n") else text


def _with_results(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with every result in the field ``tool_responses`` of the one that called."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message.get("role") != "tool" or not found:
            found.append(dict(message))
            continue
        calls = {c.get("id"): c["function"]["name"] for c in found[-1].get("tool_calls") or ()}
        name = calls.get(message.get("tool_call_id")) or message.get("name") or "unknown"
        result = {"name": name, "response": message.get("content")}
        found[-1]["tool_responses"] = [*found[-1].get("tool_responses", ()), result]
    return found
