"""Re-encodings of a text that anybody knows, each with its exact inverse on texts of lower-case letters
and spaces. A defender who undoes or trains on encodings knows of some of them alone; who undoes `spaced`, by taking each
second sign, undoes `doubled` too.

    plain        the text               spaced    a space behind each letter
    upper        capitals               doubled   each sign twice
    reversed     from its end           digits    a 4, e 3, i 1, o 0, u 7
    shift        Caesar's, by three     base64    of its bytes
    keyed        letters exchanged by an alphabet that begins with a keyword, which the text names
"""

import base64
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SHIFT = 3
KEYWORD = "quartz"
LETTERS = string.ascii_lowercase
DIGITS = str.maketrans("aeiou", "43107")
UNDO_DIGITS = str.maketrans("43107", "aeiou")


def keyword_alphabet(keyword: str) -> str:
    """The letters of a keyword, each once, and behind them the others in order."""
    return "".join(dict.fromkeys(keyword + LETTERS))


def exchange(text: str, from_: str, to: str) -> str:
    return text.translate(str.maketrans(from_, to))


def undo_base64(text: str) -> str:
    """The decoded text; as it is where it is none of base64."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class Cipher:
    """A re-encoding. `known`: to the defender, who may undo it or train on it."""

    name: str
    encode: Callable[[str], str]
    decode: Callable[[str], str]
    known: bool


SHIFTED = LETTERS[SHIFT:] + LETTERS[:SHIFT]
ALPHABET = keyword_alphabet(KEYWORD)
NAMED = f"key {KEYWORD}: "
CIPHERS: Sequence[Cipher] = (
    Cipher("plain", lambda t: t, lambda t: t, True),
    Cipher("upper", str.upper, str.lower, True),
    Cipher("reversed", lambda t: t[::-1], lambda t: t[::-1], True),
    Cipher(
        "shift",
        lambda t: exchange(t, LETTERS, SHIFTED),
        lambda t: exchange(t, SHIFTED, LETTERS),
        True,
    ),
    Cipher("spaced", lambda t: "".join(f"{c} " for c in t), lambda t: t[::2], True),
    Cipher("doubled", lambda t: "".join(c + c for c in t), lambda t: t[::2], False),
    Cipher(
        "digits", lambda t: t.translate(DIGITS), lambda t: t.translate(UNDO_DIGITS), False
    ),
    Cipher(
        "base64", lambda t: base64.b64encode(t.encode()).decode(), undo_base64, False
    ),
    Cipher(
        "keyed",
        lambda t: NAMED + exchange(t, LETTERS, ALPHABET),
        lambda t: exchange(t.removeprefix(NAMED), ALPHABET, LETTERS),
        False,
    ),
)  # fmt: skip
NAMES = tuple(c.name for c in CIPHERS)


def undone(text: str) -> list[str]:
    """A text, and what each encoding that the defender knows would have had before."""
    return list(dict.fromkeys(c.decode(text) for c in CIPHERS if c.known))


def undone_as(cipher: Cipher) -> str:
    """The known encoding whose inverse undoes another on all texts of letters and spaces, as that of `spaced`
    undoes `doubled`; "" = none.
    """
    text = " ".join(LETTERS)
    each = (c.name for c in CIPHERS if c.known and c.decode(cipher.encode(text)) == text)
    return "" if cipher.known else next(each, "")
