"""Formulas as mathematics: finds them in the plain text of a docstring, and writes them as MathML.

A docstring writes `A_i = (r_i - mean r) / (std r + eps)`; every current browser draws MathML by
itself, so the page needs no script and asks no other server. What is found is a run of words that
can only be mathematics (symbols, numbers, names of functions) with an operator or an index among
them; everything else stays prose. A fraction is stacked only where both sides are one symbol, one
call or one bracket, so that the stacked form means what the line says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape


def spaced(text: str) -> tuple[str, ...]:
    """What stands between spaces."""
    return tuple(text.split())


LETTERS = spaced(
    "alpha beta gamma delta epsilon eps zeta eta theta kappa lambda mu nu xi pi rho sigma tau "
    "phi chi psi omega Gamma Delta Theta Lambda Pi Sigma Phi Psi Omega"
)
SHOWN = spaced("α β γ δ ε ε ζ η θ κ λ μ ν ξ π ρ σ τ φ χ ψ ω Γ Δ Θ Λ Π Σ Φ Ψ Ω")
GREEK: dict[str, str] = dict(zip(LETTERS, SHOWN, strict=True))
BIG = {"sum": "∑", "prod": "∏"}
FUNCTIONS = frozenset(
    spaced(
        "log ln exp min max mean std var clip sigmoid softmax tanh argmax argmin relu cos sin sim sign "
        "sqrt round floor ceil grad median rank sg logsumexp"
    )
)
DIVERGENCES = ("KL", "TV", "JS")
OPERATORS = {
    "<-": "←", "->": "→", "<=": "≤", ">=": "≥", "!=": "≠", "||": "∥", "+-": "±", "...": "…",
    "-": "−", "*": "·", "~": "∼",
}  # fmt: skip
RELATIONS = frozenset(spaced("= < > <= >= != <- + - * / +-"))
OPEN, CLOSE = "([{", ")]}"
ACCENTS = {"bar": "¯", "hat": "^"}
NAME = r"[A-Za-z][A-Za-z0-9]*"
THIN = '<mspace width="0.17em"/>'  # behind the name of a function
INDEX = r"(?:\{[^{}]*\}|-?[A-Za-z0-9]+(?:[+-][0-9]+)?\b|[*+-](?![\w(]))"
TOKEN = re.compile(
    rf"(?P<space>\s+)"
    rf"|(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?|\.\d+)"
    rf"|(?P<name>{NAME})(?P<accent>~(?!=))?(?P<prime>'+)?"
    rf"|(?P<sub>_{INDEX}|_<[A-Za-z0-9]+)|(?P<sup>\^{INDEX})"
    r"|(?P<operator>\.\.\.|<-|->|<=|>=|!=|\|\||\+-|[-+*/=<>~|,;:!%&])|(?P<open>[(\[{])|(?P<close>[)\]}])"
)
CHUNK = re.compile(r"(?:\{[^{}]*\}|\S)+")
# what a slash between them only lists: rates, abbreviations, names of functions
LISTED = re.compile(r"-?\d*\.\d+|[A-Z]{2,}|" + "|".join(sorted(FUNCTIONS)))
SHORT_WORDS = frozenset(
    spaced("a A I an as at be by do he if in is it me my no of on or so to up us we go am ie eg vs")
)


# ---- finding


def mixed(text: str, stacked: bool = False) -> str:
    """Prose as HTML, its formulas as MathML, what stands between backticks as code. `stacked`:
    fractions are set on two lines.
    """
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        f"<code>{escape(p[1:-1])}</code>"
        if len(p) > 2 and p[0] == p[-1] == "`"
        else _prose(p, stacked)
        for p in parts
    )


def _prose(text: str, stacked: bool) -> str:
    chunks = [(m.start(), m.end()) for m in CHUNK.finditer(text)]
    made: list[str] = []
    done = i = 0
    while i < len(chunks):
        j = i
        while j < len(chunks) and is_mathematical(_bare(text, chunks[j])):
            ends_here = _bare(text, chunks[j]) != text[chunks[j][0] : chunks[j][1]]
            j += 1
            if ends_here and _depth(text[chunks[i][0] : chunks[j - 1][1]]) <= 0:
                break
        span = _span(text, chunks[i:j])
        if span is None:
            i += 1
            continue
        made += [
            escape(text[done : span[0]], quote=False),
            mathml(text[span[0] : span[1]], stacked),
        ]
        done, i = span[1], max(j, i + 1)
    return "".join([*made, escape(text[done:], quote=False)])


def _bare(text: str, chunk: tuple[int, int]) -> str:
    """A word without the punctuation behind it."""
    word = text[chunk[0] : chunk[1]]
    return word if word == "..." else word.rstrip(".,:;") or word


def _span(text: str, run: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Where the formula of a run of mathematical words begins and ends; None = it holds none."""
    words = [_bare(text, c) for c in run]
    first, last = 0, len(words)
    goes_on = (
        text[run[-1][1] :].strip() and words[-1] == text[run[-1][0] : run[-1][1]] if run else ""
    )
    if goes_on and last > 1 and words[-1] in FUNCTIONS | BIG.keys():
        last -= 1  # "r = sum of the points": prose behind the sign
    while last > first and (words[last - 1] in OPERATORS or words[last - 1] in RELATIONS):
        last -= 1
    while first < last and words[first] in RELATIONS - {"-"}:
        first += 1
    while (
        last - first > 1
        and words[first + 1] not in RELATIONS
        and (words[first] in SHORT_WORDS or _is_abbreviation(words[first]))
    ):
        first += 1  # "GAE with", "GAE (gamma = 1)": prose before the formula
    while (last - first > 1 and words[last - 1] in SHORT_WORDS | FUNCTIONS
           and words[last - 2] not in RELATIONS):  # fmt: skip
        last -= 1
    if first == last or not _is_formula(words[first:last]):
        return None
    begin, end = run[first][0], run[last - 1][0] + len(words[last - 1])
    while begin < end and text[begin] in OPEN and _depth(text[begin:end]) > 0:
        begin += 1
    while begin < end and text[end - 1] in CLOSE and _depth(text[begin:end]) < 0:
        end -= 1
    return (begin, end) if _is_nested(text[begin:end]) else None


def _depth(text: str) -> int:
    return sum((c in OPEN) - (c in CLOSE) for c in text)


def _is_nested(text: str) -> bool:
    """Whether every bracket that opens is closed, and none before it opens."""
    depths = [_depth(text[:n]) for n in range(1, len(text) + 1)]
    return bool(depths) and min(depths) >= 0 and depths[-1] == 0


def _is_formula(words: Sequence[str]) -> bool:
    """Whether mathematical words are a formula: an index, a power, or an operator that has both its
    sides.
    """
    if len(words) == 1 and _is_list(words[0]):
        return False
    if len(words) > 1 and not any(c.isalpha() or c == ")" for w in words for c in w):
        return False  # "1000 / 100", and what is left of a formula that has words in it
    if any(re.search(rf"{NAME}~?'*[_^]|[)\]][_^]|\w[=<>/]\w", w) for w in words):
        return True
    return any(w in RELATIONS for w in words[1:-1]) or (
        len(words) == 1 and bool(re.fullmatch(r"[A-Za-z]+~|[a-zA-Z]+\([a-z]\)", words[0]))
        and words[0].split("(")[0] not in SHORT_WORDS
    )  # fmt: skip


def _is_list(word: str) -> bool:
    """Whether slashes only part what is listed, as in `DQN/PPO`, `0.5/0.6` and `max/min`."""
    parts = word.strip("()").split("/")
    return len(parts) > 1 and all(LISTED.fullmatch(p) for p in parts)


def _is_abbreviation(word: str) -> bool:
    return bool(re.fullmatch(r"[A-Z]{2,}", word)) and word not in DIVERGENCES


def is_mathematical(word: str) -> bool:
    """Whether a word can stand in a formula: every name in it is a symbol or a function."""
    at = 0
    while at < len(word):
        match = TOKEN.match(word, at)
        if match is None:
            return False
        if (name := match["name"]) and not _is_symbol(name):
            return False
        at = match.end()
    return bool(word) and (word not in ("-", ";", ",", ":", "&", "%", "!") or word == "-")


def _is_symbol(name: str) -> bool:
    if name in GREEK or name in FUNCTIONS or name in BIG or name in (*DIVERGENCES, "old", "ref"):
        return True
    stem = re.sub(r"(?<=.)(bar|hat)$", "", name) if name not in ("that", "what", "chat") else name
    return stem in GREEK or bool(re.fullmatch(r"[A-Za-z]\d*|d[A-Z]|[A-Z]{2,3}", stem))


# ---- writing


def mathml(text: str, stacked: bool = False) -> str:
    """A formula as MathML, with its plain text for those who cannot see it."""
    atoms, _ = _atoms(_tokens(text), 0, "", stacked)
    kind = ' displaystyle="true"' if stacked else ""
    escaped = escape(" ".join(text.split()))
    return f'<math{kind} alttext="{escaped}"><mrow>{"".join(atoms)}</mrow></math>'


def _tokens(text: str) -> list[re.Match[str]]:
    tokens: list[re.Match[str]] = []
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"{text[at : at + 9]!r} of the formula {text!r} cannot be typeset")
        tokens.append(match)
        at = match.end()
    return tokens


class Atom(str):
    """MathML of one thing. `unit`: may be a side of a fraction; `inner`: without its brackets."""

    unit: bool = False
    inner: str = ""
    slash: bool = False
    gap: str = ""
    function: bool = False


def _atom(
    text: str, unit: bool = False, inner: str = "", slash: bool = False, gap: str = ""
) -> Atom:
    made = Atom(text)
    made.unit, made.inner, made.slash, made.gap = unit, inner or text, slash, gap
    return made


def _atoms(
    tokens: Sequence[re.Match[str]], at: int, until: str, stacked: bool
) -> tuple[list[Atom], int]:
    """The things up to the bracket that closes this level, and where that is."""
    made: list[Atom] = []
    while at < len(tokens):
        token = tokens[at]
        kind = token.lastgroup if token.lastgroup not in ("accent", "prime") else "name"
        if kind == "close" and until:
            break
        if kind == "close":  # it closes nothing here, as in an interval that is half open
            made.append(_atom(_mo(token[0])))
        elif kind == "open":
            inner, at = _atoms(tokens, at + 1, "close", stacked)
            closing = tokens[at][0] if at < len(tokens) else ""
            body = "".join(inner)
            group = _atom(f"<mrow>{_mo(token[0])}{body}{_mo(closing)}</mrow>", True,
                          f"<mrow>{body}</mrow>" if token[0] == "(" else "")  # fmt: skip
            called = made and (made[-1].unit or made[-1].function) and token[0] in "(["
            if made and "<mi>sqrt</mi>" in made[-1] and token[0] == "(":
                made[-1] = _atom(f"<msqrt>{group.inner}</msqrt>", True)
                at += 1
                continue
            if called and "<mn>" not in made[-1]:
                group = _atom(f"<mrow>{made.pop()}{group}</mrow>", True)
            made.append(group)
        elif kind == "space":
            wide = len(token[0]) > 2
            made.append(_atom('<mspace width="1.5em"/>' if wide else "", gap=token[0]))
        elif kind in ("sub", "sup"):
            _index(made, token)
        elif kind == "operator":
            made.append(_atom(_mo(OPERATORS.get(token[0], token[0])), slash=token[0] == "/"))
        elif kind == "number":
            made.append(_atom(f"<mn>{token[0]}</mn>", True))
        else:
            made.append(_symbol(token))
        at += 1
    return (_stacked(made) if stacked else made), at


def _symbol(token: re.Match[str]) -> Atom:
    name = token["name"]
    if name in BIG:
        return _atom(f"<mo>{BIG[name]}</mo>")
    mark = next((a for a in ACCENTS if name.endswith(a) and name != a), "")
    stem = name.removesuffix(mark) if mark else name
    letter = GREEK.get(stem, stem)
    text = f"<mi>{escape(letter)}</mi>"
    if mark:
        text = f"<mover>{text}<mo>{ACCENTS[mark]}</mo></mover>"
    if token["accent"]:
        text = f"<mover>{text}<mo>~</mo></mover>"
    if token["prime"]:
        text = f"<msup>{text}<mo>{'′' * len(token['prime'])}</mo></msup>"
    if name in FUNCTIONS:
        made = _atom(text + THIN)
        made.function = True
        return made
    return _atom(text, True)


def _index(made: list[Atom], token: re.Match[str]) -> None:
    """Puts an index or a power to what stands before it."""
    base = made.pop() if made else _atom("<mrow></mrow>")
    inside = token[0][1:]
    inside = inside[1:-1] if inside.startswith("{") else inside
    atoms, _ = _atoms(_tokens(inside), 0, "", False)
    body = f"<mrow>{''.join(atoms)}</mrow>"
    tag = "msub" if token["sub"] else "msup"
    if "∑" in base or "∏" in base:
        tag = "munder" if token["sub"] else "mover"
    if base == "<mi>S</mi>" and body == "<mrow><mi>hat</mi></mrow>":
        made.append(_atom("<mover><mi>S</mi><mo>^</mo></mover>", True))
        return
    whole = _atom(
        f"<{tag}>{base.removesuffix(THIN)}{body}</{tag}>" + THIN * base.function, base.unit
    )
    whole.function = base.function
    made.append(whole)


def _stacked(atoms: Sequence[Atom]) -> list[Atom]:
    """The things with their fractions stacked."""
    made = list(atoms)
    at = 0
    while at < len(made):
        if not made[at].slash:
            at += 1
            continue
        left, right = at - 1, at + 1
        while left >= 0 and made[left].gap:
            left -= 1
        while right < len(made) and made[right].gap:
            right += 1
        sides = left >= 0 and right < len(made) and made[left].unit and made[right].unit
        differential = sides and made[right] in ("<mi>d</mi>", "<mi>dt</mi>")
        after = made[right + 1] if right + 1 < len(made) else _atom("")
        power = after.slash or (sides and not after.gap and after.unit)
        joined = left > 0 and made[left - 1].unit  # as in 2p / q: the side is not one thing
        outer = next((a for a in reversed(made[: max(left, 0)]) if not a.gap), _atom(""))
        if sides and not (differential or power or joined or outer.function):
            whole = f"<mfrac>{made[left].inner}{made[right].inner}</mfrac>"
            made[left : right + 1] = [_atom(whole, False)]
            at = left
        at += 1
    return made


def _mo(text: str) -> str:
    still = ' stretchy="false"' if text in ("(", ")", "[", "]", "|", "{", "}") else ""
    return f"<mo{still}>{escape(text)}</mo>" if text else ""


# ---- a docstring


def article(text: str) -> str:
    """The HTML of a docstring: paragraphs as prose, indented lines as lines of their own."""
    made: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.splitlines()
        part: list[str] = []
        indented = False
        for line in [*lines, None]:
            deep = line is not None and line.startswith("    ")
            if part and (line is None or deep != indented):
                made.append(_lines(part) if indented else f"<p>{mixed(' '.join(part))}</p>")
                part = []
            if line is not None:
                indented = deep
                part.append(line if deep else line.strip())
    return "\n".join(made)


def _lines(lines: Sequence[str]) -> str:
    """Indented lines: of formulas, of a small table, or of commands, which stay as they are."""
    if any(re.match(r"\s+(palaestra |pl\.|import |from |pip )", line) for line in lines):
        body = "\n".join(line[4:] for line in lines)
        return f"<pre><code>{escape(body)}</code></pre>"
    rows = "".join(f"<div>{_cells(line.strip())}</div>" for line in lines)
    return f'<div class="formula">{rows}</div>'


def _cells(line: str) -> str:
    """A line, wide gaps kept."""
    return '<span class="gap"></span>'.join(mixed(part, True) for part in re.split(r"\s{3,}", line))
