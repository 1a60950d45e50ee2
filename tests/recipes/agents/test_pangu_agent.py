"""Pangu-Agent: calls before an action, what the plain policy inherits, and the discount by actions."""

import asyncio
import json
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.agents import pangu_agent as pangu
from palaestra.run.first_step import first_step_notes
from palaestra.types import Act, Ask, Episode, Event, Frame, Group, Message, Reward, Row, Segment, Task

TASK = Task(id="t")


class Stairs:
    """Five actions to the top."""

    seats = ("policy", "other")

    def reset(self, task, key):
        return self.ask(0)

    def step(self, state, acts, key):
        self.heard = [(a.text, a.ask.say[0].content) for a in acts]
        return Frame(state=5, pay={("policy", ""): 1.0}) if state == 4 else self.ask(state + 1)

    def oracle(self, state):
        return f"up {state}"

    def ask(self, state):
        other = (Ask(seat="other", say=(Message(role="user", content="you too"),)),) if state == 3 else ()
        return Frame(
            state=state,
            asks=(Ask(seat="policy", say=(Message(role="user", content=f"at {state}"),), stop=(".",)), *other),
        )


def play(functions, turns=99):
    """What is asked turn by turn, as (seat, messages), and the last frame."""
    world, asked, n = pangu.WithCalls(Stairs(), functions, act="ACT"), [], 0
    frame = asyncio.run(world.reset(TASK, ("k",)))
    while frame.asks and len(asked) < turns:
        asked += [(a.seat, [m.content for m in a.say], a.stop) for a in frame.asks]
        acts = tuple(
            Act(ask=a, text=f"said {n + i}", call=None, finish="eos", n_tokens=1) for i, a in enumerate(frame.asks)
        )
        n += len(acts)
        frame = asyncio.run(world.step(frame.state, acts, ("k", n)))
    return asked, frame, world


def test_every_function_is_called_before_every_action():
    asked, frame, world = play(("plan", "my own words"))
    assert asked[:4] == [
        ("policy", ["at 0", pangu.FUNCTIONS["plan"]], ()),
        ("policy", ["my own words"], ()),
        ("policy", ["ACT"], (".",)),
        ("policy", ["at 1", pangu.FUNCTIONS["plan"]], ()),
    ]
    assert len(asked) == 16 and frame.pay == {("policy", ""): 1.0}, "5 steps of 3, and one of the other seat"
    assert frame.facts["intrinsic"] == (0, 1, 3, 4, 6, 7, 9, 10, 13, 14)
    assert [s for s, _, _ in asked].count("other") == 1 and world.world.heard == [("said 15", "at 4")]


def test_without_functions_it_is_the_environment_itself():
    asked, frame, _ = play(())
    assert [m for _, m, _ in asked] == [["at 0"], ["at 1"], ["at 2"], ["at 3"], ["you too"], ["at 4"]]
    assert frame.facts["intrinsic"] == () and asked[0][2] == (".",)
    assert pangu.function_names("") == () and pangu.function_names(" plan, think") == ("plan", "think")


def test_a_comma_parts_names_and_a_misspelt_one_is_refused():
    names = pangu.function_names
    assert names("Look around, then think.") == ("Look around, then think.",)
    assert names(["plan", "Look around, then think."]) == ("plan", "Look around, then think.")
    for given in ("plna", "plan,plna", ["plna"]):
        with pytest.raises(UserError, match="'plna' is no function; there are think, plan, reflect, predict"):
            pangu.build(functions=given)


def test_what_functions_say_is_hidden_and_the_oracle_names_the_action():
    world = pangu.WithCalls(Stairs(), ("plan",))
    frame = asyncio.run(world.reset(TASK, ("k",)))
    assert [m.hidden for m in frame.asks[0].say] == [False, True]
    assert world.oracle(frame.state) == "up 0"
    told = asyncio.run(replace(world, hides=False).reset(TASK, ("k",)))
    assert [m.hidden for m in told.asks[0].say] == [False, False]


@pytest.mark.parametrize(("functions", "train"), [("plan", "all"), ("my own, say", "thoughts"), ("", "all")])
def test_the_second_stage_trains_what_was_played(tmp_path, functions, train):
    """Before its first update the policy is the one that played, so their divergence is 0."""
    rl = pangu.build(rl_functions=functions, train=train, samples=2).parts["rl"].runnable
    for name, value in (("schedule.prompts", 2), ("update.epochs", 1), ("update.minibatches", 1)):
        rl = pl.override(rl, name, value)
    run = pl.train(rl, task="grid", out=tmp_path / "run", steps=1, evaluate=0, quiet=True, max_tokens=8)
    step = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[0])
    assert step["updates"] == 1 and abs(step["kl_behaviour"]) < 1e-9


def test_who_inherits_thoughts_is_asked_for_them_again():
    played = lambda **given: pangu.build(**given).parts["rl"].runnable.collect.links[0]
    assert played(inherit="thoughts", functions="plan,think").functions == ("plan", "think")
    assert played(inherit="thoughts", rl_functions="think").functions == ("think",)
    assert played().functions == () and not played().hides and played(inherit="thoughts", functions="").functions == ()
    with pytest.raises(UserError, match="leave rl_functions out, or give rl_functions=plan"):
        pangu.build(inherit="thoughts", rl_functions="")


def row(actions, calls):
    """A row of so many actions with so many calls before each: what the world says has 3 tokens, a template 2 that
    are hidden, a reply 1."""
    segments, intrinsic, turn = [], [], 0
    for _ in range(actions):
        segments.append(Segment(ids=(1, 2, 3), text="at"))
        for _ in range(calls):
            segments += [Segment(ids=(8, 8), hidden=True), Segment(ids=(5,), logp=(-1.0,), trained=True, turn=turn)]
            intrinsic.append(turn)
            turn += 1
        segments += [Segment(ids=(8, 8), hidden=True)] * bool(calls)
        segments.append(Segment(ids=(6,), logp=(-1.0,), trained=True, turn=turn, author="policy"))
        turn += 1
    return Row(segments=tuple(segments)), tuple(intrinsic)


def episode(actions, calls, value=1.0):
    made, intrinsic = row(actions, calls)
    seen = sum(len(s.ids) for s in made.segments if not s.hidden)
    reward = Reward(total=value, events=(Event(row=0, token=seen - 1, value=value),))
    return Episode(rows=(made,), reward=reward, facts={"intrinsic": intrinsic}, status="finished")


def discount(e, **options):
    link = pangu.DiscountActions(**options)
    return asyncio.run(link(None, ("k",), Group(task=TASK, episodes=(e,)))).episodes[0]


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_the_return_of_the_catalogue_does_not_depend_on_calls(calls):
    e = discount(episode(5, calls))
    assert e.total == pytest.approx(0.960596, abs=1e-6) and e.solved and e.reward.events[0].value == e.total
    assert discount(episode(1, calls)).total == 1 and not discount(episode(5, calls, value=0.5)).solved


def test_pay_on_the_way_is_discounted_by_its_own_action():
    e = episode(3, 1)  # a step is 5 tokens that are seen: 3 of the world, a call, an action
    events = (Event(row=0, token=4, value=1.0), Event(row=0, token=14, value=1.0))
    e = discount(replace(e, reward=Reward(total=2.0, events=events)), gamma=0.5)
    assert [x.value for x in e.reward.events] == [1.0, 0.25] and e.total == 1.25


def test_actions_of_earlier_rows_of_the_seat_count():
    """Two rows of three actions each, with a call before each one, and a row of another seat between."""
    one, intrinsic = row(6, 1)
    parts = [one.segments[:15], one.segments[15:]]
    other = Row(segments=(Segment(ids=(9,), logp=(0.0,), trained=True, turn=3),), seat="other")
    rows = (Row(segments=parts[0], seat="policy"), other, Row(segments=parts[1], seat="policy"))
    events = (Event(row=0, token=4, value=1.0), Event(row=1, token=0, value=1.0), Event(row=2, token=14, value=1.0))
    e = Episode(rows=rows, reward=Reward(total=3.0, events=events), facts={"intrinsic": intrinsic}, status="finished")
    assert [x.value for x in discount(e, gamma=0.5).reward.events] == [1.0, 1.0, 0.5**5]


@pytest.mark.parametrize(
    ("train", "trained"), [("all", [1, 1, 1, 1]), ("actions", [0, 1, 0, 1]), ("thoughts", [1, 0, 1, 0])]
)
def test_credit_is_switched_by_function(train, trained):
    e = discount(episode(2, 1), train=train)
    assert [int(s.trained) for s in e.rows[0].segments if s.logp] == trained


def test_the_plain_policy_inherits_the_actions_alone():
    made, intrinsic = row(2, 2)
    plain = pangu.without_calls(made, intrinsic)
    assert plain.view().ids_T.tolist() == [1, 2, 3, 6, 1, 2, 3, 6] and plain.view().trained_T.sum() == 2
    assert plain.context() == made.context(), "what was seen stays"
    assert pangu.without_calls(row(2, 0)[0], ()) == row(2, 0)[0]


def inherit(context, e, ids, said=None, **options):
    """The episode after inheritance, where the model says `ids` after 8 tokens, and 1 after fewer; or the texts
    `said`, each in as many tokens as it has characters."""

    class Engine:
        async def generate(self, prompt, sampling, key):
            new = ids if len(prompt) >= 8 else (1,)
            text = said[len(prompt) >= 8] if said else str(new)
            assert len(text) <= sampling.max_tokens
            return pl.Completion(ids=new, logp=(0.0,), text=text, cut=0, finish="eos", version=0)

    ctx = type("Run", (), {"engine": lambda self, name: Engine(), "bench": context().bench})()
    link = pangu.InheritStructure(**options)
    return asyncio.run(link(ctx, ("k",), Group(task=TASK, episodes=(e,)))).episodes[0]


def test_solved_episodes_alone_are_imitated_and_what_calls_changed_is_said(context):
    e = inherit(context, episode(2, 1), ids=(2,))
    assert not e.muted and e.reward.parts == {"solved": 1.0, "changed": 1.0} and e.reward.events == ()
    assert e.rows[0].view().ids_T.tolist() == [1, 2, 3, 6, 1, 2, 3, 6]
    assert inherit(context, episode(2, 1), ids=(1,)).reward.parts["changed"] == 0
    assert inherit(context, episode(2, 0), ids=(2,)).reward.parts["changed"] == 0
    lost = inherit(context, episode(2, 1, value=0.0), ids=(2,))
    assert lost.muted and lost.reward.parts["solved"] == 0
    (seen,) = inherit(context, episode(2, 1), ids=(2,), thoughts=True).rows
    assert seen.view().ids_T.tolist() == [1, 2, 3, 8, 8, 5, 8, 8, 6] * 2, "a thought stands behind what asked for it"
    assert seen.view().trained_T.sum() == 4 and tuple(seen.view().ids_T.tolist()) == seen.context()
    broken = Episode(status="error:environment")
    assert inherit(context, broken, ids=(2,)) == broken


def test_a_first_step_without_a_solved_episode_is_told():
    inherited = pangu.InheritStructure()
    lost, won = episode(1, 1, value=0.0), episode(1, 1)
    note = lambda *given: inherited.first_step_note([Group(task=TASK, episodes=given)])
    assert note(lost).startswith("no episode with calls was solved") and note(lost, won) == "" and note() == ""
    assert note(episode(1, 0, value=0.0)).startswith("no episode was solved")
    bootstrap = pl.override(pangu.build(samples=1).parts["bootstrap"].runnable, "schedule.prompts", 1)
    lines = first_step_notes({"episodes": 1, "groups": 1}, [Group(task=TASK, episodes=(lost,))], bootstrap)
    assert len(lines) == 1 and "rl begins at the start model" in lines[0], "and nothing of chosen and rejected"


@pytest.mark.parametrize(
    ("behind", "changed"), [("<think>so it is</think>\n up ", 0.0), ("up", 0.0), ("down", 1.0), ("so up", 1.0)]
)
def test_an_action_changed_where_its_text_did(context, behind, changed):
    e = inherit(context, episode(2, 1), ids=(7, 8), said=("up", behind))
    assert e.reward.parts["changed"] == changed


def test_arguments_that_are_none_are_refused():
    with pytest.raises(UserError, match="gamma is above 0 and at most 1, not 0"):
        pangu.build(gamma=0.0)
    assert [p.model and p.model.part for p in pangu.embedded().parts.values()] == [None, "shown", "bootstrap"]
