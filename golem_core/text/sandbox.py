"""The Jinja environment chat templates run in: transformers' dialect, within a budget.

Jinja's own sandbox keeps a template away from Python's insides, but not from time and memory:
``'a' * 10**9`` is allowed there. Here only what `operations` names can be reached, and loops,
literals, slices and concatenations are rewritten at compile time to be counted too.
"""

from collections.abc import Callable, Iterable
from functools import partial
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import Undefined, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, TemplateReference
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from golem_core.text.budget import Steps, made, tick, weigh
from golem_core.text.operations import (
    FILTERS,
    FUNCTIONS,
    METHODS,
    TESTS,
    TextFormat,
    as_items,
    as_text,
    check_operands,
    join,
    percent,
    settled,
)

_CALL_BYTES = 256  # what a call may leave behind, such as a namespace
# Objects of Jinja's own whose public names are harmless.
_OPEN = (LoopContext, Macro, BlockReference, TemplateReference, Namespace, Cycler, Undefined)
_CALLABLE = (Macro, LoopContext, BlockReference, Joiner, Undefined)


class Sandbox(ImmutableSandboxedEnvironment):
    """Compiles and renders only inside `budget()`."""

    intercepted_binops = frozenset(("//", "%", "+", "-", "/", "**", "*"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=self._finalized,
            extensions=[_Generation, "jinja2.ext.loopcontrols"],
        )
        self.filters = {
            **FILTERS,
            "golem_steps": Steps,
            "golem_concat": partial(join, ""),
            "golem_weighed": _weighed,
            "golem_made": settled,
            "golem_items": as_items,
        }
        self.tests = TESTS
        self.globals = dict(FUNCTIONS)

    def concat(self, parts: Iterable[str]) -> str:
        """Join what a block, a macro or a captured passage wrote."""
        return join("", parts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        tick()
        if operator == "%" and isinstance(left, str):
            return percent(left, right)
        check_operands(operator, left, right)
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, list | tuple):
            weigh(result)
        return result

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        tick()
        made(_CALL_BYTES)
        replacement = __self._permitted(__obj)
        if replacement is not None:
            __obj = partial(replacement, __obj)
        elif isinstance(__obj, Macro) and (__obj.catch_varargs or __obj.catch_kwargs):
            weigh((args, {name: kwargs[name] for name in kwargs if name[0] != "_"}))
        return settled(super().call(__context, __obj, *args, **kwargs))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        # Only a named tuple has fields: what groupby() gives.
        fields = getattr(type(obj), "_fields", ())
        return isinstance(obj, _OPEN) or attr in fields or attr in _methods_of(obj)

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, str) and attribute == "format":
            return TextFormat(self, obj).run
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        tick()
        if isinstance(obj, str) and isinstance(argument, str):
            return self.getattr(obj, argument)
        return super().getitem(obj, argument)

    def _generate(
        self,
        source: nodes.Template,
        name: str | None,
        filename: str | None,
        defer_init: bool = False,
    ) -> str:
        return super()._generate(_Guard(self).visit(source), name, filename, defer_init)

    @staticmethod
    def _finalized(value: Any) -> Any:
        return value if isinstance(value, Undefined) else as_text(value)

    @staticmethod
    def _permitted(obj: Any) -> Callable[..., Any] | None:
        """What to run instead of ``obj``, None for itself; ``SecurityError`` for strangers."""
        if isinstance(obj, BuiltinMethodType | MethodType):
            methods = _methods_of(obj.__self__)
            if obj.__name__ in methods:
                return methods[obj.__name__]
            if isinstance(obj.__self__, LoopContext | Cycler | TextFormat):
                return None
        elif isinstance(obj, _CALLABLE) or any(obj is known for known in FUNCTIONS.values()):
            return None
        name = getattr(obj, "__name__", type(obj).__name__)
        raise SecurityError(f"{name} cannot be called in a template")


def _methods_of(value: Any) -> dict[str, Callable[..., Any] | None]:
    for kind, methods in METHODS.items():
        if isinstance(value, kind):
            return methods
    return {}


def _weighed(value: Any) -> Any:
    weigh(value)
    return settled(value)


class _Guard(NodeTransformer):
    """Sends what a parsed template does without a call through the filters that count it."""

    def __init__(self, environment: Sandbox):
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = self._through("golem_steps", node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._through("golem_concat", nodes.List(node.nodes, lineno=node.lineno))

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return self._through("golem_weighed", node)

    visit_Dict = visit_List

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        return self.visit_List(node) if node.ctx == "load" else self.generic_visit(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return self._through("golem_made", node) if isinstance(node.arg, nodes.Slice) else node

    def visit_Call(self, node: nodes.Call | nodes.Filter | nodes.Test) -> nodes.Node:
        self.generic_visit(node)
        if node.dyn_args is not None:
            node.dyn_args = self._through("golem_items", node.dyn_args)
        return node

    visit_Filter = visit_Test = visit_Call

    def _through(self, name: str, node: nodes.Expr) -> nodes.Filter:
        through = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
        through.set_environment(self._environment)
        return through


class _Generation(Extension):
    """``{% generation %}``: marks the model's own words for training; here it does nothing."""

    tags = frozenset({"generation"})

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)
