"""Chat templates for llama files that carry none; which one is told by their vocabulary."""

CHATML = """\
{%- for m in messages -%}
{%- set role = 'system' if m.role == 'developer' else m.role -%}
{{ '<|im_start|>' ~ role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""

LLAMA3 = """\
{{- bos_token -}}
{%- for m in messages -%}
{%- set role = 'system' if m.role == 'developer' else m.role -%}
{{ '<|start_header_id|>' ~ role ~ '<|end_header_id|>\\n\\n' ~ m.content | trim ~ '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif -%}
"""

LLAMA2 = """\
{%- set ns = namespace(system='') -%}
{%- for m in messages -%}
{%- if m.role in ('system', 'developer') -%}
{%- set ns.system = '<<SYS>>\\n' ~ m.content ~ '\\n<</SYS>>\\n\\n' -%}
{%- elif m.role == 'assistant' -%}
{{ ' ' ~ m.content | trim ~ ' ' ~ eos_token }}
{%- else -%}
{{ bos_token ~ '[INST] ' ~ (ns.system ~ m.content) | trim ~ ' [/INST]' }}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%}
"""
