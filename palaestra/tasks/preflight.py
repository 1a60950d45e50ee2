"""Silent faults of data: what no record shows alone, or no eye sees.

One pass, 16 bytes a record beside a few counts. A fault is told once, with how many records have it
and an example; a share that sane data has by chance is not told.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.sounds import Sound
from palaestra.tasks.option_bias import OptionBias
from palaestra.tasks.options import option_texts
from palaestra.tasks.picture_data import FORMS
from palaestra.types import Task

EXCERPT = 50  # characters
MOST_UNITS = 256  # different ones that are counted
LONGEST = 200  # characters of an answer that is looked for in prompts, or read for its words

BREAKS = str.maketrans("\n\r\t", "   ")
INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffd]"
    # joiners belong to other scripts and to emoji, not beside Latin letters
    "|(?<=[A-Za-z0-9])[\u200c\u200d]|[\u200c\u200d](?=[A-Za-z0-9])"
    "|(?<=[A-Za-z])[\u00a0\u202f](?=[A-Za-z])"
)
SPACES = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")  # of an answer: no typography there
CYRILLIC, GREEK = "асеорхуіјѕһԁАВЕЅІЈКМНОРСТХУ", "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧο"
ALIKE = re.compile(f"[A-Za-z][{CYRILLIC}{GREEK}]|[{CYRILLIC}{GREEK}][A-Za-z]|[\uff10-\uff5a]")
FOREIGN = re.compile(f"[{CYRILLIC}{GREEK}\uff10-\uff5a]+")  # an answer that only looks Latin
OWN_SCRIPT = re.compile("[\u0370-\u03ff\u0400-\u04ff\u3040-\u30ff\u4e00-\u9fff]")
MARK = re.compile(
    r"(?:\b(?:answer|solution|result|gold|truth)|####|\\boxed\{|<answer>)"
    r"[\s*_\"'`:=>$({-]{0,6}(?:(?:is|are|was)\b[\s*_\"'`:=>$({-]{0,6})?$",
    re.IGNORECASE,
)
# marks of turns in chat templates, which are text where they stand inside a message
TEMPLATED = re.compile(
    r"<\|(?:im_start|im_end|user|assistant|system|end|eot_id|start_header_id|begin_of_text)\|>"
    r"|<(?:start|end)_of_turn>|\[/?INST\]|<｜(?:User|Assistant)｜>"
)
EQUALS = re.compile(r"=\s*\$?$")
WORD = re.compile(r"[^\W\d_]{2,}")
CODE = re.compile(r"[{};\\]|\bdef |\breturn\b|\bimport |\b[A-Z]+ .*\bFROM\b")
NUMBER = re.compile(r"[-+]?\d[\d,.]*(?:/\d+)?")
WITH_UNIT = re.compile(
    r"[-+]?(?P<sign>[$€£])?\s*\d[\d,.]*(?:/\d+)?"
    r"(?:\s+(?P<word>(?![ap]\.?m\b)[A-Za-zµ°][A-Za-zµ°/²³^23]*)"
    r"|\s*(?P<unit>%|°[CF]?|[µmck]?m|[mk]?g|[mk]?s|[kM]?W|hrs?|min|mph|ft|lbs?|oz))?\.?"
)
LATEX = re.compile(r"\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}|\\([%$])")
FAMILIES = (
    {"mm", "cm", "m", "km", "meters", "metres", "centimeters", "kilometers", "inches", "feet", "ft",
     "miles"},
    {"mg", "g", "kg", "grams", "kilograms", "pounds", "lbs", "lb", "oz", "ounces"},
    {"ms", "s", "seconds", "min", "minutes", "h", "hr", "hrs", "hours", "days"},
    {"$", "€", "£", "dollars", "cents", "euros", "pounds"},
)  # fmt: skip


@dataclass
class FaultCount:
    """How many records have it, and the first that does."""

    n: int = 0
    first: int = -1
    last: int = -1  # several signs of a fault in one record count once

    def count(self, index: int) -> None:
        if index == self.last:
            return
        self.n, self.last = self.n + 1, index
        if self.first < 0:
            self.first = index


class Preflight:
    """Looks at tasks in their order, once. `exact`: answers are compared as text."""

    def __init__(self, exact: bool) -> None:
        self.exact, self.n, self.golds, self.marks = exact, 0, 0, 0
        self.gold_N, self.whole_N = array("q"), array("q")
        self.faults: dict[str, FaultCount] = {}
        self.units: Counter[str] = Counter()
        self.unit_at: dict[str, int] = {}
        self.options, self.options_at = OptionBias(), -1
        self.other = ""  # the last answer that differs from the one that is looked at
        self.last = ""
        # the first text of a column of pictures or sounds that was read as none, by what it is of
        self.unseen: dict[str, str] = {}

    def look(self, task: Task, choices: bool, *, cut: bool = False) -> None:
        """`choices`: the options stand in the prompt, and so the answer does. `cut`: a conversation
        goes on behind what is imitated.
        """
        i, meta = self.n, task.meta
        self.n += 1
        if cut:
            self._count("cut", i)
        spoken = [m for m in task.prompt if m.role != "system"]
        prompt = "\n".join(m.shown if m.pictures else m.content for m in spoken)
        self._characters(i, prompt, "prompt")
        self._pictures(i, task)
        answer = task.answer
        gold = answer if isinstance(answer, str) else "" if answer is None else str(answer)
        recorded = [
            whole_reply(meta, k) for k in ("demonstration", "chosen", "rejected", "response")
        ]
        if not recorded[0]:
            self._count("not shown", i)
        texts = tuple(str(x) for x in (gold, *recorded))
        alone = not gold and not any(x is not None for x in recorded)
        self.whole_N.append(hash(texts + ((repr(meta),) if alone else ())))
        self.gold_N.append(hash(same_number(gold)) if gold else 0)
        if recorded[1] is not None and recorded[1] == recorded[2]:
            self._count("pair", i)
        if meta.get("options") is not None and not choices:
            self._count("options", i)
        if TEMPLATED.search(prompt):
            self._count("templated", i)
        if is_json(prompt):
            self._count("json", i)
        if gold and (options := option_texts(meta)):
            self.options.look(options, gold)
            self.options_at = i if self.options_at < 0 else self.options_at
        if gold and isinstance(answer, str | int | float) and not isinstance(answer, bool):
            self._gold(i, prompt, gold.strip(), choices)

    def _count(self, name: str, index: int) -> None:
        self.faults.setdefault(name, FaultCount()).count(index)

    def _pictures(self, i: int, task: Task) -> None:
        named = [task.meta.get(name) for form in FORMS for name in form.columns]
        if any(m.pictures for m in task.prompt):
            self._count("media", i)
        elif any(isinstance(x, str) and not x.strip() for x in named):
            self._count("empty media", i)
        for form in FORMS:
            heard = form.noun == "sound"
            named = (task.meta.get(name) for name in form.columns)
            text = next((x for x in named if isinstance(x, str) and x.strip()), "")
            if any(isinstance(p, Sound) == heard for m in task.prompt for p in m.pictures):
                self._count(f"{form.noun}s", i)
            elif text:
                self._count(f"no {form.noun}", i)
                self.unseen.setdefault(form.noun, text)

    def _gold(self, i: int, prompt: str, gold: str, choices: bool) -> None:
        self.golds += 1
        if gold != self.last:
            self.other, self.last = self.last, gold
        if not gold.isascii():
            self._characters(i, gold, "answer")
            alone = FOREIGN.fullmatch(gold) and not OWN_SCRIPT.search(FOREIGN.sub("", prompt))
            if SPACES.search(gold):
                self._count("invisible answer", i)
            elif alone and not (FOREIGN.search(prompt) and len(gold) > 1):
                self._count("script answer", i)
        if choices:
            return
        if len(gold) <= LONGEST:
            for name, text in (("own", gold), ("other", self.other)):
                if text and text in prompt and (place := place_of(text, prompt)):
                    self._count(f"{place} {name}", i)
        self._shape(i, prompt, gold)

    def _shape(self, i: int, prompt: str, gold: str) -> None:
        """What kind of text the answer is, and whether it is the prompt's kind."""
        if is_sentence(gold):
            self._count("sentence", i)
        if "####" in gold:
            self._count("####", i)
        if "\\boxed" in gold:
            self._count("boxed", i)
            if gold.count("\\boxed") > 1:
                self._count("boxes", i)
        number = NUMBER.fullmatch(gold) is not None
        if looks_swapped(prompt.strip(), gold, number):
            self._count("swapped", i)
        if number:
            self._count("bare", i)
        elif len(gold) <= EXCERPT and (unit := unit_of(gold)):
            self._count("united", i)
            if unit in self.units or len(self.units) < MOST_UNITS:
                self.units[unit] += 1
                self.unit_at.setdefault(unit, i)

    def _characters(self, i: int, text: str, field: str) -> None:
        if text.isascii():  # far the commonest, and quick to see
            if not text.translate(BREAKS).isprintable():
                self._count(f"invisible {field}", i)
            return
        if INVISIBLE.search(text):
            self._count(f"invisible {field}", i)
        if ALIKE.search(text):
            self._count(f"script {field}", i)

    # ---- what was found

    def findings(
        self, prompt_N: np.ndarray, where: Callable[[int], str], task: Callable[[int], Task]
    ) -> list[str]:
        """A line for each fault. `prompt_N`: hashes of the prompts; `where`, `task`: a record's
        place, and what it says.
        """
        return [
            f"{text}, e.g. {where(at)} ({excerpt(task(at), at_answer)})"
            + (f"; {mend}" if mend else "")
            for text, at, at_answer, mend in self._found(prompt_N, where)
        ]

    def _found(
        self, prompt_N: np.ndarray, where: Callable[[int], str]
    ) -> Iterator[tuple[str, int, bool, str]]:
        """What is told: the text, a record that shows it, whether its answer does, how to mend
        it.
        """
        yield from self._repeats(prompt_N, where)
        for field in ("prompt", "answer"):
            if f := self.faults.get(f"invisible {field}"):
                text = f"{self._of(f.n)} have invisible characters in the {field}"
                yield text, f.first, field == "answer", "take them out"
            if f := self.faults.get(f"script {field}"):
                text = f"{self._of(f.n)} mix scripts whose letters look alike in the {field}"
                yield text, f.first, field == "answer", "write them in one"
        if f := self.faults.get("templated"):
            mend = "it is written around them again, so take it out, or write messages"
            yield (
                f"{self._of(f.n)} have marks of a chat template in the prompt",
                f.first,
                False,
                mend,
            )
        if (f := self.faults.get("json")) and f.n >= max(2, 0.5 * self.n):
            text = f"{self._of(f.n)} have JSON as the prompt, which the model reads as it is"
            yield (
                text,
                f.first,
                False,
                "if the question stands inside it: --columns prompt=prompt.NAME",
            )
        for noun in (form.noun for form in FORMS):
            if (f := self.faults.get(f"no {noun}")) and f"{noun}s" in self.faults:
                unseen = repr(self.unseen[noun][:EXCERPT])
                text = f"{self._of(f.n)} have no {noun}, but text in its column, first {unseen}"
                yield text, f.first, False, f"write the path of a {noun}'s file, with its ending"
        if (f := self.faults.get("empty media")) and "media" in self.faults:
            mend = "the model reads their text alone; where a file is missing, give it or drop the record"
            text = f"{self._of(f.n)} have an empty text for a picture, video or sound"
            yield text, f.first, False, mend
        if f := self.faults.get("cut"):
            text = f"{self._of(f.n)} end with the user, after what is imitated"
            yield text, f.first, False, "that last message is left out"
        if f := self.faults.get("options"):
            mend = "write a list of 2 to 26 texts; as it stands it is not shown to the model"
            yield f"{self._of(f.n)} have a column 'options' in no known form", f.first, False, mend
        if f := self.faults.get("pair"):
            yield f"{self._of(f.n)} have the same text as chosen and rejected", f.first, False, ""
        if (f := self.faults.get("not shown")) and f.n < self.n:
            mend = "their answer alone is imitated there, and they give no hint"
            yield f"{self._of(f.n)} have no demonstration", f.first, False, mend
        if self.golds:
            yield from self._of_golds()

    def _of_golds(self) -> Iterator[tuple[str, int, bool, str]]:
        n, count = self.golds, lambda name: self.faults.get(name, FaultCount())
        swapped = count("swapped")
        if swapped.n >= max(2, 0.5 * n):
            mend = "if they are swapped: --columns prompt=answer,answer=prompt"
            text = f"{self._of(swapped.n)} look like answers with questions"
            yield text, swapped.first, True, mend
            return
        yield from self._leaks(n)
        top, times, first = commonest(self.gold_N)
        if top and n >= 10 and times >= 0.9 * n:
            yield (
                f"{self._of(times)} have one and the same answer",
                first,
                True,
                ("a policy that always says so looks trained"),
            )
        if bias := self.options.finding():
            mend = "whoever reads no question does as well; compare with the questions left out"
            yield bias, self.options_at, True, mend
        sentence = count("sentence")
        if sentence.n >= max(1, 0.1 * n):
            cut = next((c for c in ("####", "boxed") if count(c).n >= 0.5 * n), "")
            mend = (
                f"for what stands last in them: --columns answer={cut}"
                if cut
                else ("an answer is compared as a whole: keep what is to be compared")
            )
            yield (
                f"{self._of(sentence.n)} have whole sentences as answers",
                sentence.first,
                True,
                mend,
            )
        elif boxes := self.faults.get("boxes"):
            yield (
                f"{self._of(boxes.n)} have several boxes in the answer",
                boxes.first,
                True,
                ("keep one answer"),
            )
        yield from self._units()

    def _leaks(self, n: int) -> Iterator[tuple[str, int, bool, str]]:
        """Answers in their own prompts, where other records' answers do not stand as often."""
        own, other = (self.faults.get(f"marked {k}", FaultCount()) for k in ("own", "other"))
        end, chance = (self.faults.get(f"end {k}", FaultCount()) for k in ("own", "other"))
        if own.n >= max(2, 0.05 * n) and own.n > 3 * other.n:
            yield f"{self._of(own.n)} say their answer in the prompt", own.first, False, ""
        elif end.n + own.n >= max(4, 0.8 * n) and chance.n + other.n <= 0.3 * n:
            yield (
                f"{self._of(end.n + own.n)} end their prompt with its answer",
                end.first,
                False,
                "",
            )

    def _units(self) -> Iterator[tuple[str, int, bool, str]]:
        bare, united = (self.faults.get(k, FaultCount()) for k in ("bare", "united"))
        numbers = bare.n + united.n
        few = max(2, 0.05 * numbers)
        if numbers < 0.5 * self.golds or united.n < few:
            return
        if bare.n >= few:
            text = f"{united.n:,} answers are numbers with a unit and {bare.n:,} without"
            yield text, united.first, True, "write all in one way"
        for family in FAMILIES:
            used = {u: self.units[u] for u in family if self.units[u] >= few}
            if len(used) > 1:
                rarer = sorted(used, key=lambda unit: (-used[unit], unit))[1]
                text = f"answers are in {' and in '.join(sorted(used))}"
                yield (
                    text,
                    self.unit_at[rarer],
                    True,
                    "say the unit in the prompt, or write all in one",
                )

    def _repeats(
        self, prompt_N: np.ndarray, where: Callable[[int], str]
    ) -> Iterator[tuple[str, int, bool, str]]:
        """Equal prompts: with different answers, and whole records that come again."""
        gold_N = np.frombuffer(self.gold_N, np.int64)
        order = np.lexsort((gold_N, prompt_N))
        a, b = order[:-1], order[1:]
        alike = prompt_N[a] == prompt_N[b]
        differ = alike & (gold_N[a] != gold_N[b]) & (gold_N[a] != 0) & (gold_N[b] != 0)
        if differ.any():
            n = len(np.unique(prompt_N[a[differ]]))
            first, second = sorted((int(a[differ][0]), int(b[differ][0])))
            text = f"{n:,} {'prompts have' if n > 1 else 'prompt has'} different answers"
            yield f"{text}: {where(first)} and another", second, True, "keep one"
        order = np.lexsort((np.arange(self.n), np.frombuffer(self.whole_N, np.int64), prompt_N))
        whole_N = np.frombuffer(self.whole_N, np.int64)
        a, b = order[:-1], order[1:]
        again = (prompt_N[a] == prompt_N[b]) & (whole_N[a] == whole_N[b])
        if again.any():
            second = int(b[again][np.argmin(b[again])])
            text = f"{self._of(int(again.sum()))} repeat an earlier one"
            yield text, second, False, "drop them, unless they shall weigh more"

    def _of(self, n: int) -> str:
        return f"{n:,} of {self.n:,} records"


def whole_reply(meta: Mapping[str, Any], column: str) -> Any:
    """A recorded reply, with the messages before its last one where it has several."""
    before = meta.get(f"{column}_before")
    return (str(before), meta.get(column)) if before else meta.get(column)


def excerpt(task: Task, answer: bool) -> str:
    """The start of a prompt or an answer, with what is invisible in it escaped."""
    text = str(task.answer) if answer and task.answer is not None else task.prompt[-1].shown
    strange = any(p.search(text) for p in (INVISIBLE, SPACES, ALIKE)) or FOREIGN.fullmatch(text)
    escaped = ascii if strange else repr
    return escaped(text if len(text) <= EXCERPT else text[:EXCERPT] + "...")


def is_json(text: str) -> bool:
    """Whether the whole of a text is a JSON object or list."""
    start = text.lstrip()[:1]
    if start not in ("{", "[") or text.rstrip()[-1:] != {"{": "}", "[": "]"}[start]:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def looks_swapped(prompt: str, gold: str, number: bool) -> bool:
    """Whether a prompt looks like an answer, and the answer like a prompt."""
    if gold.endswith("?"):
        return not prompt.endswith("?")
    if len(prompt) < 24 and NUMBER.fullmatch(prompt):
        return not number and len(gold) > len(prompt)
    return " " not in prompt and gold.count(" ") > 3 and len(gold) > 2 * len(prompt)


def same_number(gold: str) -> str:
    """One spelling of an answer: of a number its value."""
    text = gold.strip().casefold()
    if len(text) < 20 and NUMBER.fullmatch(text):
        try:
            return repr(float(text.replace(",", "")))
        except ValueError:
            return text
    return text


def place_of(text: str, prompt: str) -> str:
    """Whether a prompt says an answer, "marked" as such or at its "end"; "" where it does not."""
    at, place = prompt.find(text), ""
    for _ in range(20):
        if at < 0:
            break
        after = prompt[at + len(text) : at + len(text) + 40]
        if not (at and prompt[at - 1].isalnum() and text[0].isalnum()) and not (
            after and after[0].isalnum() and text[-1].isalnum()
        ):
            before = prompt[max(0, at - 32) : at]
            if MARK.search(before):
                return "marked"
            rest = after.strip(" \t\n.!)]}>\"'`*$")
            if (at and not rest and len(after) < 40) or EQUALS.search(before):
                place = "end"
        at = prompt.find(text, at + 1)
    return place


def is_sentence(gold: str) -> bool:
    """Whether it is prose: some words that end as a sentence does, or lines of them."""
    start = gold[:LONGEST]
    if len(start) < 24 or (gold[-1] not in ".!?" and ". " not in gold and "\n" not in gold):
        return False
    return len(WORD.findall(start)) >= 6 and ("boxed" in gold or not CODE.search(start))


def unit_of(gold: str) -> str:
    """The unit of a number, "" where it is none or has none."""
    plain = LATEX.sub(lambda m: m[1] or m[2], gold).replace("^\\circ", "°")
    match = WITH_UNIT.fullmatch(plain.strip("$ ") if plain.count("$") == 2 else plain.strip())
    return (match["sign"] or match["word"] or match["unit"] or "") if match else ""


def commonest(gold_N: array[int]) -> tuple[int, int, int]:
    """The hash of the commonest answer, how often it comes, and where it comes first."""
    all_N: Any = np.frombuffer(gold_N, np.int64)
    values, times = np.unique(all_N[all_N != 0], return_counts=True)
    if not len(values):
        return 0, 0, 0
    at = int(np.argmax(times))
    return int(values[at]), int(times[at]), int(np.flatnonzero(all_N == values[at])[0])
