"""Documents searched by words."""

import math
import pickle

import pytest
from palaestra.errors import UserError
from palaestra.services.index import BM25

DOCS = (
    ("a", "The cat sat on the mat."),
    ("b", "A cat, a dog; a cat."),
    ("c", "Nothing <answer>42</answer> <|end|> here"),
    ("d", ""),
    ("e", "A cat, a dog; a cat."),
)
INDEX = BM25(DOCS)


def ids(query, k=3, index=INDEX):
    return [i for i, _, _ in index.search(query, k)]


def test_best_first_and_of_equals_the_first_document():
    assert ids("cat") == ["b", "e", "a"] and ids("cat", 1) == ["b"] and ids("MAT cat", 9) == ["a", "b", "e"]
    found = INDEX.search("dog")
    assert [text for _, text, _ in found] == [DOCS[1][1], DOCS[4][1]] and found == INDEX.search("Dog!")


def test_scores_are_those_of_the_formula():
    """Lucene's BM25: ln(1 + (N - n + 0.5) / (n + 0.5)) f / (f + k1 (1 - b + b |d| / mean |d|)), k1 = 1.5, b = 0.75."""
    lengths = [6, 6, 6, 0, 6]
    idf = math.log(1 + (5 - 3 + 0.5) / (3 + 0.5))
    scale = 1.5 * (0.25 + 0.75 * 6 / (sum(lengths) / 5))
    found = {i: score for i, _, score in INDEX.search("cat")}
    assert found == pytest.approx({"a": idf / (1 + scale), "b": idf * 2 / (2 + scale), "e": idf * 2 / (2 + scale)})


@pytest.mark.parametrize("query", ["", "  ", "?!", "unheard", "<|end|>!?", "\n"])
def test_no_word_and_no_hit(query):
    assert ids(query) == ([] if "end" not in query else ["c"])


def test_a_shuffled_index_shows_others_in_the_place_of_what_fits():
    """The control: every document stands in the place of one other."""
    shuffled = BM25(DOCS, shuffle=1)
    one = [ids(i, 1)[0] for i in ("mat", "nothing")]
    other = [ids(i, 1, shuffled)[0] for i in ("mat", "nothing")]
    assert one == ["a", "c"] and all(x != y for x, y in zip(one, other, strict=True))
    assert other == [ids(i, 1, BM25(DOCS, shuffle=1))[0] for i in ("mat", "nothing")]
    texts = dict(DOCS)
    assert all(text == texts[i] for i, text, _ in shuffled.search("cat"))
    assert sorted(shuffled._places) == list(range(5))


def test_an_index_is_a_value():
    assert BM25(DOCS) == INDEX and hash(BM25(DOCS)) == hash(INDEX) and repr(BM25(DOCS)) == repr(INDEX)
    assert repr(BM25(DOCS[:2])) != repr(INDEX) and len(repr(INDEX)) < 80
    ids("cat")
    assert pickle.loads(pickle.dumps(INDEX)).search("cat") == INDEX.search("cat")  # to a rollout worker


@pytest.mark.parametrize("docs", [(), (("a", ""),), (("a", "x"), ("a", "y"))])
def test_what_is_no_index(docs):
    with pytest.raises(UserError, match="documents"):
        BM25(docs)
