"""Several seats in one run, played by one learner or by two: each is trained on what its own seat is paid."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from palaestra.context import Bench
from palaestra.credit.gae import Gae
from palaestra.credit.links import Center, Scale, chain
from palaestra.credit.preferences import Compare, Rate, weight
from palaestra.credit.rows import Prefer
from palaestra.credit.seats import Reader, Seat, freeze_row, pay
from palaestra.credit.turns import TurnReturns
from palaestra.curriculum.pool import Mixed, is_mixed
from palaestra.errors import UserError
from palaestra.method import Learner, Recipe
from palaestra.models.load import weights_sha256
from palaestra.objective.policy import Clipped
from palaestra.recipes.base import grpo
from palaestra.rollout.collect import Sample, Score, links
from palaestra.rollout.queue import Schedule
from palaestra.run.describe import describe
from palaestra.run.driver import prepare, train
from palaestra.step import start, step
from palaestra.tasks.procedural import final_answer
from palaestra.toys.chain import ArithmeticChain
from palaestra.types import Ask, Episode, Event, Frame, Group, Message, Reward, Row, Segment, Task, stage
from palaestra.update import AdamW, Cycle, Plain


@stage
class Judged:
    """One solves, the other says whether it is right; paid are right answers, and right verdicts."""

    seats: tuple[str, ...] = ("policy", "verifier")
    solver_paid: bool = True

    def reset(self, task, key):
        return Frame(state=(task, None), asks=(Ask(seat="policy", say=task.prompt),))

    def step(self, state, acts, key):
        (act,), (task, right) = acts, state
        if act.ask.seat == "policy":
            right = final_answer(act.text) == task.answer
            shown = f"{task.prompt[0].content}\n{act.text}"
            ask = Ask(seat="verifier", say=(Message(role="user", content=shown),), max_tokens=1)
            return Frame(state=(task, right), asks=(ask,))
        agrees = float((act.text[:1] == "=") == right)  # a verdict that the tiny model gives now and then
        return Frame(state=state, pay={("policy", ""): float(right and self.solver_paid), ("verifier", ""): agrees})


GRPO = chain(Center("group"), Scale("group"))


def recipe(update=Plain(), lr=1e-3):
    def learner(seat, rate=1e-3, **more):
        return Learner(credit=Seat(seat, GRPO), objective=Clipped(), optimiser=AdamW(lr=rate), **more)

    return Recipe(
        draw=grpo.build().draw,
        collect=links(Sample(n=4, temperature=1.5, seats=(("verifier", "verifier"),)), Score()),
        learners={"policy": learner("policy"), "verifier": learner("verifier", lr, update=update)},
        schedule=Schedule(prompts=4, steps=5),
    )


def run(ctx, recipe, n):
    prepare(recipe, ctx)
    state, found = start(0), []
    for _ in range(n):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        found.append((metrics, weights_sha256(ctx.model("policy")), weights_sha256(ctx.model("verifier"))))
    return found


def bench(**settings):
    return Bench(name="judged", tasks=ArithmeticChain(operands=(2, 2)), world=Judged(**settings), max_tokens=4)


def test_both_learn_from_their_own_pay(context):
    ctx = context(bench=bench())
    begin = weights_sha256(ctx.model("policy"))
    found = run(ctx, recipe(), 5)
    assert {begin} < {p for _, p, _ in found} | {begin} and {begin} < {v for _, _, v in found} | {begin}
    assert found[-1][1] != found[-1][2]
    assert any("verifier/loss" in m for m, _, _ in found) and any("policy/loss" in m for m, _, _ in found)
    assert all("part/seat:verifier" in m for m, _, _ in found)
    rows = [r for g in ctx.seen for e in g.episodes for r in e.rows]
    assert {r.seat for r in rows if r.key in ctx.trace.advantages} == {"policy", "verifier"}
    assert {(r.seat, s.policy) for r in rows for s in r.segments if s.trained} == {
        ("policy", "policy"),
        ("verifier",) * 2,
    }


def test_a_seat_that_earns_nothing_moves_nobody(context):
    ctx = context(bench=bench(solver_paid=False))
    begin = weights_sha256(ctx.model("policy"))
    found = run(ctx, recipe(), 3)
    assert found[-1][1] == begin != found[-1][2]


def test_learners_take_turns(context):
    found = run(context(bench=bench()), recipe(update=Cycle(Plain(), period=3, on=(2,))), 5)
    verifier = [v for _, _, v in found]
    assert verifier[0] == verifier[1] and verifier[2] == verifier[3] == verifier[4]


def test_a_warm_up_comes_before_the_turns(context):
    found = run(context(bench=bench()), recipe(update=Cycle(Plain(), period=3, on=(1,), warmup=2, warms=True)), 4)
    verifier = [v for _, _, v in found]
    assert len(set(verifier)) == 3 and verifier[1] == verifier[2] != verifier[3]


def test_a_reader_is_trained_on_what_one_of_them_sampled():
    said = {who: Segment(ids=(1, 2), logp=(-1.0, -1.0), policy=who, trained=True) for who in ("policy", "verifier")}
    row = Row(segments=(Segment(ids=(0,)), *said.values()))
    group = Group(task=Task(id="t"), episodes=(Episode(rows=(row,), reward=Reward(total=1.0), status="finished"),))
    (found,), _ = Reader(chain(), policy="verifier")([group], [], {})
    assert found.columns["trained"].tolist() == [False, False, False, True, True]


def test_a_run_of_two_learners_keeps_both(context, tmp_path):
    ctx = context(bench=bench(), out=tmp_path, steps=2)
    result = asyncio.run(train(recipe(), ctx))
    assert set(result.artifacts) == {"policy", "verifier"}
    again = context(bench=bench(), out=tmp_path, steps=3)
    whole = asyncio.run(train(recipe(), again))
    straight = context(bench=bench(), out=tmp_path / "straight", steps=3)
    asyncio.run(train(recipe(), straight))
    for name in ("policy", "verifier"):
        assert weights_sha256(again.model(name)) == weights_sha256(straight.model(name))
    assert whole.metrics["steps"] == 3


def test_a_seat_that_is_not_paid_is_named(context):
    wrong = recipe()
    learners = {**wrong.learners, "verifier": replace(wrong.learners["verifier"], credit=Seat("critic", GRPO))}
    with pytest.raises(UserError, match="'critic'; the world pays policy, verifier"):
        run(context(bench=bench()), replace(wrong, learners=learners), 1)


# ---- one learner in several seats


def of_seat(seat, turns):
    said = [
        Segment(ids=(1, 2), logp=(-1.0, -1.0), author="policy", policy="policy", trained=True, turn=t) for t in turns
    ]
    return Row(seat=seat, segments=(Segment(ids=(0,)), *said))


def duel(x, o):
    """x moves in turns 0 and 2, o in turn 1; both are paid at their last token."""
    events = (Event(row=0, token=4, value=x, part="seat:x"), Event(row=1, token=2, value=o, part="seat:o"))
    reward = Reward(total=x, parts={"seat:x": x, "seat:o": o}, events=events)
    return Episode(rows=(of_seat("x", (0, 2)), of_seat("o", (1,))), reward=reward, status="finished")


def credited(credit, *episodes):
    """(seat, column) of every row in a group of these episodes."""
    group = Group(task=Task(id="t"), episodes=episodes)
    blank = [[[{"policy_value": np.zeros(len(r.view().ids_T))} for r in e.rows] for e in episodes]]
    return [(e.row.seat, e.columns) for e in credit([group], blank, {})[0]]


def test_in_self_play_each_seat_learns_from_its_own_pay():
    """Pays of x are 1 and 0, of o -1 and 3: x is centred at .5, o at 1."""
    found = credited(chain(Center("group")), duel(1.0, -1.0), duel(0.0, 3.0))
    assert [(seat, c["reward"], c["advantage"][-1]) for seat, c in found] == [
        ("x", 1.0, 0.5),
        ("x", 0.0, -0.5),
        ("o", -1.0, -2.0),
        ("o", 3.0, 2.0),
    ]


@pytest.mark.parametrize("credit", [chain(TurnReturns(gamma=1.0)), chain(Gae(gamma=1.0, lam=1.0))])
def test_returns_of_a_seat_hold_no_pay_of_another(credit):
    found = dict(credited(credit, duel(1.0, -1.0)))
    assert found["x"]["advantage"].tolist() == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert found["o"]["advantage"].tolist() == [0.0, -1.0, -1.0]


def test_what_a_seat_is_paid_is_its_total_and_its_events():
    found = pay(duel(1.0, -1.0).reward, "o")
    assert (found.total, found.events) == (-1.0, (Event(row=1, token=2, value=-1.0, part="seat:o"),))


def test_in_self_play_each_seat_prefers_its_own_pay():
    group = Group(task=Task(id="t"), episodes=(duel(1.0, -1.0), duel(-1.0, 1.0)))
    pairs = [e for e in Prefer()([group], [[[{}, {}]] * 2], {})[0] if e.row.view().trained_T.any()]
    assert [(e.row.seat, e.columns["sign"]) for e in pairs] == [("x", 1.0), ("x", -1.0), ("o", 1.0), ("o", -1.0)]
    assert len({e.unit for e in pairs}) == 2


def test_a_reward_model_compares_what_one_seat_wrote_by_its_own_pay():
    """x wins the first game, o the second; the rows of a pair are of one seat, the better one first."""
    group = Group(task=Task(id="t"), episodes=(duel(1.0, -1.0), duel(-1.0, 2.0)))
    found = Compare(bootstrap=("h",))([group], [], {})[0]
    assert [(e.row.seat, e.columns["sign"], e.unit) for e in found] == [
        ("x", 1.0, "pair 0 0"),
        ("x", -1.0, "pair 0 0"),
        ("o", 1.0, "pair 1 0"),
        ("o", -1.0, "pair 1 0"),
    ]
    assert [e.columns["h_weight"] for e in found] == [weight(f"t {s}", 0, "h") for s in "xxoo"]
    rated = Rate(("total", "seat:x", "none"))([group], [], {})[0]
    labels = [(e.row.seat, e.columns["target_total"], e.columns["target_seat:x"]) for e in rated]
    assert labels == [("x", 1.0, 1.0), ("x", -1.0, -1.0), ("o", -1.0, 1.0), ("o", 2.0, -1.0)]
    assert all(np.isnan(e.columns["target_none"]) for e in rated)
    alone = Seat("x", Compare())([group], [], {})[0]
    assert [(e.row.seat, e.columns["sign"]) for e in alone] == [("x", 1.0), ("x", -1.0)]


def test_a_seat_that_wrote_nothing_is_not_compared():
    silent = replace(duel(1.0, 5.0), rows=duel(1.0, 5.0).rows[:1])
    group = Group(task=Task(id="t"), episodes=(silent, duel(0.0, 1.0), replace(duel(9.0, 9.0), status="error:x")))
    assert [(e.row.seat, e.columns["target_total"]) for e in Rate()([group], [], {})[0]] == [
        ("x", 1.0),
        ("x", 0.0),
        ("o", 1.0),
    ]


def test_a_policy_in_the_second_seat_is_paid_for_that():
    lone = lambda x, o: replace(duel(x, o), rows=(freeze_row(of_seat("x", (0, 2))), of_seat("o", (1,))))
    found = credited(chain(Center("group")), lone(1.0, -1.0), lone(-1.0, 1.0))
    assert [(seat, c["advantage"][-1]) for seat, c in found] == [("o", -1.0), ("o", 1.0)]


@pytest.mark.parametrize(
    ("pays", "kept"),
    [
        ([(1.0, -1.0), (1.0, 3.0)], True),  # o has something to compare
        ([(1.0, -1.0), (0.0, -1.0)], True),
        ([(1.0, -1.0), (1.0, -1.0)], False),
        ([(1.0, -1.0)], False),
    ],
)
def test_a_group_is_dropped_where_no_seat_that_trains_has_something_to_compare(pays, kept):
    """And a seat of the environment's decides nothing, however much it earns."""
    group = Group(task=Task(id="t"), episodes=tuple(duel(*p) for p in pays))
    ready, _, _ = asyncio.run(Mixed(size=1)(SimpleNamespace(), [group], {}))
    assert (ready is not None) == kept and describe([group], [])["groups_mixed"] == kept
    alone = [replace(e, rows=(e.rows[0], freeze_row(e.rows[1]))) for e in group.episodes]
    assert is_mixed(replace(group, episodes=tuple(alone))) == (len({x for x, _ in pays}) > 1)


def test_a_seat_without_pay_keeps_the_total():
    critic = replace(duel(1.0, -1.0), rows=(*duel(1.0, -1.0).rows, of_seat("critic", (3,))))
    assert [(seat, c["reward"]) for seat, c in credited(chain(), critic)] == [("x", 1.0), ("o", -1.0), ("critic", 1.0)]


def test_the_first_seat_alone_keeps_its_total():
    shaped = duel(1.0, -1.0)
    shaped = replace(shaped, rows=shaped.rows[:1], reward=replace(shaped.reward, total=1.5))
    assert [c["reward"] for _, c in credited(chain(), shaped)] == [1.5]


@stage
class Duel:
    """Both speak at once; what comes later in the alphabet wins."""

    seats: tuple[str, ...] = ("x", "o")

    def reset(self, task, key):
        return Frame(state=None, asks=tuple(Ask(seat=s, say=task.prompt) for s in self.seats))

    def step(self, state, acts, key):
        won = float(acts[0].text > acts[1].text)
        return Frame(state=None, pay={("x", ""): won, ("o", ""): -won})


def test_a_run_of_self_play(context, small):
    ctx = context(bench=Bench(name="duel", tasks=ArithmeticChain(operands=(2, 2)), world=Duel(), max_tokens=4))
    recipe = small(grpo.build(), **{"schedule.prompts": 4, "collect.links.0.temperature": 1.5})
    prepare(recipe, ctx)
    asyncio.run(step(recipe, ctx, start(0)))
    signs = [
        {r.seat: np.sign(ctx.trace.advantages[r.key][-1]) for r in e.rows}
        for g in ctx.seen
        for e in g.episodes
        if all(r.key in ctx.trace.advantages for r in e.rows)
    ]
    assert any(s["x"] for s in signs) and all(s["x"] == -s["o"] for s in signs)
