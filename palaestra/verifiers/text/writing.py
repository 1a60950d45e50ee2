"""Words, sentences and marks of a text as a reader takes them, whatever characters they are written
with.
"""

from __future__ import annotations

import html
import re
import unicodedata
from itertools import pairwise

# shown as nothing: format characters, joiners, fillers, variation selectors
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# letters of Cyrillic and Greek, and marks, that look like these (Unicode TS 39, confusables.txt)
LOOKALIKES = str.maketrans(
    "".join(
        (
            "\u0430\u0441\u0435\u0456\u0458\u043e\u0440\u0455\u0445\u0443\u0501\u04bb\u051b\u051d\u04cf",
            "\u0410\u0412\u0421\u0415\u041d\u0406\u0408\u041a\u041c\u041e\u0420\u0405\u0422\u0425\u0423\u0500\u051a\u051c\u04c0",
            "\u03bf\u03b1\u03bd\u03c1\u03b9\u03ba\u03c5\u03f3\u03f2",
            "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u037f\u03f9",
            "\u0131\u0251\u0261\u201a\u060c\u3001\u2010\u2011\u01c3\u2019\u02bc\u2236\u2044",
        )
    ),
    "aceijopsxydhqwl" + "ABCEHIJKMOPSTXYDQWI" + "oavpikujc" + "ABEZHIKMNOPTYXJC" + "iag,,,--!'':/",
)
# kept; or not shown: comments, tags of HTML, and link definitions of Markdown that hold a comment
MARKUP = re.compile(
    r"(?P<code>```.*?```|`[^`\n]*`)|<!--.*?(?:-->|\Z)|</?[A-Za-z][A-Za-z0-9-]*(?:\s[^<>]*)?/?>"
    r"|^\[(?://|comment|_)\]:[^\n]*$",
    re.DOTALL | re.MULTILINE,
)
HUMP = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][^\W\d_A-Z])")
WORD_CHAIN = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
SHORT = 3  # letters behind an apostrophe: don't, they're, we've
COMPOUND, SHARE = 4, 0.25  # parts of a compound, and the share of words that may be compounds
INNER_STOP = re.compile(r"(?<=\b[A-Za-z])\.(?=[A-Za-z]\b)")  # the stops within U.S. and p.m.
TITLES = re.compile(
    r"\b(?:e·g|i·e|cf|viz|Mr|Mrs|Ms|Dr|Prof|St|vs)\.|\b(?:No|Fig|approx)\.(?=\s*\d)|(?<=\d)\.(?=\d)"
)
CLOSING_ABBREVIATION = re.compile(
    r"\b(?:etc|[ap]·m|Ph\.D|Inc|Ltd|Co|Corp|Jr|Sr|al)\.(?=[,;:)]|\s+[^\sA-Z])"
)
INITIALS = re.compile(r"\b[A-Z](?:·[A-Z])+\.(?=[,;:)]|\s+\S)|\b[A-HJ-Z]\.(?=\s+[A-Z])")
STARTERS = re.compile(
    r"\s+(?:The|This|That|These|Those|It|He|She|They|We|I|You|In|On|At|But|And|So|If|There|As|A|An|My|His|Her)\b"
)
ENDS = re.compile(r"[.!?。！？]+")


CASELESS_LOOKALIKES = {
    **{
        ord(c): LOOKALIKES[k] + 32
        for k in LOOKALIKES
        if chr(LOOKALIKES[k]).isupper() and len(c := chr(k).casefold()) == 1
    },
    **{k: v for k, v in LOOKALIKES.items() if not chr(v).isupper()},
}  # of texts in one case, where a letter is alike that is so in either


def shown_text(text: str) -> str:
    """A text as a browser shows it: without comments and tags of HTML, its character references as
    characters. Code stays as it is.
    """
    return MARKUP.sub(lambda m: m["code"] or "", html.unescape(text) if "&" in text else text)


def visible_form(text: str, fold: bool = False) -> str:
    """A text as it looks: compatible forms and look-alikes as one, without what is not shown; with
    `fold` in one case.
    """
    alike = CASELESS_LOOKALIKES if fold else LOOKALIKES
    text = INVISIBLE.sub("", text.casefold() if fold else text).translate(alike)
    text = unicodedata.normalize("NFKC", text)
    return INVISIBLE.sub("", text.casefold() if fold else text).translate(alike)


def words_in(text: str) -> int:
    """Words; in scripts without spaces, letters.

    Parts joined by up to three hyphens are one word (state-of-the-art), unless these are over a
    quarter of the words: then each part counts, as it does in a longer chain. So do parts that
    begin with a capital inside a word (JavaScript is one word, TheCatSatOnTheMat six). An
    underscore joins nothing, an apostrophe only a short ending. What HTML does not show is none.
    """
    text = visible_form(shown_text(text))
    dense = len(re.findall(r"[\u3040-\u30ff\u3400-\u9fff]", text))
    chains = [
        parts_in(c) for c in WORD_CHAIN.findall(re.sub(r"[\u3040-\u30ff\u3400-\u9fff]", " ", text))
    ]
    compounds = sum(1 < n <= COMPOUND for n in chains)
    whole = compounds <= max(1, SHARE * len(chains))
    return dense + sum(1 if whole and n <= COMPOUND else n for n in chains)


def parts_in(chain: str) -> int:
    """Parts that hyphens join, and what stands behind an apostrophe where it is no ending (don't;
    O'Brien is one name).
    """
    pieces = [part.split("'") for part in chain.split("-")]
    humps = sum(len(HUMP.findall(part)) for part in chain.split("-"))
    return humps + sum(
        1 + sum(len(b) > SHORT and len(a) > 2 for a, b in pairwise(p)) + max(0, len(p) - 3)
        for p in pieces
    )


def sentences_in(text: str) -> int:
    """Sentences. The stop of an abbreviation ends none, unless a word follows that begins one: "in
    the U.S. The ...".
    """
    text = TITLES.sub("_", INNER_STOP.sub("·", text))
    text = INITIALS.sub(lambda m: m[0] if STARTERS.match(text_after(m)) else m[0][:-1], text)
    text = CLOSING_ABBREVIATION.sub(lambda m: m[0].replace(".", ""), text)
    return len([s for s in ENDS.split(text) if re.search(r"\w", s)])


def text_after(match: re.Match[str]) -> str:
    return match.string[match.end() : match.end() + 12]
