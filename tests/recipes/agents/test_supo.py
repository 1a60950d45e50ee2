"""SUPO: one advantage for all rows of an episode, the gradient of the whole likelihood, and what is masked."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.recipes.agents import supo
from palaestra.types import Episode, Group, Reward, Row, Segment, Task
from palaestra.update import pack

from tests.recipes.objectives.helpers import near

TOKENS = ((0, 1), (2, 0))  # of what is sampled in a row, after a prompt of one token


def row(prompt, said, finish="eos"):
    logp = (-1.0,) * len(said)
    return Row(segments=(Segment(ids=(prompt,)), Segment(ids=said, trained=True, logp=logp, finish=finish, turn=0)))


def episode(total, n, status="finished", **facts):
    rows = tuple(row(0, (1, 2)) for _ in range(n))
    return Episode(rows=rows, reward=Reward(total=total), status=status, facts={"summaries": ("z",) * (n - 1), **facts})


def credited(*episodes, **options):
    """Examples of a group, after the links that follow sampling and scoring."""
    recipe = supo.build(**options)
    group = Group(task=Task(id="t"), episodes=episodes)
    for link in recipe.collect.links[2:]:
        group = asyncio.run(link(None, ("k",), group))
    examples, _ = recipe.learners["policy"].credit([group], [], {})
    return group, examples


def by_episode(examples):
    return [(int(e.columns["episode"]), float(e.columns["advantage"][-1])) for e in examples]


def test_one_advantage_for_all_rows_of_an_episode():
    """R = 1, 0, 1 of 3, 1 and 2 rows; over the six rows it would be .408247 and -2.041236."""
    _, examples = credited(episode(1.0, 3), episode(0.0, 1), episode(1.0, 2))
    high, low = 0.577349, -1.154699
    expected = [(0, high)] * 3 + [(1, low)] + [(2, high)] * 2
    assert [(e, near(a)) for e, a in expected] == by_episode(examples)


@pytest.mark.parametrize("status", ["truncated:summaries", "truncated:turns", "truncated:context", "truncated:length"])
def test_an_episode_without_an_answer_counts_and_trains_nothing(status):
    last = {"rows": (row(0, (1, 2), "length"),)} if status == "truncated:length" else {}
    cut = replace(episode(0.0, 1, status), **last)
    group, examples = credited(episode(1.0, 3), cut, episode(1.0, 2))
    assert by_episode(examples) == [(0, near(0.577349))] * 3 + [(2, near(0.577349))] * 2
    assert [e.muted for e in group.episodes] == [False, True, False]
    assert len(credited(episode(1.0, 3), cut, mask=False)[1]) == 4


def test_a_summary_that_is_cut_at_its_length_is_no_missing_answer():
    rows = (row(0, (1, 2), "length"), row(0, (1, 2)))
    cut = replace(episode(1.0, 2, "truncated:length"), rows=rows)
    group, _ = credited(cut, episode(0.0, 1))
    assert not group.episodes[0].muted and group.episodes[0].reward.parts == {"summaries": 1.0, "beyond": 1.0}
    assert group.episodes[1].reward.parts == {"summaries": 0.0, "beyond": 0.0}


def test_an_episode_that_is_cut_without_pay_is_worth_nothing(context):
    cut = Episode(rows=(row(0, (1, 2)),), status="truncated:summaries")
    group = asyncio.run(pl.Score()(context("hop"), ("k",), Group(task=Task(id="t"), episodes=(cut,))))
    assert group.episodes[0].total == 0


def test_an_episode_that_failed_is_left_alone():
    failed = Episode(status="error:tool")
    assert credited(failed, episode(1.0, 1))[0].episodes[0] == failed


def test_the_gradient_is_that_of_the_whole_likelihood():
    """A table of logits l[v, w] of the token w after v: d log pi(w | v) / d l[v] = onehot(w) - pi(. | v). Two rows of one
    episode and one of another, whose advantages are +-1/sqrt(2); each of seven tokens counts once.
    """
    logits = torch.tensor(np.linspace(-1, 1, 9).reshape(3, 3) ** 3, dtype=torch.float64, requires_grad=True)
    table = torch.log_softmax(logits.detach(), 1).numpy()

    def sampled(prompt, said):
        logp = tuple(float(table[v, w]) for v, w in zip((prompt, *said), said, strict=False))
        return replace(row(prompt, said), segments=(Segment(ids=(prompt,)), Segment(ids=said, trained=True, logp=logp)))

    said = [[(0, (1, 2)), (2, (0, 1, 1))], [(1, (1, 0))]]
    episodes = [
        replace(episode(float(r), 1), rows=tuple(sampled(*x) for x in rows))
        for r, rows in zip((1, 0), said, strict=True)
    ]
    recipe, (_, examples) = supo.build(), credited(*episodes)
    batch = pack(examples, dtype=torch.float64)
    before = torch.cat([torch.zeros_like(batch["ids"][:, :1]), batch["ids"][:, :-1]], 1)
    logp = torch.log_softmax(logits, 1)[before, batch["ids"]] * batch.mask
    loss, _ = recipe.learners["policy"].objective({"logp": logp}, batch)
    (slope,) = torch.autograd.grad(loss, logits)
    expected, policy = np.zeros((3, 3)), np.exp(table)
    for sign, rows in zip((1, -1), said, strict=True):
        for prompt, tokens in rows:
            for v, w in zip((prompt, *tokens), tokens, strict=False):
                expected[v] -= sign / np.sqrt(2) * (np.eye(3)[w] - policy[v]) / 7
    assert slope.numpy() == near(expected)


def test_without_a_limit_that_is_reached_it_samples_what_grpo_does(context):
    ctx = context("hop")
    task = ctx.bench.tasks.task("train", 1)
    ours = supo.build(limit=400, samples=3, tokens=12, instruction="sum")
    theirs = pl.recipe("grpo")
    both = []
    for collect in (ours.collect.links[0], replace(theirs.collect.links[0], n=3)):
        ctx.engine().forget()  # a reused prefix may differ from a computed one by the last bits
        both.append(asyncio.run(collect(ctx, ("k",), Group(task=task))))
    assert [e.rows for e in both[0].episodes] == [e.rows for e in both[1].episodes]
    same = supo.build(high=0.2, reduce="sequences").learners["policy"]
    assert same == theirs.learners["policy"]


def test_a_limit_leaves_room_for_a_reply_and_a_summary(context):
    ctx = context("hop")
    link = supo.build(limit=480, tokens=20).collect.links[0]
    with pytest.raises(UserError, match=r"holds 512 tokens, .* so limit is at most \d+; lower it or --max-tokens"):
        link.there(ctx)
    whole = supo.build(tokens=20, instruction="sum").collect.links[0].tokens_of(ctx)
    assert whole == 512 - ctx.bench.max_tokens - 20 - (3 + 16)


def test_held_out_problems_are_played_with_more_summaries_than_in_training():
    exams = supo.build(summaries=2, tested=(4, 8), exam=10).evaluate
    assert [(name, e.summarised.summaries, e.n) for name, e in exams.items()] == [
        ("up to 2 summaries", 2, 10),
        ("up to 4 summaries", 4, 10),
        ("up to 8 summaries", 8, 10),
    ]
    assert not supo.build(exam=0, tested=(4,)).evaluate


def test_questions_over_documents_of_ones_own(tmp_path):
    """Summaries are written in training, and held-out problems are played with the numbers that were named."""
    rows = [{"prompt": f"boss of {who}?", "answer": "tiru"} for who in ("bako", "deci", "mema")]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "docs.md").write_text("bako: boss of bako is tiru.\n\ndeci: boss of deci is tiru.")
    run = pl.train(
        "supo",
        data=str(tmp_path / "q.jsonl"),
        docs=str(tmp_path / "docs.md"),
        env="search(told=0,k=1,turns=3)",
        model="tiny-agent",
        max_tokens=12,
        steps=1,
        evaluate=1,
        quiet=True,
        out=tmp_path / "run",
        set={"limit": 40, "summaries": 2, "samples": 2, "schedule.prompts": 2, "tested": (1,)},
    )
    steps = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert {"up to 2 summaries", "up to 1 summaries"} <= set(steps[0]["evaluations"])
    assert any(step.get("part/summaries", 0) > 0 for step in steps)


def test_an_empty_summary_does_not_count():
    """One of two is empty in the first, the only one in the second."""
    some, none = episode(1.0, 3, summaries=("", "z")), episode(1.0, 2, summaries=("",))
    group, _ = credited(some, none)
    parts = [e.reward.parts for e in group.episodes]
    assert parts == [{"summaries": 1.0, "beyond": 1.0}, {"summaries": 0.0, "beyond": 0.0}]


def test_a_first_step_without_summaries_says_so():
    def note(*episodes):
        return supo.MuteOverlong().first_step_note([Group(task=Task(id="t"), episodes=episodes)])

    assert "this was GRPO" in note(episode(1.0, 1), episode(0.0, 1))
    assert note(episode(1.0, 1), episode(0.0, 2)) == "" and note() == ""
    assert note(episode(0.0, 1, "truncated:summaries")) == ""  # the limit was reached
    empty = note(episode(1.0, 2, summaries=("",)), episode(1.0, 2))
    assert empty.startswith("1 of 2 summaries of the first step are empty") and "never read" not in empty
    assert note(episode(0.0, 2, unread=2), episode(1.0, 2)).startswith("in 1 of 2 episodes of the first step a result")
