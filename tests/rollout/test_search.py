"""Search over the steps of an answer: what is opened, what is sampled, who judges."""

import asyncio
from dataclasses import replace

import palaestra as pl
import pytest
import torch
from palaestra.errors import Fault, UserError
from palaestra.rollout.collect import Score
from palaestra.rollout.search import TreeSearch, cut_episode
from palaestra.rollout.steps import answer_steps
from palaestra.rollout.tree import BestFirst, Puct
from palaestra.types import Group, Reward


def searched(ctx, search, key=(0, "s")):
    group = Group(task=ctx.bench.tasks.task("train", 1))
    return asyncio.run(search(ctx, key, group)).episodes


@pytest.mark.parametrize("select", [pl.rollout.Uct(), Puct(), BestFirst()])
def test_answers_go_on_from_the_steps_of_others(context, select):
    """Each opening gives n answers which begin as an earlier answer does, cut at the end of a line; what they
    share is not sampled again.
    """
    ctx = context()
    before = ctx.engine("policy").sampled_tokens
    found = searched(ctx, TreeSearch(openings=6, n=3, select=select, temperature=1.5))
    assert [e.facts["opened"] for e in found] == [i // 3 for i in range(18)]
    assert all(e.ok and e.reward is not None for e in found)
    sampled = sum(r.n_sampled for e in found for r in e.rows)
    assert ctx.engine("policy").sampled_tokens - before == sampled - sum(e.facts["shared"] for e in found)
    ends = {()}  # of lines of answers so far, in tokens of the reply
    for opening in range(6):
        each = found[3 * opening : 3 * opening + 3]
        shared = {e.rows[0].segments[-1].ids[: e.facts["shared"]] for e in each}
        assert len(shared) == 1 and shared <= ends
        ends |= {e.rows[0].segments[-1].ids[: s.kept] for e in each for s in answer_steps(e, ctx.decode)[:-1]}
    assert max(e.facts["shared"] for e in found) > 0


def test_the_same_key_gives_the_same_answers(context):
    def words(key, width):
        return [e.rows[0].segments[-1].text for e in searched(context(), TreeSearch(5, 2, width=width), key)]

    assert words((0, "a"), 2) == words((0, "a"), 2)
    assert words((0, "a"), 2) != words((0, "b"), 2)


def test_who_scores_leads_the_search(context):
    """A value of the user's own instead of the judge, which is not asked."""
    asked = []

    async def judge(ctx, group):
        asked.append(len(group.episodes))
        return [Reward(total=0.0)] * len(group.episodes)

    async def short(ctx, group):
        return [Reward(total=-float(sum(r.n_sampled for r in e.rows))) for e in group.episodes]

    ctx = context()
    ctx.bench = replace(ctx.bench, reward=judge)
    found = searched(ctx, TreeSearch(4, 2, score=Score(reward=short)))
    assert not asked and all(e.total < 0 for e in found)
    assert all(e.total == 0 for e in searched(ctx, TreeSearch(4, 2))) and asked == [2] * 4


class States:
    """Values of what has been said so far, by their number of lines; it keeps what it saw."""

    def __init__(self, ctx, worth):
        self.ctx, self.worth, self.seen = ctx, worth, []

    async def __call__(self, ctx, group):
        said = [e.rows[-1].segments[-1] for e in group.episodes]
        assert all(s.logp is not None and len(s.logp) == len(s.ids) for s in said)
        assert all(e.reward is None for e in group.episodes)
        self.seen.append([self.ctx.decode(s.ids) for s in said])
        return [self.worth(text) for text in self.seen[-1]]


def test_a_value_of_states_leads_the_search(context):
    """It is asked of every child once, as far as it goes, and the best are kept, whatever the answers' scores are."""
    ctx = context()

    def worth(text):  # the later its last character in the alphabet; least where the answer ends
        return ord(text[-2]) if text.endswith("\n") else 0

    async def against(ctx, group):
        return [Reward(total=-float(worth(e.text))) for e in group.episodes]

    states = States(ctx, lambda text: Reward(total=float(worth(text))))
    search = TreeSearch(6, 6, children=1, score=Score(reward=against), value=states, temperature=1.5)
    found = searched(ctx, search)
    begun = [ctx.decode(e.rows[0].segments[-1].ids[: e.facts["shared"]]) for e in found[::6]]
    assert begun[0] == "" and len(begun) == len(states.seen) > 2
    for at, (start, said) in enumerate(zip(begun, states.seen, strict=True)):
        answers = [ctx.decode(e.rows[0].segments[-1].ids) for e in found[6 * at : 6 * at + 6]]
        assert len(set(said)) == len(said) and all(t.startswith(start) and len(t) > len(start) for t in said)
        assert all(any(a.startswith(t) for a in answers) for t in said)
        assert begun[at + 1 :][:1] in ([], [max(said, key=worth)])


def test_every_answer_is_a_visit(context):
    """Without a value the node has one for each answer; with one its children have them, for each that began so."""
    seen = []

    def first(tree):
        seen.append(tree)
        return None if tree.opened else 0

    ctx = context()
    for value in (None, States(ctx, lambda _: Reward(total=1.0))):
        answers = searched(ctx, TreeSearch(9, 12, children=12, select=first, value=value))
        root, *children = seen[-1].nodes
        assert root.visits == len(answers) == 12 > len(children)
        assert sum(c.visits for c in children) == (12 if value else 0)


def test_a_state_that_cannot_be_valued_has_no_value(context):
    ctx = context()
    found = searched(ctx, TreeSearch(4, 3, value=States(ctx, lambda _: Fault("model", "gone")), temperature=1.5))
    assert len(found) == 12 and all(e.ok for e in found)


def test_a_search_ends_with_its_tokens(context):
    ctx = context()
    before = ctx.engine("policy").sampled_tokens
    found = searched(ctx, TreeSearch(1000, 3, tokens=150, temperature=1.5))
    spent = ctx.engine("policy").sampled_tokens - before
    last = [e for e in found if e.facts["opened"] == found[-1].facts["opened"]]
    assert 150 <= spent < 150 + 3 * ctx.bench.max_tokens
    assert spent - sum(e.n_sampled - e.facts["shared"] for e in last) < 150
    assert len(searched(context(), TreeSearch(1000, 3, tokens=1))) == 3


def test_an_episode_may_be_cut(context):
    """After so many sampled tokens: the prompt alone, in the midst, at the end, beyond it."""
    ctx = context()
    e = searched(ctx, TreeSearch(1, 1))[0]
    row, n = e.rows[0], e.n_sampled
    said = row.segments[-1]
    for kept in (0, 2, n, n + 5):
        cut = cut_episode(e, kept)
        assert cut.rows[0].context() == row.context()[: len(row.context()) - n + min(kept, n)]
        assert cut.reward is None and cut.n_sampled == min(kept, n)
        ends = [s.finish for s in cut.rows[0].segments if s.logp is not None]
        assert ends == {0: [], 2: [""]}.get(kept, [said.finish])


def test_a_cut_ends_in_the_row_where_it_falls(context):
    e = searched(context(), TreeSearch(1, 1))[0]
    twice = replace(e, rows=(e.rows[0], e.rows[0]))
    cut = cut_episode(twice, e.n_sampled + 1)
    assert len(cut.rows) == 2 and cut.rows[0] == e.rows[0] and cut.rows[1].n_sampled == 1
    assert len(cut_episode(twice, 1).rows) == 1


def test_faults_of_a_judge_are_no_values(context):
    async def broken(ctx, group):
        raise Fault("judge", "gone")

    ctx = context()
    ctx.bench = replace(ctx.bench, reward=broken)
    found = searched(ctx, TreeSearch(4, 2))
    assert [e.status for e in found] == ["error:judge"] * 2  # no answer, no child, nothing to open


def test_siblings_are_served_by_the_prefix_cache(context):
    """What answers share is read about once, not once an answer."""
    ctx = context()
    before = ctx.engine("policy").read_tokens
    found = searched(ctx, TreeSearch(openings=5, n=4))
    contexts = sum(len(e.rows[0].segments[0].ids) + e.facts["shared"] for e in found)
    assert ctx.engine("policy").read_tokens - before < contexts / 2


def test_what_cannot_be():
    with pytest.raises(UserError, match="all answers from a node would be one"):
        TreeSearch(temperature=0.0)
    with pytest.raises(UserError, match="openings"):
        TreeSearch(openings=0)


def test_training_on_what_a_search_finds(tmp_path):
    """The tree's answers are attempts of the group like others: a run learns from them and goes on bit for bit."""
    found = pl.rollout.TreeSearch(openings=2, n=3)
    recipe = pl.vary(pl.recipe("grpo"), collect=found, schedule=pl.Schedule(prompts=2))
    settings = {"task": "chain", "seed": 3, "evaluate": 4, "quiet": True}
    whole = pl.train(recipe, **settings, steps=2, out=tmp_path / "whole")
    begun = pl.train(recipe, **settings, steps=1, out=tmp_path / "parts")
    parts = pl.train(recipe, resume=begun.folder, steps=2, quiet=True)
    assert whole.summary["sampled_tokens"] == parts.summary["sampled_tokens"] > 0
    a, b = (run.model().causal.state_dict() for run in (whole, parts))
    assert all(torch.equal(a[name], b[name]) for name in a)
