"""What of a collection stays: equal, nearly equal and held-out texts, and how many went for which reason."""

import pytest
from palaestra.curriculum.deduplicate import Deduplicate, Deduplicated, Neighbours, prompt_text
from palaestra.errors import UserError
from palaestra.types import Message, Task


def ask(text, i=0):
    return Task(id=f"t{i}", prompt=(Message(role="user", content=text),), answer="1")


TEXTS = ["a b c d e", "a b  c d e ", "a b c d f", "x y z", "p q r s t"]


def clean(texts, held=(), **options):
    return Deduplicate(**options)([ask(t, i) for i, t in enumerate(texts)], [ask(t) for t in held])


def test_equal_texts_go_but_for_their_blanks():
    found = clean(TEXTS, ["p q r  s t"])
    assert [prompt_text(t) for t in found.kept] == [TEXTS[0], TEXTS[2], TEXTS[3]]
    assert (found.duplicates, found.near, found.held_out) == (1, 0, 1)


def test_texts_that_share_their_runs_of_words_are_one():
    """Of three runs of three words each, abcde and abcdf share two of four: Jaccard .5."""
    assert clean(TEXTS[:3], most=0.5).near == 1 and clean(TEXTS[:3], most=0.51).near == 0
    held = clean(["a b c d f"], ["a b c d e"], most=0.5)
    assert held == Deduplicated(kept=(), held_out=1)
    assert clean(["A B C d e"], ["a b c d f"], most=0.5).held_out == 1  # in any case


def test_short_texts_and_none():
    assert clean(["hi", "hi there", "", ""], most=0.9).duplicates == 1
    assert clean(["hi you", "you hi"], most=0.9).near == 0  # one run each, in another order
    assert clean([]).kept == ()


def test_a_held_out_problem_counts_as_such_even_where_it_is_there_twice():
    found = clean(["a b", "a b"], ["a b"])
    assert (found.held_out, found.duplicates) == (2, 0)


def test_neighbours_are_found_by_what_they_share():
    near = Neighbours(0.5)
    near.add({1, 2})
    near.add({7})
    assert near.has({1, 2, 3}) and not near.has({1, 8, 9}) and not near.has({4})


@pytest.mark.parametrize(("options", "name"), [({"most": 0.0}, "most"), ({"most": 1.1}, "most"), ({"n": 0}, "n")])
def test_bounds(options, name):
    with pytest.raises(UserError, match=name):
        Deduplicate(**options)
