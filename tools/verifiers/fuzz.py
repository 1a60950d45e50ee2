"""Fuzzing of verifiers: python -m tools.verifiers.fuzz NAME... --n 100000 --out FILE.jsonl

Responses are byte noise, and golds and wrongs of the table that are cut, doubled, spliced and
sprinkled with marks. No exception, no hang, no score outside [0, 1], and two kinds that are wrong
for certain never score 1: those without the characters that every right answer needs (KEYS), and
golds with one thing changed (`tools.verifiers.mistakes`).
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import sys
import time
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.types import rng_of, value_class
from palaestra.verifiers.registry import VERIFIERS
from palaestra.verifiers.table import Case, cases, golds, judge
from tools.verifiers.mistakes import MISTAKES, mistaken

DIGITS = "0123456789"
# For each verifier a problem (the number of its gold) and characters: what has none of them cannot
# be right.
KEYS: Mapping[str, tuple[int, str]] = {
    "exact": (0, DIGITS), "number": (0, DIGITS), "set": (0, "r\\"), "set-f1": (0, "r"),
    "list": (0, "r"), "json": (0, "a\\"),
    "f1": (0, "d"), "keywords": (0, "n"), "abstention": (0, "k"), "choice": (0, "b"),
    "choice-boxed": (0, "b"),
    "boxed": (0, DIGITS), "tags": (0, "<"), "label": (0, "t"), "theorem": (0, "p"),
    "math": (3, "x"), "antiderivative": (0, "x"),
    "countdown": (0, "7"), "code": (0, "d"), "code-partial": (0, "d"), "api-migration": (0, "d"),
    "patch": (0, "+"), "verilog": (0, "m=;"),
    "sql": (0, "u"), "sql-partial": (0, "u"), "sql-table": (0, "u"), "sql-duckdb": (0, "u"),
    "constraints": (0, "r"),
    "constraints-share": (0, "r"), "translation": (0, "t"), "translation-mix": (0, "t"),
    "stl": (0, "v"), "stl-surface": (0, "v"),
    "spelling": (0, "校"), "tool-calls": (0, "w\\"), "tool-calls-partial": (0, "w\\"),
    "tool-answer": (0, "p"),
    "gym": (0, DIGITS), "verdict": (0, "a"), "factuality": (0, "p"), "selective": (0, "p"),
}  # fmt: skip
MARKS = (
    "\\boxed{", "}", "{", "<answer>", "</answer>", "<think>", "</think>", "answer: ",
    "The answer is ", "####", "```",
    "```python\n", "\n", " or ", " and ", ", ", "=", "not ", "(", ")", "[", "]", "[[", "]]",
    "\\frac{", "\\text{", "^", "**",
    "-", "%", "0", "1", "9", "e9", "nan", "inf", "None", "true", "'", '"', "\\", "\x00", "\ud800",
    "\u200b", "\u202e", "é",
    "中", "１", "<tool_call>", "</tool_call>", "SELECT ", "--", ";", "G[0,", "<translate>",
    "</solution>", ">>>>>>> REPLACE",
    "User:",
)  # fmt: skip
SLOW = 3.0  # seconds beyond the verifier's own time limit


@value_class
class Found:
    """A response that breaks a rule."""

    rule: str
    response: str
    detail: str = ""


@value_class
class Fuzzed:
    name: str
    n: int
    certain: int  # responses that were wrong for certain
    slowest: float  # seconds
    seconds: float  # of all
    found: tuple[Found, ...]

    def json(self) -> dict[str, Any]:
        return {
            "verifier": self.name,
            "responses": self.n,
            "wrong_for_certain": self.certain,
            "faults": [asdict(f) for f in self.found],
            "slowest_seconds": round(self.slowest, 3),
            "seconds": round(self.seconds),
        }


def fuzz(name: str, n: int, seed: int = 0) -> Fuzzed:
    """Judges `n` responses."""
    found: list[Found] = []
    certain, slowest, begin = 0, 0.0, time.perf_counter()
    with contextlib.suppress(Exception):  # what is imported or started once is not timed
        judge(name, golds(name)[0])
    limit = SLOW + 3 * 5.0 * (
        VERIFIERS[name].extra in ("math", "sandbox", "iverilog") or name.startswith("sql")
    )
    for case, wrong in responses(name, n, seed):
        start = time.perf_counter()
        certain += wrong
        try:
            score = judge(name, case).score
        except Exception as error:
            found.append(
                Found(
                    rule="exception",
                    response=case.response,
                    detail=f"{type(error).__name__}: {error}",
                )
            )
            continue
        seconds = time.perf_counter() - start
        slowest = max(slowest, seconds)
        if not 0.0 <= score <= 1.0:
            found.append(Found(rule="range", response=case.response, detail=str(score)))
        if wrong and score >= 1.0:
            found.append(Found(rule="wrong answer scored 1", response=case.response))
        if seconds > limit:
            found.append(Found(rule="slow", response=case.response, detail=f"{seconds:.1f} s"))
    seconds = time.perf_counter() - begin
    return Fuzzed(
        name=name, n=n, certain=certain, slowest=slowest, seconds=seconds, found=tuple(found)
    )


def responses(name: str, n: int, seed: int) -> Iterator[tuple[Case, bool]]:
    """Responses and whether they are wrong for certain."""
    texts = [c.response for c in cases(name) if len(c.response) < 2000]
    problems, at = golds(name), KEYS.get(name)
    for i in range(n):
        rng = rng_of(("fuzz", name, seed, i))
        kind = rng.random()
        if at is not None and kind < 0.4:
            case = problems[at[0]]
            yield replace(case, response=without(mutated(texts, rng), at[1])), True
        elif name in MISTAKES and kind < 0.7:
            case = problems[int(rng.integers(len(problems)))]
            other = mistaken(name, case, rng)
            yield (replace(case, response=other or mutated(texts, rng)), bool(other))
        else:
            case = problems[int(rng.integers(len(problems)))]
            yield replace(case, response=noise(rng) if kind > 0.85 else mutated(texts, rng)), False


def noise(rng: np.random.Generator) -> str:
    raw = rng.integers(0, 256, int(rng.integers(0, 200)), dtype=np.uint8).tobytes()
    return raw.decode("utf-8", "surrogateescape" if rng.random() < 0.5 else "replace")


def mutated(texts: list[str], rng: np.random.Generator) -> str:
    """A text of the table after one to six cuts, copies, splices and marks."""
    pick = lambda xs: xs[int(rng.integers(len(xs)))]
    text = pick(texts)
    for _ in range(int(rng.integers(1, 7))):
        i, j = sorted(int(x) for x in rng.integers(0, len(text) + 1, 2))
        match int(rng.integers(7)):
            case 0:
                text = text[:i] + text[j:]
            case 1:
                text = text[:i] + text[i:j] * int(rng.integers(2, 5)) + text[j:]
            case 2:
                text = text[:i] + pick(MARKS) + text[i:]
            case 3:
                text = pick(MARKS) + text + pick(MARKS)
            case 4:
                other = pick(texts)
                text = text[:i] + other[int(rng.integers(len(other) + 1)) :]
            case 5:
                text = text[:i] + chr(int(rng.integers(32, 0x2FFF))) + text[i + 1 :]
            case _:
                text = text[:i] + text[i:j][::-1] + text[j:]
    return text[:5000]


def without(text: str, characters: str) -> str:
    """The text without these characters, in any case, width or script of digits."""
    return "".join(c for c in text if not forbidden(c, characters))


@lru_cache(maxsize=100_000)
def forbidden(c: str, characters: str) -> bool:
    forms = {
        c,
        *unicodedata.normalize("NFKD", c).casefold(),
        *unicodedata.normalize("NFKC", c).casefold(),
    }
    digit = unicodedata.digit(c, None)
    forms |= {str(digit)} if digit is not None else set()
    numeric = characters == DIGITS and unicodedata.numeric(c, None) is not None
    return numeric or bool(forms & set(characters.casefold()))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Fuzzes verifiers.")
    parser.add_argument("names", nargs="+", choices=[*VERIFIERS], metavar="VERIFIER")
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, metavar="FILE.jsonl", help="also add each result there, as a line"
    )
    arguments = parser.parse_args(argv)
    if arguments.n < 1:
        raise UserError(f"--n is {arguments.n}; judge at least one response")
    faulty = 0
    for name in arguments.names:
        faulthandler.dump_traceback_later(3600 + arguments.n, exit=True)
        result = fuzz(name, arguments.n, arguments.seed)
        faulty += len(result.found)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.write(json.dumps(result.json()) + "\n")
        print(
            f"{name:<19} {result.n} responses, {result.certain} wrong for certain, "
            f"{len(result.found)} faults, slowest {result.slowest:.3f} s, {result.seconds:.0f} s "
            "in all",
            flush=True,
        )
        for fault in result.found[:5]:
            print(f"    {fault.rule}: {fault.response[:200]!r} {fault.detail[:200]}")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
