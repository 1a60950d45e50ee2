"""Law 14, what stands beside pictures: choices, steering and attention agree with them as without; files keep their pixels;
who reads text alone refuses in one sentence, and where it can before a run begins."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.chat.dialect import Chat
from palaestra.engines.own import OwnEngine
from palaestra.engines.vllm import VllmEngine
from palaestra.errors import UserError
from palaestra.explanation.recorded import read_recorded
from palaestra.judges.prompt import fields_of
from palaestra.models.forward import forward
from palaestra.models.inside.activation import activations, steered
from palaestra.models.inside.attention import attention_scores
from palaestra.models.inside.cursor import Cursor
from palaestra.models.load import load
from palaestra.pictures import FIRST_PLACE, PICTURE_MARK, digest_of
from palaestra.recipes.multimodal import ui_r1
from palaestra.rewards.critic import critic_question
from palaestra.rollout.branch import prefix
from palaestra.rollout.player import Continued, EnginePlayer
from palaestra.run.driver import prepare_models
from palaestra.scale.sharded import shard
from palaestra.store import rollouts
from palaestra.store.reading import StepRollouts
from palaestra.tasks.phrasing import add_hint, question_text
from palaestra.toys.screen import Screen
from palaestra.types import Ask, Episode, Example, Group, Reward, Row, Sampling, Segment
from palaestra.update import pack

from tests.laws.test_law_14_pictures import gaps, picture, played, question
from tests.rounding import agree


@pytest.fixture(scope="module")
def model():
    found = load("tiny")
    found.add_head("eyes")
    return found


@pytest.fixture(scope="module")
def row(model):
    return played(OwnEngine(model), [question(picture(1))])[0]


def choosing(engine, messages, texts=("1", "2", "3")):
    """Rows of one chosen text behind each message, and the asks that they answer."""
    player, found = EnginePlayer(engine=engine, sampling=Sampling()), []

    async def one(i, message):
        ask = Ask(seat="policy", say=(message,), choices=texts)
        row = Row(segments=player.hear(ask, first=True, closed=False, turn=0))
        said = await player.act(row, (message,), ask, ("choose", i))
        found.append((row, ask))
        segment = Segment(ids=said.ids, logp=said.logp, policy="policy", trained=True, version=0, choices=said.choices)
        return row.add(segment)

    async def every():
        return await asyncio.gather(*(one(i, m) for i, m in enumerate(messages)))

    return asyncio.run(every()), found


@pytest.mark.parametrize("packed", [True, False])
def test_choices_behind_a_picture_agree_between_engine_and_trainer(model, packed):
    a, b = picture(1), picture(2)
    rows, _ = choosing(OwnEngine(model), [question(a), question(b), question(), question(a, b)] * 2)
    assert len({(s.ids, s.logp) for r in rows for s in r.segments if s.policy}) > 2
    model.__dict__["packs"] = packed
    try:
        assert agree(gaps(model, rows))
        swapped = replace(rows[0], segments=(*rows[1].segments[:-1], rows[0].segments[-1]))
        assert float(gaps(model, [swapped]).max()) > 1e-3  # the picture counts
    finally:
        model.__dict__["packs"] = True


def test_a_choice_and_an_answer_go_on_behind_a_picture(model):
    """What another picture's prompt was continued with is not what this one's is."""
    rows, asked = choosing(OwnEngine(model), [question(picture(1))], ("c1 click", "c1 scroll"))
    (row, ask), engine = asked[0], OwnEngine(model)
    player = EnginePlayer(engine=engine, sampling=Sampling(max_tokens=8))
    said = rows[0].segments[-1]
    begun = replace(said, ids=said.ids[:2], logp=said.logp[:2], finish="", choices=said.choices)
    more = asyncio.run(Continued(player=player, said=(begun,)).act(row, ask.say, ask, ("k",)))
    assert more.ids[:2] == said.ids[:2] and more.ids in said.choices.ids
    free = replace(ask, choices=None)
    plain = replace(begun, choices=None)
    more = asyncio.run(Continued(player=player, said=(plain,)).act(row, ask.say, free, ("k",)))
    whole = row.add(Segment(ids=more.ids, logp=more.logp, policy="policy", trained=True, version=0))
    assert len(more.ids) > 2
    batch = pack([Example(row=whole, columns={})])
    with torch.no_grad():
        gap = (forward(model, batch, ("logp",))["logp"] - batch["behaviour_logp"]).abs()[batch.mask > 0]
    assert agree(gap[2:])


@pytest.mark.parametrize("place", [0, 2, 4])
def test_steering_reaches_pictures_in_engine_and_trainer_alike(model, place):
    engine, messages = OwnEngine(model), [question(picture(i)) for i in range(4)]
    before = played(engine, messages)
    vector = np.random.default_rng(place).standard_normal(model.width) * 0.5
    with steered(model, {place: vector}):
        rows = played(engine, messages)
        assert agree(gaps(model, rows))
        assert float(gaps(model, before).max()) > 1e-3
    assert agree(gaps(model, before))


def test_attention_maps_see_the_pixels(model, row):
    other = played(OwnEngine(model), [question(picture(2))])[0]
    swapped = replace(row, segments=(*other.segments[:-1], row.segments[-1]))
    batch = pack([Example(row=r, columns={}) for r in (row, swapped)])
    waad = attention_scores(model, batch, ("waad:10",))["waad:10"]
    on = batch.mask[0] > 0
    assert bool((waad[:, on] > 0).all()) and not torch.allclose(waad[0, on], waad[1, on], atol=1e-4)


def test_rollouts_keep_pictures_and_give_them_back(model, tmp_path):
    a, b = picture(1), picture(2)
    rows = played(OwnEngine(model), [question(a), question(a, b), question()])
    tasks = [pl.Task(id=f"t{i}", prompt=(m,)) for i, m in enumerate((question(a), question(a, b), question()))]
    groups = [
        Group(task=t, episodes=(Episode(rows=(r,), reward=Reward(total=1.0)),))
        for t, r in zip(tasks, rows, strict=True)
    ]
    file = tmp_path / "step-000001.parquet"
    rollouts.write(file, 1, groups, rollouts.NOTHING, OwnEngine(model).dialect.decode)
    found, _, _ = read_recorded(file)
    again = [g.episodes[0].rows[0] for g in found]
    assert [r.context() for r in again] == [r.context() for r in rows]
    assert [r.pictures for r in again] == [(a,), (a, b), ()]
    assert agree(gaps(model, again))
    assert [m.prompt for m in StepRollouts(file).all] == [
        f"[picture 32x32 {a.digest:x}] what is this?",
        f"[picture 32x32 {a.digest:x}] [picture 32x32 {b.digest:x}] what is this?",
        "what is this?",
    ]


def test_a_prefix_of_an_episode_keeps_the_picture(row):
    episode = Episode(rows=(row,), status="finished")
    begun = prefix(episode, row.segments[-1].turn, 2)
    assert begun.context == row.context()[: len(begun.context)]
    assert [digest_of(i) for i in begun.context if i >= FIRST_PLACE] == [picture(1).digest] * 16


def test_what_reads_text_alone_refuses_in_one_sentence(model, row):
    ids = row.context()
    blind, task = load("tiny"), Screen().task("train", 0)
    with pytest.raises(UserError, match="cursor reads text alone"):
        Cursor.start(model, ids)
    with pytest.raises(UserError, match="row 0 is read as text alone"):
        activations(model, [row])
    with pytest.raises(UserError, match="tiny has no eyes"):
        asyncio.run(OwnEngine(blind).generate(ids, Sampling(max_tokens=1), (0,)))
    with pytest.raises(UserError, match="tiny has no eyes"):
        asyncio.run(OwnEngine(blind).generate_seeing(ids, row.pictures, Sampling(max_tokens=1), (0,)))
    with pytest.raises(UserError, match="has no eyes"):
        forward(blind, pack([Example(row=row, columns={})]), ("logp",))
    for read in (question_text, fields_of, lambda t: critic_question(t, ["x"])):
        with pytest.raises(UserError, match=r"text alone is read: '\[picture 32x32 \w+\] use "):
            read(task)
    # words are put behind the picture, not in its place
    hinted = add_hint(task, ["look"]).prompt[0]
    assert hinted.pictures == task.prompt[0].pictures and hinted.content.count(PICTURE_MARK) == 1


def test_vllm_refuses_when_it_reads_the_prompt():
    engine = VllmEngine.__new__(VllmEngine)
    engine.dialect = Chat(load("tiny").tokenizer)  # as it makes it
    with pytest.raises(UserError, match="cannot show to its model; use the engine 'own'"):
        EnginePlayer(engine=engine, sampling=Sampling()).hear(
            Ask(seat="policy", say=(question(picture(1)),)), first=True, closed=False, turn=0
        )


@pytest.mark.parametrize(
    "recipe",
    [pl.recipe("grpo"), pl.vary(ui_r1.build(), references={"ref": "tiny"})],
    ids=["no eyes", "a reference without"],
)
def test_a_run_that_cannot_see_stops_before_its_first_step(context, small, recipe):
    ctx = context("screen", steps=1)
    with pytest.raises(UserError, match="has no eyes, and a prompt holds a picture"):
        asyncio.run(small(recipe).run(ctx))
    assert ctx.seen == [] and ctx.engine().sampled_tokens == 0


def test_ranks_refuse_eyes(context):
    ctx = context("screen")
    prepare_models(ui_r1.build(kl=0.0), ctx)
    with pytest.raises(UserError, match="without ranks"):
        shard(ctx.model("policy"), None)
