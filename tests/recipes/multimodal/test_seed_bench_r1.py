"""SEED-Bench-R1: the catalogue's values, how answers are read, options and their orders, and the report by level."""

import asyncio
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import palaestra as pl
import pytest
from palaestra import values
from palaestra.errors import UserError
from palaestra.models.inside.attention import picture_mass
from palaestra.pictures import FIRST_PLACE
from palaestra.recipes.multimodal import seed_bench_r1 as row
from palaestra.recipes.multimodal.seed_bench_r1.arms import (
    ARMS,
    AskedClips,
    ClipDraw,
    arms_of,
    few_options,
    tell_epochs,
    with_rates,
)
from palaestra.recipes.multimodal.seed_bench_r1.exam import level_of
from palaestra.recipes.multimodal.seed_bench_r1.reading import (
    ChoiceReward,
    first_letter,
    gold_letter,
    read_answer,
    strict_letter,
    supported_letter,
)
from palaestra.recipes.multimodal.seed_bench_r1.results import LevelArm, report
from palaestra.toys.kitchen import LEVELS, Kitchens
from palaestra.types import Message, Task
from torch import tensor

from tests.recipes.objectives.helpers import advantages, near, weights

OPTIONS = ["stir", "pour", "cut bread", "cut"]
CASE = Task(
    id="case",
    prompt=(Message(role="user", content="next?\nA. stir\nB. pour\nC. cut bread\nD. cut"),),
    answer="B",
    meta={"options": OPTIONS},
)


def said(thought, answer):
    return f"<think>{thought}</think><answer>{answer}</answer>"


def test_advantages_of_two_right_answers_among_eight():
    """mean 1/4, sample standard deviation .462910: (1 - .25) / .463010 = 1.619835 and -.25 / .463010 = -.539945."""
    rl = row.build(kl=0.0).rl
    found = list(advantages(rl, *({"reward": r} for r in (1, 1, 0, 0, 0, 0, 0, 0))))
    assert found == near([1.619835] * 2 + [-0.539945] * 6, 1e-5)


def test_the_penalty_is_k3():
    """At log pi_ref - log pi = .05 it is e^.05 - .05 - 1 = .00127110, times .1 = .00012711. Against its slope
    1 - e^.05 = -.0512711 each of 2 x 2 tokens is made likelier by .1 * .0512711 / 4.
    """
    assert 0.1 * (math.exp(0.05) - 0.05 - 1) == near(0.00012711, 1e-8)
    rows = [{"reward": r, "length": 2, "logp": [-1.0] * 2, "ref_logp": [-0.95] * 2} for r in (1.0, 0.0)]
    plain, pulled = (np.array(weights(row.build(kl=kl).rl, rows)) for kl in (0.0, 0.1))
    assert (pulled - plain).ravel().tolist() == near([0.1 * 0.0512711 / 4] * 4, 1e-7)


@pytest.mark.parametrize(
    ("text", "first", "strict"),
    [
        (said("t", "B."), True, True),
        (said("t", "B"), True, True),
        (said("t", " (B) "), False, True),  # its first character is a bracket
        (said("t", "B. pour"), True, True),
        (said("t", "B. stir"), True, False),  # the letter with another option's text
        (said("t", "Bowl"), True, False),
        (said("t", "B or C"), True, False),
        (said("t", "b"), False, False),  # case counts in the released code
        (said("t", "option B"), False, False),
        (said("t", "pour"), False, False),
        ("B.", False, False),
        ("", False, False),
        (said("t", ""), False, False),
        (said("t", "B") + "<answer>C</answer>", True, False),
        ("<answer>C</answer><answer>B</answer>", False, False),
    ],
)
def test_both_rules(text, first, strict):
    assert (first_letter(text) == "B", strict_letter(text, OPTIONS) == "B") == (first, strict)
    lenient = ChoiceReward().judge(text, CASE)
    assert (lenient.total, lenient.parts["lenient"]) == (float(first), float(first and not strict))
    assert ChoiceReward(strict=True).judge(text, CASE).total == float(strict)


@pytest.mark.parametrize(
    ("thought", "letter"),
    [
        ("stir is done, then pour", "B"),
        ("pour was done, so cut bread", "C"),  # and not D, whose text is inside of it
        ("cut, and not cut breads", "D"),
        ("option (A) or option B", "B"),
        ("I think the answer is D", "D"),
        ("restir", ""),
        ("B", "B"),
        ("(B)", "B"),
        ("pour? I say B.", "B"),
        ("the answer is not option B", ""),
        ("The answer is not B", ""),
        ("It can't be stir, so pour", "B"),
        ("It can't be cut bread, so pour? no.", ""),
        ("B. pour fits. Not A, not D: cut is later", "B"),
        ("pour rather than stir", "B"),
        ("pour, and stir is wrong", "B"),
        ("pour is next, stir isn't the answer", "B"),
        ("we have not poured, so pour comes, never stir", "B"),
        ("it is not stir but pour", "B"),
        ("nothing", ""),
        ("", ""),
    ],
)
def test_what_a_thought_supports(thought, letter):
    assert supported_letter(thought, OPTIONS) == letter


def test_agreement_of_thought_and_answer():
    assert read_answer(said("then pour", "B."), CASE)["consistent"] is True
    assert read_answer(said("then stir", "B."), CASE)["consistent"] is False
    for silent in (said("hm", "B."), "<answer>B.</answer>", said("then pour", ""), said("then pour", "x")):
        assert read_answer(silent, CASE)["consistent"] is None


def test_the_answer_is_no_part_of_the_thought():
    """A thought that is not closed does not hold the answer, so that it agrees by itself."""
    for open_ended in ("<think>hm <answer>B. pour</answer>", "<think>hm <answer>B. pour"):
        assert read_answer(open_ended, CASE)["supports"] == ""
    assert read_answer("<think>then stir <answer>B. pour</answer>", CASE)["consistent"] is False
    twice = "<think>stir <answer>A</answer> no, pour</think><answer>B</answer>"
    assert read_answer(twice, CASE)["thought"] == "stir  no, pour"


def test_a_letter_alone_agrees_and_is_not_paid():
    assert read_answer(said("(B)", "B."), CASE)["consistent"] is True
    assert ChoiceReward(consistent=0.5).judge(said("(B)", "B."), CASE).total == 1.0


def test_what_arms_add_to_the_reward():
    formed, bare = said("then pour", "B."), "<answer>B.</answer>"
    reward = ChoiceReward(form=1.0, consistent=0.5)
    assert reward.bounds == (0, 2.5)
    totals = [reward.judge(x, CASE).total for x in (formed, bare, said("then pour", "C."), said("then stir", "B."))]
    assert totals == [2.5, 1.0, 1.0, 2.0]  # agreement is paid with a right answer alone
    arms = arms_of(row.build().rl, row.build().sft, strict=True)
    assert tuple(arms) == ARMS
    rewards = {n: next((p for _, p in values.walk(r) if isinstance(p, ChoiceReward)), None) for n, r in arms.items()}
    assert rewards["grpo"] == ChoiceReward(True) and rewards["sft"] is None
    draws = {n: r.draw for n, r in arms.items()}
    assert draws["grpo-fixed"] == ClipDraw(False) and draws["sft-shuffled"] == ClipDraw(True, "answer")


def test_options_in_a_fresh_order_keep_what_is_right(context):
    ctx, seen = context("kitchens"), set()
    for i in range(6):
        (task,), _ = ClipDraw(imitate="answer")(ctx, ("k", i), 1, {})
        letter = gold_letter(task)
        shown = dict(line.split(". ") for line in task.prompt[0].content.split("\n")[1:])
        assert shown[letter] == task.answer and len(task.prompt[0].pictures) == 4
        assert task.meta["demonstration"] == f"<answer>{letter}.</answer>"
        assert ChoiceReward().judge(task.meta["demonstration"], task).total == 1
        seen.add(tuple(task.meta["order"]))
    assert len(seen) > 2


def test_few_options_of_many():
    many = [f"step {i}" for i in range(9)]
    content = "next?\n" + pl.tasks.letter_options(many)
    task = Task(id="m", prompt=(Message(role="user", content=content),), answer="F", meta={"options": many})
    few = few_options(task, 4)
    assert len(few.meta["options"]) == 4 and few.answer == "step 5" and few == few_options(task, 4)
    assert few.prompt[0].content == "next?\n" + pl.tasks.letter_options(few.meta["options"])
    assert few.meta["options"][ord(gold_letter(few)) - ord("A")] == "step 5"
    assert few_options(CASE, 4) is CASE
    with pytest.raises(UserError, match="has no options"):
        few_options(Task(id="x", answer="A"), 4)


def test_levels_of_the_clips():
    clips = Kitchens()
    tasks = [clips.task("test", i) for i in range(60)]
    assert [level_of(t) for t in tasks[:3]] == ["1", "2", "3"]
    assert {clips.task("train", i).meta["level"] for i in range(20)} == {1}
    floors = {level: {t.prompt[0].pictures[0].data[-3:] for t in tasks if t.meta["level"] == level} for level in LEVELS}
    assert len(floors[1]) <= 5 < len(floors[2])  # one floor and the stations, against noise
    for t in tasks:
        recipe = t.prompt[0].content.strip("\ufffc").split(" ")[0].split(">")
        assert (len(set(recipe)) == 4) == (t.meta["level"] != 3)
        k = len(t.meta["done"])
        assert recipe[:k] == list(t.meta["done"]) and recipe[k] == t.answer
        assert clips.check(clips.demonstration(t, np.random.default_rng(0), "work"), t)["exact"] == 1
        assert clips.check("<answer>E.</answer>", t)["exact"] == clips.check("", t)["exact"] == 0


def test_a_repeated_step_needs_more_than_the_last_frame():
    """At level 3 the present with the recipe leaves the next step open for some problems; at the others never."""
    open_ended = dict.fromkeys(LEVELS, 0)
    for i in range(150):
        t = Kitchens().task("test", i)
        recipe = t.prompt[0].content.strip("\ufffc").split(" ")[0].split(">")
        nexts = {recipe[j + 1] for j in range(3) if recipe[j] == t.meta["done"][-1]}
        open_ended[t.meta["level"]] += len(nexts) > 1
    assert open_ended[1] == open_ended[2] == 0 < open_ended[3]


def test_attention_to_pictures_is_a_share():
    """Two heads, three tokens, of which the first is a place: the last token pays it .2 and .4, so .3."""
    maps = tensor([[[1.0, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]], [[1.0, 0, 0], [0.7, 0.3, 0], [0.4, 0.1, 0.5]]])
    assert picture_mass(maps, tensor([FIRST_PLACE, 5, 6])).tolist() == near([1.0, 0.6, 0.3], 1e-6)
    assert picture_mass(maps, tensor([4, 5, 6])).tolist() == [0, 0, 0]


def item(level, right, **more):
    return {"id": "x", "level": level, "question": "q", "gold": "B", "text": f"{right}", "right": right,
            "lenient": False, "consistent": None, **more}  # fmt: skip


def test_the_report_counts_by_level():
    start = LevelArm("start", [item(v, False, removed=False) for v in "112233"])
    rl = LevelArm("grpo", [item(v, r, removed=True) for v, r in zip("112233", (1, 1, 1, 0, 0, 0), strict=True)])
    sft = LevelArm("sft", [item(v, r, removed=False) for v, r in zip("112233", (1, 0, 0, 0, 0, 0), strict=True)])
    rl.items[0].update(consistent=True, lenient=True)
    rl.items[1].update(consistent=False)
    found = report([start, rl, sft])
    n = found.numbers
    assert [n[f"right_grpo_{v}"].mean for v in "123"] == [1, 0.5, 0] and n["right_grpo"].mean == 0.5
    assert [n[f"rl_over_sft_{v}"].mean for v in "123"] == [0.5, 0.5, 0]
    assert n["removed_grpo"].mean == 1 and n["consistent_grpo"].mean == 0.5 and n["lenient_grpo"] == near(1 / 6)
    assert "consistent_sft" not in n and rl.silent == near(4 / 6)
    assert len(found.tables[0].rows) == 3 and len(found.findings) > 5
    assert report([start]).numbers["moved"] == 0.0
    assert found.findings[0].startswith("Reinforcement learning (grpo) is")
    assert "imitation (sft) at level 1" in found.findings[0]
    told = report([start, rl, LevelArm("sft-answers", sft.items)]).findings[0]
    assert "imitation of the letters alone (sft-answers)" in told


def test_questions_are_asked_with_the_form(context):
    asked = AskedClips(Kitchens(), 3, "Answer in <answer></answer>.")
    task = asked.task("test", 4)
    assert task.prompt[0].content.endswith("\nAnswer in <answer></answer>.") and len(task.meta["options"]) == 3
    bare = pl.tasks.MediaControl(media="removed").tasks(asked).task("test", 4)
    assert not bare.prompt[0].pictures and bare.answer == task.answer


def test_wrong_arguments_and_rows_are_one_line(context, tmp_path):
    with pytest.raises(UserError, match="arms=sgd: the arms are grpo"):
        row.build(arms="sgd")
    rows = [{"prompt": f"next {i}?", "options": ["a", "b"], "answer": "A"} for i in range(12)]
    file = tmp_path / "f.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    from palaestra.run.benches import from_data

    ctx = context("kitchens")
    with pytest.raises(UserError, match="the arm sft imitates the column 'demonstration'"):
        asyncio.run(row.build(arms="sft").run(ctx.with_bench(from_data(str(file), "", ""))))
    file = tmp_path / "g.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{i}?", "answer": "A"}) + "\n" for i in range(12)))
    with pytest.raises(UserError, match="has no options; give its row a column 'options'"):
        asyncio.run(row.build().run(ctx.with_bench(from_data(str(file), "", ""))))


def test_the_baseline_is_the_papers_where_rows_have_it(context, tmp_path):
    from palaestra.run.benches import from_data

    rows = [{"prompt": f"next {i}?", "options": ["a", "b"], "answer": "A"} for i in range(12)]
    shown = [{**r, "demonstration": "<think>a</think><answer>A</answer>"} for r in rows]
    for name, some, arm in (("bare", rows, "sft-answers"), ("shown", shown, "sft")):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(r) + "\n" for r in some))
        ctx = context("kitchens")
        bench = from_data(str(file), "", "")
        there = ctx.with_bench(replace(bench, tasks=AskedClips(bench.tasks)))
        assert row.build()._checked(there) == ["grpo", arm]
    assert row.build()._checked(context("kitchens")) == ["grpo", "sft"]


def test_held_out_rows_are_read_before_anything_is_trained(context):
    class Bad(Kitchens):
        def task(self, split, index):
            task = super().task(split, index)
            broken = split == "test" and index % 6 == 5
            return replace(task, meta={k: v for k, v in task.meta.items() if k != "options"}) if broken else task

    ctx = context("kitchens")
    with pytest.raises(UserError, match="has no options"):
        row.build(problems=6)._checked(ctx.with_bench(replace(ctx.bench, tasks=Bad())))


def test_epochs_are_told():
    """750 steps of 8 problems of 28 rows are 6000 / 28 = 214.3 epochs; 4 steps are one."""
    lines = []
    bench = SimpleNamespace(tasks=SimpleNamespace(size=28))
    ctx = SimpleNamespace(budget={}, bench=bench, say=lines.append)
    told = tell_epochs(ctx, row.build().rl, "rl_steps")
    assert told == "750 steps of 8 problems, 214 epochs of the 28 in the data" and lines == [
        f"{told}; rl_steps=4 is one epoch"
    ]
    endless = SimpleNamespace(budget={"steps": 3}, bench=SimpleNamespace(tasks=Kitchens()), say=lines.append)
    assert tell_epochs(endless, row.build().rl, "rl_steps") == "3 steps of 8 problems" and len(lines) == 1


def test_rates_follow_the_steps_that_are_taken():
    """Over 20 steps: 2 to warm up, half the rate after 10 and nothing after 20."""
    sft = with_rates(row.build().sft, 20)
    optimiser = sft.learners["policy"].optimiser
    assert (optimiser.warmup, optimiser.lr.at(10), optimiser.lr.at(20)) == (2, near(1e-5), near(0))
    own = pl.vary(row.build().sft, optimiser=pl.AdamW(lr=pl.Cosine(1e-3, 0.0, 7), warmup=3))
    assert with_rates(own, 20) is own


@pytest.mark.slow
def test_the_study_measures_arms_by_level_and_goes_on_where_it_was(tmp_path):
    words = {"arms": "grpo,sft", "problems": 6, "ask": "", "attended": 2, "rl_steps": 1, "sft_steps": 1,
             "rl.schedule.prompts": 1, "sft.schedule.prompts": 2}  # fmt: skip
    run = pl.train(
        "seed-bench-r1", task="kitchens", out=tmp_path / "r", set=words, quiet=True, evaluate=0, max_tokens=30
    )
    told = json.loads((run.folder / "study.json").read_text())
    assert {"right_grpo_1", "right_sft_3", "removed_start", "attention_grpo", "moved"} <= told["numbers"].keys()
    assert 0 < told["numbers"]["attention_start"] < 1
    assert (run.folder / "grpo-exam" / "answers.jsonl").is_file()
