"""Mutants of a design: one operator, constant or edge changed. A bench that cannot tell them from the
design proves little.
"""

from __future__ import annotations

import re

from palaestra.verifiers.verilog.source import modules, strip_comments

SWAPS = {
    "&&": "||", "||": "&&", "==": "!=", "!=": "==", "<<": ">>", ">>": "<<", "+": "-", "-": "+",
    "&": "|", "|": "&", "^": "&", "~": "", "!": "", "*": "+", "<": ">", ">": "<",
    "posedge": "negedge",
}  # fmt: skip
# what begins like an operator and is none of them stands first
TOKEN = re.compile(
    r"<=|>=|===|!==|<<<|>>>|\+:|-:|~&|~\||~\^|&&|\|\||==|!=|<<|>>|\bposedge\b"
    r"|\d+'[bdh][\da-fA-F]+|@\s*\(?\s*\*|\[[^\]]*\]|[-+&|^~!*<>]"
)


def mutants(source: str, most: int) -> list[str]:
    """At most so many mutants, spread over the source, each with one change."""
    text = strip_comments(source)
    changes = [
        (start + m.start(), start + m.end(), new)
        for body in modules(text).values()
        for start in [text.index(body)]
        for skip in [body.index(";")]
        for m in TOKEN.finditer(body)
        if m.start() > skip
        for new in changed(m[0])
    ] + [
        (start + m.start(1), start + m.end(1), f"~({m[1]})")
        for body in modules(text).values()
        for start in [text.index(body)]
        for m in re.finditer(r"\bassign\b[^=;]*=([^=;][^;]*)", body)
    ]
    if len(changes) > most:
        changes = [changes[i * len(changes) // most] for i in range(most)]
    return [text[:a] + new + text[b:] for a, b, new in changes]


def changed(token: str) -> list[str]:
    """What stands in place of a token; nothing for one that is kept."""
    if match := re.fullmatch(r"(\d+)'([bdh])([\da-fA-F]+)", token):
        width, base, digits = match.groups()
        value = int(digits, {"b": 2, "d": 10, "h": 16}[base]) ^ 1
        return [f"{width}'{base}{format(value, {'b': 'b', 'd': 'd', 'h': 'x'}[base])}"]
    return [f" {SWAPS[token]} "] if token in SWAPS else []
