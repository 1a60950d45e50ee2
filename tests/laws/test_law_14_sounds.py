"""Law 14 for sounds: they are told apart by ids wherever ids are compared; places are never trained and never sampled;
samples travel with the rows. Log-probs of engine and trainer agree with sounds and pictures in the prompt as without."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
import transformers
from palaestra.chat.dialect import Chat
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.explanation.recorded import read_recorded
from palaestra.models.eyes import Seen
from palaestra.models.files import architecture_of
from palaestra.models.layout import prompts_and_tails
from palaestra.models.load import load, save
from palaestra.models.model import frozen_copy
from palaestra.pictures import FIRST_PLACE, PICTURE_MARK, Picture, digest_of
from palaestra.run.driver import prepare_models
from palaestra.sounds import Sound
from palaestra.store import rollouts
from palaestra.store.codec import decode, encode
from palaestra.types import Episode, Example, Group, Reward, Row, Sampling, Segment
from palaestra.update import pack

from tests.laws.test_law_14_pictures import gaps, picture, played, question
from tests.rounding import agree


def sound(seed, n=8000, rate=8000):
    return Sound.from_samples(np.random.default_rng(seed).normal(0, 0.2, n), rate)


@pytest.fixture(scope="module")
def model():
    found = load("tiny")
    found.add_head("eyes")
    found.add_head("ears")
    return found


@pytest.mark.parametrize("packed", [True, False])
def test_engine_and_trainer_agree_with_sounds_and_pictures_in_the_prompt(model, packed):
    a, b, p, q = sound(1), sound(2, 5000), picture(1), picture(2)
    messages = [
        question(a),
        question(b, p),
        question(p, a, q, b),
        question(),
        question(sound(3, 11025, 22050)),
        question(p),
    ]
    rows = played(OwnEngine(model), messages * 2)
    model.__dict__["packs"] = packed
    try:
        assert agree(gaps(model, rows))
        other = played(OwnEngine(model), [question(b)])[0]
        swapped = replace(rows[0], segments=(*other.segments[:-1], rows[0].segments[-1]))
        assert float(gaps(model, [swapped]).max()) > 1e-3  # the sound counts
    finally:
        model.__dict__["packs"] = True


def test_agreement_right_after_an_update_that_moves_the_ears():
    own = load("tiny")
    own.add_head("ears")
    engine, messages = OwnEngine(own), [question(sound(i)) for i in range(4)]
    before = played(engine, messages)
    torch.manual_seed(0)  # how far apart two float32 sums are depends on the tokens drawn
    with torch.no_grad():
        for name, p in own.named_trainable().items():
            p.add_(0.001 * torch.randn_like(p) if name.startswith("head.ears") else 0)
    engine.version = 1
    engine.forget()
    assert float(gaps(own, before).max()) > 1e-4  # the ears count
    assert agree(gaps(own, played(engine, messages)))


def test_gradients_reach_the_ears(model):
    from palaestra.models.forward import forward

    batch = pack([Example(row=r, columns={}) for r in played(OwnEngine(model), [question(sound(1), picture(1))])])
    forward(model, batch, ("logp",))["logp"].sum().backward()
    grads = {n: float(p.grad.abs().max()) for n, p in model.heads["ears"].named_parameters()}
    model.heads["ears"].zero_grad()
    model.heads["eyes"].zero_grad()
    model.module.zero_grad()
    assert min(grads.values()) > 0


def test_equal_words_and_other_samples_are_other_prompts(model):
    """One bit is enough, and so is another rate; a picture of the same bytes is something else."""
    a = sound(1)
    b = replace(a, data=bytes([a.data[0] ^ 1]) + a.data[1:])
    c = replace(a, rate=16000)
    d = Picture(shape=a.shape, data=a.data)
    assert len({x.digest for x in (a, b, c, d)}) == 4 and a != d
    engine = OwnEngine(model)
    rows = [played(engine, [question(x)])[0] for x in (a, b, c)]
    ids = [r.segments[0].ids for r in rows]
    places = [[i for i in x if i >= FIRST_PLACE] for x in ids]
    assert [len(p) for p in places] == [12] * 3 and not set(places[0]) & {*places[1], *places[2]}
    begin = ids[0].index(places[0][0])
    assert engine.reused_tokens <= 2 * begin
    batch = pack([Example(row=r, columns={}) for r in (*rows, rows[0])])
    prompts, owner, _ = prompts_and_tails(batch)
    assert len(prompts) == 3 and owner == [0, 1, 2, 0]
    assert len(Seen.in_batch(batch).heard.sounds) == 3


def test_a_sound_has_the_same_bits_whoever_else_is_in_the_pass(model):
    media = [*(sound(i) for i in range(7)), picture(1)]
    ids = [x.ids(12) for x in media]
    with torch.no_grad():
        beside = model.embed(torch.tensor(ids), Seen.of(media, model.device))
        for i, x in enumerate(media):
            alone = model.embed(torch.tensor([ids[i]]), Seen.of([x], model.device))
            torch.testing.assert_close(alone[0], beside[i], rtol=0, atol=0)
    assert not torch.allclose(beside[0], beside[1], atol=1e-2)


def test_places_are_never_trained_and_never_sampled(model):
    engine, a = OwnEngine(model), sound(1)
    shown = replace(question(a), role="assistant", author="demonstration", trained=True)
    pieces = engine.dialect.extend((question(a), shown), first=True, closed=False)
    assert any(p.trained for p in pieces)
    for p in pieces:
        assert not (p.trained and any(i >= FIRST_PLACE for i in p.ids))
        assert [x.digest for x in p.pictures] == list(dict.fromkeys(digest_of(i) for i in p.ids if i >= FIRST_PLACE))
    row = Row(segments=(Segment(ids=(5, *a.ids(12), 6), trained=True, policy="policy", pictures=(a,)),))
    assert row.view().trained_T.tolist() == [True, *[False] * 12, True]
    rows = played(engine, [question(a)] * 4, Sampling(max_tokens=40, temperature=3.0))
    assert all(i < model.vocabulary for r in rows for s in r.segments if s.logp for i in s.ids)


def test_samples_travel_with_rows_through_a_checkpoint_and_to_a_fresh_model(model, tmp_path):
    rows = played(OwnEngine(model), [question(sound(1), picture(1)), question(sound(2, 900))])
    stored, tensors = encode(rows)
    again = decode(stored, tensors)
    assert again == rows and type(again[0].pictures[0]) is Sound
    save(model, tmp_path)
    fresh = load(str(tmp_path))
    assert set(fresh.heads) >= {"eyes", "ears"} and agree(gaps(fresh, again))
    assert agree(gaps(frozen_copy(model), again))


def test_rollouts_keep_sounds_and_give_them_back(model, tmp_path):
    a, p = sound(1), picture(1)
    messages = [question(a), question(p, a), question()]
    rows = played(OwnEngine(model), messages)
    groups = [
        Group(task=pl.Task(id=f"t{i}", prompt=(m,)), episodes=(Episode(rows=(r,), reward=Reward(total=1.0)),))
        for i, (m, r) in enumerate(zip(messages, rows, strict=True))
    ]
    file = tmp_path / "step-000001.parquet"
    rollouts.write(file, 1, groups, rollouts.NOTHING, OwnEngine(model).dialect.decode)
    found, _, _ = read_recorded(file)
    again = [g.episodes[0].rows[0] for g in found]
    assert [r.pictures for r in again] == [(a,), (p, a), ()]
    assert [r.context() for r in again] == [r.context() for r in rows] and agree(gaps(model, again))
    assert question(a).shown == f"[sound 1.00 s {a.digest:x}] what is this?"


def test_who_hears_nothing_refuses_sounds(model):
    deaf = load("tiny")
    with pytest.raises(UserError, match="tiny has no ears"):
        OwnEngine(deaf).dialect.extend((question(sound(1)),), first=True, closed=False)
    row = Row(
        segments=(
            Segment(ids=(5, *sound(1).ids(12), 6), logp=None, trained=True, policy="policy", pictures=(sound(1),)),
        )
    )
    with pytest.raises(UserError, match="has no ears"):
        gaps(deaf, [row])
    deaf.add_head("eyes")
    with pytest.raises(UserError, match="has no ears"):
        played(OwnEngine(deaf), [question(sound(1))])
    with pytest.raises(UserError, match="s long; tiny hears up to 1 s"):
        model.places(sound(1, 12000))
    with pytest.raises(UserError, match="are not here"):
        asyncio.run(OwnEngine(model).generate((5, *sound(1).ids(12), 6), Sampling(), ("k",)))
    dialect = Chat(model.tokenizer, model.places)
    assert any(i >= FIRST_PLACE for p in dialect.extend((question(sound(1)),), first=True, closed=False) for i in p.ids)
    with pytest.raises(UserError, match="its text alone is read"):
        _ = question(sound(1)).text
    assert PICTURE_MARK in question(sound(1)).content


def test_a_run_gives_ears_to_its_policy_and_reference(context):
    ctx = context("screen")
    prepare_models(
        pl.vary(pl.recipe("grpo"), heads=("ears", "eyes"), references={"ref": "policy"}, needs=(("ref", "logp"),)), ctx
    )
    for name in ("policy", "ref"):
        assert ctx.model(name).ears is not None and ctx.model(name).eyes is not None


def test_a_model_of_the_hub_that_hears_is_refused_in_words():
    """Voxtral is no causal model of transformers; what is missing is said, and what to take."""
    config = transformers.VoxtralConfig()
    with pytest.raises(UserError, match=r"'voxtral' hears by itself.*take Qwen2\.5-Omni or Qwen2-Audio.*give it ears"):
        architecture_of(config)
