"""Answers that the words around them deny or take back.

In front of an answer its own clause can deny it (`I doubt that the answer is 7`). Behind it a later
sentence can take it back (`\\boxed{7} Wait, that is wrong`): then it is no answer, even where it was
right, because a policy that says both is paid for neither.
"""

from __future__ import annotations

import re

FAR = 4000  # characters behind an answer in which it can be taken back
OPENING = r"(?:^|[.!?;:,()\n—–*_-])[\s*_]*(?:(?:but|oh|and|hmm+|um|ah),?\s+)?"
SAYS = r"(?:that|this|it|which|(?:the|my) (?:above|answer|result|last line))"
WRONG = r"(?:wrong|false|incorrect|untrue|mistaken|not (?:right|correct|true|it|the answer|what))"
WITHDRAWN = re.compile(
    rf"{OPENING}(?:wait|actually|sorry|oops|correction|rather|or rather|no(?=[\s]*[,.:;!—–-])|nope|never ?mind"
    r"|scratch that|hold on|edit|on second thoughts?|not quite|i mean|make that|strike that)\b"
    rf"|\bsorry\b|\bi (?:meant|take (?:that|it) back|was wrong|am wrong|misread|miscounted|misspoke)\b"
    r"|\bi (?:have |'ve )?(?:forgot|forgotten)\b|\bi(?:'ve| have)? made an? (?:\w+ )?(?:mistake|error|slip)\b"
    rf"|\b{SAYS}(?: is|'s|’s| was)(?: \w+ly| simply| just)? {WRONG}\b|\b{SAYS} (?:isn|wasn)['’]t\b"
    rf"|\b{SAYS} should (?:\w+ly |rather |instead )?(?:be|have been)\b"
    r"|\blet me (?:re-?check|re-?do|re-?consider|re-?compute|correct|fix|try again)\b|\bshould have been\b"
    r"|\bi (?:will |'ll |now )?(?:changed?|correct|revise|withdraw) (?:my|that|this)\b|\b(?:real|true|actual) answer\b"
    r"|\b(?:definitely|certainly|surely|of course) not\b"
    r"|\b(?:candidates?|alternatives?|other (?:possible )?answers?)\s*[:,]|\balternatively\b"
    r"|\bno way\b|\bkidding\b|\bif (?:there|it|he|she|they|we|i|the \w+) (?:were|was|had|did)\b"
    r"|不对|不對|错了|錯了|更正|等等|等一下|应该是|應該是|才对",
    re.IGNORECASE,
)  # fmt: skip
BEHIND = re.compile(
    r"[\s$*)}\]]*[,.]?[\s$*)}\]]*(?:(?:or|unless|if not)\b|(?:is|are|was|were)\s+(?:\w+ly\s+)?"
    r"(?:not|never|no|wrong|incorrect|false|what)\b|\(\s*(?:wrong|incorrect|false|not)\b|(?:is|are|was|were)n['’]t\b|或)",
    re.IGNORECASE,
)
DENIAL = re.compile(
    r"(?:\b(?:not|never|cannot|nobody|untrue|incorrect|false|wrong|doubt|deny|unlikely|hardly|neither|maybe|perhaps|possibly)\b|n['’]t\b)"
    r"(?:(?!\b(?:so|thus|hence|therefore|then|and|but|since|because)\b)[^.;:!?\n,]){0,80}$"
    r"|\b(?:initially|originally|previously|at first|wrongly|mistakenly|(?:my|the|a) first (?:guess|answer|attempt|try|thought)"
    r"|(?:you|one|some|many|people|he|she|they) (?:\w+ )?"
    r"(?:might|may|could|often|would|think|thought|say|said|claims?|claimed))\b"
    r"[^.;:!?\n,]{0,80}$"
    r"|\b(?:if|whether|unless|suppose|assume|assuming|pretend|no)\s+(?:the|my|our|your|its)?\s*"
    r"(?:(?:final|correct|right|best)\s+)*$",
    re.IGNORECASE,
)
# behind a number, in its own sentence: 7 was my first guess, 7 is close but not right, 7 eggs short
REJECTED = re.compile(
    r"^[^.;!?\n]{0,80}?\b(?:wrong|incorrect|false|mistaken|impossible|excluded|rejected|ruled out|invalid|in the red"
    r"|not (?:right|correct|true|enough|the answer)|first (?:guess|try|attempt)|(?:my|a|just a|only a) guess"
    r"|too (?:big|small|large|high|low|many|few|much|little|long|short)|short(?=\s+of\b|\W*$)"
    r"|(?:perhaps|maybe|possibly)(?=\W*$)|and (?:then )?(?:some|several|a (?:few|bit|half|quarter|third)))\b"
    r"|^\S*(?:\s+[a-z]+)?\s+(?:(?:is|are|was|were|does|do|did|can|could|would|will|has|have)(?:\s+not|n['’]t)|cannot"
    r"|never|fails?|at (?:most|least)(?!\s+\w))\b|^\s*\(\?+\)",
    re.IGNORECASE,
)
NO_DOUBT = re.compile(r"\b(?:no|not|without|never|beyond)\s+(?:a\s+|any\s+)?doubt\b", re.IGNORECASE)
ALL_BUT = re.compile(
    r"\b(?:anything|everything|all|any|anyone|everyone|whatever|(?:any|every) \w+) (?:but|except|besides)$"
    r"|\b(?:other|rather) than$|\binstead of$|\bfar from$|(?<!\badds )(?<!\badd )(?<!\bsums )(?<!\bsum )(?<!\bcomes )\bup to$"
    r"|\b(?:close|next|prior|similar|proportional|subsequent|opposite|subject|compared) to$|\ban?thing but$",
    re.IGNORECASE,
)
# what is said of an answer by a number, rather than the number that it is
PROPERTY = re.compile(
    r"\b(?:last|first|leading|units?|tens|ones) digits?\b"
    r"|\b(?:answer|number|result|value|solution|digit|sum|product)s?\s+(?:has|have|contains?|ends?|begins?|starts?"
    r"|lies|exceeds|divides|consists|includes?|(?:is|are)\s+(?:written with|made of|divisible|a multiple))\b",
    re.IGNORECASE,
)


def stands_denied(before: str, behind: str) -> bool:
    """Whether what surrounds a box or tags denies the answer in them, takes it back, or puts
    another beside it.
    """
    clause = re.sub(r"(?:[\s${(\[:*\\]|boxed|<answer>)*$", "", before[-160:])
    return excludes(clause) or BEHIND.match(behind) is not None or is_withdrawn(behind)


def is_withdrawn(behind: str, start: int = 0) -> bool:
    """Whether a text behind an answer takes it back. `start` is where to look first: what stands
    before it is the answer itself.
    """
    return WITHDRAWN.search(behind[:FAR], start) is not None


def is_denied(before: str) -> bool:
    """Whether the clause in front of an answer denies it. `before` ends where the answer, or the
    words that announce it, begin.
    """
    return DENIAL.search(NO_DOUBT.sub("", before[-160:])) is not None


def is_rejected(behind: str) -> bool:
    """Whether the sentence goes on behind an answer to call it wrong, or a guess."""
    return REJECTED.search(behind[:200]) is not None


def excludes(before: str) -> bool:
    """Whether the words in front of an answer name all others: anything but, other than."""
    return ALL_BUT.search(" ".join(before[-60:].split())) is not None


def states_property(line: str) -> bool:
    """Whether a line says something of the answer by a number: it has 7 digits, it ends with 7."""
    return PROPERTY.search(line[-400:]) is not None
