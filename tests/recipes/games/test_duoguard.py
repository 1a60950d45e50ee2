"""DuoGuard: the loss of the guard, the filter, the pairs, who learns from what, and the toy languages."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.recipes.games import duoguard as duo
from palaestra.recipes.games.duoguard import guard, toy
from palaestra.run.driver import prepare
from palaestra.step import start, step

from tests.rewards.texts import asked, spoken

CLASSES = ("a", "b", "c")


def test_the_loss_of_a_guard():
    """The catalogue's: s = (2, -1, .5) with labels (1, 0, 0) is 1.231059, and without labels (-2, -1, -3) is 0.440190."""
    scores = torch.tensor([[2.0, -1.0, 0.5], [-2.0, -1.0, -3.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([[1.0, 0, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.float64)
    each = guard.pairwise_loss(scores, labels)
    everything = np.log1p(3 * np.exp(-1))
    assert each.tolist() == pytest.approx([1.231059, 0.440190, everything], abs=1e-6)
    half = scores.half().requires_grad_()
    guard.pairwise_loss(half, labels.half()).sum().backward()
    assert half.grad.isfinite().all()


def test_a_guard_flags_above_a_half():
    """sigmoid(2) = .88 flags; s = 0 is a half and flags nothing."""
    losses, wrong = duo.guard_losses(np.array([[2.0, -1, 0.5], [-2, -1, -3], [0.0, -1, -1]]), (1.0, 0.0, 0.0))
    assert wrong.tolist() == [0, 1, 1] and losses[0] == pytest.approx(1.231059, abs=1e-6)
    losses, wrong = duo.guard_losses(np.zeros((0, 3)), (0.0, 0.0, 0.0))
    assert not len(losses) and not len(wrong)


def test_f1_by_hand():
    assert guard.f1_of([True, True, False, False], [True, False, True, False]) == 0.5
    assert guard.f1_of([False], [False]) == 1.0 and guard.f1_of([True], [False]) == 0.0


def labelled(labels, text="a text"):
    return replace(asked(text), meta={} if labels is None else {"labels": labels, "language": "French"})


def test_labels_are_read_or_refused():
    assert guard.labels_of(labelled(["b"]), CLASSES) == (0.0, 1.0, 0.0)
    assert guard.labels_of(labelled([]), CLASSES) == guard.labels_of(labelled(""), CLASSES) == (0.0, 0.0, 0.0)
    assert guard.labels_of(labelled("c"), CLASSES) == (0.0, 0.0, 1.0)
    assert guard.labels_of(labelled({"a": False, "b": "true", "c": 0}), CLASSES) == (0.0, 1.0, 0.0)
    with pytest.raises(pl.UserError, match="give the list of its classes"):
        guard.labels_of(labelled(1), CLASSES)
    with pytest.raises(pl.UserError, match=r'label .d.; name all classes, such as classes="a,b,c,d"'):
        guard.labels_of(labelled(["d"]), CLASSES)
    with pytest.raises(pl.UserError, match="has no labels; give each row"):
        guard.labels_of(labelled(None), CLASSES)
    for wrong in ({"classes": " , "}, {"languages": ""}, {"samples": 1}, {"length": -1.0}):
        with pytest.raises(pl.UserError, match="duoguard"):
            duo.build(**wrong)


def test_a_rating_is_the_first_number_from_1_to_5():
    replies = ("4", "<think>2</think> 3 of 5", "I say: 1.", "no number", "45", "0.3", "7 then 2")
    assert [duo.read_rating(r) for r in replies] == [4, 3, 1, 5, 5, 5, 2]
    replies = (
        "No, it is not.",
        "On a scale from 1 (no) to 5 (yes): 2",
        "1. It keeps the meaning. Rating: 5",
        "It is none",
    )
    assert [duo.read_rating(r) for r in replies] == [1, 2, 5, 5]


def test_a_candidate_is_a_text_of_about_the_length_and_not_a_copy():
    kept = [
        duo.fits("ten letter", x, 0.5) for x in ("ten lettre", "ten letter ", "", "tiny", "fifteen letters", "x" * 16)
    ]
    assert kept == [True, False, False, False, True, False]
    assert duo.fill("{text} {x} {labels}", {"text": "{labels}", "labels": "l"}) == "{labels} {x} l"


def played(scores, kept=None, labels=(1.0,), **options):
    maker = duo.PlayDuo(("a",), toy.RateByRule(), alone=0, **options)
    kept = [True] * len(scores) if kept is None else kept
    texts = [spoken(f"say {i}") for i in range(len(kept))]
    return maker._paid(texts, kept, np.array(scores, float).reshape(-1, 1), labels)


def test_misread_texts_are_preferred():
    """Scores 2 and -2 of a text that is to be flagged: losses ln(1 + e^-2) and ln(1 + e^2), mean 1.126928."""
    right, left_out, wrong = played([2, -2], kept=[True, False, True])
    assert [e.reward.total for e in (right, wrong)] == [0.0, 1.0] and left_out.muted
    assert [e.muted for e in (right, wrong)] == [False, False]
    chosen = np.log1p(np.exp(2.0))
    assert wrong.reward.parts == {"kept": 1.0, "misread": 1.0, "harder": pytest.approx(chosen - 1.126928, abs=1e-6)}
    assert "misread" not in left_out.reward.parts
    pairs, _ = duo.build().learners["policy"].credit([pl.Group(task=asked("q"), episodes=(right, left_out, wrong))],
                                                     [[[{}]] * 3], {})  # fmt: skip
    assert [(x.columns["sign"], x.row) for x in pairs] == [(1.0, wrong.rows[0]), (-1.0, right.rows[0])]


def test_texts_that_are_read_alike_make_no_pair():
    for episodes in (played([2, 3]), played([-2, -3]), played([2, -2], adversarial=False), played([1])):
        assert {e.reward.total for e in episodes} <= {0.0, 1.0} and len({e.reward.total for e in episodes}) == 1
        assert all(e.reward.parts["harder"] == 0 for e in episodes)
    by_loss = played([2, 3], pairs="loss")
    assert by_loss[0].reward.total > by_loss[1].reward.total and by_loss[0].reward.parts["harder"] > 0
    assert played([], kept=[False])[0].muted


class Broken:
    async def __call__(self, ctx, text, candidate, labels):
        raise pl.Fault("timeout", "no rater")


def test_a_text_that_nobody_rated_is_not_learned_from():
    maker = duo.PlayDuo(("a",), Broken())
    assert not asyncio.run(maker._keep(None, "a text", "un texte", ["a"]))
    assert asyncio.run(replace(maker, filtered=False)._keep(None, "a text", "un texte", ["a"]))
    assert not asyncio.run(replace(maker, filtered=False)._keep(None, "a text", "a text", ["a"]))


def test_each_text_has_a_language_in_turn(context):
    ctx = context(task="chain")
    tasks, _ = duo.EachLanguage(("x", "y"))(ctx, ("k",), 3, {})
    assert [t.meta["language"] for t in tasks] == ["x", "y", "x"]


def test_the_toy_languages():
    assert toy.second("ba ke") == "du mi" and toy.is_fruit("ke ba", "first") and not toy.is_fruit("ke lo", "first")
    fruits = {toy.second(w) for w in toy.FRUIT}
    assert toy.is_fruit("du mi", "second") and not fruits & {toy.second(w) for w in toy.OTHER}
    rng = np.random.default_rng(0)
    for i in range(40):
        task = toy.toy_task("train", "first", i)
        text = task.prompt[0].content
        said = toy.rewritten(text, rng)
        assert toy.is_fruit(said, "second") == bool(task.meta["labels"])
        assert asyncio.run(toy.RateByRule()(None, text, said, task.meta["labels"])) == 5.0
        assert asyncio.run(toy.RateByRule()(None, text, said, [] if task.meta["labels"] else ["zorp"])) == 1.0
    assert asyncio.run(toy.RateByRule()(None, "ba", "", [])) == 1.0


def test_guard_and_generator_learn_from_their_own_rows(context):
    """Before the game the guard alone learns; in it from the text and the kept candidates, the generator from pairs."""
    game = duo.PlayDuo(
        ("zorp",), toy.RateByRule(), n=3, template="{text}>", filtered=False, length=9, pairs="loss", alone=1
    )
    recipe = duo.game(game, duo.EachLanguage(("second",), toy.ToyTexts(share=0.5)), None, 1e-3, 1e-3)
    recipe = pl.vary(recipe, schedule=pl.Schedule(prompts=4, steps=2))
    ctx = context(task="chain")
    ctx.bench = replace(ctx.bench, max_tokens=8)
    prepare(recipe, ctx)
    state, moved = start(0), []
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        moved.append({n for n in ("policy", "guard") if metrics.get(f"{n}/grad_norm", 0) > 0})
        assert metrics["guard/loss"] > 0
    assert moved == [{"guard"}, {"policy", "guard"}]
    seeds = [[e for e in g.episodes if e.rows[0].segments[-1].policy == "guard"] for g in ctx.seen[-4:]]
    assert all(1 <= len(x) <= 4 and len({e.reward.parts["zorp"] for e in x}) == 1 for x in seeds)


def test_the_guard_is_measured_on_held_out_texts(context):
    game = duo.PlayDuo(("zorp",), toy.RateByRule())
    recipe = duo.game(game, pl.Shuffled(), None, 1e-3)
    ctx = context(task="chain")
    prepare(recipe, ctx)
    numbers = asyncio.run(toy.ToyExam(("zorp",), tasks=20)(ctx))
    assert numbers == {"F1": 0.0, "flagged": 0.0, "F1 first": 0.0, "F1 second": 0.0}  # heads begin at 0


@pytest.mark.slow
def test_a_file_of_labelled_texts(tmp_path):
    """Duplicates, a row without labels, a bare label, and the guard as a classifier on the disk."""
    rows = [{"prompt": t, "labels": y} for t, y in (("cold soup", ["rude"]), ("thank you", []), ("go away", "rude"))]
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows * 6))
    chosen = {"classes": "rude", "languages": "loud", "alone": 1, "samples": 2, "schedule.prompts": 3, "exam": 4}
    run = pl.train("duoguard", data=str(file), out=tmp_path / "run", steps=2, set=chosen, max_tokens=8, quiet=True)
    lines = [json.loads(x) for x in (run.folder / "metrics.jsonl").read_text().splitlines()]
    exams = [x["evaluations"]["guard"] for x in lines if "evaluations" in x]
    assert len(exams) == 2 and all(0 <= x["F1"] <= 1 for x in exams)
    assert (run.folder / "checkpoints/step-2/guard/model.safetensors").exists()
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps({"prompt": f"x{i}", "labels": ["kind"]}) + "\n" for i in range(8)))
    with pytest.raises(pl.UserError, match="label 'kind'; name all classes"):
        pl.train("duoguard", data=str(other), out=tmp_path / "wrong", steps=1, set=chosen, evaluate=0, quiet=True)
