"""The chat template for Qwen3 files that carry none: ChatML, thoughts, tool calls.

A thought is shown again only after the last question a person asked, and thinking is off unless
asked for: the answer then begins behind an empty thought.
"""

TEMPLATE = """\
{%- set opens = messages and messages[0].role in ('system', 'developer') -%}
{%- if tools -%}
{{ '<|im_start|>system\\n' }}
{%- if opens -%}{{ messages[0].content ~ '\\n\\n' }}{%- endif -%}
{{ '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n' }}
{{- 'You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' }}
{%- for tool in tools -%}{{ '\\n' ~ tool | tojson }}{%- endfor -%}
{{ '\\n</tools>\\n\\nFor each function call, return a json object with function name and ' }}
{{- 'arguments within <tool_call></tool_call> XML tags:\\n<tool_call>\\n{"name": ' }}
{{- '<function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- endif -%}
{%- set last = namespace(query=messages | length - 1) -%}
{%- for m in messages -%}
{%- set text = m.content or '' -%}
{%- set answers = text.startswith('<tool_response>') and text.endswith('</tool_response>') -%}
{%- if m.role == 'user' and not answers -%}{%- set last.query = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
{%- set text = m.content or '' -%}
{%- if m.role == 'assistant' -%}
{%- set thought = m.reasoning_content or '' -%}
{%- if not thought and '</think>' in text -%}
{%- set parts = text.rsplit('</think>', 1) -%}
{%- set text = parts[1].lstrip('\\n') -%}
{%- set thought = parts[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') -%}
{%- endif -%}
{{ '<|im_start|>assistant\\n' }}
{%- if loop.index0 > last.query and (loop.last or thought.strip()) -%}
{{ '<think>\\n' ~ thought.strip('\\n') ~ '\\n</think>\\n\\n' ~ text.lstrip('\\n') }}
{%- else -%}
{{ text }}
{%- endif -%}
{%- for call in m.tool_calls or [] -%}
{%- set call = call.function or call -%}
{%- set given = call.arguments -%}
{%- if text or not loop.first -%}{{ '\\n' }}{%- endif -%}
{{ '<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
{{- (given if given is string else given | tojson) ~ '}\\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- elif m.role == 'tool' -%}
{%- if not loop.previtem or loop.previtem.role != 'tool' -%}{{ '<|im_start|>user' }}{%- endif -%}
{{ '\\n<tool_response>\\n' ~ text ~ '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' -%}{{ '<|im_end|>\\n' }}{%- endif -%}
{%- elif not (tools and opens and loop.first) -%}
{%- set role = 'system' if m.role == 'developer' else m.role -%}
{{ '<|im_start|>' ~ role ~ '\\n' ~ text ~ '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- if not enable_thinking -%}{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}
{%- endif -%}
"""
