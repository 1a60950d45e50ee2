"""Multiple choice, with the options in any order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from palaestra.errors import UserError
from palaestra.tasks.options import LETTERS
from palaestra.types import Key, rng_of, stage
from palaestra.verifiers.answers.boxes import boxed_answer
from palaestra.verifiers.answers.echo import echoes_question
from palaestra.verifiers.answers.final import ARTICLE, LONGEST, final_statement, strip_markup
from palaestra.verifiers.answers.notation import text_key
from palaestra.verifiers.answers.script import plain_forms
from palaestra.verifiers.answers.short import contains_term, normalise_text, stated_answer
from palaestra.verifiers.answers.statement import is_uncertain, statements
from palaestra.verifiers.answers.withdrawal import is_withdrawn
from palaestra.verifiers.base import (
    Judgement,
    binary_judgement,
    failed_judgement,
    guard_verifier,
    strip_thinking,
)

STATEMENT = (
    r"(?:(?:the\s+)?(?:(?:correct|right|best|final)\s+)?(?:option|choice|answer|letter)(?:\s+is)?(?:\s*:\s*|\s+)"
    r"|i\s+(?:choose|pick|select)\s+(?:option\s+)?|我?(?:应该|應該|应|應)?[选選][择擇项項]?(?:[是为為:]|\s)*)"
)
REASON = (
    r"\s+is\s+(?:the\s+)?(?:correct|right|best|true)(?:\s+(?:answer|option|choice|one))?\s*[.!]?\s*$"
    r"|\s*,?\s+(?:because|since)\b|\s*,\s+not\s+\(?[A-Z]\)?\s*[.!]?\s*$"
)
LETTER = re.compile(
    rf"(?:{STATEMENT})?(?:[(\[]([A-Z])[)\]]\s*[.:]?|([A-Z])(?:\s*[.:),]|\s+[-—–]\s|\s*\n|\s*$|(?={REASON})))"
    rf"({REASON})?\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)
# where no marker of any answer stands, one of an option does, at the start of a sentence
CHOSEN = re.compile(
    r"(?:^|[.!?\n,]\s*)(?:(?:so|thus|hence|therefore),?\s+)?(?=the\s+(?:correct|right|best)\s+(?:option|choice)\s+is\b"
    r"|(?:option|choice)\s+\(?[A-Z]\)?\s+is\s+(?:the\s+)?(?:correct|right|best)|i\s+(?:choose|pick|select)\b|我?(?:应该|应)?[选選])",
    re.IGNORECASE,
)
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
PLACE = re.compile(
    rf"(?:(?:it is|it['’]s|i (?:choose|pick|select))\s+)?the ({'|'.join(ORDINALS)}|last) (?:one|option|choice|answer|statement)",
    re.IGNORECASE,
)
NUMBERED = re.compile(
    r"(?:(?:the\s+)?(?:(?:correct|right|best)\s+)?(?:option|choice|answer|number)(?:\s+is)?\s*:?\s+)?\(?([1-9])(?:[).:]\s*(.*)|(?:\)?\s*))",
    re.IGNORECASE | re.DOTALL,
)
BOLD = re.compile(r"\\(?:mathbf|boldsymbol|bm|textbf|mathrm|text)\s*\{([^{}]*)\}")


def option_order(n: int, key: Key) -> list[int]:
    """An order of n options: at place i stands option order[i]."""
    return [int(i) for i in rng_of((*key, "options")).permutation(n)]


@stage
class MultipleChoice:
    """1 if the letter, or the text, of the right option is the final answer.

    `options` are in their own order and `order[i]` says which of them was shown at place i. The
    answer is an option's index from 0, letter or text in their own order; one that can mean two of
    them, as 2 can of 1, 2, 3, is refused. A letter with another option's text, several letters, or
    a letter without an option is worth 0. `only_boxed` reads \\boxed{} alone, as AlphaMed does
    (arXiv:2505.17952). `the second one` names a place; a number does where `prompt` numbers the options.
    """

    only_boxed: bool = False

    @guard_verifier
    def __call__(
        self,
        response: str,
        answer: Any,
        *,
        options: Sequence[str | float | bool],
        order: Sequence[int] | None = None,
        prompt: str = "",
    ) -> Judgement:
        own = [str(o) for o in options]
        if not 2 <= len(own) <= len(LETTERS) or len(
            {text_key(strip_markup(o)) for o in own}
        ) != len(own):
            raise UserError(
                f"MultipleChoice: {len(own)} options, some alike perhaps; give 2 to 26 different "
                "ones"
            )
        places = list(range(len(own))) if order is None else [int(i) for i in order]
        if sorted(places) != list(range(len(own))):
            raise UserError(
                f"MultipleChoice: order {str(places)[:60]} is no order of {len(own)} options; give "
                "their indices"
            )
        gold, options_shown = index_of(answer, own), [own[i] for i in places]
        stated = (
            boxed_answer(strip_thinking(response)) if self.only_boxed else stated_answer(response)
        )
        if stated is None and not self.only_boxed and len(strip_thinking(response)) < 500:
            stated = plain_forms(strip_thinking(response)).strip()
        place = None if stated is None else pick(stated, options_shown)
        if place is None and stated is not None and not self.only_boxed:
            place = numbered_place(stated, options_shown, prompt)
        if place is None and not self.only_boxed and final_statement(response)[0] is None:
            starts = list(CHOSEN.finditer(plain_forms(strip_thinking(response))[-LONGEST:]))
            if starts:
                place = pick(starts[-1].string[starts[-1].end() :], options_shown)
        if place is None and not self.only_boxed and not final_statement(response)[1]:
            text = strip_thinking(response) if stated is None else stated
            place = place_stated(text, options_shown)
            place = place_echoed(text, options_shown, prompt) if place is None else place
        return (
            failed_judgement("unparsable")
            if place is None
            else binary_judgement(places[place] == gold)
        )

    def gold_text(
        self,
        answer: Any,
        *,
        options: Sequence[str | float | bool],
        order: Sequence[int] | None = None,
        prompt: str = "",
    ) -> str:
        """The letter at which the right option is shown; the prompt says nothing of it."""
        gold = index_of(answer, [str(o) for o in options])
        return LETTERS[gold if order is None else list(order).index(gold)]


@stage
class ContainedOption:
    """1 if the response contains the text of the right option (Omni-R1, arXiv:2505.09439, section 2),
    without a thought in <think></think>, and none of the others.

    Texts are compared without case, in Unicode's compatible form and with single blanks, and an
    option counts as whole words. What is part of a longer option that is there does not count: "car
    horn" holds no "car". `guard=False` asks for the right one alone, as any part of the text, so
    that a list of all options earns 1, and so does "category" for "cat".

    The answer is an option's index from 0, letter or text. A denial, "not a dog", counts as its
    option either way.
    """

    guard: bool = True

    @guard_verifier
    def __call__(
        self, response: str, answer: Any, *, options: Sequence[str | float | bool]
    ) -> Judgement:
        own = [str(o) for o in options]
        gold = own[index_of(answer, own)]
        text = normalise_text(strip_thinking(response))
        if not self.guard:
            return binary_judgement(normalise_text(gold) in text)
        named = contained_options(text, own)
        return binary_judgement(named == [gold]) if named else failed_judgement("unparsable")

    def gold_text(self, answer: Any, *, options: Sequence[str | float | bool]) -> str:
        """The text of the right option."""
        own = [str(o) for o in options]
        return own[index_of(answer, own)]


def contained_options(text: str, options: Sequence[str]) -> list[str]:
    """The options that a text contains as whole words, each once, in their order; parts of longer ones
    that are there are left out. Both are compared as `ContainedOption` says.
    """
    text, named = normalise_text(text), set[str]()
    for option in sorted(set(options), key=lambda o: -len(normalise_text(o))):
        if normalise_text(option) and contains_term(option, text):
            named.add(option)
            text = text.replace(normalise_text(option), "\0")
    return [o for o in dict.fromkeys(options) if o in named]


def index_of(answer: Any, options: Sequence[str]) -> int:
    """Which option a reference names: by index, text or letter. Raises UserError for none, and for
    two.
    """
    texts, text = (
        [text_key(strip_markup(o)) for o in options],
        text_key(strip_markup(str(answer))),
    )
    places = {texts.index(text)} if text in texts else set[int]()
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(options):
        places.add(answer)
    if len(text) == 1 and text.upper() in LETTERS[: len(options)]:
        places.add(LETTERS.index(text.upper()))
    if not places:
        raise UserError(
            f"multiple choice: the answer {str(answer)[:40]!r} is none of the {len(options)} options"
        )
    if len(places) > 1:
        letters = " and ".join(f"{LETTERS[i]} ({options[i][:20]})" for i in sorted(places))
        raise UserError(
            f"multiple choice: the answer {answer!r} can mean {letters}; {naming_advice(answer)}"
        )
    return places.pop()


def naming_advice(answer: Any) -> str:
    """How to write an answer that names two options."""
    return (
        "give the option's letter, or its text as a string"
        if isinstance(answer, int)
        else "give the option's index"
    )


def pick(stated: str, options: Sequence[str]) -> int | None:
    """The place that a statement names; None where it names none, or several."""
    stated = strip_markup(stated.strip())
    texts = [text_key(strip_markup(o)) for o in options]
    if text_key(stated) in texts:
        return texts.index(text_key(stated))
    bare_texts = [text_key(ARTICLE.sub("", strip_markup(o))) for o in options]
    if bare_texts.count(key := text_key(ARTICLE.sub("", stated))) == 1 and len(key) > 1:
        return bare_texts.index(key)
    match = LETTER.fullmatch(BOLD.sub(r"\1", stated).replace("**", ""))
    letter = (match[1] or match[2]) if match else ""
    if not match or letter.upper() not in LETTERS[: len(options)]:
        return None
    place, rest = LETTERS.index(letter.upper()), text_key(strip_markup(match[4]))
    if match[3]:  # a reason may name anything, but not take the answer back
        return None if is_withdrawn(match[4]) else place
    if not rest or rest == texts[place]:
        return place
    return place if is_remark(match[4], place, options) else None


def numbered_place(stated: str, options: Sequence[str], prompt: str) -> int | None:
    """The place that an ordinal names, `the second one`, or a number, where the question shows its
    options with numbers; None where it names none, or another option's text stands behind it.
    """
    stated = strip_markup(stated.strip().replace("**", ""), ())
    if match := PLACE.fullmatch(stated):
        name = match[1].casefold()
        place = len(options) - 1 if name == "last" else ORDINALS.index(name)
        return place if place < len(options) else None
    match = NUMBERED.fullmatch(stated)
    if match is None or int(match[1]) > len(options):
        return None
    place, rest = int(match[1]) - 1, text_key(strip_markup(match[2] or ""))
    texts = [strip_markup(option) for option in options]
    lines = (rf"^\s*\(?{i}[.):]\s*{re.escape(text)}\s*$" for i, text in enumerate(texts, 1))
    if match[1] in texts or not all(re.search(line, prompt, re.MULTILINE) for line in lines):
        return None
    return place if rest in ("", text_key(texts[place])) else None


def is_remark(text: str, place: int, options: Sequence[str]) -> bool:
    """Whether what stands behind a letter only explains it, or is its option with an explanation:
    words that name no other option, and do not deny or take back.
    """
    text = text.lstrip("—–-:. \n")
    own = strip_markup(options[place])
    if text.casefold().startswith(own.casefold()):
        text = text[len(own) :]
    elif len(text.split()) < 3:
        return False
    return not (
        is_withdrawn(text) or is_uncertain(text) or names_other_option(text, place, options)
    )


def names_other_option(text: str, place: int, options: Sequence[str]) -> bool:
    """Whether a text names an option beside the one at a place, by its letter or its text."""
    letters = {LETTERS[i] for i in range(len(options)) if i != place}
    # A in front of a word is an article
    named = re.findall(r"(?<![\w'’])([B-Z]|A(?!\s+[a-z]))(?![\w'’])", text)
    if not letters.isdisjoint(named):
        return True
    return any(
        i != place and re.search(rf"(?<!\w){re.escape(option)}(?!\w)", text, re.IGNORECASE)
        for i, option in enumerate(map(strip_markup, options))
        if option
    )


def place_echoed(text: str, options: Sequence[str], prompt: str) -> int | None:
    """The place of the option that a sentence in the words of the question names, `A hexagon has 6
    sides.`; None where none is named, or another option as well.
    """
    stem = prompt
    for option in options:  # what stands above the options
        at = [
            m.start()
            for m in re.finditer(rf"^.*(?<!\w){re.escape(option)}\s*$", stem, re.MULTILINE)
        ]
        stem = stem[: at[0]] if at else stem
    text = plain_forms(text).strip()
    if not stem.strip() or len(text) > 300 or is_withdrawn(text, 1):
        return None
    places = [
        place
        for place, option in enumerate(map(strip_markup, options))
        if not is_uncertain(text, option)
        and echoes_question(text.rstrip(".!"), option, stem)
        and not names_other_option(text, place, options)
    ]
    return places[0] if len(places) == 1 else None


def place_stated(text: str, options: Sequence[str]) -> int | None:
    """The place that a sentence names: `Venus is the hottest planet`, `C is too cool, so B`; None
    where it names none, or another option as well.
    """
    text = plain_forms(text)
    places = set[int]()
    for option in options:
        readings = statements(text, option)
        for reading in readings:
            place = pick(reading, options)
            if place is not None and not names_other_option(readings[0], place, options):
                places.add(place)
    return places.pop() if len(places) == 1 else None
