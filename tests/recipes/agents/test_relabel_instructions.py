"""Instruction relabelling: what completes an instruction, claims and their check, relabelled rows, credit, buffer."""

import asyncio
import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.agents import relabel_instructions as oir
from palaestra.recipes.agents.relabel_instructions.instructed import (
    Instructed,
    completion,
    cut_rows,
    is_of_names,
    relabel_rows,
    with_line,
)
from palaestra.recipes.agents.relabel_instructions.relabeller import (
    Claim,
    claims_by_rule,
    is_shortened,
    read_claims,
    read_step,
    steps_text,
    verify,
)
from palaestra.toys import CraftMini, CraftMiniTasks
from palaestra.toys.craftmini import ACHIEVEMENTS, craft
from palaestra.types import Act, Ask, Episode, Frame, Group, Message, Reward, Row, Segment, Task

FACTS = {
    "told": ((("user", "start"),), (("tool", "wood 1"),), (("tool", "[[x]] wood 2"),)),
    "acted": ("do", "wait", "table"),
    "achieved": ((1, "collect_wood"), (3, "place table")),
    "instruction": "",
}


def test_returns_of_the_catalogue():
    """Success at the 12th action: .99^11 at the first; two tokens of one action share its return."""
    got = oir.returns_to_go(1.0, np.array([0, 0, *range(1, 12)]), 0.99)
    assert got[0] == got[1] == pytest.approx(0.895338, abs=1e-6) and got[-1] == 1.0
    assert oir.returns_to_go(1.0, np.zeros(0, int), 0.99).size == 0


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("Collect wood.", 1),
        ("collect_wood then place table", 3),
        ("place table and collect wood", 3),
        ("place table then collect wood", None),
        ("collect wood, place table", 3),
        ("collect stone", None),
        ("", None),
    ],
)
def test_when_achievements_complete_an_instruction(text, at):
    assert completion(text, FACTS["achieved"]) == at


def test_claims_in_all_forms_of_a_line():
    reply = (
        "<think>9: fly</think>Sure:\n1: collect wood\n- Step 3: *place a table*\n2. wait a bit (step 2)\n"
        "4) NONE\nno number here\n1: Collect  wood\n5:"
    )
    assert read_claims(reply, 9) == [
        Claim(instruction="collect wood", step=1),
        Claim(instruction="place a table", step=3),
        Claim(instruction="wait a bit", step=2),
    ]
    assert read_claims(reply, 1) == [Claim(instruction="collect wood", step=1)]
    assert read_claims("", 4) == read_claims("NONE", 4) == []


@pytest.mark.parametrize(
    ("reply", "step"),
    [
        ("12", 12),
        ("<think>3</think>Step 4.", 4),
        ("None", None),
        ("", None),
        ("I count 3 tries. It was done at step 7", 7),
        ("step 5 looks near, but NONE", None),
        ("of 60 it was 9", 9),
    ],
)
def test_a_step_of_a_reply(reply, step):
    assert read_step(reply) == step


def test_achievements_check_claims_and_their_steps():
    """A true one moves to its action; an untrue one, one at the start and one behind the end are refused."""
    facts = {**FACTS, "achievement_names": ("collect stone",), "achieved": (*FACTS["achieved"], (0, "be born"))}
    claims = [
        Claim(instruction="collect wood", step=2),
        Claim(instruction="collect stone", step=2),
        Claim(instruction="be born", step=1),
        Claim(instruction="look around", step=2),
        Claim(instruction="look ahead", step=4),
        Claim(instruction="look behind", step=0),
    ]
    kept, refused = verify(claims, facts)
    assert kept == [Claim(instruction="collect wood", step=1, verified=True), claims[3]]
    assert [c.instruction for c in refused] == ["collect stone", "be born", "look ahead", "look behind"]


def test_a_captioner_without_a_model_names_achievements_and_pairs():
    texts = [(c.instruction, c.step) for c in claims_by_rule(FACTS, 9)]
    assert texts == [("collect wood", 1), ("place table", 3), ("collect wood then place table", 3)]
    assert len(claims_by_rule(FACTS, 1)) == 1 and claims_by_rule({**FACTS, "achieved": ()}, 4) == []


def test_a_trajectory_as_text_is_defused_and_cut():
    lines = steps_text(FACTS).splitlines()
    assert lines[0] == "0. saw: start"
    assert lines[1] == "1. did: do; saw: wood 1; achieved: collect_wood"
    assert "[[x]]" not in lines[2] and lines[3] == "3. did: table; achieved: place table"


def test_an_achievement_may_have_and_in_its_name():
    achieved = ((2, "search_and_rescue"), (3, "light, then fire"))
    assert completion("search and rescue", achieved) == 2 and completion("Rescue", achieved) is None
    assert completion("search and rescue then light, then fire", achieved) == 3
    assert completion("light, then fire then search and rescue", achieved) is None
    assert is_of_names("search and rescue", ["search_and_rescue"]) and not is_of_names("search", ["search_and_rescue"])


def test_a_long_trajectory_keeps_every_step():
    """What was achieved last is told however long the observations before it are; the longest are shortened."""
    told = [[("u", "x" * 300)] for _ in range(60)] + [[("u", "short")]]
    facts = {"told": told, "acted": [f"act {i}" for i in range(60)], "achieved": ((60, "reach the end"),)}
    text = steps_text(facts, 6000)
    assert len(text.splitlines()) == 61 and 5700 < len(text) <= 6000 and is_shortened(facts, 6000)
    assert text.endswith("60. did: act 59; saw: short; achieved: reach the end")
    assert not is_shortened(facts, 30_000) and "..." not in steps_text(facts, 30_000)


def test_the_instruction_stands_behind_the_users_system_message():
    system, user = Message(role="system", content="Be brief."), Message(role="user", content="at 1")
    told = with_line((system, user), "go up")
    assert told[0] == system and told[1].content == "instruction: go up\nat 1"
    assert with_line((system,), "go up")[1].content == "instruction: go up"
    assert with_line((system, user), "") == (system, user)


class Walk:
    """Each action is a step; the second one reaches the tree, which is an achievement; it ends after four."""

    seats = ("policy",)

    def reset(self, task, key):
        return self.ask(0)

    def step(self, state, acts, key):
        return self.ask(state + 1) if state < 3 else Frame(state=4, pay={("policy", ""): 0.25}, facts=self.facts(4))

    def ask(self, state):
        return Frame(
            state=state,
            asks=(Ask(seat="policy", say=(Message(role="user", content=f"at {state}"),), new_row=state == 1),),
            facts=self.facts(state),
        )

    def facts(self, state):
        return {"achievements": ["reach tree"] if state > 1 else []}


def walk(instruction, acts=4):
    world, task = Instructed(Walk()), Task(id="t", meta={"instruction": instruction})
    frame, said = asyncio.run(world.reset(task, ())), []
    while frame.asks:
        said.append(frame.asks[0].say[-1].content)
        act = Act(ask=frame.asks[0], text=f"a{len(said)}", call=None, finish="eos", n_tokens=1)
        frame = asyncio.run(world.step(frame.state, (act,), ()))
    return said, frame


def test_an_instruction_ends_the_episode_where_it_is_accomplished():
    said, frame = walk("reach tree")
    assert said == ["instruction: reach tree\nat 0", "instruction: reach tree\nat 1"]  # a row each
    assert frame.pay == {("policy", ""): 1.0}
    assert frame.facts["achieved"] == ((2, "reach tree"),) and frame.facts["acted"] == ("a1", "a2")
    assert [text for ((_, text),) in frame.facts["told"]] == ["at 0", "at 1", "at 2"]  # the last one is no turn's


def test_the_environments_own_pay_counts_without_an_instruction_alone():
    said, frame = walk("")
    assert said == ["at 0", "at 1", "at 2", "at 3"] and frame.pay == {("policy", ""): 0.25}
    assert walk("fly")[1].pay == {("policy", ""): 0.0}


def test_several_players_at_once_are_refused():
    class Two(Walk):
        def ask(self, state):
            one = super().ask(state)
            return replace(one, asks=one.asks * 2)

    with pytest.raises(UserError, match="several at once"):
        asyncio.run(Instructed(Two()).reset(Task(id="t"), ()))


def segment(turn, text, trained=False):
    return Segment(ids=(1, 2), text=text, turn=turn, trained=trained, logp=(-1.0, -1.0) if trained else None, version=3)


ROWS = (
    Row(segments=tuple(segment(t, x, y) for t in range(3) for x, y in ((f"see {t}", False), (f"act {t}", True)))),
    Row(segments=(segment(3, "see 3"), segment(3, "act 3", True))),
)


def test_rows_are_cut_at_the_completion():
    """Completed at action 2: both actions with what was seen before, and no row that begins later."""
    (row,) = cut_rows(ROWS, 2)
    assert [s.text for s in row.segments] == ["see 0", "act 0", "see 1", "act 1"]
    assert len(cut_rows(ROWS, 4)) == 2 and cut_rows(ROWS, 0) == ()


def dialect_context(ask=None):
    heard = []

    def extend(messages, *, first, closed, tools):
        heard.append([m.content for m in messages])
        return [SimpleNamespace(ids=(7, 7, 7), author="environment", text=messages[-1].content, pictures=())]

    engine = SimpleNamespace(dialect=SimpleNamespace(extend=extend))
    return SimpleNamespace(engine=lambda: engine, ask=ask, judging=nullcontext), heard


def test_a_relabelled_row_has_the_other_instruction_and_no_age():
    ctx, heard = dialect_context()
    told = [[("user", f"see {t}")] for t in range(4)]
    first, second = relabel_rows(ctx, ROWS, told, "go up", 4)
    assert heard == [["instruction: go up\nsee 0"], ["instruction: go up\nsee 3"]]
    assert first.segments[0].ids == (7, 7, 7) and [s.ids for s in first.segments[1:]] == [(1, 2)] * 5
    assert all(s.logp is None and s.version is None for s in first.segments if s.trained)
    assert [s.turn for s in second.segments] == [3, 3] and first.view().trained_T.sum() == 6


def relabelled(facts, reply=None, **options):
    async def ask(source, question, *, seed=0):
        if isinstance(reply, Fault):
            raise reply
        return reply

    ctx, _ = dialect_context(ask)
    told = {"told": tuple((("user", f"see {t}"),) for t in range(4)), "acted": ("a",) * 4, **facts}
    e = Episode(rows=ROWS, reward=Reward(total=0.0), status="finished", facts={**FACTS, **told})
    link = oir.RelabelEpisodes(relabeller=None if reply is None else "judge", **options)
    return link, asyncio.run(link(ctx, (), Group(task=Task(id="t"), episodes=(e,)))).episodes


def test_an_episode_becomes_a_sample_of_each_instruction():
    _, (own, a, b) = relabelled({}, "1: collect wood\n3: look at trees\n9: fly")
    assert (own.reward.parts["relabelled"], own.reward.parts["refused"]) == (2.0, 1.0)
    assert not oir.RelabelEpisodes().first_step_note([Group(task=Task(id="t"), episodes=(own, a, b))])
    assert [e.facts["hindsight_weight"] for e in (a, b)] == [1.0, 0.5]
    assert a.reward.total == 1.0 and not a.reward.judged and own.reward.total == 0.0
    assert [len([s for r in e.rows for s in r.segments if s.trained]) for e in (a, b)] == [1, 3]


def test_the_own_instruction_is_no_new_one_and_none_is_asked_for():
    assert len(relabelled({"instruction": "Collect wood"}, "1: collect wood")[1]) == 1
    assert len(relabelled({}, "1: x", most=0)[1]) == 1


def test_a_relabeller_that_fails_leaves_the_episode_and_is_told():
    link, (own,) = relabelled({}, Fault("chat", "away"))
    assert own.ok and own.reward.total == 0.0
    assert "away" in link.first_step_note([Group(task=Task(id="t"), episodes=(own,))])


def test_an_environment_without_achievements_needs_a_relabeller():
    link, episodes = relabelled({"achieved": ()})
    assert "give relabeller=DIR" in link.first_step_note([Group(task=Task(id="t"), episodes=episodes)])


def follow(text, reply, achieved=()):
    async def ask(source, question, *, seed=0):
        return reply

    ctx, _ = dialect_context(ask)
    facts = {**FACTS, "acted": ("a",) * 4, "achieved": achieved, "instruction": text}
    e = Episode(rows=ROWS, reward=Reward(total=0.0), status="finished", facts=facts)
    return asyncio.run(oir.FollowInstructions(relabeller="judge")._checked(ctx, (), e))


def test_a_model_says_whether_an_open_instruction_was_followed():
    done = follow("look at trees", "2")
    assert done.reward.total == 1.0 and done.solved and done.rows == cut_rows(ROWS, 2)
    for reply in ("NONE", "9", "0"):
        assert follow("look at trees", reply).reward.total == 0.0
    assert follow("collect wood", "2", ((0, "collect wood"),)).reward.total == 0.0  # so it was at the start
    assert follow("collect wood", "NONE", ((3, "collect wood"),)).reward.total == 1.0


def test_the_buffer_grows_but_for_near_copies():
    def group(*texts):
        made = (Episode(status="finished", facts={"relabelled": 1.0, "instruction": t}) for t in texts)
        return Group(task=Task(id="t"), episodes=tuple(made))

    grow = oir.GrowInstructions(seeds=("collect wood",), near=0.8, most=3)
    state = grow([group("Collect_wood", "drink water", "drink the water", "a then b", "b then a")], {}, {"inner": 1})
    assert state == {"inner": 1, "instructions": ["drink water", "a then b", "b then a"]}
    assert grow([group("swim")], {}, state)["instructions"] == ["a then b", "b then a", "swim"]
    assert oir.bag_cosine("drink water", "drink the water") == pytest.approx(2 / 6**0.5)
    assert oir.bag_cosine("", "x") == 0


def test_drawn_tasks_have_instructions_of_the_buffer_or_their_own():
    ctx = SimpleNamespace(bench=SimpleNamespace(tasks=CraftMiniTasks(size=8), first_drawn=0, data_seed=None), seed=0)
    draw = oir.DrawInstructions(seeds=("a",), share=1.0)
    tasks, state = draw(ctx, (1,), 8, {"instructions": ["b"]})
    assert {t.meta["instruction"] for t in tasks} == {"a", "b"} and state["instructions"] == ["b"]
    assert draw.draw_numbers(state) == {"instructions": 2.0}
    assert oir.DrawInstructions(share=1.0)(ctx, (1,), 2, {})[0][0].meta.get("instruction") is None
    own = SimpleNamespace(size=1, task=lambda s, i: Task(id="o", meta={"instruction": "mine"}))
    ctx.bench.tasks = own
    assert draw(ctx, (1,), 1, {})[0][0].meta["instruction"] == "mine"


def test_credit_of_given_and_relabelled_samples():
    """V = .75, gamma .5. Given, R = 0: A = -.75. Relabelled with two actions, G = .5 and 1: 0, and .25 * weight .5."""
    given = Episode(rows=(ROWS[0],), reward=Reward(total=0.0), status="finished")
    row = Row(segments=ROWS[0].segments[:4])
    facts = {"relabelled": 1.0, "hindsight_weight": 0.5}
    again = Episode(rows=(row,), reward=Reward(total=1.0), status="finished", facts=facts)
    groups = [Group(task=Task(id="t"), episodes=(given, again))]
    signals = [[[{"policy_value": np.full(12, 0.75)}], [{"policy_value": np.full(8, 0.75)}]]]
    table = pl.Table(groups, signals, {})
    x = oir.HindsightCredit(gamma=0.5)(pl.Values(level="episode", x_N=table.reward_E), table)
    assert x.x_N.tolist() == [-0.75] * 6 + [0, 0, 0.125, 0.125]
    assert table.columns["return"].x_N.tolist() == [0.0] * 6 + [0.75, 0.75, 1, 1]
    assert table.columns["track:hindsight"].x_N.tolist() == [0.0] * 8 + [0.125, 0.125]


def test_files_of_instructions(tmp_path):
    file = tmp_path / "i.txt"
    file.write_text("go up\n\n go up \ngo down\n")
    assert oir.read_instructions(str(file)) == ("go up", "go down")
    assert oir.read_instructions("go up") == oir.read_instructions(["go up"]) == ("go up",)
    file.write_text("\n")
    with pytest.raises(UserError, match="has no line"):
        oir.read_instructions(str(file))
    with pytest.raises(UserError, match="cannot be read"):
        oir.read_instructions(str(tmp_path / "gone.txt"))


def test_questions_are_refused(tmp_path):
    with pytest.raises(UserError, match="environment"):
        pl.train("relabel-instructions", task="add", out=tmp_path / "run", steps=1, quiet=True, evaluate=0)


def test_crafts_by_hand():
    """Wood of a tree that is faced, a table of it, a second wood, a pickaxe beside it, stone."""
    start = CraftMiniTasks().task("train", 0).meta["start"]
    state = replace(start, at=(1, 1), facing="up", held={}, things={(1, 0): "tree", (0, 1): "stone", (2, 1): "water"})
    assert str(state) == "up tree down grass left stone right water, facing tree"
    assert craft(state, "table") is None and craft(state, "pickaxe") is None and craft(state, "fly") is None
    for action in ("do", "do", "down", "table", "pickaxe", "up", "left"):
        state = craft(state, action)
    assert state.held == {"wood": 0, "pickaxe": 1} and state.at == (1, 1)
    state = craft(craft(craft(state, "do"), "right"), "right")
    assert state.achieved == ("collect wood", "place table", "make pickaxe", "collect stone")
    assert state.held["stone"] == 1 and (0, 1) not in state.things


def test_the_plan_of_every_board_earns_all():
    for i in range(12):
        task, world = CraftMiniTasks().task("train", i), CraftMini()
        frame = world.reset(task, ())
        while frame.asks:
            act = Act(ask=frame.asks[0], text=world.oracle(frame.state), call=None, finish="eos", n_tokens=1)
            frame = world.step(frame.state, (act,), ())
        assert frame.pay == {("policy", ""): 1.0} and set(frame.facts["achievements"]) == set(ACHIEVEMENTS)


@pytest.mark.slow
def test_two_steps_on_an_environment_of_ones_own(tmp_path):
    file = tmp_path / "hall.py"
    file.write_text(
        "from palaestra.types import Ask, Frame, Message\n\n\nclass Hall:\n    seats = ('policy',)\n\n"
        "    def reset(self, task, key):\n        return self.at(0)\n\n"
        "    def step(self, state, acts, key):\n        return self.at(state + 1)\n\n"
        "    def at(self, n):\n        facts = {'achievements': ['reach door'] if n > 1 else []}\n"
        "        if n == 3:\n            return Frame(state=n, pay={('policy', ''): 0.0}, facts=facts)\n"
        "        say = (Message(role='user', content=f'door {n}'),)\n"
        "        return Frame(state=n, asks=(Ask(seat='policy', say=say),), facts=facts)\n"
    )
    words = {"samples": 2, "schedule.prompts": 2, "exam": 0, "share": 1.0}
    given = {"steps": 2, "model": "tiny-agent", "max_tokens": 4, "quiet": True, "evaluate": 0}
    run = pl.train("relabel-instructions", env=f"{file}:Hall", out=tmp_path / "run", set=words, **given)
    logs = [json.loads(x) for x in (run.folder / "metrics.jsonl").read_text().splitlines()]
    steps = [x for x in logs if x.get("hindsight") is not None]
    assert any(x["hindsight"] > 0 for x in steps)
    # the second step draws the instruction that the first one wrote, and following it ends the episode
    assert steps[-1]["part/followed"] == 1.0
