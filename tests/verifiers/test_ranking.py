"""NDCG of rankings: by hand, and as another library computes it."""

import random

import pytest
from palaestra.errors import UserError
from palaestra.verifiers import document_grades, ndcg, rank_sources
from palaestra.verifiers.ranking import recall, reciprocal_rank


def test_one_relevant_document_by_its_place():
    """1 / log2(place + 1): 1, .630930, .5, .430677; beyond k it is not found."""
    names = ["a", "b", "c", "d"]
    assert [ndcg(names, {n: 1.0}) for n in names] == pytest.approx([1, 0.630930, 0.5, 0.430677], abs=1e-6)
    assert [ndcg(names, {n: 1.0}, k=2) for n in names] == pytest.approx([1, 0.630930, 0, 0], abs=1e-6)


def test_grades_are_the_gains():
    """Grades 0, 3, 0, 2, 1 in the order of the ranking. DCG@5 = 3/log2(3) + 2/log2(5) + 1/log2(6), of the best
    ranking 3 + 2/log2(3) + 1/2; DCG@3 has the first term alone.
    """
    grades = {"b": 3.0, "d": 2.0, "e": 1.0}
    assert ndcg("abcde", grades, 5) == pytest.approx((1.8927893 + 0.8613531 + 0.3868528) / 4.7618595)
    assert ndcg("abcde", grades, 3) == pytest.approx(1.8927893 / 4.7618595)


def test_scikit_learn_has_the_same_numbers():
    """Of sklearn.metrics.ndcg_score, 1.9.1, which has no documents that were not found."""
    for gains, k, value in (
        ([0, 1, 0, 0, 0], 10, 0.6309297535714573),
        ([0, 3, 0, 2, 1], 5, 0.6596152573136868),
        ([0, 3, 0, 2, 1], 3, 0.3974895222916884),
        ([2, 0, 0, 1, 3, 0], 4, 0.5104469282277888),
    ):
        names = "abcdef"[: len(gains)]
        assert ndcg(names, dict(zip(names, gains, strict=True)), k) == pytest.approx(value, abs=1e-12)


def test_edges():
    assert ndcg([], {"a": 1.0}) == 0 and ndcg(["a"], {}) == 0 and ndcg(["a"], {"a": 0.0}) == 0
    assert ndcg(["a"], {"a": 1.0, "b": 1.0}) == pytest.approx(1 / 1.630930, abs=1e-6)  # the ideal has both
    assert ndcg(["a"], {"a": 1.0, "b": 1.0}, k=1) == 1
    assert ndcg(["x", "x", "a"], {"a": 1.0}) == pytest.approx(0.630930, abs=1e-6)
    assert ndcg(["a"], {"a": 1.0, "b": -1.0}) == 1


def test_passages_stand_for_the_documents_that_are_graded():
    ids = ["a.md#3", "b.md#1", "a.md#1", "c"]
    assert rank_sources(ids, {"a.md": 1.0}) == ["a.md", "b.md#1", "c"]
    assert rank_sources(ids, {"a.md#1": 1.0}) == ids
    assert rank_sources(["C#.md#2", "C#.md#1", "C#"], {"C#.md": 1.0, "C": 1.0}) == ["C#.md", "C#"]


def test_what_a_column_of_relevant_documents_may_have():
    assert document_grades("a.md", "x") == {"a.md": 1.0}
    assert document_grades(["a", "b"], "x") == {"a": 1.0, "b": 1.0}
    assert document_grades([1, "b"], "x") == {"1": 1.0, "b": 1.0} and document_grades(7, "x") == {"7": 1.0}
    assert document_grades({"a": 2, "b": 0.5}, "x") == {"a": 2.0, "b": 0.5}
    for wrong in ({"a": "high"}, {"a": True}, True, [1.5, 2], {"a": 0}):
        with pytest.raises(UserError, match="row 3: gold is"):
            document_grades(wrong, "row 3")


def test_ir_measures_has_the_same_numbers():
    """Two hundred random rankings, with grades 0 to 3, documents that were not found, and ties of nothing."""
    measures = pytest.importorskip("ir_measures", reason="pip install ir-measures pytrec-eval-terrier")
    rng = random.Random(0)
    for query in range(200):
        grades = {f"d{i}": rng.randint(0, 3) for i in range(rng.randint(1, 30))}
        names = rng.sample([f"d{i}" for i in range(40)], rng.randint(1, 40))
        judged = [measures.Qrel(str(query), name, grade) for name, grade in grades.items()]
        ranked = [measures.ScoredDoc(str(query), name, -float(i)) for i, name in enumerate(names)]
        k = rng.choice((1, 3, 5, 10, 100))
        theirs = {str(m): v for m, v in measures.calc_aggregate(
            [measures.nDCG @ k, measures.RR @ k, measures.R @ k], judged, ranked).items()}  # fmt: skip
        ours = {"nDCG": ndcg, "RR": reciprocal_rank, "R": recall}
        for name, of in ours.items():
            assert of(names, grades, k) == pytest.approx(theirs[f"{name}@{k}"], abs=1e-9), (query, name, k)
