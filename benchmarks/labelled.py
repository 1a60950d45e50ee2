"""Answers with a label, right or wrong, that no checker gave: by exact arithmetic, by counting, by
values of a polynomial at points, or by the way in which an answer was made.

    draw_cases(seed, n) -> cases, up to n of each kind, about half of them wrong

The answers of a kind are what models write: the same value in several notations, and what is near
it and is another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from palaestra.types import rng_of, value_class

Draft: TypeAlias = tuple[Any, str, bool]  # reference, answer, right
Maker: TypeAlias = Callable[[np.random.Generator], list[Draft]]
NOUNS = ("apples", "people", "books", "marbles", "students", "tickets")


@value_class
class LabelledAnswer:
    """An answer to be judged."""

    kind: str
    gold: Any  # what the reference is; a list for set and list
    said: str
    right: bool
    # it stands as it is; else it is put where a checker looks for an answer
    whole: bool = False
    verifier: str = "math"  # ours
    fields: Mapping[str, Any] | None = None


def whole_number(rng: np.random.Generator, low: int = 2, high: int = 99) -> int:
    return int(rng.integers(low, high + 1))


def one_of(rng: np.random.Generator, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def numbers(rng: np.random.Generator) -> list[Draft]:
    """Whole numbers in other notations, and others."""
    n = whole_number(rng, 1000, 99_999)
    near = [n + 1, n - 1, n * 10, -n, int(str(n)[::-1]), n // 10]
    same = [f"{n}", f"{n:,}", f"{n}.0", f"{n:,}".replace(",", "{,}"), f"+{n}", f"{2 * n}/2"]
    wrong = [str(x) for x in near if x != n]
    wrong += [f"{n}\\%", f"{n} \\text{{ or }} {n + 1}", f"{n}, {n + 1}", f"{n}!", f"{n}^2"]
    return [(str(n), x, True) for x in same] + [(str(n), x, False) for x in wrong]


def fractions(rng: np.random.Generator) -> list[Draft]:
    """Fractions, labelled by exact arithmetic."""
    value = Fraction(whole_number(rng, 1, 40), one_of(rng, (3, 4, 5, 7, 8, 9)))
    gold = f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
    drafts: list[Draft] = []
    for _ in range(12):
        a, b = value.numerator, value.denominator
        k, shift = whole_number(rng, 1, 5), one_of(rng, (0, 0, 1, -1))
        command = one_of(rng, ("\\frac", "\\dfrac", "\\tfrac", "\\cfrac"))
        a, b = (a * k + shift, b * k) if rng.random() < 0.8 else (b, a)
        text = one_of(rng, (f"{command}{{{a}}}{{{b}}}", f"{a}/{b}", f"{command} {{{a}}} {{{b}}}"))
        drafts.append((gold, text, Fraction(a, b) == value))
    if (value * 1000).denominator == 1:
        drafts += [(gold, f"{float(value)}", True), (gold, f"{float(value) + 0.001:.3f}", False)]
    return drafts


def amounts(rng: np.random.Generator) -> list[Draft]:
    """Words beside a number that make another of it, labelled by the value that they say."""
    n = whole_number(rng, 3, 60)
    scaled = {
        "thousand": 10**3, "million": 10**6, "billion": 10**9, "dozen": 12, "hundred": 100,
        "lakh": 10**5, "crore": 10**7, "gross": 144, "pairs": 2, "tens": 10, "score": 20,
    }  # fmt: skip
    behind, factor = one_of(rng, list(scaled.items()))
    amount = f"{n} {behind}"
    before = one_of(
        rng, ("half of", "minus", "twice", "a third of", "negative", "double", "triple")
    )
    drafts: list[Draft] = [
        (str(n), amount, False),
        (str(n), f"{n}\\text{{ {behind}}}", False),
        (str(n), f"{before} {n}", False),
        (str(n), f"{n} percent", False),
        (str(n), f"{n} halves", False),
        (str(n), f"{n} and a half", False),
        (str(n), f"{n} point five", False),
        (str(n), f"{n} squared", False),
        (f"-{n}", f"minus {n}", True),
        (f"{n}\\%", f"{n} percent", True),
        (f"{n}\\%", f"{n} per cent", True),
        (f"{n}\\%", f"{n}\\text{{ percent}}", True),
        (str(n), f"{n}", True),
    ]
    if behind in ("thousand", "million", "billion", "dozen", "hundred"):
        drafts += [(str(n * factor), amount, True), (str(n * factor + factor), amount, False)]
    return drafts


def units(rng: np.random.Generator) -> list[Draft]:
    """Units behind a number, and another unit than the reference's."""
    n = whole_number(rng)
    sizes = {"cm": 1, "m": 100, "km": 100_000, "mm": 0.1}
    a, b = (str(x) for x in rng.choice(list(sizes), 2, replace=False))
    unit = one_of(rng, ("cm", "kg", "meters", "hours", "square feet", "km/h", "dollars", "degrees"))
    noun = one_of(rng, NOUNS)
    return [
        (str(n), f"{n}\\text{{ {unit}}}", True),
        (str(n), f"{n} \\, \\mathrm{{{unit}}}", True),
        (str(n), f"{n} {noun}", True),
        (str(n), f"{n}\\text{{ {noun}}}", True),
        (str(n), f"\\${n}", True),
        (f"{n}\\text{{ {a}}}", f"{n}\\text{{ {a}}}", True),
        (f"{n}\\text{{ {a}}}", f"{n}\\text{{ {b}}}", False),
        (f"{n}\\text{{ {a}}}", f"{n}\\text{{ {a}}}^2", False),
        (str(n), f"{n + 1}\\text{{ {unit}}}", False),
        (str(n), f"{n}x", False),
        (str(n), f"{n}\\text{{ {one_of(rng, ('myriad', 'grosses', 'decads', 'zillion'))}}}", False),
        (
            str(n),
            f"{n}\\text{{ {one_of(rng, ('more than that', 'less', 'times as many'))}}}",
            False,
        ),
    ]


def digits_of(n: int, base: int) -> str:
    digits = ""
    while n:
        digits = "0123456789ABCDEF"[n % base] + digits
        n //= base
    return digits


def bases(rng: np.random.Generator) -> list[Draft]:
    """Numbers in a base, labelled by their value and base."""
    n, base = whole_number(rng, 20, 500), one_of(rng, (2, 3, 5, 8, 16))
    other = one_of(rng, [b for b in (4, 6, 7, 9) if digits_of(n, base).isdecimal()] or [12])
    text = digits_of(n, base)
    gold = f"{text}_{{{base}}}"
    plain = next(d for d in (text, f"1{text}") if d[0] != "0")
    return [
        (gold, f"{text}_{{{base}}}", True),
        (gold, f"{text}_{{\\text{{{base}}}}}" if base < 10 else gold, True),
        (gold, f"{text}_{base}" if base < 10 else gold, True),
        (gold, f"({text})_{{{base}}}", True),
        (gold, plain, False),
        (gold, f"{text}_{{{other}}}", False),
        (gold, f"{digits_of(n + 1, base)}_{{{base}}}", False),
        (gold, f"{digits_of(n * base, base)}_{{{base}}}", False),
        (f"0x{n:x}", f"0x{n:X}", True),
        (f"0x{n:x}", f"0x{n + 1:x}", False),
        (f"0b{n:b}", f"{n:b}", False),
    ]


def polynomial(terms: Mapping[int, int], name: str) -> str:
    """Coefficients by degree as text, in the order given."""
    polynomial_terms = ""
    for degree, factor in terms.items():
        power = {0: "", 1: name}.get(degree, f"{name}^{{{degree}}}")
        size = "" if abs(factor) == 1 and degree else str(abs(factor))
        polynomial_terms += (" - " if factor < 0 else " + ") + size + power
    return polynomial_terms.removeprefix(" + ").strip()


def formulas(rng: np.random.Generator) -> list[Draft]:
    """Polynomials in another order, with another coefficient, sign, degree or letter; two are one
    where coefficients by degree are.
    """
    name = one_of(rng, ("x", "y", "n", "t"))
    degrees = sorted({int(d) for d in rng.choice(5, 3, replace=False)} | {1}, reverse=True)
    terms = {d: whole_number(rng, 1, 9) * one_of(rng, (1, -1)) for d in degrees}
    gold = polynomial(terms, name)
    drafts: list[Draft] = [(gold, polynomial(terms, name.upper()), False)]
    drafts += [(gold, polynomial(terms, one_of(rng, [c for c in "xynt" if c != name])), False)]
    for _ in range(10):
        changed = dict(terms)
        at = one_of(rng, degrees)
        match int(rng.integers(6)):
            case 0:
                changed[at] += one_of(rng, (1, -1))
            case 1:
                changed[at] = -changed[at]
            case 2:
                changed[at + 5] = changed.pop(at)
            case _:
                pass
        shuffled = {int(d): changed[int(d)] for d in rng.permutation(list(changed))}
        clean = {d: c for d, c in shuffled.items() if c}
        drafts.append((gold, polynomial(clean, name), clean == terms))
    return drafts


def letters(rng: np.random.Generator) -> list[Draft]:
    """Formulas in letters of both cases, and names."""
    a, b = (str(x) for x in rng.choice(list("pqrstuvxyz"), 2, replace=False))
    k = whole_number(rng, 2, 9)
    gold = one_of(rng, (f"{k}{a}{b}", f"{a}^{k} + {b}", f"\\frac{{{a}}}{{{b}}}", f"{a} - {k}{b}"))
    mixed = gold.replace(a, a.upper()) if gold.count(a) == 1 else gold.upper()
    return [
        (gold, gold, True),
        (gold, mixed, False),
        (mixed, gold, False),
        (f"{a} + {a.upper()}", f"{a.upper()} + {a}", True),
        (f"{a} + {a.upper()}", f"2{a}", False),
        (f"{a}_{k}", f"{a.upper()}_{k}", False),
        (f"{a.upper()}", a, False),
        ("\\text{Monday}", "\\text{monday}", True),
        ("\\text{Monday}", "\\text{Tuesday}", False),
    ]


def derivatives(rng: np.random.Generator) -> list[Draft]:
    """Primes, as many or another number of them."""
    f, k = one_of(rng, list("fgyhu")), whole_number(rng, 2, 9)
    n, m = (int(x) for x in rng.choice(4, 2, replace=False))
    marks = lambda times: "'" * times
    primes = lambda times: "^{" + "\\prime" * times + "}" if times else ""
    return [
        (f"{f}{marks(n)}(x)", f"{f}{marks(n)}(x)", True),
        (f"{f}{marks(n)}(x)", f"{f}{primes(n)}(x)", True),
        (f"{f}{marks(n)}(x)", f"{f}{marks(m)}(x)", False),
        (f"{f}{marks(n)}(x)", f"{f}{primes(m)}(x)", False),
        (f"{k}{f}{marks(n)} + 1", f"1 + {k}{f}{marks(n)}", True),
        (f"{k}{f}{marks(n)} + 1", f"1 + {k}{f}{marks(m)}", False),
    ]


def lists(rng: np.random.Generator) -> list[Draft]:
    """Several values in any order, each as often as it stands; labelled by counting."""
    items = sorted({whole_number(rng, 1, 30) for _ in range(whole_number(rng, 2, 4))})
    items = [*items, items[0] + 50]
    drafts: list[Draft] = []
    gold = ", ".join(map(str, items))
    joined = lambda xs, how: how.join(map(str, xs))
    for _ in range(8):
        listing = [int(x) for x in rng.permutation(items)]
        match int(rng.integers(8)):
            case 0:
                listing.append(one_of(rng, listing))
            case 1:
                listing.pop()
            case 2:
                listing[0] += 1
            case 3:
                listing[0] = listing[1]
            case _:
                pass
        right = sorted(listing) == sorted(items)
        text = one_of(
            rng,
            (
                joined(listing, ", "),
                joined(listing, ",\\quad "),
                f"\\{{{joined(listing, ', ')}\\}}",
            ),
        )
        if not listing[1:]:
            continue
        drafts.append((gold, text, right))
    a, b = items[:2]
    return [
        *drafts,
        (f"x={a}, x={b}", f"x={b} \\text{{ or }} x={a}", True),
        (f"x={a}, y={b}", f"x={b}, y={a}", False),
        (f"{a}, {a}, {b}", f"{a}, {b}", False),
        (f"{a}, {a}, {b}", f"{a}, {b}, {a}", True),
    ]


def tuples(rng: np.random.Generator) -> list[Draft]:
    """Ordered pairs and intervals: the order and the brackets count."""
    a, b = sorted(int(x) for x in rng.choice(40, 2, replace=False))
    c = b + whole_number(rng, 1, 9)
    return [
        (f"({a}, {b})", f"\\left({a},{b}\\right)", True),
        (f"({a}, {b})", f"({b}, {a})", False),
        (f"({a}, {b}, {c})", f"({a},\\ {b},\\ {c})", True),
        (f"({a}, {b}, {c})", f"({c}, {b}, {a})", False),
        (f"({a}, {a}, {b})", f"({a}, {b})", False),
        (f"[{a}, {b})", f"[{a},{b})", True),
        (f"[{a}, {b})", f"({a},{b}]", False),
        (f"[{a}, {b}]", f"[{a},{b})", False),
        (f"({a},{b}), ({b},{c})", f"({b},{c}), ({a},{b})", True),
        (f"({a},{b}), ({b},{c})", f"({b},{a}), ({c},{b})", False),
        (f"({a},{b}), ({b},{c})", f"({a},{b}), ({a},{b})", False),
    ]


def times(rng: np.random.Generator) -> list[Draft]:
    """Clock times, which are no ratios; labelled by hour and minute."""
    hour, minute = whole_number(rng, 1, 12), whole_number(rng, 10, 58)
    text = f"{hour}:{minute}"
    half = one_of(rng, ("AM", "PM"))
    ratio = Fraction(hour, minute)
    return [
        (text, text, True),
        (text, f"{hour:02d}:{minute}", True),
        (f"{text} \\text{{ {half}}}", f"{text} {half}", True),
        (f"{text} \\text{{ {half}}}", f"{text} {half[0].lower()}.m.", True),
        (text, f"{hour}:{minute + 1}", False),
        (text, f"{hour % 12 + 1}:{minute}", False),
        (text, f"\\frac{{{ratio.numerator}}}{{{ratio.denominator}}}", False),
        (text, f"{2 * hour}:{2 * minute}", False),
        (text, f"{hour}.{minute}", False),
        (f"{text} \\text{{ AM}}", f"{text} \\text{{ PM}}", False),
    ]


def boxes(rng: np.random.Generator) -> list[Draft]:
    """Several boxes, in the reference or the reply; as whole texts."""
    a, b, c = (int(x) for x in rng.choice(np.arange(2, 90), 3, replace=False))
    join = one_of(rng, (" and ", ", ", " \\text{ and } ", " \\quad "))
    gold = f"The roots are $\\boxed{{{a}}}$ and $\\boxed{{{b}}}$."
    both = f"$\\boxed{{{a}}}{join}\\boxed{{{b}}}$"
    return [
        (gold, both, True),
        (gold, f"\\boxed{{{b}, {a}}}", True),
        (gold, f"\\boxed{{{b}}}", False),
        (gold, f"\\boxed{{{a}}}", False),
        (gold, f"$\\boxed{{{a}}}{join}\\boxed{{{c}}}$", False),
        (f"{a}, {b}", both, True),
        (f"{b}", both, False),
        (f"{b}", f"$\\boxed{{{a}}}$ or $\\boxed{{{b}}}$", False),
        (
            f"{b}",
            f"First I found $\\boxed{{{a}}}$. That was a mistake: it is $\\boxed{{{b}}}$.",
            True,
        ),
        (f"{a}", f"$\\boxed{{{a}}}$ million", False),
    ]


def sentences(rng: np.random.Generator) -> list[Draft]:
    """An answer within a sentence, without a box; as whole texts."""
    a, b = (int(x) for x in rng.choice(np.arange(2, 60), 2, replace=False))
    right, wrong = (f"\\sqrt{{{x}}} + {k}" for x, k in ((a, b), (b, a)))
    start = one_of(rng, ("Therefore the length is", "Hence we get", "So the distance is equal to"))
    noun = one_of(rng, NOUNS)
    return [
        (right, f"{start} ${right}$.", True),
        (right, f"We square both sides.\n{start} \\({right}\\).", True),
        (right, f"The final answer is ${right}$. I hope it is correct.", True),
        (right, f"{start} ${wrong}$.", False),
        (right, f"{start} not ${right}$.", False),
        (right, f"{start} ${right}$ or ${wrong}$.", False),
        (right, f"It is ${right}$. No, {start[0].lower()}{start[1:]} ${wrong}$.", False),
        (str(a), f"After that there are {a} {noun} left.", True),
        (str(a), f"Answer: She has {a} {noun}.", True),
        (str(a), f"The answer is {b}, not {a}.", False),
        (str(a), f"There are {a} million {noun} left.", False),
        (str(a), f"She has half of {a}.", False),
        (str(a), f"The answer is {a} or {b}.", False),
    ]


def markup(rng: np.random.Generator) -> list[Draft]:
    """Spaces, sizes and decimal commas of LaTeX."""
    n, m = whole_number(rng, 1, 99), one_of(rng, (25, 75, 5, 125, 4))
    value = f"{n}.{m}"
    whole = n * 1000 + 234
    return [
        (value, f"{n},{m}" if m != 125 else value, True),
        (value, f"{n},{m + 1}", False),
        (str(n), f"\\quad {n} \\quad", True),
        (str(n), f"{n}\\quad{n + 1}", False),
        (str(whole), f"{whole // 1000},\\!{whole % 1000:03d}", True),
        (str(n), f"\\displaystyle {n}", True),
        (str(n), f"\\mathbf{{{n}}}", True),
        (f"{n}\\sqrt{{3}}", f"{n}\\sqrt3", True),
        (f"{n}\\sqrt{{3}}", f"\\sqrt{{3}}{n}", True),
        (f"{n}\\sqrt{{3}}", f"{n}\\sqrt{{3}}\\sqrt{{3}}", False),
        (f"x \\leq {n}", f"x <= {n}", True),
        (f"x \\leq {n}", f"{n} \\geq x", True),
        (f"x \\leq {n}", f"x < {n}", False),
        (f"x \\leq {n}", f"x \\geq {n}", False),
        (f"x \\neq {n}", f"x != {n}", True),
        (f"0.\\overline{{{m}}}", f"0.{m}", False),
    ]


def antiderivatives(rng: np.random.Generator) -> list[Draft]:
    """Antiderivatives by the rules of differentiation, and near ones."""
    k, n = whole_number(rng, 2, 9), whole_number(rng, 2, 6)
    small = f"10^{{-{whole_number(rng, 5, 9)}}}"
    power = (f"{k * (n + 1)}x^{{{n}}}", f"{k}x^{{{n + 1}}}")
    pairs = [
        power,
        (f"\\frac{{{k}}}{{x}}", f"{k}\\ln|x|"),
        (f"\\frac{{2x}}{{x^2-{k}}}", f"\\ln|x^2-{k}|"),
        (f"{k}\\cos({k}x)", f"\\sin({k}x)"),
        ("\\tan x", "-\\ln|\\cos x|"),
        (f"{k}e^{{{k}x}}", f"e^{{{k}x}}"),
    ]
    gold, answer = one_of(rng, pairs)
    return [
        (gold, f"{answer} + C", True),
        (gold, answer, True),
        (gold, f"{answer} + {small}x", False),
        (gold, f"{answer} + x", False),
        (gold, f"-({answer})", False),
        (gold, f"\\int {gold} \\, dx", False),
        (power[0], f"{k}.00001x^{{{n + 1}}}", False),
    ]


KINDS: Mapping[str, Maker] = {
    "numbers": numbers, "fractions": fractions, "amounts in words": amounts, "units": units,
    "bases": bases, "polynomials": formulas, "letters": letters, "primes": derivatives,
    "lists": lists, "pairs, intervals": tuples, "clock times": times, "several boxes": boxes,
    "sentences": sentences, "markup": markup, "antiderivatives": antiderivatives,
}  # fmt: skip
WHOLE = ("several boxes", "sentences")
OWN = {"antiderivatives": "antiderivative"}  # what other checkers have no counterpart of


def draw_cases(seed: int, n: int) -> list[LabelledAnswer]:
    """`n` cases of each kind, none twice; the same for the same seed."""
    cases: list[LabelledAnswer] = []
    for kind, make in KINDS.items():
        rng, seen = rng_of(("labelled", kind, seed)), dict[tuple[str, str], LabelledAnswer]()
        for _ in range(20 * n):
            for gold, answer, right in make(rng):
                case = LabelledAnswer(
                    kind=kind,
                    gold=gold,
                    said=answer,
                    right=right,
                    whole=kind in WHOLE,
                    verifier=OWN.get(kind, "math"),
                )
                seen.setdefault((str(gold), answer), case)
            if len(seen) >= n:
                break
        cases += list(seen.values())[:n]
    return cases
