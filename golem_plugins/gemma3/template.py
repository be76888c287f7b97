"""The chat template for Gemma 3 files that carry none.

The family knows two roles that take turns; what the system says begins the first turn.
"""

TEMPLATE = """\
{{- bos_token -}}
{%- set opens = messages and messages[0].role in ('system', 'developer') -%}
{%- for m in (messages[1:] if opens else messages) -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) or m.role not in ('user', 'assistant') -%}
{{ raise_exception('Gemma 3 takes an optional system message, then user and assistant in turn') }}
{%- endif -%}
{{ '<start_of_turn>' ~ ('user' if m.role == 'user' else 'model') ~ '\\n' }}
{%- if opens and loop.first -%}{{ messages[0].content ~ '\\n\\n' }}{%- endif -%}
{{ m.content | trim ~ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""
