"""The chat templates for files that carry none: ChatML with thoughts and tools, as Qwen3.5 to 3.8
were trained.

A call names its parameters by tags, and values are bare text. Qwen3.5 and 3.6 show a thought again
only after the last question a person asked. Qwen3.8 shows every thought unless told not to, and
takes an effort to think with. The two agree in all else, so they are one text with a switch.
"""

_BODY = """\
{%- set seen = namespace(images=0, videos=0) -%}
{%- macro text_of(content, counts, system) -%}
{%- if content is string -%}
{{- content -}}
{%- elif content is none or content is undefined -%}
{%- elif content is iterable and content is not mapping -%}
{%- for part in content -%}
{%- set image = 'image' in part or 'image_url' in part or part.type == 'image' -%}
{%- set video = 'video' in part or part.type == 'video' -%}
{%- if system and (image or video) -%}
{{- raise_exception('System message cannot contain ' ~ ('images.' if image else 'videos.')) -}}
{%- endif -%}
{%- if image -%}
{%- if counts -%}{%- set seen.images = seen.images + 1 -%}{%- endif -%}
{%- if add_vision_id -%}{{- 'Picture ' ~ seen.images ~ ': ' -}}{%- endif -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- elif video -%}
{%- if counts -%}{%- set seen.videos = seen.videos + 1 -%}{%- endif -%}
{%- if add_vision_id -%}{{- 'Video ' ~ seen.videos ~ ': ' -}}{%- endif -%}
{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
{%- elif 'text' in part -%}
{{- part.text -}}
{%- else -%}
{{- raise_exception('Unexpected item type in content.') -}}
{%- endif -%}
{%- endfor -%}
{%- else -%}
{{- raise_exception('Unexpected content type.') -}}
{%- endif -%}
{%- endmacro -%}
{%- if not messages -%}{{- raise_exception('No messages provided.') -}}{%- endif -%}
{%- set opens = messages[0].role in ('system', 'developer') -%}
{%- set head = namespace(parts=[]) -%}
{%- if effort_known and (enable_thinking is undefined or enable_thinking) -%}
{%- set effort = reasoning_effort | default('xhigh', true) -%}
{%- if effort == 'xhigh' -%}
{%- set head.parts = ['Reasoning effort is set to xhigh. Please think carefully through the task, \
validate key assumptions, consider plausible alternatives, and prioritize correctness, \
consistency, and clarity in the final answer.'] -%}
{%- elif effort == 'low' -%}
{%- set head.parts = ['Reasoning effort is set to low. Keep your thinking brief and focused, \
moving directly to the conclusion without unnecessary elaboration.'] -%}
{%- elif effort != 'medium' -%}
{{- raise_exception('Unexpected reasoning effort ' ~ effort ~ '. Supported types are xhigh \
(default), medium, and low.') -}}
{%- endif -%}
{%- endif -%}
{%- if tools and tools is iterable and tools is not mapping -%}
{%- set declared = namespace(text='') -%}
{%- for tool in tools -%}
{%- set declared.text = declared.text ~ '\\n' ~ tool | tojson -%}
{%- endfor -%}
{%- set head.parts = head.parts + ['# Tools\\n\\nYou have access to the following functions:\\n\\n\
<tools>' ~ declared.text ~ '\\n</tools>\\n\\nIf you choose to call a function ONLY reply in the \
following format with NO suffix:\\n\\n<tool_call>\\n<function=example_function_name>\\n\
<parameter=example_parameter_1>\\nvalue_1\\n</parameter>\\n<parameter=example_parameter_2>\\n\
This is the value for the second parameter\\nthat can span\\nmultiple lines\\n</parameter>\\n\
</function>\\n</tool_call>\\n\\n<IMPORTANT>\\nReminder:\\n- Function calls MUST follow the \
specified format: an inner <function=...></function> block must be nested within \
<tool_call></tool_call> XML tags\\n- Required parameters MUST be specified\\n- You may provide \
optional reasoning for your function call in natural language BEFORE the function call, but NOT \
after\\n- If there is no function call available, answer the question like normal with your \
current knowledge and do not tell the user about function calls\\n</IMPORTANT>'] -%}
{%- endif -%}
{%- if opens -%}
{%- set said = text_of(messages[0].content, false, true) | trim -%}
{%- if said -%}{%- set head.parts = head.parts + [said] -%}{%- endif -%}
{%- endif -%}
{%- if head.parts or (opens and not effort_known) -%}
{{- '<|im_start|>system\\n' ~ head.parts | join('\\n\\n') ~ '<|im_end|>\\n' -}}
{%- endif -%}
{%- set last = namespace(query=-1) -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}
{%- set said = text_of(m.content, false, false) | trim -%}
{%- if not (said.startswith('<tool_response>') and said.endswith('</tool_response>')) -%}
{%- set last.query = loop.index0 -%}
{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if last.query < 0 -%}{{- raise_exception('No user query found in messages.') -}}{%- endif -%}
{%- for m in messages -%}
{%- set said = text_of(m.content, true, m.role in ('system', 'developer')) | trim -%}
{%- if m.role in ('system', 'developer') -%}
{%- if not loop.first -%}
{{- raise_exception('System message must be at the beginning.') -}}
{%- endif -%}
{%- elif m.role == 'user' -%}
{{- '<|im_start|>user\\n' ~ said ~ '<|im_end|>\\n' -}}
{%- elif m.role == 'assistant' -%}
{%- set thought = m.reasoning_content if m.reasoning_content is string else '' -%}
{%- if not effort_known and m.reasoning_content is not string and '</think>' in said -%}
{%- set thought = said.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') -%}
{%- set said = said.split('</think>')[-1].lstrip('\\n') -%}
{%- endif -%}
{%- set kept = effort_known and (preserve_thinking is undefined or preserve_thinking) -%}
{{- '<|im_start|>assistant\\n' -}}
{%- if kept or loop.index0 > last.query -%}
{{- '<think>\\n' ~ thought | trim ~ '\\n</think>\\n\\n' -}}
{%- endif -%}
{{- said -}}
{%- for call in m.tool_calls or [] -%}
{%- set call = call.function or call -%}
{{- ('\\n\\n' if said | trim else '') if loop.first else '\\n' -}}
{{- '<tool_call>\\n<function=' ~ call.name ~ '>\\n' -}}
{%- for key, value in (call.arguments or {}) | items -%}
{%- set plain = value is string or not (effort_known or value is mapping or value is sequence) -%}
{{- '<parameter=' ~ key ~ '>\\n' ~ (value | string if plain else value | tojson) -}}
{{- '\\n</parameter>\\n' -}}
{%- endfor -%}
{{- '</function>\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- elif m.role == 'tool' -%}
{%- if not loop.previtem or loop.previtem.role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\\n<tool_response>\\n' ~ said ~ '\\n</tool_response>' -}}
{%- if loop.last or loop.nextitem.role != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
{%- else -%}
{{- raise_exception('Unexpected message role.') -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n<think>\\n' -}}
{%- if enable_thinking is defined and not enable_thinking -%}
{{- '\\n</think>\\n\\n' -}}
{%- endif -%}
{%- endif -%}
"""

QWEN35 = "{%- set effort_known = false -%}\n" + _BODY
QWEN38 = "{%- set effort_known = true -%}\n" + _BODY
