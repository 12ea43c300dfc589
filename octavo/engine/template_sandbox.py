"""Chat templates, rendered in a sandbox that a hostile template cannot leave or exhaust.

Owns the Jinja environment: the dialect of the hub's renderer (trimmed blocks, `tojson`,
`raise_exception`, `strftime_now`, loop controls, `generation` blocks) minus everything that reaches
files, attributes of Python objects or unbounded work. Knows no tokenizer and no message rules.

The bounds are in `render_budget`. They hold because the parsed template is rewritten before it is
compiled: every `for` draws from a metered iterator, every `~` and every list, tuple or dict literal
is weighed, and calls, operators and filters go through the checks of `template_filters`. A template
is parsed and rendered under one budget, since Jinja computes constants while it parses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, cast

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError, UndefinedError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from octavo.core.errors import RequestError
from octavo.engine.render_budget import (
    RenderBudget,
    RenderLimit,
    RenderLimits,
    current_budget,
    spending,
)
from octavo.engine.template_filters import (
    MAPPING_METHODS,
    SEQUENCE_METHODS,
    STRING_METHODS,
    allowed_filters,
    call_string_method,
    check_format,
    concatenate,
    operate,
)

_MAX_RANGE = 100_000
_MAX_DATE_FORMAT_CHARS = 64
_MAX_REASON_CHARS = 300


class _Refusal(TemplateError):
    """What a template says with raise_exception: meant for the caller to read."""


class ChatTemplate:
    """One template, compiled at its first use. Rendering is thread-safe."""

    def __init__(
        self,
        source: str,
        *,
        limits: RenderLimits | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """`now` is the clock that `strftime_now` shows to the template."""
        self.source = source
        self._limits = limits or RenderLimits()
        self._now = now
        self._compiled: Template | None = None

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text for these variables. Raises RequestError `template_error` without internals."""
        try:
            with spending(RenderBudget(self._limits)):
                if self._compiled is None:
                    self._compiled = self._compile()
                return concatenate(self._compiled.generate(**variables))
        except _Refusal as refusal:
            raise _template_error(_readable(str(refusal))) from None
        except RenderLimit as limit:
            raise _template_error(f"was stopped: {limit}") from None
        except TemplateSyntaxError as error:
            raise _template_error(f"cannot be parsed (line {error.lineno})") from None
        except Exception as error:
            # Whatever a template does wrong is the template's fault, and a reason in one word is
            # all that is safe to pass on.
            raise _template_error(f"failed on these messages ({_kind(error)})") from None

    def _compile(self) -> Template:
        if len(self.source) > self._limits.template_chars:
            raise RenderLimit(f"it is longer than {self._limits.template_chars} characters")
        return _Environment(self._now).from_string(self.source)


def _template_error(what: str) -> RequestError:
    return RequestError(
        f"the model's chat template {what}", param="messages", code="template_error"
    )


def _readable(reason: str) -> str:
    shown = "".join(c if c.isprintable() else " " for c in reason[:_MAX_REASON_CHARS])
    return f"refuses these messages: {shown}"


def _kind(error: Exception) -> str:
    kinds: tuple[tuple[type[Exception], str], ...] = (
        (SecurityError, "it uses something that is not allowed"),
        (UndefinedError, "it reads a field that is not there"),
        (RecursionError, "it nests too deeply"),
        (TemplateError, "it uses something that does not exist"),
    )
    for kind, text in kinds:
        if isinstance(error, kind):
            return text
    return "it does something that these values do not allow"


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox. Jinja calls the methods below from compiled templates."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _GenerationBlock],
            finalize=_count_output,
            optimized=False,
            cache_size=0,
        )
        self.filters = {**allowed_filters(), "_each": _each, "_weigh": _weigh, "_concat": _concat}
        self.concat = concatenate  # type: ignore[method-assign]
        self.globals = {
            "dict": _new_dict,
            "namespace": _SealedNamespace,
            "raise_exception": _raise_exception,
            "range": _bounded_range,
            "strftime_now": _DateShower(now),
        }

    def _generate(
        self, source: nodes.Template, name: Any, filename: Any, defer_init: bool = False
    ) -> str:
        return super()._generate(_Metering().visit(source), name, filename, defer_init)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        if not callable(value):
            return True
        if isinstance(obj, str):
            return attr in STRING_METHODS
        if isinstance(obj, Mapping):
            return attr in MAPPING_METHODS
        if isinstance(obj, list | tuple):
            return attr in SEQUENCE_METHODS
        return not isinstance(obj, int | float | bytes | _DateShower)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        safe_format = super().wrap_str_format(value)
        if safe_format is None or value.__name__ != "format":
            return None
        text = str(value.__self__)

        def bounded(*args: Any, **kwargs: Any) -> str:
            check_format(text, (args, kwargs))
            return safe_format(*args, **kwargs)

        return bounded

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        return operate(
            operator,
            left,
            right,
            lambda: super(_Environment, self).call_binop(context, operator, left, right),
        )

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        # Jinja's names: a template may pass keywords called self or context.
        budget = current_budget()
        budget.step()
        if isinstance(getattr(__obj, "__self__", None), str):
            # What Jinja passes along inside of loops and blocks is not meant for plain functions.
            given = {k: v for k, v in kwargs.items() if k not in ("_loop_vars", "_block_vars")}
            return budget.weigh(call_string_method(__obj, args, given))
        return budget.weigh(super().call(__context, __obj, *args, **kwargs))


class _Metering(NodeTransformer):
    """Rewrites a parsed template so that loops, joins and literals ask the budget."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise RenderLimit("recursive loops are not supported")
        self.generic_visit(node)
        node.iter = _filtered("_each", cast(nodes.Expr, node.iter))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered("_concat", nodes.List(node.nodes, lineno=node.lineno))

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _filtered("_weigh", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _filtered("_weigh", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return node if node.ctx != "load" else _filtered("_weigh", node)


def _filtered(name: str, node: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}` marks training text; for rendering it is its body."""

    tags = {"generation"}  # noqa: RUF012 - Jinja reads a plain class attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _SealedNamespace(Namespace):
    """`namespace()` whose attributes are plain names only."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError("a namespace attribute must not start with an underscore")
        super().__setitem__(name, value)


class _DateShower:
    """`strftime_now(format)`: the current local time, with plain directives only."""

    __slots__ = ("_now",)

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now

    def __call__(self, format: str) -> str:
        # The C library pads to any width that is written between % and the letter.
        directives = format.replace("%%", "").split("%")[1:]
        plain = all(part[:1].isalpha() or part[:1] == "-" for part in directives)
        if len(format) > _MAX_DATE_FORMAT_CHARS or not plain:
            raise RenderLimit("it asks for a date in an unusual format")
        return self._now().strftime(format)


def _count_output(value: Any) -> Any:
    current_budget().step()
    return value


def _each(values: Any) -> Any:
    return current_budget().each(values)


def _weigh(value: Any) -> Any:
    return current_budget().weigh(value)


def _concat(parts: list[Any]) -> str:
    return str(current_budget().weigh(concatenate(parts)))


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _bounded_range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > _MAX_RANGE:
        raise RenderLimit(f"it counts further than {_MAX_RANGE}")
    return numbers


def _raise_exception(message: Any) -> None:
    raise _Refusal(str(message))
