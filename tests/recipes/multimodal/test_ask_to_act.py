"""Ask-to-Act: what an episode is paid for by its parts, what models that play user and judge are told, its numbers."""

import asyncio
import json
from dataclasses import replace

import palaestra as pl
import pyarrow.parquet as pq
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.multimodal import ask_to_act
from palaestra.recipes.multimodal.ask_to_act.people import ModelKnower, ModelQuestionJudge
from palaestra.toys.lookalikes import LookalikeTasks
from palaestra.types import Episode, Reward

from tests.recipes.objectives.helpers import near
from tests.vision import noise, pillow, save_tiny
from tests.worlds.test_asking import room_task


def facts(**own):
    plain = {"correct": False, "subgoals": 0, "over_budget": 0, "turns": 1, "ars": 0.0, "asked_useful": 0,
             "asked_idle": 0, "asked_needed": 1, "asked_bits": 0.0}  # fmt: skip
    return {**plain, **own}


def parts_of(total, room=None, **own):
    episode = Episode(rows=(), reward=Reward(total=total), status="finished", facts=facts(**own))
    group = pl.Group(task=room_task(), episodes=(episode,))
    link = ask_to_act.RoomParts(room or pl.worlds.AskingRoom())
    (told,) = asyncio.run(link(None, ("k",), group)).episodes
    return told.reward


def test_the_parts_of_both_reference_episodes():
    won = parts_of(1.48, correct=True, subgoals=2, turns=12, ars=100.0)
    assert won.solved and won.parts == near({"success": 1, "subgoals": 0.4, "useful": 0.2, "over": 0, "ars": 100})
    lost = parts_of(0.18, subgoals=2, turns=12, over_budget=1)
    assert not lost.solved and lost.parts == near({"success": 0, "subgoals": 0.4, "useful": 0, "over": -0.1, "ars": 0})
    assert parts_of(-0.01, pl.worlds.AskingRoom(useful=0.0)).parts["useful"] == 0.0


def test_numbers_of_an_exam():
    whole = [
        Episode(rows=(), status="finished", facts=facts(correct=True, turns=6, ars=50.0, asked_useful=2)),
        Episode(rows=(), status="finished", facts=facts(turns=4, asked_idle=3)),
        Episode(rows=(), status="error:user", facts={}),
    ]
    n = ask_to_act.room_numbers(whole)
    assert (n["success"]["mean"], n["ars"], n["question_ratio"], n["questions"]) == (0.5, 25, 0.5, 2.5)
    assert (n["unneeded"], n["idle"], n["errors"]) == (0.5, 1.5, 1)
    assert ask_to_act.room_numbers(whole[2:]) == {"errors": 1.0}


def test_success_by_what_a_user_has_to_name_and_by_chance():
    """Of four cups, the two red ones, and one: whoever asks nothing is right with 1/4, 1/2 and 1; the user has to name
    colour and size, the size, and nothing."""
    prompts = ("bring the cup to the door", "bring the red cup to the door", "bring the red small cup to the door")
    tasks = [room_task(p) for p in (*prompts, prompts[1])]
    played = [Episode(rows=(), status="finished", facts=facts(correct=x)) for x in (False, True, True, False)]
    n = ask_to_act.by_ambiguity(tasks, played)
    assert n == {"guess": near(2.25 / 4), "success colour+size": 0.0, "success size": 0.5, "success nothing": 1.0}
    failed = [Episode(rows=(), status="error:user", facts={})]
    assert ask_to_act.by_ambiguity(tasks[:1], failed) == {"guess": 0.25}


def test_what_is_learned_from():
    """By default a critic, and what is possible stays likely; a group in its place has no value head; free has no legal term."""
    learner = lambda **settings: ask_to_act.build(**settings).learners["policy"]
    assert {"value_error", "legal_loss"} <= losses_of(learner()) and "legal_loss" not in losses_of(learner(legal=0.0))
    assert "legal_loss" not in losses_of(learner(free=True, user=pl.Scripted(lambda request: "red")))
    group = learner(baseline="group", kl=0.1)
    assert not group.heads and group.needs == (("ref", "logp"),) and losses_of(group) >= {"legal_loss"}


def losses_of(learner):
    """The terms of a learner's loss, by what they log."""
    names = {"ValueLoss": "value_error", "LegalMass": "legal_loss"}
    return {own for name, own in names.items() if name in repr(learner.objective)}


class Chat:
    """A context that answers requests with given texts, and keeps them."""

    def __init__(self, *replies):
        self.replies, self.asked = list(replies), []

    async def ask(self, source, request, seed=0):
        self.asked.append([(m.role, m.content) for m in request.messages])
        return self.replies.pop(0)


def test_a_model_user_knows_what_is_meant_and_hears_the_talk():
    ctx = Chat("<think>cup 2</think>It is red.", "  ")
    user = ModelKnower(ctx, "source")
    said = asyncio.run(user(room_task(), (("ask size", "small"),), "ask colour", ("k",)))
    assert said == "It is red."
    (system, *talk) = ctx.asked[0]
    assert "You mean this object: cup 2, kind cup, colour red, size small, at sink" in system[1]
    assert talk == [("user", "size"), ("assistant", "small"), ("user", "colour")]
    with pytest.raises(Fault, match="said nothing"):
        asyncio.run(user(room_task(), (), "ask colour", ("k",)))


def test_a_judge_says_yes_or_no():
    ctx = Chat("YES", "no.", "perhaps")
    judge = ModelQuestionJudge(ctx, "source")
    ask = lambda: asyncio.run(judge(room_task(), (), "ask colour", "xyzzy", ("k",)))
    assert [ask(), ask()] == [True, False]
    assert "means this object: cup 2" in ctx.asked[0][0][1] and "xyzzy" not in ctx.asked[0][0][1]
    with pytest.raises(Fault, match="neither YES nor NO"):
        ask()


def test_what_the_recipe_is_made_of():
    made = ask_to_act.build(useful=0.0, subgoal=0.0, budget=4)
    room = made.collect.links[0].room
    assert (room.useful, room.subgoal, room.budget, room.legal) == (0, 0, 4, True)
    assert "value" in made.learners["policy"].heads and made.evaluate["rooms"].tasks == 32
    with pytest.raises(UserError, match="a program cannot answer that; give user="):
        ask_to_act.build(free=True)


def test_rows_that_are_no_records_are_refused_before_the_run(tmp_path):
    rows = [{"prompt": f"bring cup {i}", "objects": [], "wanted": "a", "bring_to": "b"} for i in range(12)]
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(UserError, match="'objects' is a list of two objects or more"):
        pl.train("ask-to-act", data=str(tmp_path / "f.jsonl"), out=tmp_path / "run", quiet=True, evaluate=0)


def test_turns_are_paid_at_their_ends_and_the_tokens_of_others_not_trained(context, small):
    """The pay of turns is in the events of the reward, one at the end of each."""
    ctx = context("lookalikes")
    sample = replace(ask_to_act.build(exam=0, turns=3).collect.links[0], n=2)
    group = asyncio.run(sample(ctx, ("k", 1), pl.Group(task=LookalikeTasks().task("train", 0))))
    for e in group.episodes:
        events = [v.value for v in e.reward.events]
        assert len(events) == e.facts["turns"] and sum(events) == near(e.total)
        said = [s for s in e.rows[0].segments if s.trained]
        assert len(said) == e.facts["turns"] and all(s.policy == "policy" for s in said)
        heard = "".join(s.text for s in e.rows[0].segments if not s.trained)
        assert str(group.task.meta["wanted"]) not in heard.split("at ")[0]


# ---- imitation, and environments of a user's own


def test_a_program_that_knows_the_record_is_imitated():
    parts = ask_to_act.build(shown=7, turns=9).parts
    assert list(parts) == ["shown", "rl"] and parts["shown"].runnable.schedule.steps == 7
    show = parts["shown"].runnable.collect.links[0]
    assert show.room.turns == 9 and isinstance(ask_to_act.build(), pl.Recipe)
    with pytest.raises(UserError, match="shown"):
        ask_to_act.build(shown=-1)


def test_what_is_shown_ends_with_the_object_at_its_goal(context, small):
    ctx = context("lookalikes")
    show = ask_to_act.ShowRooms(room=pl.worlds.AskingRoom(turns=8))
    for i in range(4):
        group = asyncio.run(show(ctx, ("k", i), pl.Group(task=LookalikeTasks().task("train", i))))
        (e,) = group.episodes
        assert e.status == "finished" and e.facts["correct"] and e.facts["asked_idle"] == 0
        assert all(s.author == "demonstration" for s in e.rows[0].segments if s.trained)


def test_too_few_turns_to_show_anything_are_refused(context, small):
    show = ask_to_act.ShowRooms(room=pl.worlds.AskingRoom(turns=3))
    with pytest.raises(UserError, match="needs 5 turns there; raise turns, which is 3"):
        asyncio.run(show.check_start(context("lookalikes")))


ENVIRONMENT = """
from palaestra.types import Ask, Frame, Message

class Doors:
    seats, solved = ("agent", "user"), 1.0

    def reset(self, task, key):
        return Frame(state="go", asks=(Ask(seat="agent", say=(Message(role="user", content="open it"),)),))

    def step(self, state, acts, key):
        if state == "go":
            wish = Message(role="system", content="You mean door 2.")
            ask = Ask(seat="user", say=(wish, Message(role="user", content="which " + acts[0].text[:1])))
            return Frame(state="asked", asks=(ask,))
        if state == "asked":
            return Frame(state="end", asks=(Ask(seat="agent", say=(Message(role="tool", content=acts[0].text),)),))
        return Frame(state="over", pay={("agent", ""): 1.0})
"""


def test_an_environment_of_ones_own_has_a_user_whom_a_model_plays(tmp_path):
    """Two turns: 1 of the environment + .2 - 2 x .01 = 1.18."""
    (tmp_path / "doors.py").write_text(ENVIRONMENT)
    env = f"{tmp_path}/doors.py:Doors"
    alone = lambda **given: pl.train(
        pl.vary(ask_to_act.build(exam=0, samples=2, **given), schedule=pl.Schedule(prompts=2, steps=1)),
        env=env, out=tmp_path / f"run{len(given)}", evaluate=0, quiet=True, max_tokens=4,
    )  # fmt: skip
    with pytest.raises(UserError, match="give user="):
        alone()
    user = pl.Scripted(lambda request: "the second", name="user")
    with pytest.raises(UserError, match="give judge=, or useful=0"):
        alone(user=user)
    alone(user=user, judge=pl.Scripted(lambda request: "YES", name="judge"), turns=4)
    log = (tmp_path / "run3" / "metrics.jsonl").read_text().splitlines()
    step = next(row for row in map(json.loads, log) if "reward" in row)
    parts = {k: step[k] for k in ("part/earned", "part/useful", "part/over")}
    assert step["reward"] == near(1.18) and parts == near({"part/earned": 1, "part/useful": 0.2, "part/over": 0})


def test_a_vision_language_model_of_the_hub_acts_on_what_it_sees(tmp_path):
    """Photos of places in rows, and frames of an environment: prompts hold their pictures, and one step is learned."""
    model = save_tiny("qwen2_5_vl", tmp_path / "vlm")
    for name in ("shelf", "sink"):
        pillow(noise(len(name))).save(tmp_path / f"{name}.png")
    cups = (("near left", "red", "shelf"), ("near right", "blue", "shelf"), ("far left", "red", "sink"))
    objects = [{"name": f"{which} cup", "colour": hue, "place": place} for which, hue, place in cups]
    row = {"objects": objects, "wanted": "far left cup", "bring_to": "door"}
    row |= {"images": ["shelf.png", "sink.png"], "views": ["shelf", "sink"]}
    rows = [json.dumps({**row, "prompt": f"{i}: bring the cup to the door"}) for i in range(4)]
    (tmp_path / "rooms.jsonl").write_text("\n".join(rows))
    frames = ENVIRONMENT.replace(
        'Message(role="user", content="open it")', 'Message(role="user", content="\\ufffcopen it", pictures=(SEEN,))'
    ).replace(
        "\nclass",
        "\nfrom palaestra.pictures import Picture\nSEEN = Picture(shape=(40, 60, 3), data=bytes(7200))\n\nclass",
    )
    (tmp_path / "doors.py").write_text(frames)
    user, judge = (pl.Scripted(lambda request, x=x: x, name=x) for x in ("red", "YES"))
    for name, given in (
        ("rooms", {"data": str(tmp_path / "rooms.jsonl")}),
        ("doors", {"env": f"{tmp_path}/doors.py:Doors"}),
    ):
        recipe = ask_to_act.build(exam=1, samples=2, turns=3, user=user, judge=judge)
        recipe = pl.vary(recipe, schedule=pl.Schedule(prompts=1, steps=1), rates={"tower": 0.0})
        pl.train(recipe, model=model, out=tmp_path / name, quiet=True, max_tokens=6, **given)
        rows = pq.read_table(tmp_path / name / "rollouts" / "step-000001.parquet").to_pylist()
        pictures = {p["data"] for row in rows for p in row["pictures"]}
        assert (noise(5).data if name == "rooms" else bytes(7200)) in pictures
        assert len(rows) == 2
