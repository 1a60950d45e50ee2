"""RL of Thoughts: the navigator's formulas by hand, what a block pays, and a user's own questions."""

import asyncio
import json
from dataclasses import replace
from math import exp, log
from pathlib import Path

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.control.q import q_targets
from palaestra.recipes.inference.rlot import PROMPTS, build
from palaestra.recipes.inference.rlot.program import Transition, entropy, paths_of, solve
from palaestra.recipes.inference.rlot.toy import DemonstrateBlocks, draw_block, grades_of
from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task
from palaestra.worlds.blocks import REASON, TERMINATE, BlockRunner, BlockSpaces


def said(text):
    segment = Segment(ids=(1,), logp=(0.0,), trained=True, policy="policy", text=text)
    return Episode(rows=(Row(segments=(segment,)),), status="finished")


def test_two_heads_make_the_values_and_the_other_network_says_what_the_next_block_is_worth():
    """V = 1, A = (.5, .1, -.2, 0, .1): their mean is .1. r = .7, gamma = .9, Q' = .4: 1.06."""
    heads = torch.tensor([1.0, 0.5, 0.1, -0.2, 0.0, 0.1])
    assert pl.control.join_heads(heads).tolist() == pytest.approx([1.4, 1.0, 0.7, 0.9, 1.0])
    chooser, worth = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[2.0, 0.4, 3.0]])
    reward, over = torch.tensor([0.7]), torch.tensor([0.0])
    assert q_targets(reward, over, chooser, worth, 0.9).item() == pytest.approx(1.06)
    legal = torch.tensor([[True, False, True]])
    assert q_targets(reward, over, chooser, worth, 0.9, legal).item() == pytest.approx(0.7 + 0.9 * 3.0)


def test_a_navigator_has_under_3000_parameters():
    size = lambda width: sum(p.numel() for p in build(width=width).learner.start(BlockSpaces(), ("n",)).parameters())
    assert (size(32), size(24)) == (1510, 942)


def chain(blocks, pays, cost=0.0):
    """The transitions of a solution whose blocks are given, and whose states pay so."""

    async def ask(prompt, name, temperature):
        return said("x")

    runner = BlockRunner((Message(role="user", content="1+1"),), ask, limit=4)
    todo, rewards = iter(blocks), iter(pays)

    async def pay(state, end):
        return next(rewards)

    return asyncio.run(solve(runner, lambda state, legal: next(todo), pay, cost))


def test_a_solution_is_transitions_with_what_each_block_paid():
    game, state, end = chain([REASON, REASON, TERMINATE], [0.25, 0.5, 1.0], cost=0.125)
    assert [(t.block, t.reward, t.over) for t in game] == [(0, 0.125, False), (0, 0.375, False), (4, 0.875, True)]
    assert game[0].next_legal_K.all() and not game[0].legal_K[2] and state.blocks == (0, 0, 4)
    assert pl.response_text(end) == "x"
    paths = paths_of(game)
    assert {k: v.shape for k, v in paths.items()} == {
        "obs": (3, 1, 1, 7), "next_obs": (3, 1, 1, 7), "act": (3, 1, 1), "legal": (3, 1, 1, 5),
        "next_legal": (3, 1, 1, 5), "reward": (3, 1, 1), "alive": (3, 1), "over": (3, 1),
    }  # fmt: skip
    assert paths["over"].ravel().tolist() == [False, False, True]


def test_values_learn_what_a_block_pays_in_each_state():
    """Done: terminate pays 1. Not done: it pays 0, and reason, which pays 0 too, leads to done: .9."""
    done, begun = (pl.worlds.PartialSolution(steps=("x",), grades=(g,) * 7) for g in (3, 1))
    legal = np.array([True, False, False, False, True])
    pairs = [
        Transition(done, legal, TERMINATE, 1.0, done, legal, True),
        Transition(begun, legal, TERMINATE, 0.0, begun, legal, True),
        Transition(begun, legal, REASON, 0.0, done, legal, False),
        Transition(done, legal, REASON, 0.0, begun, legal, False),
    ]
    learner = replace(build().learner, updates=250, lr=1e-2, follow=0.1).learner(BlockSpaces(), ("q",))
    paths = paths_of(pairs)
    learner.update(paths, paths["reward"], ("q",))
    with torch.no_grad():
        values = learner.values(
            torch.from_numpy(np.stack([pl.worlds.state_of_grades(s.grades) for s in (done, begun)]))
        )
    assert values[:, [TERMINATE, REASON]].flatten().tolist() == pytest.approx([1.0, 0.81, 0.0, 0.9], abs=0.06)


def test_the_entropy_of_states():
    assert entropy([3, 1]) == pytest.approx(-(0.75 * log(0.75) + 0.25 * log(0.25)))
    assert entropy([5]) == 0.0 and entropy([]) == 0.0


class Scores:
    """A process reward model that says a number, and keeps what it saw."""

    def __init__(self, total, bounds=None):
        self.total, self.seen = total, []
        if bounds:
            self.bounds = bounds

    async def __call__(self, ctx, group):
        self.seen += [(pl.response_text(e), group.task.answer) for e in group.episodes]
        return [Reward(total=self.total)] * len(group.episodes)


def test_a_process_reward_model_scores_the_text_so_far_and_sees_no_answer(context):
    ctx, task = context(), Task(id="t", prompt=(Message(role="user", content="1+1"),), answer="2")
    state = pl.worlds.PartialSolution(steps=("1+1", "=2"))
    reward = lambda prm, end=None: asyncio.run(build(prm=prm).reward(ctx, task, state, end))
    prm = Scores(0.7, bounds=(0.0, 1.0))
    assert reward(prm) == 0.7 and reward(prm, said("= 2")) == 0.7
    assert prm.seen == [("1+1\n=2", None), ("1+1\n=2\n= 2", None)]
    assert reward(Scores(-2.0)) == pytest.approx(1 / (1 + exp(2.0)))


def test_without_one_the_checker_pays_the_final_answer_alone(context):
    ctx = context()
    task = ctx.bench.tasks.task("train", 0)
    state = pl.worlds.PartialSolution(steps=(f"= {task.answer}",))
    reward = lambda end: asyncio.run(build().reward(ctx, task, state, end))
    assert reward(None) == 0.0 and reward(said(f"= {task.answer}")) == 1.0
    assert reward(said(f"= {int(task.answer) + 1}")) == 0.0


def write(path, answers):
    rows = [{"prompt": f"{a}+{b} mod 10", "answer": answers(a + b)} for a in range(4) for b in range(4)]
    Path(path).write_text("".join(json.dumps(r) + "\n" for r in rows))


SMALL = {
    "iterations": 1, "learner.games": 2, "learner.updates": 2, "questions": 3, "limit": 3, "tasks": 1,
}  # fmt: skip


def test_a_users_questions_train_a_navigator_that_a_search_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("mine.jsonl", lambda total: f"{total} apples")  # the built-in model never says so: all are hard
    run = pl.train("rlot", data="mine.jsonl", out="run", quiet=True, evaluate=0, max_tokens=6, set=SMALL)
    assert run.summary["hard"] == 3 and run.summary["parameters"] == 1510
    assert set(run.summary["arms"]) == {"direct", "reason", "random", "shuffled grades", "navigator"}
    assert run.summary["arms"]["navigator"]["calls"] > run.summary["arms"]["direct"]["calls"] == 1
    found = pl.search.run(
        data="mine.jsonl", strategy="rlot(navigator='run/navigator',limit=2)", budget=20, n=1, max_tokens=6
    )
    assert found["tokens"] <= 20 and not found["oracle"]


def test_questions_that_are_all_answered_train_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("mine.jsonl", lambda total: str(total % 10))
    Path("all.py").write_text("def right(responses, answers, **columns):\n    return [1.0] * len(responses)\n")
    with pytest.raises(pl.UserError, match="answers all 3 questions directly"):
        pl.train(
            "rlot", data="mine.jsonl", reward="all.py:right", out="run", quiet=True, evaluate=0, max_tokens=6, set=SMALL
        )


def test_what_asks_no_question_is_refused(tmp_path):
    with pytest.raises(pl.UserError, match="asks no question that a solution could be written behind"):
        pl.train("rlot", task="kuhn", out=tmp_path, quiet=True, set=SMALL)


def test_arguments_are_checked():
    for given in ({"limit": 0}, {"questions": 0}, {"iterations": -1}):
        with pytest.raises(pl.UserError):
            build(**given)


CHAIN = Task(
    id="c", prompt=(Message(role="user", content="4+7*3 mod 10"),), answer="3",
    meta={"numbers": (4, 7, 3), "ops": ("+", "*"), "modulo": 10},
)  # fmt: skip


def test_demonstrations_of_blocks_follow_from_what_is_shown():
    """4+7 = 1, 1*3 = 3. Every request is shown, and a wrong line is gone on from and mended."""
    drawn = {draw_block(CHAIN, np.random.default_rng(i)) for i in range(4000)}
    assert {("\nreason", "4+7=1"), ("\n4+7=1\nreason", "1*3=3"), ("\n4+7=5\nreason", "5*3=5")} <= drawn
    assert {("", "= 3"), ("\n4+7=1\n1*3=8\nanswer", "= 8"), ("\n4+7=5\nrefine", "4+7=1")} <= drawn
    assert {("\nsub-tasks", "+7 *3"), ("\n+7 *3\nmerge", "4+7=1\n1*3=3"), ("\n4+7=1\nplan", "left to right")} <= drawn
    assert {("\n4+7=1\ngrade", "3332223"), ("\n4+7=5\ngrade", "3312221"), ("\ngrade", "3332213")} <= drawn
    refused = [told for told, _ in drawn if told in (PROMPTS.refine, PROMPTS.debate)]
    assert not refused


def test_grades_of_computed_solutions_are_read():
    assert grades_of(5, 5, False) == "3331233"
    assert pl.worlds.read_grades(grades_of(1, 5, True)) == ((3, 3, 1, 3, 2, 2, 1), 0)


def test_a_demonstration_is_an_episode_behind_the_chain(context):
    ctx = context()
    task = ctx.bench.tasks.task("train", 0)
    group = asyncio.run(DemonstrateBlocks()(ctx, (0, 0), Group(task=task)))
    text = ctx.decode(group.episodes[0].rows[0].context())
    assert task.prompt[0].content in text and group.task == task
