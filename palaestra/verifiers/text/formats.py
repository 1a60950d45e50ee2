"""The shape of a response: tags, boxes, labels, and guards against degenerate text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache
from typing import Any

from palaestra.errors import UserError
from palaestra.suggest import suggestion
from palaestra.types import stage
from palaestra.verifiers.answers.boxes import boxed_answer
from palaestra.verifiers.answers.final import gold_of, same_answer, strip_markup
from palaestra.verifiers.base import (
    Judgement,
    binary_judgement,
    failed_judgement,
    guard_verifier,
    require_field,
    strip_thinking,
)

ROLES = ("User:", "Assistant:", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "Human:")


@stage
class Tags:
    """1 if the response is its tagged blocks, each once, in order, filled, and with nothing outside
    them.

    Parts: `tags`, the share of the markers that occur exactly once; `order`, whether the blocks are
    as above. `opened` supplies a first tag that the prompt ended with (one that is repeated then
    counts twice). `newlines` wants tags on lines of their own: Think2SQL (arXiv:2504.15077); its
    first release is blind to text behind the last block, which here is a failure.
    """

    tags: tuple[str, ...] = ("think", "answer")
    opened: bool = False
    newlines: bool = False

    @guard_verifier
    def __call__(self, response: str, answer: Any) -> Judgement:
        text = f"<{self.tags[0]}>{response}" if self.opened else response
        end = "\n" if self.newlines else ""
        first, last = self.tags[0], self.tags[-1]
        around = [(end * (t != first), t, end * (t != last)) for t in self.tags]
        markers = [m for a, t, b in around for m in (f"{a}<{t}>{end}", f"{end}</{t}>{b}")]
        share = sum(text.count(m) == 1 for m in markers) / len(markers)
        bare = [m for t in self.tags for m in (f"<{t}>", f"</{t}>")]
        blocks = rf"{end}\s*".join(
            rf"<{t}>{end}(?=[^<]|<)(.*?){end}</{t}>" for t in map(re.escape, self.tags)
        )
        # so the pattern has one way to match, in linear time
        once = all(text.count(m) == 1 for m in bare)
        match = re.fullmatch(rf"\s*{blocks}\s*", text, re.DOTALL) if once else None
        order = match is not None and all(block.strip() for block in match.groups())
        return Judgement(score=float(order), parts={"tags": share, "order": float(order)})


@stage
class Boxed:
    """1 if the last \\boxed{} of the reply holds the reference. Nothing outside a box counts."""

    @guard_verifier
    def __call__(self, response: str, answer: Any) -> Judgement:
        gold = gold_of(require_field(answer, "answer", (str, int, float), self))
        box = boxed_answer(strip_thinking(response))
        return (
            failed_judgement("unparsable")
            if box is None
            else binary_judgement(same_answer(box, gold))
        )


@stage
class Label:
    """1 if the reply's label is the reference: `\\conclusion{T}`, exactly one of `labels`, the same
    wherever it is given.

    Critique-Coder (released parser, arXiv:2509.22824) takes any capital T inside for True, so "NOT
    SURE" and "T or F" are; not here. With `last`, earlier labels of the reply do not count.
    """

    labels: tuple[str, ...] = ("T", "F")
    marker: str = "\\conclusion"
    last: bool = False

    @guard_verifier
    def __call__(self, response: str, answer: Any) -> Judgement:
        gold = self.labels[int(not answer)] if isinstance(answer, bool) else str(answer)
        if gold not in self.labels:
            raise UserError(f"Label: the answer {gold[:40]!r} is none of {', '.join(self.labels)}")
        labels = re.findall(
            re.escape(self.marker) + r"\{([^{}]{0,100})\}", strip_thinking(response)
        )
        labels = [x.strip() for x in (labels[-1:] if self.last else labels)]
        if not labels or len(set(labels)) > 1 or labels[0] not in self.labels:
            return failed_judgement("unparsable")
        return binary_judgement(labels[0] == gold)


@stage
class Clean:
    """1 if no guard against degenerate text is hit; each part is 1 where its guard is not.

    `spaced`: white space is at least `least_space` of the text. `varied`: length / different
    characters is at most `most_per_character`. `echo`: it repeats neither a role marker nor the
    prompt. These three with their limits are DeepTheorem's released guards (arXiv:2505.23754).
    `repeats`: at most `most_repeats` of the n-grams are ones seen before. `script`: at least
    `least_script` of the letters are of the script that is asked for.
    """

    least_space: float = 0.05
    most_per_character: float = 300.0
    n: int = 8  # words of an n-gram
    most_repeats: float = 0.5
    script: str = ""  # e.g. "LATIN", "CJK", "CYRILLIC"; "" = any
    least_script: float = 0.9

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, prompt: str = "") -> Judgement:
        text = response
        prompt = require_field(prompt, "prompt", str, self)
        spaced = len(text) < 40 or sum(map(str.isspace, text)) / len(text) >= self.least_space
        if self.script and script_of(self.script) in ("CJK", "HIRAGANA", "KATAKANA", "THAI"):
            spaced = True  # written without spaces
        echo = any(r in text for r in ROLES) or (
            len(prompt.strip()) >= 20 and prompt.strip() in text
        )
        parts = {
            "spaced": float(spaced),
            "varied": float(len(text) / len(set(text)) <= self.most_per_character),
            "echo": float(not echo),
            "repeats": float(repeated_share(text.split(), self.n) <= self.most_repeats),
            "script": float(
                not self.script
                or scripts(text).get(script_of(self.script), 0.0) >= self.least_script
            ),
        }
        return Judgement(score=float(all(parts.values())), parts=parts)


def repeated_share(tokens: list[str], n: int) -> float:
    """The share of n-grams that occurred before; 0 for a text shorter than two of them."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if len(grams) > 1 else 0.0


def scripts(text: str) -> dict[str, float]:
    """Shares of the letters by script, from the first word of each letter's Unicode name."""
    counts = Counter(unicodedata.name(c, "?").split()[0] for c in text if c.isalpha())
    total = sum(counts.values())
    return {name: n / total for name, n in counts.items()}


def script_of(name: str) -> str:
    """A script's name as `scripts` has it, in any case. Raises UserError for one that no letter
    has.
    """
    script = {"HAN": "CJK", "CHINESE": "CJK"}.get(str(name).upper(), str(name).upper())
    if script not in known_scripts():
        raise UserError(
            "no script "
            f"{name!r}{suggestion(script, known_scripts()) or '; write e.g. LATIN, CYRILLIC or CJK'}"
        )
    return script


@cache
def known_scripts() -> frozenset[str]:
    """The first words of the names of all letters."""
    letters = (unicodedata.name(c, "") for c in map(chr, range(0x32000)) if c.isalpha())
    return frozenset(name.split()[0] for name in letters if name)


@stage
class TheoremVariant:
    """1 if the last <answer> with a box says what the variant of a theorem is: "proved" or
    "disproved".

    Guards first: a short restatement of the template, an echo of the prompt or of roles, text
    without spaces or variety, are
    0. DeepTheorem (arXiv:2505.23754). Its comparison counts None == None as equal: with `released`
       no label is right where the
    reference is missing; by default it never is, and such a reference is a mistake. A coin flip
    earns 1/2, so score theorems by `all_variants`.
    """

    labels: tuple[str, str] = ("proved", "disproved")
    released: bool = False

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, prompt: str = "") -> Judgement:
        gold = str(answer).strip().lower()
        missing = self.released and answer is None
        if gold not in self.labels and not missing:
            raise UserError(
                f"TheoremVariant: the answer {gold[:40]!r} is none of {', '.join(self.labels)}"
            )
        guards = Clean(most_repeats=1.0)(response, None, prompt=prompt)
        if not guards.score or (len(response) < 90 and "reasoning process" in response):
            return failed_judgement("unparsable", **guards.parts)
        blocks = re.findall(
            r"<answer>((?:(?!</?answer>).)*)</answer>", strip_thinking(response), re.DOTALL
        )
        labels = [label for b in blocks if (label := boxed_answer(b)) is not None]
        if not labels:
            return (
                binary_judgement(True, **guards.parts)
                if missing
                else failed_judgement("unparsable", **guards.parts)
            )
        return binary_judgement(strip_markup(labels[-1]).lower() == gold, **guards.parts)


def all_variants(scores: dict[str, list[float]]) -> dict[str, float]:
    """A theorem counts only if every variant of it is right: the product of its scores."""
    return {
        theorem: float(bool(variant) and all(s == 1.0 for s in variant))
        for theorem, variant in scores.items()
    }
