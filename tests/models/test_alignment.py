"""Two tokenisations of one text: their common boundaries by hand, characters of several tokens, and that nothing is lost."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from palaestra.models.alignment import align, common_length, text_ends

TEXT = st.characters(codec="utf-8", exclude_characters="\ufffd")  # which stands for what cannot be decoded
LETTERS = [bytes([b]) for b in range(256)]


def decode_of(pieces):
    """A byte-level vocabulary: the pieces, then all bytes."""
    known = [p.encode() for p in pieces] + LETTERS
    return lambda ids: b"".join(known[i] for i in ids).decode("utf-8", "replace")


def numbers(own, theirs, text):
    found = align(own, theirs, len(text))
    return found.own_T.tolist(), found.their_T.tolist()


def test_spans_by_hand():
    """un|believable and un|bel|ievable: the spans un, believable. a|bc|d and ab|c|d: abc, d."""
    assert numbers([2, 12], [2, 5, 12], "unbelievable") == ([1, 2], [1, 2, 2])
    assert numbers([1, 3, 4], [2, 3, 4], "abcd") == ([1, 1, 2], [1, 1, 2])
    assert numbers([1, 2], [1, 2], "ab") == ([1, 2], [1, 2])


def test_sums_of_spans_by_hand():
    """ab|c|d says -1, -2, -4: the span abc has -3, d has -4."""
    found = align([1, 3, 4], [2, 3, 4], 4)
    assert found.sums(np.array([-1.0, -2.0, -4.0])).tolist() == [0, -3, -4]
    assert [s.tolist() for s in found.sizes()] == [[0, 2, 1], [0, 2, 1]]


def test_what_they_spell_differently_is_in_no_span():
    """The other one writes abX: c and all behind it is lost, and so is what no boundary closes."""
    assert common_length("abcd", "abXd") == 2
    assert numbers([1, 2, 3, 4], [2, 3, 4], "ab") == ([1, 1, 0, 0], [1, 0, 0])
    assert numbers([1, 3], [2], "ab") == ([0, 0], [0])


def test_a_boundary_inside_a_character_is_none():
    """é is two bytes: as two tokens it ends behind the second, and both are in the span of the other's one."""
    decode = decode_of(["é", "aé"])
    torn, whole, joined = (
        [2 + 0xC3, 2 + 0xA9, 2 + ord("a")],
        [0, 2 + ord("a")],
        [2 + ord("a"), 0],
    )
    assert text_ends(torn, decode) == ("éa", [-1, 1, 2])
    assert text_ends(whole, decode) == ("éa", [1, 2])
    assert numbers([-1, 1, 2], [1, 2], "éa") == ([1, 1, 2], [1, 2])
    assert text_ends(joined[:1] + torn[:1], decode) == ("a", [1, -1])  # it stops inside one
    assert numbers([1, -1], [1], "a") == ([1, 0], [1])


@settings(max_examples=60, deadline=None)
@given(st.text(TEXT, max_size=12), st.lists(st.text(TEXT, min_size=1, max_size=3), max_size=4), st.randoms())
def test_every_token_of_one_text_is_in_a_span_and_spans_have_equal_texts(text, pieces, rng):
    decode = decode_of(pieces)

    def spell():
        """Any tokens of the text: pieces that fit, else bytes."""
        ids, left = [], text.encode()
        while left:
            fit = [i for i, p in enumerate(pieces) if left.startswith(p.encode())]
            i = rng.choice(fit) if fit and rng.random() < 0.7 else len(pieces) + left[0]
            ids.append(i)
            left = left[len(pieces[i].encode()) if i < len(pieces) else 1 :]
        return ids

    own, theirs = spell(), spell()
    (a, own_ends), (b, their_ends) = text_ends(own, decode), text_ends(theirs, decode)
    assert a == b == text
    found = align(own_ends, their_ends, len(text))
    assert (found.own_T > 0).all() and (found.their_T > 0).all()
    for s in range(1, found.spans + 1):
        mine = decode([i for i, n in zip(own, found.own_T, strict=True) if n == s])
        assert mine == decode([i for i, n in zip(theirs, found.their_T, strict=True) if n == s]) != ""


def test_a_decoder_that_writes_the_first_token_otherwise():
    """Sentencepiece drops the blank before a text's first token; a token is decoded behind the one before it."""
    words = [" a", " b"]
    decode = lambda ids: "".join(words[i] for i in ids).removeprefix(" ")
    assert text_ends([0, 1, 0], decode) == ("a b a", [1, 3, 5])
