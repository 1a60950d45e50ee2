"""Answers in words that only the question makes clear: `Plants take in carbon dioxide.` where it asks which
gas plants take in, `Planet Jupiter` where it asks for a planet.

The sentence may hold the reference, once, and beside it nothing but words of the question in their
order, and words that carry no meaning. A word that the question does not hold is another statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from palaestra.verifiers.answers.amounts import CHANGES, bare, word_set, words_of
from palaestra.verifiers.answers.notation import text_key
from palaestra.verifiers.answers.plain_replies import LONGEST_STATED, is_foreign
from palaestra.verifiers.answers.statement import (
    UNCERTAIN,
    concluding_sentence,
    is_uncertain,
    plain_sentence,
    statements,
)
from palaestra.verifiers.answers.values import DENIALS, contradicts, plain_emphasis
from palaestra.verifiers.answers.withdrawal import is_withdrawn
from palaestra.verifiers.base import fences

SPELLED_ORDINALS = (
    "third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth"
    " seventeenth eighteenth nineteenth twentieth"
)
ORDINALS = {"first": "1st", "second": "2nd", "third": "3rd", "twenty-first": "21st"} | {
    word: f"{n}th" for n, word in enumerate(SPELLED_ORDINALS.split(), 3) if n > 3
}
ORDINAL = re.compile(
    rf"(?<![\w-])(?:{'|'.join(sorted(ORDINALS, key=len, reverse=True))})(?![\w-])", re.IGNORECASE
)
IDLE = word_set(
    "the a an is are was were be it its in on at of to by from for do does did this that there has have had only"
)
COPULAR = re.compile(
    r"(?:what|which|who)(?:['’]s|\s+(?:is|are|was|were))\s+(?:the|an?|its|his|her)\b(?!.*\b(?:that|who|which)\b)",
    re.IGNORECASE,
)
HEAD = re.compile(r"\b(?:how (?:many|much)|which|what)\s+(\w+)", re.IGNORECASE)
ASKS_WHO = re.compile(r"(?:who|which|what)\s+(?!(?:is|are|was|were|do|does|did)\b)", re.IGNORECASE)
CLOSED_QUESTION = re.compile(r"(?:is|are|was|were|does|do|did|can|could|has|have)\b", re.IGNORECASE)
NEGATIVE_QUESTION = re.compile(
    r"\b(?:not|never|no|except|least|without|isn|doesn|cannot|opposite)\b|n['’]t\b", re.IGNORECASE
)
FOREIGN_COPULA = re.compile(
    r"(?:(?P<subject>[^.;:!?\n=,]{1,160}?)\s+)?"
    r"(?:(?:a été|fue|è stat[oa]) \w+ (?:par|por|da)|c['’]est|est|es|ist|è|é|sind|son|sont|sono|fue|war|était|heißt|lautet)"
    r"\s+(?P<body>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
USES = re.compile(
    r"(?:you (?:can|could|should|would) |just |simply )*(?:use|type|run|write|enter)\s+",
    re.IGNORECASE,
)
MADE_BY = re.compile(
    r"(?:\w+ly\s+)?(?:written|painted|composed|directed|invented|discovered|founded|designed|built|created|made|sung|won) by\s+",
    re.IGNORECASE,
)
ASSENT = re.compile(
    r",\s+(?:bien sûr|bien entendu|natürlich|por supuesto|claro|of course|certainly)$",
    re.IGNORECASE,
)
FOREIGN_CLOSED = re.compile(
    r"(ja|nein|oui|non|sí|si|no|sì|sim|não)(?=\s*[,.!:;–—]|$)", re.IGNORECASE
)


def states_text(text: str, gold: str, prompt: str) -> bool:
    """Whether a short reply states a reference that is a text.

    Args:
        text: what a reply states, or the whole reply, without its thinking.
        gold: the reference, without markup.
        prompt: the question.
    """
    text = text.strip()
    if not gold or not text or len(text) > LONGEST_STATED + 2 * len(gold) or len(gold) > 200:
        return False
    if is_fenced(text, gold):
        return True
    text = plain_emphasis(text)
    if is_withdrawn(text, 1) or contradicts(text, prompt):
        return False
    foreign = is_foreign(prompt)
    if foreign and DENIALS.search(remove(text, gold)) is None and foreign_statement(text, gold):
        return True
    readings = [text, *statements(text, gold)]
    readings += [r[made.end() :] for r in readings if (made := MADE_BY.match(r))]
    if any(
        (use := USES.match(reading)) and is_same(reading[use.end() :], gold)
        for reading in readings[1:]
    ):
        return True
    if any(is_named(reading, gold, prompt) for reading in readings):
        return True
    sentence = concluding_sentence(text, gold)
    if sentence is None:
        return False
    if answers_closed(sentence, gold, prompt):
        return True
    sentence = plain_sentence(sentence, gold)
    return not is_uncertain(sentence, gold) and echoes_question(sentence, gold, prompt)


def is_fenced(text: str, gold: str) -> bool:
    """Whether a reply is one fenced block with nothing but the reference, letter by letter."""
    lines = text.split("\n")
    whole = len(lines) > 2 and lines[0].startswith("```") and lines[-1].strip() == "```"
    language = lines[0][3:].strip().lower()
    blocks = fences(text, (language,)) if whole else []
    return len(blocks) == 1 and blocks[0].strip() == gold.strip()


def remove(text: str, gold: str) -> str:
    return re.sub(rf"(?<!\w){re.escape(gold)}(?!\w)", " ", text, flags=re.IGNORECASE)


def is_same(text: str, gold: str) -> bool:
    strip = lambda t: re.sub(
        r"^(?:the|an?|l['’]|le|la|les|der|die|das|el|los|las)\s+",
        "",
        t.strip(" .!*_\"“”'"),
        flags=re.IGNORECASE,
    )
    return text_key(strip(text)) == text_key(strip(gold)) != ""


def foreign_statement(text: str, gold: str) -> bool:
    """Whether a sentence in one of a few other languages states the reference: `La capital es Lima.`"""
    text = ASSENT.sub("", text.strip().rstrip(".!").strip())
    if re.search(r"[.!?\n]\s", text) or UNCERTAIN.search(remove(text, gold)):
        return False
    closed, asked = FOREIGN_CLOSED.match(text), FOREIGN_CLOSED.fullmatch(gold)
    if closed and asked:
        return closed[1].casefold() == gold.casefold()
    if asked:
        return False
    match = FOREIGN_COPULA.fullmatch(text)
    return is_same(text, gold) or (match is not None and is_same(match["body"], gold))


def is_named(reading: str, gold: str, prompt: str) -> bool:
    """Whether a reading is the name of the reference: with its family name first, with a place or a
    kind of thing that the question names (Planet Jupiter; Bern, Switzerland).
    """
    reading, gold = (plain_names(text.strip().rstrip(".!").strip()) for text in (reading, gold))
    if text_key(reading) == text_key(gold):
        return True
    if len(reading) > 2 * len(gold) + 60 or "\n" in reading:
        return False
    first, comma, second = reading.partition(", ")
    parts = gold.split()
    family_first = comma and len(parts) >= 2 and all(p[:1].isupper() for p in parts)
    if family_first and text_key(f"{second} {first}") == text_key(gold) and " " not in first:
        return True
    known = {word for word in words_of(prompt) if not UNCERTAIN.fullmatch(word)}
    named = lambda words: (
        bool(words) and all(stem(w) in known or w.casefold() in known for w in words)
    )
    if comma and is_same(first, gold) and named(re.findall(r"[^\W\d_]+", second)):
        return True
    strip = lambda t: re.sub(r"^the\s+", "", t, flags=re.IGNORECASE)
    words, wanted = strip(reading).split(), strip(gold).split()
    head = HEAD.search(last_question(prompt))
    shorter = len(wanted) > 1 and head is not None and same_word(wanted[-1], head[1])
    if shorter and text_key(" ".join(words)) == text_key(" ".join(wanted[:-1])):
        return True  # 14th, where it asks for a century
    if len(words) != len(wanted) + 1 or not gold[:1].isalpha():
        return False
    for extra, rest in ((words[0], words[1:]), (words[-1], words[:-1])):
        if (
            extra.isalpha()
            and bare(extra) not in CHANGES
            and named([bare(extra)])
            and text_key(" ".join(rest)) == text_key(" ".join(wanted))
        ):
            return True
    return False


def plain_names(text: str) -> str:
    """A text with its ordinals as 14th, and with the names of functions as plain words: O(log n)."""
    text = ORDINAL.sub(lambda m: f"{ORDINALS[m[0].casefold()]}", text)
    text = re.sub(r"\\(?=(?:log|ln|sin|cos|tan|exp)(?![a-z]))|(?<=\w|\))\$|\$(?=\w)", "", text)
    return re.sub(r"\b(log|ln|sin|cos|tan|exp)\s*\((\w)\)", r"\1 \2", text)


def stem(word: str) -> str:
    """A word without the endings that a verb or a plural has."""
    word = word.casefold()
    for ending in ("ies", "es", "s", "ed", "d"):
        if len(word) - len(ending) >= 3 and word.endswith(ending):
            return word[: -len(ending)]
    return word


def same_word(a: str, b: str) -> bool:
    short, long = sorted((stem(a), stem(b)), key=len)
    return short == long or (
        len(short) >= 3 and long.startswith(short) and len(long) - len(short) <= 2
    )


def echoes_question(sentence: str, gold: str, prompt: str) -> bool:
    """Whether a sentence is the reference and words of the question, in its order.

    A question that holds the reference itself may offer it beside others; one that denies asks for what
    its sentence would not say.
    """
    pattern = re.compile(rf"(?<![\w'’-]){re.escape(gold)}(?![\w'’-])", re.IGNORECASE)
    if not prompt or pattern.search(prompt) or NEGATIVE_QUESTION.search(prompt):
        return False
    question = last_question(prompt)
    asked = re.findall(r"[^\W_]+", question)
    body = (
        re.sub(r"\s*\([^()]*\)\s*\.?$", "", sentence)
        if not pattern.search(sentence[-len(gold) - 2 :])
        else sentence
    )
    named = pattern.findall(body)
    if len(named) != 1 or text_key(named[0]) != text_key(gold):
        return False
    if re.search(r"[?;:=/|<>\n]|,\s*(?:and|or)\b", body):
        return False
    head = HEAD.search(question)
    if head:  # how many sides: 6 sides
        follows = re.compile(rf"({pattern.pattern})\s+(\w+)", re.IGNORECASE)
        body = follows.sub(lambda m: m[1] if same_word(m[2], head[1]) else m[0], body)
    rest = [w for w in re.findall(r"[^\W_]+", pattern.sub(" ", body)) if w.casefold() not in IDLE]
    if not rest:  # England did.
        return pattern.match(body) is not None and ASKS_WHO.match(question) is not None
    if COPULAR.match(question):  # no verb whose subject and object could change places
        return all(any(same_word(word, other) for other in asked) for word in rest)
    return in_order(rest, asked)


def last_question(prompt: str) -> str:
    return re.split(r"(?<=[.!?])\s+", prompt.strip()[-2000:])[-1]


def answers_closed(sentence: str, gold: str, prompt: str) -> bool:
    """Whether a sentence answers a yes-or-no question by its own words: `A whale is not a fish.`"""
    question, gold = last_question(prompt), gold.casefold()
    if gold not in ("yes", "no") or not CLOSED_QUESTION.match(question):
        return False
    denials = re.findall(r"\bnot\b|n['’]t\b|\bcannot\b", sentence, re.IGNORECASE)
    if NEGATIVE_QUESTION.search(question) or len(denials) != (gold == "no"):
        return False
    plain = re.sub(r"\bnot\b|n['’]t\b|\bcannot\b", " ", sentence, flags=re.IGNORECASE)
    words, asked = (
        [w for w in re.findall(r"[^\W_]+", text) if w.casefold() not in IDLE | {"can", "could"}]
        for text in (plain, question)
    )
    same = len(words) == len(asked) and all(map(same_word, words, asked))
    return bool(words) and same and not UNCERTAIN.search(plain)


def in_order(words: Sequence[str], asked: Sequence[str]) -> bool:
    """Whether all words are those of a question, in their order."""
    at = 0
    for word in words:
        place = next((i for i in range(at, len(asked)) if same_word(word, asked[i])), None)
        if place is None:
            return False
        at = place + 1
    return True
