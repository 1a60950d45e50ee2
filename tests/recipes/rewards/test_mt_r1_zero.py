"""MT-R1-Zero: lexical, semantic and mixed rewards of a translation."""

import pytest
from palaestra.recipes.rewards import mt_r1_zero

from tests.recipes.rewards.helpers import reward_of
from tests.rewards.texts import task, totals


def translated(text):
    return f"<think>x</think><translate>{text}</translate>"


CAT = task("the cat sat on the mat", source="le chat")


def test_translation_rewards_of_the_catalogue():
    said = (
        translated("the cat is on the mat"),
        translated(CAT.answer),
        translated("the " * 6),
        "no tags",
        translated(" "),
        "",
    )
    lex = totals(reward_of(mt_r1_zero.build("lex")), CAT, *said)
    assert lex[:2] == [pytest.approx(1.3799, abs=1e-4), 2.0]
    assert lex[2] == 1.0, "0.0965 of BLEU for one word six times is a loop: the guard leaves the form"
    assert lex[3:] == [-3.0, -1.0, -3.0]
    sem, mix = (totals(reward_of(mt_r1_zero.build(m)), CAT, *said) for m in ("sem", "mix"))
    assert mix[0] == pytest.approx(lex[0] + sem[0] - 1) and mix[1] == 3.0 and mix[3:] == lex[3:]


def test_translation_by_ones_own_metric(tmp_path):
    (tmp_path / "metric.py").write_text("def kiwi(source, hypothesis, reference):\n    return 0.8\n")
    reward = reward_of(mt_r1_zero.build(semantic=f"{tmp_path}/metric.py:kiwi"))
    assert totals(reward, CAT, translated("the cat is on the mat")) == [pytest.approx(2.1799, abs=1e-4)]


def test_translation_variants():
    near, right = translated("the cat is on the mat"), translated(CAT.answer)
    discrete = reward_of(mt_r1_zero.build("lex", threshold=0.5))
    assert totals(discrete, CAT, near, right, "no tags", "") == [-0.5, 3.0, -3.0, -3.0]
    free = reward_of(mt_r1_zero.build("lex", gate=False))
    assert totals(free, CAT, near, "no tags", "") == [pytest.approx(0.3799, abs=1e-4), 0.0, 0.0]
    assert totals(discrete, CAT, translated("le chat")) == [-0.5], "a copy of the source has no content"
    lined = totals(reward_of(mt_r1_zero.build("lex")), task("6614"), "= 6614", "= 6615", "6614", "")
    assert lined[0] == 2.0 and 1.0 < lined[1] < 2.0 and lined[2:] == [-3.0, -3.0]
