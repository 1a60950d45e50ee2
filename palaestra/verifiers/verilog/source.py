"""Verilog as text: modules, their ports, and what a design may not contain."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from palaestra.errors import UserError
from palaestra.verifiers.base import fences

LANGUAGES = ("verilog", "systemverilog", "sv", "v", "vlog")
MODULE = re.compile(
    r"\bmodule\s+(?:automatic\s+|static\s+)?([A-Za-z_]\w*)(.*?)\bendmodule\b", re.DOTALL
)
COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
# system functions that compute; any other prints, ends the simulation, or reads and writes files
FUNCTIONS = frozenset(
    [
        "signed",
        "unsigned",
        "clog2",
        "bits",
        "size",
        "high",
        "low",
        "left",
        "right",
        "countones",
        "onehot",
        "onehot0",
        "isunknown",
    ]
)
DIRECTIVES = frozenset(
    [
        "timescale",
        "default_nettype",
        "define",
        "undef",
        "ifdef",
        "ifndef",
        "else",
        "elsif",
        "endif",
        "resetall",
    ]
)
KINDS = r"(?:wire|reg|logic|bit|tri|var|signed|unsigned)\b"
PORT = re.compile(
    rf"\b(input|output|inout)\b\s*(?:{KINDS}\s*)*((?:\[[^\]]*\]\s*)*)(?:{KINDS}\s*)*"
    r"([A-Za-z_]\w*(?:\s*=\s*[^,;)]+)?(?:\s*,\s*(?!input\b|output\b|inout\b)[A-Za-z_]\w*)*)"
)
OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
}


@dataclass(frozen=True, slots=True)
class Port:
    name: str
    direction: Literal["input", "output"]
    width: int  # bits


def strip_comments(source: str) -> str:
    """The source without comments; strings stay."""
    return COMMENT.sub(lambda m: m[1] or " ", source)


def violation(source: str) -> str:
    """What a design contains that it may not; "" = nothing.

    System tasks could print, end the simulation or touch files, and directives could include them.
    A design may reach into the bench, which has nothing of the reference.
    """
    text = strip_comments(source)
    if "``" in text:
        return "a macro that joins names"
    for name in re.findall(r"\$\s*(\w*)", text):
        if name not in FUNCTIONS:
            return f"${name}"
    for name in re.findall(r"`\s*(\w*)", text):
        if name not in DIRECTIVES and not re.search(rf"`define\s+{name}\b", text):
            return f"`{name}"
    return ""


def modules(source: str) -> dict[str, str]:
    """The modules of a source by name, in order, comments removed."""
    return {m[1]: m[0] for m in MODULE.finditer(strip_comments(source))}


def top_module(source: str) -> str:
    """The module that no other of the source instantiates. Raises UserError where there is none."""
    bodies = modules(source)
    tops = [
        name
        for name in bodies
        if not any(
            re.search(rf"\b{name}\b\s*(?:#\s*\(|\w+\s*\()", body)
            for other, body in bodies.items()
            if other != name
        )
    ]
    if not tops:
        raise UserError(
            "the reference design has no `module NAME ... endmodule` that is not part of another; "
            "give a whole design in Verilog"
        )
    return tops[-1]


def header_of(source: str, name: str) -> str:
    """The declaration of a module, up to its first semicolon."""
    return modules(source)[name].partition(";")[0] + ";"


def extract_design(response: str, reference: str) -> tuple[str, str] | None:
    """A reply's design and its top module; None where the reply has no Verilog.

    The last block of Verilog counts, else the modules in the text. A block without a module is a
    body, which gets the reference's header.
    """
    top = top_module(reference)
    blocks = [b for b in fences(response, LANGUAGES, cut=True) if b.strip()] or [
        b for b in fences(response, ("",), cut=True) if b.strip()
    ]
    text = blocks[-1] if blocks else response
    bodies = modules(text)
    if bodies:
        text = text if blocks else "\n".join(bodies.values())
        return text, top if top in bodies else next(reversed(bodies))
    if not blocks or "module" in strip_comments(text):
        return None
    return f"{header_of(reference, top)}\n{text}\nendmodule\n", top


def ports_of(source: str, name: str) -> tuple[Port, ...]:
    """The ports of a module, in order.

    Raises:
        UserError: there is none, an `inout`, or a width that is no constant.
    """
    body = modules(source)[name]
    scope = re.sub(r"\b(function|task)\b.*?\bend\1\b", " ", body, flags=re.DOTALL)
    known = parameters(scope)
    ports = dict[str, Port]()
    for direction, ranges, names in PORT.findall(scope):
        if direction == "inout":
            raise UserError(
                f"the module {name} has an inout port ({names}), which no bench drives; split it "
                "into an input and an output"
            )
        width = 1
        for high, low in re.findall(r"\[([^:\]]*):([^\]]*)\]", ranges):
            width *= abs(constant(high, known) - constant(low, known)) + 1
        for each in names.split(","):
            bare = each.partition("=")[0].strip()
            ports.setdefault(bare, Port(bare, direction, width))
    if not any(p.direction == "output" for p in ports.values()):
        raise UserError(
            f"the module {name} declares no output that could be read from its source; declare "
            "ports as `input [3:0] a, output y`"
        )
    return tuple(ports.values())


def parameters(body: str) -> dict[str, int]:
    """The parameters of a module whose values are numbers."""
    known = dict[str, int]()
    for each, value in re.findall(
        r"(?:\b(?:parameter|localparam)\b[^=;,]*?|,\s*)([A-Za-z_]\w*)\s*=\s*([^,;)]+)", body
    ):
        try:
            known[each] = constant(value, known)
        except UserError:
            continue
    return known


def constant(text: str, known: Mapping[str, int]) -> int:
    """The value of a constant expression of numbers and parameters. Raises UserError."""
    plain = re.sub(
        r"(?:\d+\s*)?'\s*s?([bodhBODH])\s*([\da-fA-F_]+)",
        lambda m: str(int(m[2].replace("_", ""), {"b": 2, "o": 8, "d": 10, "h": 16}[m[1].lower()])),
        text,
    )
    plain = re.sub(r"\$clog2\b", "clog2", plain).replace("/", "//").strip()
    try:
        return evaluate(ast.parse(plain, mode="eval").body, known)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError):
        raise UserError(
            f"the reference design has the width or value {text.strip()!r}, which cannot be read; "
            "write it with numbers and parameters"
        ) from None


def evaluate(node: ast.expr, known: Mapping[str, int]) -> int:
    """Raises ValueError or KeyError for what is no constant."""
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -evaluate(operand, known)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            a, b = evaluate(left, known), evaluate(right, known)
            if isinstance(op, ast.LShift) and not 0 <= b <= 32:
                raise ValueError("a shift out of range")
            return OPERATORS[type(op)](a, b)
        case ast.Call(func=ast.Name(id="clog2"), args=[argument]):
            return max(0, (evaluate(argument, known) - 1).bit_length())
        case _:
            raise ValueError(ast.dump(node))
