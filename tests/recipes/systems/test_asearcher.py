"""ASearcher: the decoupled loss, scores, admission, and its limits of turns."""

import asyncio
import math

import pytest
from palaestra.curriculum.pool import Mixed
from palaestra.planning.costs import capacity
from palaestra.recipes.systems import asearcher
from palaestra.rewards.answer_f1 import AnswerF1
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

from tests.objective.helpers import token_batch, token_gradient
from tests.recipes.objectives.helpers import advantages, near, scored


def loss_of(recipe, A, logp, prox, mu):
    batch = token_batch(A, mu, policy_logp=prox)
    return token_gradient(recipe.learners["policy"].objective, batch, logp=logp)


def test_the_decoupled_loss_of_the_catalogue():
    """logp -1.0, prox -1.2, behaviour -1.5, A 2: r 1.221403, w 1.349859, loss -3.297442."""
    loss, grad, metrics = loss_of(asearcher.build(), [2.0], [-1.0], -1.2, -1.5)
    assert loss == pytest.approx(-3.297442, abs=1e-6)
    assert float(metrics["ratio"]) == pytest.approx(1.221403, abs=1e-6)
    assert float(metrics["tis_weight"]) == pytest.approx(1.349859, abs=1e-6)
    assert grad["logp"] == pytest.approx([-3.297442], abs=1e-6)  # w has no gradient of its own
    naive, _, metrics = loss_of(asearcher.build(decoupled=False), [2.0], [-1.0], -1.2, -1.5)
    assert naive == pytest.approx(-2 * 1.4)  # exp(0.5) is clipped at 1.4
    assert float(metrics["ratio"]) == pytest.approx(math.exp(0.5))


def test_tokens_with_a_weight_above_five_are_dropped_and_still_counted():
    """Two tokens, prox equal to pi; the first has w = e^2 > 5, the other e."""
    mu = math.log(0.1)
    one = loss_of(asearcher.build(), [1.0], [mu + 2], mu + 2, mu)
    assert one[0] == 0 and list(one[1]["logp"]) == [0] and float(one[2]["tis_capped"]) == 1
    below = loss_of(asearcher.build(), [1.0], [mu + 1], mu + 1, mu)
    assert below[0] == pytest.approx(-math.e)
    mean, _, metrics = loss_of(asearcher.build(cap=2.0), [1.0, 1.0], [mu + 1] * 2, mu + 1, mu)
    assert mean == 0 and float(metrics["tis_capped"]) == 1


def test_scores_and_advantages_of_the_catalogue():
    assert advantages(asearcher.build(), *scored(1, 0, 0, 0.6)) == near([0.6, -0.4, -0.4, 0.2])
    assert asearcher.build().pool == Mixed(size=8), "groups with equal scores are drawn again"


@pytest.mark.parametrize(("state", "more"), [((0, 0, 0), 128), ((0, 600, 40), 0), ((1, 640, 0), 128)])
def test_admission_of_the_catalogue(state, more):
    assert capacity(*state, batch=128, eta=4, concurrent=128) == more


def paid(answer, gold="new york city", total=0.0, **facts):
    e = Episode(reward=Reward(total=total, solved=total == 1), status="finished", facts={"answer": answer, **facts})
    (after,) = asyncio.run(AnswerF1()(None, ("k",), Group(task=Task(id="t", answer=gold), episodes=(e,)))).episodes
    return after.reward


def test_the_score_is_f1_where_the_form_was_kept():
    assert paid("New York City", total=1.0).total == 1 and paid("york city").total == pytest.approx(0.8)
    assert paid("york city").parts == {"right": 0, "formed": 1, "f1": pytest.approx(0.8)}
    assert paid("paris").total == 0 == paid(None).total == paid("").total
    broken = paid("new york city", total=1.0, malformed=1)
    assert broken.total == 0 and broken.solved and broken.parts["formed"] == 0
    assert paid("city", gold=["york", "a city"]).total == 1


def with_tools(text, think=False, **facts):
    said = Segment(ids=(1,), text=text, policy="policy", trained=True, logp=(0.0,))
    e = Episode(
        rows=(Row(segments=(said,)),), reward=Reward(total=0.0), status="finished",
        facts={"tool_calls": 1, "tool_malformed": 0, "answered": True, **facts},
    )  # fmt: skip
    group = Group(task=Task(id="t", answer="new york"), episodes=(e,))
    return asyncio.run(AnswerF1(floor=0.1, think=think)(None, ("k",), group)).episodes[0].reward


def test_an_answer_after_tools_of_ones_own_is_paid():
    """`research --tools search.py:search` left its reward away: the world of tools has no fact "answer"."""
    assert with_tools("New York").total == 1 and with_tools("york").total == pytest.approx(2 / 3)
    assert with_tools("paris").total == 0.1 and with_tools("<think>new york</think>paris").total == 0.1
    assert with_tools("new york", answered=False).total == 0 == with_tools("new york", tool_malformed=1).total
    assert with_tools("new york", think=True).total == 0
    assert with_tools("<think>where?</think>new york", think=True).total == 1


def test_what_is_no_search_keeps_its_reward():
    bare = Episode(reward=Reward(total=0.5), status="finished")
    lost = Episode(status="error:x", facts={"answer": "y"})
    group = Group(task=Task(id="t", answer="y"), episodes=(bare, lost))
    assert asyncio.run(AnswerF1()(None, ("k",), group)) == group


def test_a_limit_of_turns_cuts_longer_episodes(context):
    ctx = context("hop")
    for turns in (1, 2, 0):
        recipe = asearcher.build(turns=turns)
        group = asyncio.run(recipe.collect(ctx, ("k",), Group(task=ctx.bench.tasks.task("train", 0))))
        assert len(group.episodes) == 8
        lengths = [len([s for s in e.rows[0].segments if s.logp]) for e in group.episodes]
        assert max(lengths) <= (turns or 6)
        cut = [e for e in group.episodes if e.status == "truncated:turns"]
        assert all(e.total == 0 and n == (turns or 6) for e, n in zip(group.episodes, lengths, strict=True) if e in cut)
    assert asearcher.build().schedule.lag == 4 and asearcher.build(lag=0).schedule.lag == 0


def test_the_share_of_calls_that_open_is_told_and_pays_nothing():
    def told(**facts):
        e = Episode(reward=Reward(total=0.5, parts={"f1": 0.5}), status="finished", facts=facts)
        group = Group(task=Task(id="t", answer="x"), episodes=(e,))
        return asyncio.run(asearcher.CountOpens()(None, ("k",), group)).episodes[0].reward

    assert told(opens=2, tool_calls=5) == Reward(total=0.5, parts={"f1": 0.5, "opens": 0.4})
    assert told(opens=0, tool_calls=3).parts["opens"] == 0 == told(opens=0, tool_calls=0).parts["opens"]
    assert "opens" not in told(tool_calls=3).parts, "a search whose pages cannot be opened"
