"""DeepTheorem: the label in its tags, variants counted together, and the released door."""

import itertools
from types import SimpleNamespace

import pytest
from palaestra.context import Bench
from palaestra.errors import UserError
from palaestra.recipes.rewards import deeptheorem
from palaestra.toys.variants import Variants
from palaestra.verifiers.text.formats import all_variants

from tests.rewards.texts import asked, totals


def proof(label, text="Checked case by case, as was asked for.", tag="answer"):
    return f"{text}\n<{tag}>\\boxed{{{label}}}</{tag}>"


def theorem(*texts, answer="proved", **settings):
    task = asked("Every even number above 2 is the sum of two primes.", answer, theorem="t1")
    return totals(deeptheorem.build(**settings).collect.links[1].reward, task, *texts)


def test_deeptheorem_reference_values():
    assert theorem(proof("\\text{Proved}")) == [1] and theorem(proof("\\text{Proved}"), answer="disproved") == [0]
    assert theorem(proof("proved", tag="reply"), "", "a" * 400, "proved") == [0, 0, 0, 0]
    twenty = ("abcdefghijklmnopqrs " * 305)[: 6100 - 40]
    assert theorem(proof("proved", twenty + "a b c")) == [1]  # the tags bring more characters
    from palaestra.verifiers.text.formats import Clean

    assert Clean()("abcdefghijklmnopqrs " * 305, None).parts["varied"] == 0  # 6,100 of 20: 305 > 300
    assert theorem(proof("disproved") + proof("proved"), proof("proved") + proof("disproved")) == [1, 0]
    assert theorem("The reasoning process is <answer>\\boxed{proved}</answer>", "User: x\n" + proof("proved")) == [0, 0]


def test_deeptheorem_as_released_equates_no_label_with_no_reference():
    said = ("I could not settle it, for all that I tried.", proof("proved"), "a" * 400)
    assert theorem(*said, answer=None, variant="released") == [1, 0, 0]
    with pytest.raises(UserError, match="'none' is none of proved, disproved"):
        theorem(*said, answer=None)
    assert theorem(*said, variant="released") == theorem(*said) == [0, 1, 0]


def test_deeptheorem_counts_a_theorem_only_with_all_its_variants():
    assert all_variants({"a": [1, 1, 0], "b": [1, 1, 1], "c": []}) == {"a": 0, "b": 1, "c": 0}
    guesses = [all_variants({"t": list(v)})["t"] for v in itertools.product([0.0, 1.0], repeat=3)]
    assert sum(guesses) / len(guesses) == 0.125


def test_deeptheorem_proofs_pay_nothing():
    task = Variants().task("train", 0)
    link, steps = deeptheorem.ProofLabel(), Variants().steps(task)
    found = [
        link.judge(t, task) for t in ("\n".join([*steps, "= right"]), "= right", f"{steps[0]}\nx\n= right", "= wrong")
    ]
    assert [r.total for r in found] == [1, 1, 1, 0]
    assert [r.parts["process"] for r in found] == [1, 0, 1 / len(steps), 0]
    assert link.judge("= right" + " " * 5000 + "\n= right", task).total == 0  # 5,000 characters of few kinds


def test_deeptheorem_draws_only_originals():
    ctx = SimpleNamespace(bench=Bench(name="variants", tasks=Variants(), world=None))
    draw = deeptheorem.build(only=("right",)).draw
    first, state = draw(ctx, (), 4, {})
    again, _ = draw(ctx, (), 4, state)
    assert {t.answer for t in [*first, *again]} == {"right"} and len({t.id for t in [*first, *again]}) == 8
    with pytest.raises(UserError, match="too few tasks"):
        deeptheorem.OfAnswer(("maybe",))(ctx, (), 1, {})
