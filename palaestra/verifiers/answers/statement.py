"""The answer that a plain sentence states: `The capital of France is Paris.` states Paris.

It is read where nothing marks an answer, and behind a marker that goes on with a reason. A sentence
that denies, doubts, compares or offers a choice states nothing, and neither do several sentences,
unless the last draws the conclusion or those behind the first only explain it. What is left is
compared as a whole, so a word too many is another answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from palaestra.verifiers.answers.withdrawal import is_withdrawn

LONGEST_STATEMENT = 600  # characters of a reply that is read as a statement
SHORT = {"Dr", "Mr", "Mrs", "Ms", "Prof", "St", "Jr", "Sr", "Mt", "No", "vs", "etc", "e.g", "i.e"}
SENTENCE_END = re.compile(r"[.!?](?=\s+[\"“'*]*[A-Z])|\n+")
THEREFORE = r"(?:so|thus|hence|therefore|consequently|in conclusion|to conclude|in summary|overall)"
CONCLUSION = re.compile(rf"(?:^|[,;]\s*(?:and\s+)?){THEREFORE}\b,?\s+", re.IGNORECASE)
# sentences that only explain, or close, what the first one says
REMARK = re.compile(
    r"(?:it|this|that|he|she|they|these|those|because|since|as)\b|i hope\b|let me know\b|hope\b",
    re.IGNORECASE,
)
UNCERTAIN = re.compile(
    r"\b(?:not|never|no|none|nor|neither|either|or|cannot|without|except|excluding|but|besides|unlike|instead"
    r"|rather|opposite|similar|used to|formerly|previously|originally|once|perhaps|maybe|might|could|may|possibly"
    r"|probably|likely|unlikely|doubt\w*|unsure|uncertain|guess\w*|if|unless|whether|almost|nearly|wrong|false"
    r"|untrue|incorrect|mistak\w*|misconception|although|though|however|while|whereas|until|suppose|assum\w+"
    r"|second|third|last|other|another|next|former|previous|popular|some|many|all|any|every\w*|half|partly|than|vs"
    r"|distractor"
    r"|reject\w*|dismiss\w*|exclud\w+|omit\w*|discard\w*|forbidden|invalid|candidates?"
    r"|trap|hint|example|option \d|attempt|draft|old|fake|alleged\w*|supposed\w*|so-called|would be"
    r"|close|closest|near|neighbou?r\w*|son|daughter|wife|husband|brother|sister|father|mother|rival|pupil"
    r"|student|teacher|contemporary|friend|kidding|joking|depends|unknown|rul(?:e|ed|es) out|eliminat\w+)\b"
    r"|n['’]t\b|\?|或|不",
    re.IGNORECASE,
)
SURE = re.compile(
    r"\b(?:no|without(?: a| any)?|beyond(?: a| any)?) doubt,?\s*|\bnone other than\s+",
    re.IGNORECASE,
)
OPENING = re.compile(
    rf"(?:(?:{THEREFORE}|well|sure|okay|ok|yes|clearly|finally|then|indeed|of course"
    r"|certainly|definitely|surely|obviously)\b[,:!]?\s+"
    r"|(?:i|we) (?:(?:firmly|strongly) )?(?:think|believe|say|know|conclude|find|found)(?: that)?:?\s+"
    r"|(?:i|we)(?:['’]m| am|['’]re| are) (?:sure|certain|confident|convinced)(?: that)?\s+"
    r"|(?:i['’]d|i would) say(?: that)?\s+|(?:that|this|it)(?: would|['’]d) be\s+|(?:this|it|that) means(?: that)?\s+)+",
    re.IGNORECASE,
)
CHOICE = re.compile(
    r"(?:i|we)(?:['’]d| would| will|['’]ll)?\s+(?:choose|chose|pick|select|go (?:with|for)|answer)\s+"
    r"(?:(?:option|choice|answer|letter)\s+)?",
    re.IGNORECASE,
)
# of what makes a thing what it is: written by, called, located in; but not refuted by, believed to be
PARTICIPLE = (
    r"(?:(?:\w+ly\s+)?(?:(?:called|named|titled|entitled|dubbed|termed|spelled|labell?ed)\s+"
    r"|(?:known|referred to|described)\s+as\s+|made (?:up )?of\s+"
    r"|\w+(?:ed|en|wn|nt|lt|ght|rn|ld)\s+(?:in|at|on)\s+"
    r"|(?:written|authored|painted|composed|directed|invented|discovered|founded|designed|built|created"
    r"|developed|proposed|made|sung|drawn|introduced|coined|proved|proven|formulated|published|produced|won"
    r"|found|given|stated|established|constructed|performed|held|led)\s+by\s+))?"
)
COPULA = re.compile(
    r"(?P<subject>[^.;:!?\n=]{1,160}?)(?:\s+(?:is|are|was|were|equals|equal|(?:must|has to|have to|will) be"
    r"|becomes?|became|(?:(?:must|has to|will) )?mean(?:s)?)\b|(?<=\bit|he)['’]s\b|(?<=hat)['’]s\b|(?<=she)['’]s\b)"
    rf"\s*:?\s+(?P<rest>(?P<participle>{PARTICIPLE})(?P<body>\S.*))",
    re.IGNORECASE | re.DOTALL,
)
# `the person you are looking for is`: the clause inside has a copula of its own
RELATIVE = re.compile(
    r"[^.;:!?\n=]{1,160}\b(?:that|who|which|you|we|I)\b[^.;:!?\n=]{1,80}\s(?:is|was|are)\s+"
)
CLEFT = re.compile(
    r"(?:it|this|that)\s+(?:is|was)\s+(?P<body>.{1,100}?)\s+(?:who|that|which)\b", re.IGNORECASE
)
# what a person is: the English playwright William Shakespeare
NOUN_BEFORE = re.compile(
    r"(?:the\s+)?(?:\w+\s+)?(?:\w*(?:ist|ian|ologist|wright)|poet|author|writer|painter|composer|inventor|actor|actress"
    r"|singer|king|queen|president|emperor|general|philosopher|explorer|astronomer|director|leader|engineer|player"
    r"|architect|captain|astronaut)\s+",
    re.IGNORECASE,
)
HEADING = re.compile(
    r"(?P<subject>A|[A-Za-z][A-Za-z' ]{1,40})[*_]*:[*_]*\s+(?P<body>\S.*)", re.DOTALL
)
REVERSE = re.compile(
    r"(?P<body>.{1,200}?)\s+(?:(?:is|was|are|were)\s+(?:the\b|my (?:final )?(?:answer|choice)|correct\b|right\b"
    r"|it\b)|(?:wrote|painted|invented|discovered|composed|directed|founded|won|designed|built|created|said|sang"
    r"|developed|proposed|did)\s+(?:it|this|that|the|them)\b)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
# a time or a date at the end of a sentence without other digits
WHEN = re.compile(r"[^0-9=:;]{1,160}\b(?:at|on|in)\s+(?P<body>(?:[A-Z]\w+ )?[0-9].{0,40})")
SPLIT = re.compile(r",|;|:|\b(?:and|also|with|as well)\b", re.IGNORECASE)
REASON = re.compile(
    r"[,;]?\s+(?:because|since|due to|given that|as (?:it|he|she|they|this|that|the|its|there))\b.*$"
    r"|,\s+(?:which|who|whose|where|whom|meaning)\b.*$|\s+[—–-]{1,2}\s+(?=\S+\s+\S+\s+\S).*$",
    re.IGNORECASE | re.DOTALL,
)
EXCLUDED = re.compile(
    r",?\s+(?:and\s+)?not\s+(?:the\s+|an?\s+)?(?P<other>[^,;:.!?]{1,60})[.!]*$", re.IGNORECASE
)
# when something was done, behind who did it: painted by him between 1508 and 1512
DATED = re.compile(
    r",?\s+(?:in|between|from|around|during|on|since)\s+(?:[A-Z][a-z]+ )?(?:the )?[0-9]{1,4}s?\b[\w\s,–-]{0,30}[.!]*$"
)
AUXILIARY = re.compile(
    r"\b(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would)\s*$", re.IGNORECASE
)
YEARS = re.compile(
    r"\s*\((?:born |b\. |c\. |ca\. )?[0-9]{3,4}(?:\s*[-–—]\s*(?:[0-9]{2,4}|present)?)?\)"
)
ALL = re.compile(r"\ball\b(?! (?:but|except|besides))", re.IGNORECASE)
HOLDS = re.compile(
    r"(?P<subject>[^.;:!?\n=,]{1,80}?)\s+(?:contains?|includes?|comprises?|consists? of)\s+(?P<body>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
LISTING_END = re.compile(r",?\s+(?:respectively|in (?:that|this|any) order)[.!]*$", re.IGNORECASE)
SUBSTANCE = re.compile(r"\s*\((?=[A-Za-z]*[0-9₀-₉])(?:[A-Z][a-z]?[0-9₀-₉]*){1,8}\)")  # (CO2)
TITLE = re.compile(
    r"^(?:(?:dr|mr|mrs|ms|prof)\.?|professor|doctor|sir|dame)\s+(?=[A-Z])", re.IGNORECASE
)


def statements(text: str, gold: str = "") -> list[str]:
    """The readings of a reply that states one thing in a sentence; none where it may state none.

    Args:
        text: a reply, or what stands behind a marker, without its thinking.
        gold: the reference, whose own words (`no`, `false`) are no denial.

    Returns:
        Texts of which at most one is the answer: of `Paris is the capital` its subject and what
        is said of it.
    """
    text = text.strip()
    if len(text) > LONGEST_STATEMENT:  # before a search that takes the square of a length
        return []
    text = SUBSTANCE.sub("", YEARS.sub("", text))
    if not text or is_withdrawn(text, 1):
        return []
    sentence = concluding_sentence(text, gold)
    if sentence is None:
        return []
    sentence = plain_sentence(sentence, gold)
    if is_uncertain(sentence, gold):
        return []
    readings = [sentence]
    if chosen := CHOICE.match(sentence):
        readings.append(sentence[chosen.end() :])
    elif match := COPULA.fullmatch(sentence):
        readings += [match["rest"], match["body"]]
        if inner := RELATIVE.match(sentence):
            readings.append(sentence[inner.end() :])
        if cleft := CLEFT.match(sentence):
            readings.append(cleft["body"])
    elif match := HEADING.fullmatch(sentence):
        readings.append(match["body"])
    if "=" in sentence and len(text) < 200:
        readings.append(sentence[sentence.rfind("=") + 1 :])
    if any(map(str.isdigit, gold)) and (match := WHEN.fullmatch(sentence)):
        readings.append(match["body"])
    if (match := REVERSE.fullmatch(sentence)) and not SPLIT.search(match["rest"]):
        readings.append(match["body"])
    readings = [r.strip().rstrip("!.").strip() for r in readings]
    readings += [TITLE.sub("", r) for r in readings if TITLE.match(r)]
    readings += [gold for r in readings if gold and names_kind(r, gold)]
    return list(dict.fromkeys(r for r in readings if r))


def stated_listing(text: str, golds: Sequence[str]) -> str | None:
    """What stands behind the words that lead to a listing, as in `The primes are 2 and 3.`; None
    where nothing leads to one, or a word denies it.
    """
    if len(text) > LONGEST_STATEMENT + 20 * sum(map(len, golds)) or is_withdrawn(text, 1):
        return None
    text = LISTING_END.sub("", plain_sentence(text, "\0"))
    match = COPULA.fullmatch(text) or HEADING.fullmatch(text) or HOLDS.fullmatch(text)
    plain = ALL.sub("", text)
    for gold in sorted(golds, key=len, reverse=True):
        plain = re.sub(rf"(?<!\w){re.escape(gold)}(?!\w)", " ", plain, flags=re.IGNORECASE)
    if match is None or is_uncertain(plain):
        return None
    return match["body"].strip()


def names_kind(reading: str, gold: str) -> bool:
    """Whether a reading is a name of two words or more with what the person is in front of it: `the
    physicist Albert Einstein`.
    """
    start = len(reading) - len(gold)
    if not gold[:1].isupper() or " " not in gold or start <= 0:
        return False
    same = reading[start:].casefold() == gold.casefold()
    return same and NOUN_BEFORE.fullmatch(reading[:start]) is not None


def is_uncertain(sentence: str, gold: str = "") -> bool:
    """Whether a sentence denies, doubts, compares or offers a choice, its gold's own words aside."""
    plain = SURE.sub("", sentence)
    if gold and len(gold) < 200:
        plain = re.sub(rf"(?<!\w){re.escape(gold)}(?!\w)", " ", plain, flags=re.IGNORECASE)
    return UNCERTAIN.search(plain) is not None


def sentences_of(text: str) -> list[str]:
    """The sentences and lines of a text; a full stop behind a title or an initial ends none."""
    parts, start = list[str](), 0
    for end in SENTENCE_END.finditer(text):
        word = re.split(r"[\s(]", text[start : end.start()])[-1]
        if end.group() == "." and (word in SHORT or (len(word) == 1 and word.isupper())):
            continue
        parts.append(text[start : end.end()])
        start = end.end()
    return [p.strip() for p in (*parts, text[start:]) if p.strip()]


def concluding_sentence(text: str, gold: str) -> str | None:
    """The one sentence that a text states its answer in; None where it cannot be told which."""
    parts = sentences_of(text)
    last = parts[-1]
    if cuts := list(CONCLUSION.finditer(last)):
        return last[cuts[-1].end() :]
    if len(parts) == 1:
        return last
    if all(REMARK.match(p) and not is_uncertain(p, gold) for p in parts[1:]):
        return parts[0]
    return None


def plain_sentence(sentence: str, gold: str) -> str:
    """A sentence without what opens it, the reason behind it and the other answers it excludes."""
    sentence = OPENING.sub("", sentence.strip().strip("*_ "), count=1)
    if (reason := REASON.search(sentence)) and reason.start():
        sentence = sentence[: reason.start()]
    dated = DATED.search(sentence)
    if dated and dated.start() and not any(map(str.isdigit, gold)) and gold != "\0":
        sentence = sentence[: dated.start()]
    excluded = EXCLUDED.search(sentence)
    denied = excluded and AUXILIARY.search(sentence[: excluded.start()])
    if (
        excluded
        and not denied
        and excluded.start()
        and gold.casefold() not in excluded["other"].casefold()
    ):
        sentence = sentence[: excluded.start()]
    return sentence
