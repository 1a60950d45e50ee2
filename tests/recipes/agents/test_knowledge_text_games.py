"""Knowledge beside what a text game shows: what raised the score, and what things are for."""

import asyncio
import json
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.agents import knowledge_text_games as games
from palaestra.types import Act, Ask, Episode, Frame, Group, Message, Reward, Row, Segment, Task

TASK = Task(id="t")
FACTS = (("thermometer", "can", "measure heat"), ("Water", "can", "boil"), ("ice", "can", "melt"))


class Kitchen:
    """The catalogue's example: the score is 0, 7, 7, 20 of 100 after a, b, c, d; a step costs what it lost."""

    seats = ("policy",)
    solved = 0.2
    scores = (0, 0, 7, 7, 20)

    def reset(self, task, key):
        return self.ask(0, "A thermometer lies here.")

    def step(self, state, acts, key):
        n = state + 1
        pay = {("policy", ""): (self.scores[n] - self.scores[n - 1]) / 100}
        if n == 4:
            return Frame(state=n, pay=pay)
        return replace(self.ask(n, f"turn {n}: water, no slice."), pay=pay)

    def oracle(self, state):
        return "abcd"[state]

    def ask(self, n, text):
        return Frame(
            state=n,
            asks=(Ask(seat="policy", say=(Message(role="user", content=text),)),),
            facts={"graph": [("you", "at", f"room {n}")]},
        )


def play(world, actions=("a", "<think>b?</think>b", "c", "d")):
    """What is shown turn by turn as (texts, new row), and the last frame."""
    frame, asked = asyncio.run(world.reset(TASK, ("k",))), []
    for n, text in enumerate(actions):
        asked.append(([m.content for m in frame.asks[0].say], frame.asks[0].new_row))
        act = Act(ask=frame.asks[0], text=text, call=None, finish="eos", n_tokens=1)
        frame = asyncio.run(world.step(frame.state, (act,), ("k", n)))
    return asked, frame


def test_the_memory_has_the_actions_that_raised_the_score_in_order():
    asked, frame = play(games.WithGameKnowledge(Kitchen(), FACTS))
    shown = [texts[-1] for texts, _ in asked]
    assert shown == [
        "affordances: thermometer can measure heat\ncorrect so far: none",
        "affordances: Water can boil\ncorrect so far: none",
        "correct so far: b",
        "correct so far: b",
    ]
    assert frame.facts["correct_actions"] == ("b", "d") and frame.facts["informed"] == (0, 1, 2, 3)
    assert asked[1][0][0] == "turn 1: water, no slice.", "the environment's own words stay as they are"
    assert not any(new for _, new in asked) and world_oracle() == "a"


def test_an_environment_that_begins_a_new_row_is_told_again_what_was_in_the_last():
    class Forgetful(Kitchen):
        def ask(self, n, text):
            frame = super().ask(n, text)
            return replace(frame, asks=(replace(frame.asks[0], new_row=True),))

    asked, frame = play(games.WithGameKnowledge(Forgetful(), FACTS), ("a", "Let me think.\nb", "c", "d" * 500))
    assert [texts[-1].splitlines()[0] for texts, _ in asked[1:]] == ["affordances: Water can boil"] * 3
    assert frame.facts["correct_actions"] == ("b", "d" * 200), (
        "the line of the action alone, and no more of it than is bearable"
    )


def world_oracle():
    world = games.WithGameKnowledge(Kitchen())
    return world.oracle(asyncio.run(world.reset(TASK, ("k",))).state)


def test_without_history_a_turn_has_the_task_the_observation_and_all_affordances():
    asked, _ = play(games.WithGameKnowledge(Kitchen(), FACTS, history=False))
    assert [new for _, new in asked] == [False, True, True, True]
    assert asked[2][0] == [
        "A thermometer lies here.\nturn 2: water, no slice.",
        "affordances: thermometer can measure heat; Water can boil\ncorrect so far: b",
    ]


def test_a_graph_grows_and_restarts_with_the_episode():
    world = games.WithGameKnowledge(Kitchen(), FACTS, inject="graph")
    asked, _ = play(world)
    assert asked[2][0][-1] == (
        "graph: you at room 0; you at room 1; you at room 2; thermometer can measure heat; Water can boil; you did b"
    )
    again = asyncio.run(world.reset(TASK, ("k",)))
    assert again.asks[0].say[-1].content == "graph: you at room 0; thermometer can measure heat"


def test_without_knowledge_it_is_the_environment_itself():
    asked, frame = play(games.WithGameKnowledge(Kitchen(), memory=False))
    assert [len(texts) for texts, _ in asked] == [1] * 4 and frame.facts["informed"] == ()
    plain = games.WithGameKnowledge(Kitchen(), memory=True)
    assert play(plain)[1].facts["informed"] == (2, 3), "the word none is no knowledge"


def test_affordances_are_whole_facts_of_whole_words_within_the_room():
    assert games.facts_about("ICE on a slice", FACTS) == [FACTS[2]] and not games.facts_about("slices", FACTS)
    assert games.facts_about("ice, water", FACTS, known=[FACTS[1]]) == [FACTS[2]]
    assert games.within(FACTS, 45) == [FACTS[0]] and games.within(FACTS, 46) == list(FACTS[:2])
    _, frame = play(games.WithGameKnowledge(Kitchen(), FACTS, characters=20))
    assert frame.facts["facts_cut"] == 1, "the thermometer found no room"


def test_influence_is_zero_without_knowledge_and_a_wrong_score_is_no_memory():
    row = Row(segments=(Segment(ids=(1, 2)), Segment(ids=(3,), logp=(-1.0,), trained=True, turn=0)))
    facts = {"informed": (), "correct_actions": (), "facts_cut": 0}
    e = Episode(rows=(row,), reward=Reward(total=0.0), facts=facts, status="finished")
    link = games.MeasureInfluence()
    (made,) = asyncio.run(link(None, ("k",), Group(task=TASK, episodes=(e,)))).episodes
    assert made.reward.parts == {"influence": 0.0, "correct actions": 0.0, "facts cut": 0.0}
    group = Group(task=TASK, episodes=(e,))
    assert "give affordances=FILE.tsv" in link.first_step_note((group,))
    told = replace(e, facts={**facts, "informed": (0,)})
    assert link.first_step_note((Group(task=TASK, episodes=(e, told)),)) == ""


ENVIRONMENT = '''
from palaestra.types import Ask, Frame, Message


class Lab:
    """Two actions; the first is paid at once."""

    seats = ("policy",)
    solved = 1.0

    def reset(self, task, key):
        return self.ask(0, "Measure the water.")

    def step(self, state, acts, key):
        pay = {("policy", ""): 0.5 * bool(acts[0].text.strip())}
        return Frame(state=2, pay=pay) if state else Frame(**{**vars_of(self.ask(1, "There is ice.")), "pay": pay})

    def oracle(self, state):
        return "look"

    def ask(self, state, text):
        return Frame(state=state, asks=(Ask(seat="policy", say=(Message(role="user", content=text),)),))


def vars_of(frame):
    return {name: getattr(frame, name) for name in frame.__slots__}
'''


@pytest.mark.parametrize("agent", ["rl", "imitation"])
def test_an_own_environment_with_own_facts(tmp_path, agent):
    file, facts = tmp_path / "lab.py", tmp_path / "facts.tsv"
    file.write_text(ENVIRONMENT)
    facts.write_text("".join("\t".join(f) + "\n" for f in FACTS))
    words = {"agent": agent, "affordances": str(facts), "schedule.prompts": 2, "exam": 2}
    words |= {"samples": 2} if agent == "rl" else {}
    run = pl.train(
        "knowledge-text-games", env=f"{file}:Lab", model="tiny-agent", out=tmp_path / "run", steps=1, evaluate=2,
        quiet=True, max_tokens=4, set=words,
    )  # fmt: skip
    lines = map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines())
    if agent == "imitation":
        return None if any(line.get("nll", 0) > 0 for line in lines) else pytest.fail("nothing was imitated")
    (step,) = [line for line in lines if "part/influence" in line]
    assert step["part/influence"] > 0 and step["part/correct actions"] > 0 and step["part/facts cut"] == 0


def test_bad_settings_say_what_to_do(tmp_path):
    with pytest.raises(UserError, match="characters is 1 or more, not 0"):
        games.build(characters=0)
    bad = tmp_path / "facts.tsv"
    bad.write_text("ice melts\n")
    with pytest.raises(UserError, match="head<TAB>relation<TAB>tail"):
        games.build(affordances=str(bad))
