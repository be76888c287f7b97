"""The filters, methods and functions a chat template may use, with their price.

What is not named here does not exist for a template. What can make much of little is checked
before it is done (see `budget`); the rest costs no more than its input.
"""

import json
import re
import string
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from itertools import islice
from types import GeneratorType
from typing import Any

from jinja2 import Environment, pass_environment, pass_eval_context
from jinja2.filters import FILTERS as JINJA
from jinja2.filters import make_attrgetter
from jinja2.nodes import EvalContext
from jinja2.sandbox import SandboxedEnvironment, SandboxedFormatter
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import Cycler, Joiner, Namespace

from golem_core.text.budget import (
    ITEMS,
    STEP_BYTES,
    OverBudget,
    made,
    made_items,
    made_text,
    tick,
    weigh,
)
from golem_core.text.errors import TemplateError

_WIDTH = 1000  # characters that something may be padded to
_BITS = 4096  # of an integer
_RANGE = 100_000
_LONG_NUMBER = re.compile(r"\d{4,}|\*")
_FLAGS = re.compile(r"[-#0 +\d.*]*")
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def as_text(value: Any) -> str:
    """``str(value)`` for what a template may write out."""
    if isinstance(value, str):
        return value
    made_text(weigh(value, written=True))
    return str(value)


def settled(value: Any) -> Any:
    """What an operation returned, counted; generators become lists, so that none can be nested."""
    if isinstance(value, str):
        made_text(len(value))
    elif isinstance(value, GeneratorType):
        value = list(islice(value, ITEMS + 1))
        made_items(len(value))
    elif isinstance(value, list | tuple | dict):
        made_items(len(value))
    return value


def as_items(value: Any) -> Any:
    """``value`` for an operation that takes its items apart."""
    if isinstance(value, str):
        made_items(len(value))
    return value


# Operations that can grow


def join(separator: str, parts: Iterable[Any]) -> str:
    """``separator.join(parts)``, with anything that can be written as a part."""
    texts = [as_text(part) for part in islice(parts, ITEMS + 1)]
    made_text(sum(map(len, texts)) + len(separator) * max(0, len(texts) - 1))
    return separator.join(texts)


def percent(text: str, values: Any) -> str:
    """``text % values``."""
    for conversion in _conversions(text):
        if _LONG_NUMBER.search(conversion):
            raise OverBudget(f"it wanted a text padded to {_WIDTH} characters or more")
    made_text(len(text) + text.count("%") * weigh(values, written=True))
    return text % values


def _conversions(text: str) -> Iterator[str]:
    """What stands between each % and its letter, without the key, which may hold parentheses."""
    at = text.find("%")
    while at >= 0:
        at += 1
        depth = 0
        if text[at : at + 1] == "(":
            while at < len(text):
                depth += (text[at] == "(") - (text[at] == ")")
                at += 1
                if not depth:
                    break
        found = _FLAGS.match(text, at)
        yield found.group()
        at = text.find("%", found.end() + 1)


class TextFormat:
    """``text.format`` of a template; ``run`` is the method."""

    def __init__(self, environment: SandboxedEnvironment, text: str):
        self._environment = environment
        self._text = text

    def run(self, *args: Any, **kwargs: Any) -> str:
        fields = 0
        for _, name, spec, _ in string.Formatter().parse(self._text):
            fields += name is not None
            if spec and ("{" in spec or _LONG_NUMBER.search(spec)):
                raise OverBudget(f"the format {spec!r} may ask for too much")
        weight = weigh([*args, *kwargs.values()], written=True)
        made_text(len(self._text) + fields * weight)
        return SandboxedFormatter(self._environment).vformat(self._text, args, kwargs)


def check_operands(operator: str, left: Any, right: Any) -> None:
    """Refuse an arithmetic operation whose result would be too large."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, int) and one.bit_length() > _BITS:
            raise OverBudget(f"it computed with an integer of {one.bit_length()} bits")
        if operator == "*" and isinstance(other, int):
            if isinstance(one, str):
                made_text(len(one) * max(0, other))
            elif isinstance(one, list | tuple):
                made_items(len(one) * max(0, other))
    if operator == "+":
        if isinstance(left, str) and isinstance(right, str):
            made_text(len(left) + len(right))
        elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
            made_items(len(left) + len(right))
    elif operator == "**" and isinstance(right, int):
        bits = left.bit_length() * abs(right) if isinstance(left, int) else 0
        if bits > _BITS:
            raise OverBudget(f"it wanted an integer of {bits} bits")


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old) if count < 0 else min(count, text.count(old))
    made_text(len(text) + found * max(0, len(new) - len(old)))
    return text.replace(old, new, count)


def _padded(method: Callable[..., str], width: int, *fill: str) -> str:
    if width > _WIDTH:
        raise OverBudget(f"it wanted a text padded to {width} characters; {_WIDTH} is the most")
    return method(width, *fill)


def _split(method: Callable[..., list[str]], sep: str | None = None, maxsplit: int = -1) -> Any:
    return method(sep, ITEMS if maxsplit < 0 else min(maxsplit, ITEMS))


def _splitlines(method: Any, *args: Any) -> list[str]:
    made_items(sum(map(method.__self__.count, _LINE_ENDS)) + 1)
    return method(*args)


# Methods of values: name to what runs instead of the method, or None for the method itself.
METHODS: dict[type, dict[str, Callable[..., Any] | None]] = {
    str: {
        "join": lambda method, parts: join(method.__self__, as_items(parts)),
        "replace": lambda method, *args: _replace(method.__self__, *args),
        "split": _split,
        "rsplit": _split,
        "splitlines": _splitlines,
        **dict.fromkeys(("ljust", "rjust", "center", "zfill"), _padded),
        **dict.fromkeys(("strip", "lstrip", "rstrip", "removeprefix", "removesuffix")),
        **dict.fromkeys(("startswith", "endswith", "find", "rfind", "index", "rindex", "count")),
        **dict.fromkeys(("upper", "lower", "title", "capitalize", "casefold", "swapcase")),
        **dict.fromkeys(("partition", "rpartition", "isalnum", "isalpha", "isascii", "isdecimal")),
        **dict.fromkeys(("isdigit", "isidentifier", "islower", "isnumeric", "isprintable")),
        **dict.fromkeys(("isspace", "istitle", "isupper")),
    },
    dict: dict.fromkeys(("get", "items", "keys", "values", "copy")),
    list: dict.fromkeys(("count", "index", "copy")),
    tuple: dict.fromkeys(("count", "index")),
    float: dict.fromkeys(("is_integer",)),
    int: dict.fromkeys(("bit_length",)),
}


# Filters


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """``tojson`` as transformers has it: keys in their order, nothing escaped for HTML."""
    made_text(weigh(value))
    spaces = indent if isinstance(indent, str) else " " * min(indent or 0, 17)
    if any(not isinstance(part, str) or len(part) > 16 for part in (spaces, *(separators or ()))):
        raise OverBudget("tojson takes an indent and separators of at most 16 characters")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=tuple(separators) if separators else None,
        sort_keys=sort_keys,
    )


@pass_environment
def _join_filter(
    environment: Environment, value: Iterable[Any], d: Any = "", attribute: Any = None
) -> str:
    if attribute is not None:
        value = map(make_attrgetter(environment, _check_path(attribute)), value)
    return join(as_text(d), as_items(value))


def _replace_filter(s: Any, old: Any, new: Any, count: int | None = None) -> str:
    return _replace(as_text(s), as_text(old), as_text(new), -1 if count is None else count)


def _indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = as_text(s)
    size = len(width) if isinstance(width, str) else width
    if size > _WIDTH:
        raise OverBudget(f"it wanted an indent of {size}; {_WIDTH} is the most")
    lines = sum(map(text.count, _LINE_ENDS)) + 1
    made_items(lines)
    made_text(len(text) + lines * max(0, size))
    return JINJA["indent"](text, width, first, blank)


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    if abs(precision) > 100:
        raise OverBudget(f"it wanted a number rounded to {precision} digits")
    return JINJA["round"](value, precision, method)


def _int(value: Any, default: int = 0, base: int = 10) -> int:
    return JINJA["int"](value, default, base) if len(as_text(value)) <= _BITS // 4 else default


@pass_environment
def _sum(
    environment: Environment, iterable: Iterable[Any], attribute: Any = None, start: float = 0
) -> float:
    if attribute is not None:
        iterable = map(make_attrgetter(environment, _check_path(attribute)), iterable)
    values = [start, *islice(iterable, ITEMS)]
    if not all(isinstance(value, int | float) for value in values):
        raise TypeError("sum adds numbers only")
    return sum(values)


def _format_filter(value: Any, *args: Any, **kwargs: Any) -> str:
    return percent(as_text(value), kwargs or args)


def _batch(value: Iterable[Any], linecount: int, fill_with: Any = None) -> Any:
    items = list(islice(as_items(value), ITEMS))
    made_items(linecount if fill_with is not None else 0)
    made(80 * len(items))
    return JINJA["batch"](items, linecount, fill_with)


@pass_eval_context
def _slice(context: EvalContext, value: Iterable[Any], slices: int, fill_with: Any = None) -> Any:
    made_items(slices)
    made(80 * slices)
    return JINJA["slice"](context, as_items(value), slices, fill_with)


def _in_words(name: str) -> Callable[..., Any]:
    return lambda s: JINJA[name](as_items(as_text(s)))


def _check_path(attribute: Any) -> Any:
    """Count the parts of what may be the path of an attribute."""
    if isinstance(attribute, str):
        made(STEP_BYTES * attribute.count("."))
    return attribute


def _on_text(name: str) -> Callable[..., str]:
    return lambda s, *args, **kwargs: JINJA[name](as_text(s), *args, **kwargs)


def _on_items(name: str, weighed: bool = False) -> Callable[..., Any]:
    """A filter over items; ``weighed``: it keeps a changed copy of each to compare them by."""
    function = JINJA[name]
    at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        value = as_items(args[at])
        if weighed:
            made(weigh(value))
        for argument in (*args[at + 1 :], *kwargs.values()):
            _check_path(argument)
        return function(*args, **kwargs)

    return run


def _counted(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        tick()
        return settled(function(*args, **kwargs))

    return run


_TEXT_FILTERS = ("capitalize", "lower", "trim", "upper", "e", "escape", "safe")
_ITEM_FILTERS = ("first", "items", "last", "list", "map", "reject", "rejectattr", "reverse")
_COMPARING_FILTERS = ("dictsort", "groupby", "max", "min", "sort", "unique")
_PLAIN_FILTERS = ("abs", "attr", "count", "d", "default", "float", "length", "truncate")
FILTERS: dict[str, Callable[..., Any]] = {
    name: _counted(function)
    for name, function in {
        "tojson": to_json,
        "join": _join_filter,
        "replace": _replace_filter,
        "indent": _indent,
        "round": _round,
        "int": _int,
        "sum": _sum,
        "format": _format_filter,
        "string": as_text,
        "batch": _batch,
        "slice": _slice,
        **{name: _in_words(name) for name in ("title", "wordcount")},
        "center": lambda value, width=80: _padded(as_text(value).center, width),
        **{name: _on_text(name) for name in _TEXT_FILTERS},
        **{name: _on_items(name) for name in (*_ITEM_FILTERS, "select", "selectattr")},
        **{name: _on_items(name, weighed=True) for name in _COMPARING_FILTERS},
        **{name: JINJA[name] for name in _PLAIN_FILTERS},
    }.items()
}


def _on_number(name: str) -> Callable[..., bool]:
    def test(value: Any, *args: Any) -> bool:
        if not isinstance(value, int | float):
            raise TypeError(f"the test {name} is for numbers")
        return JINJA_TESTS[name](value, *args)

    return test


TESTS = {
    name: _counted(function)
    for name, function in {
        **JINJA_TESTS,
        **{name: _on_number(name) for name in ("divisibleby", "even", "odd")},
    }.items()
}


# Functions


def _raise_exception(message: Any = "") -> None:
    raise TemplateError(as_text(message)[:4096], refused=True)


def _strftime_now(format: str) -> str:
    if len(format) > 256 or _LONG_NUMBER.search(format):
        raise OverBudget("strftime_now takes a format of at most 256 characters")
    return datetime.now().strftime(format)


def _range(*args: int) -> range:
    steps = range(*args)
    if len(steps[: _RANGE + 1]) > _RANGE:
        raise OverBudget(f"it wanted a range of more than {_RANGE} steps")
    return steps


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    weigh((args, kwargs))
    return dict(*args, **kwargs)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "range": _range,
    "dict": _dict,
    "namespace": Namespace,
    "cycler": Cycler,
    "joiner": Joiner,
    "raise_exception": _raise_exception,
    "strftime_now": _strftime_now,
}
