"""MPO: which pairs are easy, what the two stages are trained on, and what holds the second one."""

import asyncio
import json

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.preference import mpo
from palaestra.rewards.verify import response_text
from palaestra.types import Reward, stage

GAPS = np.array([2.1, 0.3, 1.4, 0.9])


def numbers(gaps, *given):
    easy, hard, gamma = mpo.easy_and_hard(np.array(gaps), *given)
    return np.flatnonzero(easy).tolist(), np.flatnonzero(hard).tolist(), gamma


def test_reference_values():
    """The median of 2.1, .3, 1.4 and .9 is 1.15."""
    assert numbers(GAPS) == ([0, 2], [1, 3], pytest.approx(1.15))
    assert numbers(GAPS, 2.0) == ([0], [1, 2, 3], 2.0)


@pytest.mark.parametrize(
    ("contradicted", "easy", "hard"),
    [("hard", [0], [1, 2, 3]), ("ignored", [0, 2], [1, 3]), ("dropped", [0], [1])],
)
def test_pairs_that_the_reward_model_ranks_against_their_label(contradicted, easy, hard):
    assert numbers([2.1, 0.3, -1.4, -0.9], None, contradicted) == (easy, hard, pytest.approx(1.15))


def test_a_tie_is_hard():
    assert numbers([0.0, 0.0, 1.0], 0.0) == ([2], [0, 1], 0.0)
    assert numbers([1.0, 1.0]) == ([], [0, 1], 1.0)


def test_the_second_stage_is_held_by_what_the_first_one_made():
    """r = 1, log pi = -2, log pi_DPO = -2.5, kl = .1: 1 - .1 * .5 = .95."""
    parts = mpo.build(kl=0.1).parts
    assert list(parts) == ["reward", "split", "dpo", "rl"]
    assert (parts["dpo"].data, parts["rl"].data) == (pl.Output("split", "pairs"), pl.Output("split", "prompts"))
    assert parts["rl"].model == pl.Output("dpo") and parts["rl"].runnable.references == {"ref": "policy"}
    learner = parts["rl"].runnable.learners["policy"]
    assert learner == pl.recipe("ppo", kl=0.1).learners["policy"]
    assert mpo.build(kl=0.2, algorithm="grpo").parts["rl"].runnable.learners == pl.recipe("grpo", kl=0.2).learners
    rewards = learner.credit.links[0]
    assert 1.0 - rewards.kl * (-2.0 - -2.5) == pytest.approx(0.95)


def test_a_reward_model_of_the_user_is_not_trained():
    parts = mpo.build(reward=Marked()).parts
    assert list(parts) == ["split", "dpo", "rl"] and parts["split"].runnable.reward == Marked()
    assert parts["rl"].runnable.collect.links[1].reward == Marked() and not parts["rl"].models


@stage
class Marked:
    """A reward that says in the answer what it is worth."""

    broken: bool = False

    async def __call__(self, ctx, group):
        if self.broken:
            return [Fault("judge", "no answer") for _ in group.episodes]
        return [Reward(total=float(response_text(e).split()[-1])) for e in group.episodes]


def write_pairs(file, gaps, prompts=None, test=2, worth=5):
    """Pairs whose chosen answer is worth so much more; held-out ones that are worth 5 more."""
    prompts = prompts or [f"q{i}" for i in range(len(gaps))]
    rows = [
        {"prompt": p, "chosen": f"a {g}", "rejected": "b 0", "split": "train", "answer": "7"}
        for p, g in zip(prompts, gaps, strict=True)
    ]
    held_out = [
        {"prompt": f"t{i}", "chosen": f"a {worth}", "rejected": "b 0", "split": "test", "answer": "7"}
        for i in range(test)
    ]
    file.write_text("".join(json.dumps(r) + "\n" for r in (*rows, *held_out)))
    return file


def split(tmp_path, gaps, prompts=None, held_out_worth=5, **given):
    """What the program writes: the metrics, and (prompt, gap) of the training rows of both files."""
    test = 2 if held_out_worth > 0 else 8
    data = write_pairs(tmp_path / "pairs.jsonl", gaps, prompts, test=test, worth=held_out_worth)
    program = mpo.SplitByGap(**{"reward": Marked(), **given})
    run = pl.train(pl.Pipeline(parts={"split": pl.Part(program)}), data=str(data), out=tmp_path / "run", quiet=True)
    rows = {
        name: [json.loads(x) for x in (tmp_path / "run" / "split" / f"{name}.jsonl").read_text().splitlines()]
        for name in ("pairs", "prompts")
    }
    assert all([r["prompt"] for r in x if r["split"] == "test"] == ["t0", "t1"] for x in rows.values())
    made = {name: [(r["prompt"], r["model_gap"]) for r in x if r["split"] == "train"] for name, x in rows.items()}
    return run.summary["parts"]["split"], made


def test_what_is_written(tmp_path):
    metrics, made = split(tmp_path, GAPS)
    assert made == {"pairs": [("q0", 2.1), ("q2", 1.4)], "prompts": [("q1", 0.3), ("q3", 0.9)]}
    assert (metrics["pairs"], metrics["prompts"], metrics["contradicted"]) == (2, 2, 0)
    assert metrics["ranked_held_out"] == 1.0
    assert metrics["gap_apart"] == pytest.approx(1.75 - 0.6) and metrics["gamma"] == pytest.approx(1.15)


def test_a_prompt_of_several_pairs_is_answered_once(tmp_path):
    """q has an easy pair, which is compared, and two hard ones, of which the nearer stands for it."""
    _, made = split(tmp_path, [2.1, 0.3, 0.1, 1.4, 1.3, 0.2], ["q", "q", "q", "r", "s", "u"])
    assert made == {"pairs": [("q", 2.1), ("r", 1.4), ("s", 1.3)], "prompts": [("q", 0.1), ("u", 0.2)]}


@pytest.mark.parametrize(
    ("how", "pairs", "prompts"), [("reversed", [1, 3], [0, 2]), ("all", [0, 1, 2, 3], [0, 1, 2, 3])]
)
def test_controls(tmp_path, how, pairs, prompts):
    metrics, made = split(tmp_path, GAPS, split=how)
    assert made == {name: [(f"q{i}", GAPS[i]) for i in at] for name, at in (("pairs", pairs), ("prompts", prompts))}
    assert metrics["gap_apart"] == pytest.approx({"reversed": -1.15, "all": 0.0}[how])


def test_a_random_split_has_the_same_sizes(tmp_path):
    _, made = split(tmp_path, np.arange(1.0, 13.0), split="random")
    first, second = (dict(x) for x in made.values())
    assert len(first) == len(second) == 6 and not first.keys() & second.keys()
    assert not all(g > 6.5 for g in first.values())


def test_what_cannot_be_split_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"all or none of 4 pairs are easy at gamma = 9.*set gamma="):
        split(tmp_path, GAPS, gamma=9.0)


def test_the_reward_is_checked_on_held_out_pairs_before_it_splits():
    """9 of 10 right is above chance, 6 of 10 may be it, 1 of 10 is worse; a tie is one half."""

    class Said:
        def __init__(self):
            self.lines = []

        def say(self, line):
            self.lines.append(line)

    ctx = Said()
    assert mpo.check_reward(ctx, np.array([1.0] * 9 + [-1.0])) == 0.9 and "may be chance" not in ctx.lines[-1]
    assert mpo.check_reward(ctx, np.array([1.0] * 5 + [0.0] * 2 + [-1.0] * 3)) == 0.6
    assert "60% of 10 held-out pairs right" in ctx.lines[-1] and "may be chance" in ctx.lines[-1]
    with pytest.raises(UserError, match=r"10% of 10 held-out pairs right.*worse than chance.*reward=DIR"):
        mpo.check_reward(ctx, np.array([1.0] + [-1.0] * 9))


def test_a_reward_against_the_labels_splits_nothing(tmp_path):
    with pytest.raises(UserError, match="0% of 8 held-out pairs right"):
        split(tmp_path, GAPS, held_out_worth=-5)
    assert not (tmp_path / "run" / "split" / "pairs.jsonl").exists()


def test_a_reward_that_fails_is_no_gap(context):
    groups = [pl.Task(id="x", prompt=(pl.Message(role="user", content="q"),), meta={"chosen": "a", "rejected": "b"})]
    with pytest.raises(Fault, match="no answer"):
        asyncio.run(mpo.pair_gaps(context("preferences"), Marked(broken=True), groups))


@stage
class Ones:
    """A reward of one for each digit 1."""

    async def __call__(self, ctx, group):
        return [Reward(total=float(response_text(e).count("1"))) for e in group.episodes]


def test_of_a_source_without_an_end_so_many_pairs_are_split(context, tmp_path):
    program = mpo.SplitByGap(Ones(), contradicted="ignored", tasks=16, held_out=3)
    ctx = context("preferences", out=tmp_path)
    result = asyncio.run(program.run(ctx))
    assert result.metrics["pairs"] + result.metrics["prompts"] == 16 and result.metrics["gap_apart"] > 0
    rows = [json.loads(x) for x in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    shown = {(r["prompt"], r["chosen"], r["rejected"]): r for r in rows if r["split"] == "train"}
    tasks = [ctx.bench.tasks.task("train", i) for i in range(16)]
    own = {(t.prompt[0].content, t.meta["chosen"], t.meta["rejected"]): t for t in tasks}
    assert shown.keys() <= own.keys() and len(rows) == len(shown) + 3
    for key, row in shown.items():
        assert row["model_gap"] == key[1].count("1") - key[2].count("1") and row["answer"] == own[key].answer
