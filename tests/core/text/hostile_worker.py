"""Renders templates in a process of its own, under a limit of memory; a line of JSON each way.

In: a template's source. Out: what became of it ("text", "TemplateError", or another error's name),
the first part of that text, and the processor seconds it took.
"""

import json
import resource
import sys
import time

from golem_core.text.template import ChatTemplate, TemplateError

ROOM = 512 << 20  # bytes of address space beyond what the imports took
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "x" * 1000},
    {"role": "assistant", "content": "yes", "tool_calls": [{"name": "f", "arguments": {"a": 1}}]},
]


def limit_memory() -> None:
    with open("/proc/self/statm") as f:
        pages = int(f.read().split()[0])
    most = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    limit_memory()
    for line in sys.stdin:
        before = json.dumps(MESSAGES)
        began = time.process_time()
        try:
            kind, text = "text", ChatTemplate(json.loads(line)).render(MESSAGES)
        except TemplateError as e:
            kind, text = "TemplateError", str(e)
        except BaseException as e:
            kind, text = type(e).__name__, str(e)
        seconds = time.process_time() - began
        if json.dumps(MESSAGES) != before:
            kind = "messages changed"
        print(json.dumps([kind, len(text), text[:2000], seconds]), flush=True)


if __name__ == "__main__":
    main()
