"""What claims about rewards compare with: as much is paid, and not where it belongs."""

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.claims.objectives.pav import EqualAnswers, OtherSteps
from palaestra.claims.rewards.deeptheorem import OtherLabels
from palaestra.claims.rewards.mm_rlhf import OtherMargins
from palaestra.claims.rewards.soft_verifier import is_same_text
from palaestra.ledger.experiment import experiment_of
from palaestra.pipeline import Pipeline
from palaestra.types import ChatRequest, Example, Group, Message, Reward, Row, Task

from tests.claims.two_steps import runs_two_steps
from tests.fake import episode

METHODS = ("soft-verifier", "rlpr", "general-reasoner", "mm-rlhf", "deeptheorem", "pav")
ILLUSTRATIONS = ("encore", "raiden-r1", "creative-writing")


@pytest.mark.parametrize("method", METHODS)
def test_every_arm_is_tuned_alike(method):
    e = experiment_of(method)
    settings = 1 if method == "mm-rlhf" else 3  # whose arms differ by less than a rate does
    assert not e.lacks() and {len(e.settings_of(a)) for a in e.arms if a != "start"} == {settings}
    assert not e.tuning_tokens or 3 * e.tuning_tokens >= e.tokens


@pytest.mark.parametrize("method", ILLUSTRATIONS)
def test_what_trains_nothing_is_no_evidence(method):
    e = experiment_of(method)
    assert e.illustration and "start" not in e.every_arm


async def graded(ctx, group):
    return [Reward(total=e.total, parts={"process": float(i)}) for i, e in enumerate(group.episodes)]


async def verdicts(judge, group):
    return await judge(None, group)


CTX = SimpleNamespace(seed=0, step=3, judging=nullcontext, verdicts=verdicts)


def test_as_much_is_paid_to_other_proofs():
    totals = [float(i) for i in range(8)]
    group = Group(task=Task(id="a/0", domain="a"), episodes=tuple(episode((0,), (1,), r) for r in totals))
    found = asyncio.run(OtherLabels(graded)(CTX, group))
    said = [r.total for r in found]
    assert sorted(said) == totals and said != totals
    # what is logged of a proof stays with it
    assert [r.parts["process"] for r in found] == totals


def test_margins_go_to_other_pairs():
    def pairs(groups, signals, state):
        rows = [(n, sign) for n in range(6) for sign in (1.0, -1.0)]
        return [
            Example(row=Row(segments=()), columns={"sign": s, "margin": float(n)}, unit=f"pair {n}") for n, s in rows
        ], state

    found, _ = OtherMargins(pairs)([], [], {})
    first, second = ([e.columns["margin"] for e in found[i::2]] for i in (0, 1))
    assert first == second and sorted(first) == [0, 1, 2, 3, 4, 5] != first
    assert [e.unit for e in found[::2]] == [f"pair {n}" for n in range(6)]
    assert [e.columns["sign"] for e in found] == [1.0, -1.0] * 6


def test_steps_get_the_values_of_others():
    values = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0)
    made = replace(episode((0,), (1,), 1.0), facts={"prefix_values": values})
    group = Group(task=Task(id="a/0", domain="a"), episodes=(made, episode((0,), (1,), 0.0)))
    first, bare = asyncio.run(OtherSteps()(CTX, (), group)).episodes
    found = first.facts["prefix_values"]
    assert (found[0], found[-1]) == (0.1, 1.0) and sorted(found) == list(values) != list(found)
    assert "prefix_values" not in bare.facts


@pytest.mark.parametrize(("said", "same"), [("= 42", False), ("= 42.0", True)])
def test_a_literal_verifier_reads_the_text(said, same):
    text = pl.judges.GRADE_PROMPT.format(question="40+2", reference="42.0", response=said, instruction="")
    assert is_same_text(ChatRequest(messages=(Message(role="user", content=text),))) == same


ARMS = [(m, n, a) for m in METHODS for n, a in experiment_of(m).arms.items() if n != "start"]


@pytest.mark.by_row
@pytest.mark.parametrize("arm", [pytest.param(a, id=f"{m}:{n}") for m, n, a in ARMS])
def test_every_arm_runs(arm, context, small, request):
    (task,) = experiment_of(request.node.callspec.id.partition(":")[0]).tasks
    last = list(arm.parts.values())[-1].runnable if isinstance(arm, Pipeline) else arm
    runs_two_steps(small(last.recipe if isinstance(last, EqualAnswers) else last), context(task))
