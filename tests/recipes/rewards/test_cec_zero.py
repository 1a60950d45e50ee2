"""CEC-Zero: likeness and consensus, copies with an error, and small seeded corruptions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.errors import UserError
from palaestra.recipes.rewards import cec_zero
from palaestra.types import Task, rng_of
from palaestra.verifiers.text.similarity import edit_distance

from tests.recipes.rewards.helpers import reward_of
from tests.rewards.texts import paid, task, totals


def points(texts):
    """The embeddings of the catalogue; the last text is the reference."""
    known = {"e1": (1.0, 0.0), "e2": (0.96, 0.28), "e3": (0.98, 0.198997), "e4": (0.0, 1.0), "": (0.0, 0.0)}
    return np.array([known[t] for t in texts])


def test_similarity_and_consensus_of_the_catalogue():
    said = ("= e1", "= e2", "= e3", "= e4")
    r1, r2, both = (
        totals(cec_zero.Restored(a, g, embed=points), task("e1"), *said) for a, g in ((1, 0), (0, 1), (0.5, 0.5))
    )
    assert r1 == pytest.approx([1, 0.8, 0.9, 0], abs=1e-5)
    assert r2 == pytest.approx([0.934931, 0.962661, 0.996231, 0], abs=1e-4)
    assert both[0] == pytest.approx(0.967466, abs=1e-4)


def test_no_cluster_no_text_and_no_reference():
    consensus = reward_of(cec_zero.build(supervised=0.0, agreed=1.0))
    assert totals(consensus, task(None), "= abcd", "= wxyz") == [0.0, 0.0], "a tie"
    assert totals(consensus, task(None), "= abcd", "= abcd", "", " ") == [
        pytest.approx(1.0),
        pytest.approx(1.0),
        0.0,
        0.0,
    ]
    assert totals(consensus, task(None), "", "") == [0.0, 0.0]
    with pytest.raises(UserError, match="no clean sentence"):
        totals(reward_of(cec_zero.build()), task(None), "= a")


def test_a_copy_with_an_error_is_paid_without_the_bonus():
    clean, copy = "the old ship sailed home", "the old shlp sailed home"
    plain, exact = (cec_zero.Restored(1.0, 0.0, exact=e) for e in (0.0, 1.0))
    assert totals(plain, task(clean), copy)[0] > 0.2
    assert totals(exact, task(clean), clean, copy)[0] == pytest.approx(2.0)
    assert totals(plain, task(clean), clean) == [pytest.approx(1.0)], "where nothing is wrong, the copy is right"


def test_errors_come_from_a_confusion_set_of_the_users(tmp_path):
    file = tmp_path / "set.txt"
    file.write_text("\ufeff字:子自\n的\t地\n\n天 夭\n", encoding="utf-8")
    assert cec_zero.read_confusions(str(file)) == {"字": ["子", "自"], "的": ["地"], "天": ["夭"], "夭": ["天"]}
    made = {cec_zero.corrupt("字", rng_of(("c", i)), (1, 1), cec_zero.read_confusions(str(file))) for i in range(60)}
    assert {"子", "自"} <= made and made - {"子", "自"} <= {m + "字" for m in cec_zero.MARKS} | {
        "字" + m for m in cec_zero.MARKS
    }
    assert cec_zero.build(confusions=str(file)).draw.confusions == str(file)
    file.write_text("的\n")
    cec_zero.read_confusions.cache_clear()
    for path in (str(file), str(tmp_path / "none.txt")):
        with pytest.raises(UserError, match="confusions="):
            cec_zero.read_confusions(path)


def test_detection_and_correction_are_scored_by_character_and_by_sentence():
    """Right; the right place and the wrong letter; nothing done; a correct sentence that is spoilt."""
    scores = cec_zero.correction_scores(
        [("abxd", "abcd", "abcd"), ("abxd", "abyd", "abcd"), ("abxd", "abxd", "abcd"), ("abcd", "abzd", "abcd")]
    )
    approx = lambda p, r, f1: pytest.approx({"precision": p, "recall": r, "f1": f1})
    assert scores["detection"] == approx(2 / 3, 2 / 3, 2 / 3)
    assert scores["characters"] == approx(1 / 3, 1 / 3, 1 / 3) == scores["sentences"] and scores["overcorrected"] == 1.0
    perfect = cec_zero.correction_scores([("abxd", "abcd", "abcd")])
    assert perfect["sentences"]["f1"] == perfect["characters"]["f1"] == 1.0 and "overcorrected" not in perfect


@given(st.text("的在他好明林abcdmn", min_size=1, max_size=12), st.integers(0, 50))
def test_corruption_is_seeded_and_small(sentence, seed):
    made = cec_zero.corrupt(sentence, rng_of(("c", seed)))
    assert made == cec_zero.corrupt(sentence, rng_of(("c", seed))) and abs(len(made) - len(sentence)) <= 6
    assert edit_distance(made, sentence) <= 3 * 3


def test_only_clean_sentences_are_corrupted():
    draw = cec_zero.Corrupted()
    found = draw.corrupt_task(task("x", sentence="明天见"), ("k", 1))
    assert found.answer == "明天见" and found.meta["source"] in found.prompt[0].content
    assert draw.corrupt_task(task("x"), ("k", 1)) == task("x")


def test_sentences_of_a_file_become_tasks_with_errors():
    text = "The moon is bright."
    made = cec_zero.Corrupted().corrupt_task(Task(id="t", meta={"sentence": text}), ("k",))
    assert made.answer == text != made.meta["source"] and made.meta["source"] in made.prompt[-1].content
    clean = cec_zero.Corrupted(edits=(0, 0)).corrupt_task(Task(id="t", meta={"sentence": text}), ("k",))
    share = lambda t: [r.parts["corrupted"] for r in paid(cec_zero.Restored(), t, text)]
    assert (share(made), share(clean), share(task("e1"))) == ([1.0], [0.0], [0.0])
