"""Chat templates of strangers: jinja's sandbox with limits on what one operation may make.

A template may loop, and is then stopped (`template.render`); but a single operation, such as
9 ** (9 ** 9) or "a" * 10 ** 10, holds the interpreter or fills the memory before anyone can look. So
operations, methods and filters refuse results beyond a size, and everything that one rendering makes
counts against a budget. Beside that the environment is the one of transformers, which is what
templates are written for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache, wraps
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

LENGTH = 2_000_000  # characters or items that an operation may make
BUDGET = 20_000_000  # of them that a rendering may make in all
BITS = 4096  # of a whole number
SOURCE = 2**20  # characters of a template
# methods whose arguments say how long the result is, and those that make it as long as they like
WIDTHS = ("ljust", "rjust", "center", "zfill", "expandtabs", "to_bytes")
REFUSED = ("translate", "maketrans")


class Excess(SecurityError):
    """A template asks for more than any chat template needs."""


class Made(threading.local):
    """What a rendering in this thread has made so far, in characters and items."""

    total = 0


_made = Made()


def render_template(source: str, variables: Mapping[str, Any]) -> str:
    """The text of a template, compiled once. Raises Excess beyond the limits, and what jinja and
    Python raise for a template that fails.
    """
    if len(source) > SOURCE:
        raise Excess(f"it has {len(source):,} characters, and at most {SOURCE:,} are read")
    _made.total = 0
    return compiled(source).render(variables)


@lru_cache(maxsize=64)
def compiled(source: str) -> Template:
    return Guarded().from_string(source)


def count(size: int) -> None:
    """Adds to what the rendering makes. Raises Excess beyond the limits."""
    _made.total += size
    if size > LENGTH or _made.total > BUDGET:
        raise Excess(
            f"it makes more than {LENGTH if size > LENGTH else BUDGET:,} characters; no chat "
            "template needs that"
        )


def size_of(x: Any) -> int:
    """Characters of a value as text, about; all of a nested one. Stops at `LENGTH`."""
    total, todo = 0, [x]
    while todo and total <= LENGTH:
        part = todo.pop()
        if isinstance(part, str | bytes):
            total += len(part)
        elif isinstance(part, Mapping):
            total += 4 * len(part)
            todo += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            total += 2 * len(part)
            todo += part
        else:
            total += 8
    return total


def passed(x: Any) -> Any:
    """The value, counted."""
    count(size_of(x))
    return x


def check_argument(x: Any) -> None:
    """Raises Excess for a number that asks for a long result, as a width."""
    if isinstance(x, int | float) and abs(x) > LENGTH:
        raise Excess(f"an argument is above {LENGTH:,}; no chat template needs that")


def check_format(text: str, values: Any) -> None:
    """Raises Excess for a format that pads to a width which no template needs."""
    digits = longest = 0
    for c in text:
        digits = digits + 1 if c.isdigit() else 0
        longest = max(longest, digits)
    if longest > 4 or ("*" in text and "%" in text):
        raise Excess("a format pads to a width that no chat template needs")
    count(len(text) + size_of(values))


def product(left: Any, right: Any) -> Any:
    """left * right, of numbers and of a text or list by a number."""
    for some, n in ((left, right), (right, left)):
        if isinstance(some, str | bytes | list | tuple) and isinstance(n, int):
            count(max(size_of(some), 1) * max(n, 0))
    _check_bits(left, right)
    return left * right


def power(left: Any, right: Any) -> Any:
    """left ** right, of small numbers."""
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > BITS:
        raise Excess("it makes a number that is too large for a chat template")
    return left**right


def remainder(left: Any, right: Any) -> Any:
    """left % right, of numbers and of a format and its values."""
    if isinstance(left, bytes):
        raise Excess("it formats bytes; no chat template needs that")
    if isinstance(left, str):
        check_format(left, right)
    return left % right


def total(left: Any, right: Any) -> Any:
    """left + right, of numbers, texts and lists."""
    if not isinstance(left, int | float):
        count(size_of(left) + size_of(right))
    return left + right


def _check_bits(*numbers: Any) -> None:
    bits = sum(n.bit_length() for n in numbers if isinstance(n, int))
    if bits > BITS:
        raise Excess("it makes a number that is too large for a chat template")


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "*": product,
    "**": power,
    "%": remainder,
    "+": total,
}


def joined(parts: Iterable[Any]) -> str:
    """Texts of a block, a macro or a whole template, in one."""
    texts, length = list[str](), 0
    for text in parts:
        texts.append(text)
        length += len(text)
        count(len(text) + 1)
    if length > LENGTH:
        count(length)
    return "".join(texts)


def concatenated(parts: Iterable[Any]) -> str:
    """What `~` makes of its operands."""
    values = list(parts)
    for x in values:
        count(size_of(x))
    return str_join(values)


class GuardedCode(CodeGenerator):
    """Code in which what jinja writes as plain Python goes through the environment as well."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concatenated((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if not isinstance(node.arg, nodes.Slice):
            return super().visit_Getitem(node, frame)
        self.write("environment.passed(")
        super().visit_Getitem(node, frame)
        self.write(")")
        return None

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self.write("environment.passed(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("environment.passed(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx != "load":
            return super().visit_Tuple(node, frame)
        self.write("environment.passed(")
        super().visit_Tuple(node, frame)
        self.write(")")
        return None


class Generation(Extension):
    """`{% generation %}` marks what an assistant says, for trainers that want a mask of it."""

    tags = {"generation"}  # noqa: RUF012 - as jinja declares it

    def parse(self, parser: Parser) -> Any:
        next(parser.stream)
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class Guarded(ImmutableSandboxedEnvironment):
    """The environment of chat templates, with limits."""

    intercepted_binops = frozenset(OPERATIONS)
    code_generator_class = GuardedCode
    concat = staticmethod(joined)  # type: ignore[assignment]
    concatenated = staticmethod(concatenated)
    passed = staticmethod(passed)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[Generation, loopcontrols],
            finalize=passed,
        )
        self.filters = {n: _guard(n, f) for n, f in {**self.filters, "tojson": to_json}.items()}
        self.globals = {
            "range": self.globals["range"],
            "dict": dict,
            "cycler": self.globals["cycler"],
            "joiner": self.globals["joiner"],
            "namespace": Names,
            "raise_exception": refuse,
            "strftime_now": strftime_now,
        }

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return OPERATIONS[operator](left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        name = getattr(obj, "__name__", "")
        owner = getattr(getattr(obj, "__wrapped__", obj), "__self__", None)  # `format` is wrapped
        if isinstance(owner, str | bytes) and name in REFUSED:
            raise Excess(f"it calls {name}; no chat template needs that")
        for x in (*args, *kwargs.values()) if name in WIDTHS else ():
            check_argument(x)
        if isinstance(owner, str | bytes) and name == "replace":
            _check_replace(owner, args)
        if isinstance(owner, str | bytes) and name == "join" and args:
            args = (list(args[0]), *args[1:])
            count(len(owner) * len(args[0]) + size_of(args[0]))
        if isinstance(owner, str) and name in ("format", "format_map"):
            check_format(owner, (args, kwargs))
        return passed(super().call(context, obj, *args, **kwargs))


class Names(Namespace):
    """A namespace without names that lead into the interpreter."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *given = args
        for name in (names := dict(*given, **kwargs)):
            _check_name(name)
        Namespace.__init__(self, names)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        Namespace.__setitem__(self, name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no name that begins with _, such as {name!r}")


def _check_replace(text: Any, args: tuple[Any, ...]) -> None:
    """Before the replacing: what comes out may be as many times as long as the new part is."""
    if len(args) > 1 and isinstance(args[1], str | bytes) and isinstance(args[0], type(text)):
        occurrences = text.count(args[0])
        count(len(text) + occurrences * max(len(args[1]) - len(args[0]), 0))


def _guard(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is asked for no long result, and whose result is counted."""

    @wraps(run)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        rest = (*args[1:], *kwargs.values()) if _takes_context(run) else (*args, *kwargs.values())
        given = [*rest, None]
        count(size_of(given[0]))
        for x in given[1:]:
            check_argument(x)
        texts = [str(x) for x in given if isinstance(x, str)]
        if name == "replace" and len(texts) > 2:
            _check_replace(texts[0], tuple(texts[1:3]))
        if name == "format" and texts:
            check_format(texts[0], given[1:])
        if name in ("indent", "wordwrap", "tojson", "join", "xmlattr", "urlize"):
            widest = max((x for x in given[1:] if isinstance(x, int)), default=1)
            widest = max(widest, *(len(x) for x in given[1:] if isinstance(x, str)), 1)
            count(size_of(given[0]) * min(max(widest, 1), LENGTH))
        return passed(run(*args, **kwargs))

    return guarded


def _takes_context(run: Callable[..., Any]) -> bool:
    """Whether jinja gives a filter its context, evaluation or environment before the value."""
    return hasattr(run, "jinja_pass_arg")


def to_json(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes of HTML that jinja writes."""
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def strftime_now(form: str) -> str:
    check_format(form, "")
    return datetime.now().strftime(form)


def refuse(message: str) -> None:
    """What templates call for messages that they do not take."""
    raise TemplateError(message)
