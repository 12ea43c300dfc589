"""The filters, methods and operators a chat template may use, each held to the current budget.

Owns the lists of what is allowed and the checks before a result is built. An allow-list: a filter
or method that is not here does not exist for a template.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2 import pass_environment
from jinja2.environment import Environment
from jinja2.filters import FILTERS, make_attrgetter

from octavo.engine.render_budget import RenderLimit, current_budget

# As they are in Jinja; results are weighed. The second set also reads a sequence to its end.
_PLAIN = (  # noqa: SIM905
    "abs capitalize count d default dictsort e escape float int items last length lower "
    "reverse safe string title trim truncate upper wordcount"
).split()
_SEQUENCE = (  # noqa: SIM905
    "groupby list map max min reject rejectattr select selectattr sort unique first"
).split()

STRING_METHODS = frozenset(
    """capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit
    islower isnumeric isspace istitle isupper join lower lstrip partition removeprefix removesuffix
    replace rfind rindex rpartition rsplit rstrip split splitlines startswith strip swapcase title
    upper""".split()  # noqa: SIM905
)
SEQUENCE_METHODS = frozenset({"count", "index"})
MAPPING_METHODS = frozenset({"get", "items", "keys", "values"})

_WIDE_FORMAT = re.compile(r"%[^a-zA-Z%]*(?:\*|\d{4,})")
_WIDE_FIELD = re.compile(r"\{[^{}]*:[^{}]*(?:\{|\d{4,})")
_MAX_INTEGER_BITS = 4096
_MAX_EXPONENT = 64
_MAX_INDENT = 64


def allowed_filters() -> dict[str, Callable[..., Any]]:
    """Name → filter, all metered."""
    table = {name: _weighed(FILTERS[name]) for name in _PLAIN}
    table.update({name: _weighed(_bounded_input(FILTERS[name])) for name in _SEQUENCE})
    own: dict[str, Callable[..., Any]] = {
        "format": _format,
        "indent": _indent,
        "join": _join,
        "replace": _replace,
        "round": _round,
        "sum": _sum,
        "tojson": _tojson,
    }
    table.update({name: _weighed(function) for name, function in own.items()})
    return table


def _weighed(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, a step each, its result weighed. Keeps the marks Jinja reads."""

    @functools.wraps(function)
    def metered(*args: Any, **kwargs: Any) -> Any:
        budget = current_budget()
        budget.step()
        return budget.weigh(function(*args, **kwargs))

    return metered


def _bounded_input(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the elements of a string or an iterator counted as it reads them."""
    at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        if len(args) > at and not isinstance(args[at], list | tuple | Mapping):
            args = (*args[:at], current_budget().each(args[at]), *args[at + 1 :])
        return function(*args, **kwargs)

    return bounded


def concatenate(parts: Iterable[Any]) -> str:
    """All parts as one string, refused before it grows too long."""
    budget = current_budget()
    texts: list[str] = []
    n_chars = 0
    for part in parts:
        texts.append(part if isinstance(part, str) else str(part))
        n_chars += len(texts[-1])
        budget.allow(n_chars=n_chars)
    return "".join(texts)


@pass_environment
def _join(
    environment: Environment, value: Iterable[Any], d: str = "", attribute: str | None = None
) -> str:
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    return concatenate(_interleave(value, d))


def _interleave(values: Iterable[Any], separator: str) -> Iterator[Any]:
    for place, value in enumerate(current_budget().each(values)):
        if place:
            yield separator
        yield value


def _replace(s: Any, old: str, new: str, count: int | None = None) -> str:
    return _replace_text(str(s), str(old), str(new), -1 if count is None else count)


def _replace_text(text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old) if count < 0 else min(count, text.count(old))
    current_budget().allow(n_chars=len(text) + found * max(0, len(new) - len(old)))
    return text.replace(old, new, found)


def _indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = str(s)
    margin = width if isinstance(width, str) else " " * min(width, _MAX_INDENT + 1)
    if len(margin) > _MAX_INDENT:
        raise RenderLimit(f"it indents by more than {_MAX_INDENT} characters")
    current_budget().allow(n_chars=len(text) + (text.count("\n") + 2) * len(margin))
    function: Callable[..., str] = FILTERS["indent"]
    return str(function(text, margin, first, blank))


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    return percent_format(str(value), kwargs or args)


def percent_format(text: str, values: Any) -> str:
    """`text % values`, without field widths that are worth an attack."""
    if _WIDE_FORMAT.search(text):
        raise RenderLimit("it formats with a width that is too large or computed")
    # Every field may print the largest of the values: what all of them hold bounds one.
    n_chars = len(str(values)) * max(1, text.count("%"))
    current_budget().allow(n_chars=len(text) + n_chars)
    return str(text % values)


def check_format(text: str, values: Any) -> None:
    """Refuse a `text.format(…)` of these values that could print more than it was given."""
    if _WIDE_FIELD.search(text):
        raise RenderLimit("it formats with a width that is too large or computed")
    current_budget().allow(n_chars=len(text) + len(str(values)) * text.count("{"))


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    if not -100 <= precision <= 100:
        raise RenderLimit("it rounds to more than 100 digits")
    function: Callable[..., float] = FILTERS["round"]
    return function(value, precision, method)


@pass_environment
def _sum(
    environment: Environment,
    iterable: Iterable[Any],
    attribute: str | int | None = None,
    start: float = 0,
) -> Any:
    # Adding up lists copies them again and again.
    if not isinstance(start, int | float):
        raise RenderLimit("it adds up something other than numbers")
    if attribute is not None:
        iterable = map(make_attrgetter(environment, attribute), iterable)
    return sum(current_budget().each(iterable), start)


def _tojson(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as the hub's renderer writes it: not escaped for HTML."""
    if indent is not None and not 0 <= int(indent) <= _MAX_INDENT:
        raise RenderLimit(f"it indents by more than {_MAX_INDENT} characters")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return concatenate(current_budget().each(encoder.iterencode(x)))


def operate(operator: str, left: Any, right: Any, compute: Callable[[], Any]) -> Any:
    """`left operator right` by `compute`, after checking that the result cannot be huge."""
    budget = current_budget()
    budget.step()
    if operator == "%" and isinstance(left, str):
        return budget.weigh(percent_format(left, right))
    sized = (str, list, tuple)
    if operator == "*" and (isinstance(left, sized) or isinstance(right, sized)):
        value, times = (left, right) if isinstance(left, sized) else (right, left)
        length = len(value) * max(0, times)
        budget.allow(n_chars=length if isinstance(value, str) else 0)
        budget.allow(n_nodes=0 if isinstance(value, str) else length)
    elif operator == "+" and isinstance(left, sized) and isinstance(right, sized):
        budget.allow(n_chars=len(left) + len(right) if isinstance(left, str) else 0)
    elif operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
        if operator == "**" and abs(right) > _MAX_EXPONENT:
            raise RenderLimit(f"it computes a power above {_MAX_EXPONENT}")
        bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length()
        if bits + (0 if operator == "**" else right.bit_length()) > _MAX_INTEGER_BITS:
            raise RenderLimit(f"it computes a number of more than {_MAX_INTEGER_BITS} bits")
    return budget.weigh(compute())


def call_string_method(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Call a method of a string, after checking those whose result could outgrow the string."""
    text, name = str(getattr(method, "__self__", "")), method.__name__
    if name == "replace":
        return _replace_text(text, *args, **kwargs)
    if name == "join" and len(args) == 1:
        return concatenate(_interleave(args[0], text))
    if name in ("split", "rsplit"):
        given = dict(zip(("sep", "maxsplit"), args, strict=False)) | dict(kwargs)
        separator, at_most = given.get("sep"), given.get("maxsplit", -1)
        pieces = text.count(separator) if separator else len(text) // 2
        current_budget().allow(n_nodes=pieces if at_most < 0 else min(pieces, at_most))
    elif name == "splitlines":
        current_budget().allow(n_nodes=sum(map(text.count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")))
    return method(*args, **kwargs)
