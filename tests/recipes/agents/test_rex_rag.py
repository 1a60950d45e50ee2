"""REX-RAG: clones of wrong answers, which of them are kept, and the correction of their policy."""

import asyncio
from dataclasses import replace
from math import exp, log

import numpy as np
import palaestra as pl
import pytest
from palaestra.context import Bench
from palaestra.errors import UserError
from palaestra.recipes.agents import rex_rag
from palaestra.recipes.agents.rex_rag import ProbeSampling, TagReward, graded, tag_score
from palaestra.recipes.agents.rex_rag.probes import mixture_logp, tree_logp
from palaestra.services.index import BM25
from palaestra.types import Episode, Group, Reward, Row, Segment, Task
from palaestra.worlds.search import Search

from tests.recipes.objectives.helpers import near

GROUP = Group(task=Task(id="t"))


def ratio(pi, q):
    return pi / exp(q)


def test_the_mixture_of_the_catalogue():
    """a = .1: an answer of pi .2; a clone whose J = 4 tokens before the probe have pi .2 where 60% are wrong; a token of the
    probe of pi .01 that a third of the phrases have; a token behind it.
    """
    answer = mixture_logp(np.log([0.2]), 0.1)
    assert exp(answer[0]) == near(0.18) and ratio(0.2, answer[0]) == near(1.111111)
    old, before = np.log([0.5, 0.2, 0.2, 0.2, 0.2, 0.01, 0.3]), np.array([0, 1, 1, 1, 1, 0, 0], bool)
    clone = mixture_logp(old, 0.1, (5, 6), np.log([1 / 3]), before, 0.6)
    assert exp(clone[1]) == near(0.202724) and ratio(0.2, clone[1]) == near(0.986561)
    assert exp(clone[5]) == near(0.042333) and ratio(0.01, clone[5]) == near(0.236220)
    assert ratio(0.3, clone[6]) == near(1) and ratio(0.5, clone[0]) == near(1)


def test_a_probe_that_begins_a_row_has_nothing_before_it():
    old = np.log([0.5, 0.01])
    clone = mixture_logp(old, 0.5, (1, 2), np.log([1.0]), np.zeros(2, bool), 0.6)
    assert np.exp(clone) == near([0.5, 0.505])


def test_the_tree_of_phrases():
    """Three phrases begin with 7; two go on with 8, and one of these ends there."""
    phrases = [(7, 8), (7, 8, 9), (7, 5)]
    assert np.exp(tree_logp(phrases, (7, 8, 9))) == near([1, 2 / 3, 1])
    assert np.exp(tree_logp(phrases, (7, 5))) == near([1, 1 / 3])
    assert np.exp(tree_logp([(1,), (2,), (2,)], (2,))) == near([2 / 3])


def test_scores_of_tags():
    assert graded((1, 1, 1, 1)) == near(1.211790) and graded((4 / 6, 1, 1, 1)) == near(0.062601)
    assert graded((0, 0, 0, 0)) == 0
    whole = ("<think>a</think><search>b</search>", "<think>c</think> <answer>d</answer>")
    assert tag_score(whole) == near(1.211790)
    assert tag_score(("<think>a</think><answer>d</answer>",)) == near(0.062601)
    assert tag_score(()) == tag_score(("no tags",)) == 0
    # an answer without a thought stands nowhere: L = 1/3, 1, 0, 0
    assert tag_score(("<answer>d</answer>",)) == near(0.05 / 3 + 0.15 * (0.01 + 3**-5))
    # a thought that is not closed: L_0 = 5/6, L_1 = 4/5
    torn = ("<think>a</think><search>b</search>", "<think>c<answer>d</answer>")
    assert tag_score(torn) < tag_score(whole)


def test_the_form_is_paid_beside_the_answer():
    text = "<think>a</think><answer>d</answer>"
    row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), trained=True, text=text, finish="eos"),))
    e = Episode(rows=(row,), reward=Reward(total=1.0, solved=True), facts={"outcomes": ("answer",)}, status="finished")
    paid = asyncio.run(TagReward(0.2)(None, (), Group(task=Task(id="t"), episodes=(e,)))).episodes[0]
    assert paid.reward.total == near(1 + 0.2 * 0.062601) and paid.solved
    wrong = replace(e, reward=Reward(total=0.0, solved=False))
    paid = asyncio.run(TagReward(10.0)(None, (), Group(task=Task(id="t"), episodes=(wrong,)))).episodes[0]
    assert paid.total > 0.5 and not paid.solved
    assert TagReward(0.2)._paid(replace(e, facts={})).reward == e.reward  # no tags are asked for there


def made(total, n=3, probe=None, rescued=False):
    """An answer, or a clone with a probe, of n sampled tokens behind one."""
    facts = {"probe": probe} if probe else {}
    said = Segment(ids=tuple(range(1, n + 1)), trained=True, policy="policy", logp=(log(0.5),) * n, finish="eos")
    return Episode(
        rows=(Row(segments=(Segment(ids=(0,)), said)),),
        reward=Reward(total=float(total)),
        facts=facts,
        status="finished",
    )


def credited(groups, probes, state=None, **options):
    """Examples and state; `probes`: pi of the tokens of each episode, by group."""
    recipe = rex_rag.build(kl=0.0, **options)
    signals = [[[{"policy_logp": np.log(np.array([1.0, *pi]))}] for pi in of] for of in probes]
    return recipe.learners["policy"].credit(
        [Group(task=Task(id=str(i)), episodes=g) for i, g in enumerate(groups)], signals, state or {}
    )


ANSWER = (0.2, 0.2, 0.2)


def test_the_most_likely_probes_of_the_batch_are_kept():
    """Two groups of two answers, three clones, k = .5: the two most likely probes stay, and only these count."""
    first = [made(1), made(0), made(1, probe=(0, 2, 3)), made(0, probe=(0, 2, 3))]
    second = [made(1), made(0), made(0, probe=(0, 2, 3))]
    pis = [[ANSWER, ANSWER, (0.2, 0.3, 0.2), (0.2, 0.1, 0.2)], [ANSWER, ANSWER, (0.2, 0.2, 0.2)]]
    examples, state = credited([first, second], pis, keep=0.5)
    assert len(examples) == 6 and sum(e.columns["track:probed"].max() for e in examples) == 2
    # group 1: rewards 1, 0, 1; group 2: 1, 0, 0
    by_group = [[float(e.columns["advantage"][-1]) for e in examples if e.columns["group"] == g] for g in (0, 1)]
    assert by_group == [near([0.577349, -1.154699, 0.577349], 1e-4), near([1.154699, -0.577349, -0.577349], 1e-4)]
    assert state["probe_keep"] == near(0.9 * 0.5 + 0.1 / 3)  # one of three clones was right, kept or not


def test_the_share_that_is_kept_follows_the_clones():
    """k = .172 after one right clone; at k = 0 none is kept. It stays without clones."""
    group, pis = [made(1), made(0), made(1, probe=(0, 2, 3))], [[ANSWER] * 3]
    state = credited([group], pis)[1]
    assert state["probe_keep"] == near(0.172)
    examples, none = credited([group], pis, keep=0)
    assert len(examples) == 2 and none["probe_keep"] == near(0.1)
    assert np.exp(examples[0].columns["mixture_logp"][1:]) == near([0.2] * 3)  # a = 0
    assert credited([group[:2]], [pis[0][:2]], state)[1]["probe_keep"] == near(0.172)
    assert len(credited([group], pis, {"probe_keep": 0.5})[0]) == 3


def test_a_small_batch_keeps_one_clone():
    """2 * .08 and 2 * .001 are less than 1: the most likely of two stays, a = 1/3."""
    group = [made(1), made(0), made(0, probe=(0, 2, 3)), made(1, probe=(0, 2, 3))]
    pis = [[ANSWER, ANSWER, (0.2, 0.1, 0.2), (0.2, 0.3, 0.2)]]
    for state in ({}, {"probe_keep": 0.001}):
        examples, _ = credited([group], pis, state)
        assert len(examples) == 3 and examples[2].columns["track:probed"].max() == 1
        assert np.exp(examples[0].columns["mixture_logp"][1:]) == near([0.2 * 2 / 3] * 3)


def test_a_first_step_without_clones_says_so():
    def note(*episodes, **options):
        link = ProbeSampling(**options)
        return link.first_step_note([Group(task=Task(id="t"), episodes=episodes)])

    cut = replace(said("x"), status="truncated:turns", facts={"answered": False})
    assert "1 of 2 were wrong, and each is cloned with probability p=0.2" in note(said("x"), said("x", 1.0))
    assert "all that ended were right" in note(said("x", 1.0), cut)
    assert "none of 1 came to an answer" in note(cut)
    assert note(said("x"), said("y", probe=(0, 2, 3))) == note(said("x"), p=0.0) == note() == ""
    cloned = [Group(task=Task(id="t"), episodes=(made(0), made(1, probe=(0, 2, 3))))]
    assert "keep=0 keeps no clone" in rex_rag.build(keep=0).learners["policy"].credit.first_step_note(cloned)
    assert rex_rag.build().learners["policy"].credit.first_step_note(cloned) == ""


def test_the_correction_of_a_batch():
    """Two answers, one wrong (eps .5), and one clone: a = 1/3. The probe is its second token, whose share of phrases is .5."""
    group, pis = [made(1), made(0), made(1, probe=(0, 2, 3))], [[ANSWER, ANSWER, (0.2, 0.01, 0.3)]]
    examples, _ = credited([group], pis, keep=0.5)
    q = [np.exp(e.columns["mixture_logp"][1:]) for e in examples]
    assert q[0] == near([0.2 * 2 / 3] * 3)
    assert q[2] == near([0.2 * 2 / 3 + 0.4 / 3, 0.01 * 2 / 3 + 0.5 / 3, 0.3])
    bare, _ = credited([group], pis, keep=0.5, corrected=False)
    assert np.exp(bare[2].columns["mixture_logp"][1:]) == near([0.2, 0.01, 0.3])


def test_the_loss_divides_by_the_mixture():
    """rho = pi / q: weights A rho of the first token of each, but for the clone's probe, rho = .01 / .173333."""
    learner = rex_rag.build(kl=0.0).learners["policy"]
    assert learner.objective == pl.Clipped(old="mixture") and ("policy", "logp") in learner.needs
    assert rex_rag.build().learners["policy"].needs == (("policy", "logp"), ("ref", "logp"))


# ---- clones in an environment, by a policy of single characters


class Letters:
    """A dialect of one token a character."""

    def encode_text(self, text):
        return tuple(map(ord, text))


class Ctx:
    """What `ProbeSampling` asks of a run."""

    def __init__(self, world):
        self.bench = Bench(name="b", tasks=None, world=world, max_tokens=64)

    def engine(self, name):
        return type("Engine", (), {"dialect": Letters()})()

    def decode(self, ids):
        return "".join(map(chr, ids))


def said(text, total=0.0, **facts):
    ids = tuple(map(ord, text))
    logp = (-0.5,) * len(ids)
    row = Row(
        segments=(Segment(ids=(1, 2)), Segment(ids=ids, logp=logp, trained=True, text=text, finish="eos", turn=3))
    )
    return Episode(rows=(row,), reward=Reward(total=total), facts={"answered": True, **facts}, status="finished")


def clones(monkeypatch, *episodes, **options):
    """The group behind `ProbeSampling`, and what each clone was begun with."""
    starts = []

    async def go_on(ctx, key, task, start, sampling, model):
        starts.append(start)
        open_ = start.said[-1]
        row = Row(segments=(Segment(ids=(1, 2)), replace(open_, ids=(*open_.ids, 65), logp=(*open_.logp, -1.0))))
        return Episode(rows=(row,), status="finished", facts={"answered": True})

    monkeypatch.setattr(pl.rollout, "continuation", go_on)

    async def judge(ctx, key, group):
        return replace(group, episodes=tuple(replace(e, reward=Reward(total=1.0)) for e in group.episodes))

    link = ProbeSampling(**{"p": 1.0, "phrases": ("Hm.", "Ha."), "judge": judge, **options})
    world = Search(BM25((("a", "b"),)))
    return asyncio.run(link(Ctx(world), ("k",), replace(GROUP, episodes=episodes))), starts


@pytest.mark.parametrize(
    ("text", "kept", "opening"),
    [
        ("<think>so</think><answer>x</answer>", "<think>so", ""),
        ("so <answer>x</answer>", "so ", "<think> "),
        ("<answer>x</answer>", "", "<think> "),
        ("x", "", "<think> "),
    ],
)
def test_a_phrase_stands_in_the_place_of_the_answer(monkeypatch, text, kept, opening):
    group, (start,) = clones(monkeypatch, said(text))
    begun = start.said[-1]
    phrase = "".join(map(chr, begun.ids)).removeprefix(kept)
    assert phrase in (f"{opening}Hm.", f"{opening}Ha.") and begun.finish == ""
    n = len(kept)
    branch = len(opening) + 1  # both phrases begin with H
    assert begun.logp[:n] == (-0.5,) * n and np.exp(begun.logp[n:]) == near([1.0] * branch + [0.5, 1.0])
    clone = group.episodes[1]
    assert clone.facts["probe"] == (0, 2 + n, 2 + len(begun.ids)) and clone.origin.parent == 0
    assert clone.reward.parts == {"rescued": 1.0} and "rescued" in group.episodes[0].reward.silent


def test_only_wrong_answers_are_cloned_and_no_clones(monkeypatch):
    right, cut = (
        said("<answer>x</answer>", 1.0),
        replace(said("x"), status="truncated:turns", facts={"answered": False}),
    )
    failed, clone = Episode(status="error:tool"), said("x", probe=(0, 2, 3))
    group, starts = clones(monkeypatch, right, cut, failed, clone)
    assert len(group.episodes) == 4 and not starts
    assert not clones(monkeypatch, said("x"), p=0.0)[1]
    assert len(clones(monkeypatch, *[said("x")] * 40, p=0.2)[1]) in range(2, 18)


def test_bad_arguments_are_refused():
    for bad, says in (
        ({"p": 1.5}, "p"),
        ({"phrases": ()}, "phrases are one"),
        ({"phrases": (" ",)}, "none of them is empty"),
    ):
        with pytest.raises(UserError, match=says):
            rex_rag.build(**bad)
    for bad in ({"keep": -1}, {"form": -1}):
        with pytest.raises(UserError, match="rex-rag"):
            rex_rag.build(**bad)


def test_a_clone_goes_on_in_its_environment(context):
    """The sampled tokens of a clone are those of its original up to the phrase; nothing is tokenised again."""
    ctx = context("hop")
    task = ctx.bench.tasks.task("train", 1)
    link = pl.links(pl.Sample(n=6), pl.Score(), ProbeSampling(1.0, ("SEARCH(",), "", "ANSWER("))
    group = asyncio.run(link(ctx, ("k",), Group(task=task)))
    cloned = [e for e in group.episodes if "probe" in e.facts]
    assert cloned
    for clone in cloned:
        row, begin, end = clone.facts["probe"]
        view, parent = clone.rows[row].view(), group.episodes[clone.origin.parent].rows[row].view()
        assert ctx.decode(view.ids_T[begin:end].tolist()) == "SEARCH(" and view.trained_T[begin:end].all()
        assert view.ids_T[:begin].tolist() == parent.ids_T[:begin].tolist()
        assert view.logp_T[begin:end] == near([0.0] * (end - begin))
