"""Law 14: pictures are told apart by their ids wherever ids are compared; their places are never trained and never sampled;
their pixels travel with the rows. The log-probs of engine and trainer agree with pictures in the prompt as without."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.chat.dialect import Chat
from palaestra.engines.endpoint import EndpointPlayer
from palaestra.engines.linears import in_measured_rows
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.models.eyes import Seen, fit_picture
from palaestra.models.forward import forward
from palaestra.models.layout import prompts_and_tails
from palaestra.models.load import load, save
from palaestra.models.model import frozen_copy
from palaestra.models.score import score_pairs
from palaestra.pictures import FIRST_PLACE, PICTURE_MARK, Picture, by_digest, digest_of
from palaestra.rollout.player import EnginePlayer
from palaestra.store.codec import decode, encode
from palaestra.types import Ask, ChatRequest, Example, Message, Row, Sampling, Segment
from palaestra.update import pack

from tests.rounding import agree


def picture(seed):
    data = np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    return Picture(shape=(32, 32, 3), data=data.tobytes())


def question(*pictures, words="what is this?"):
    return Message(role="user", content=PICTURE_MARK * len(pictures) + words, pictures=pictures)


@pytest.fixture(scope="module")
def model():
    found = load("tiny")
    found.add_head("eyes")
    return found


def played(engine, messages, sampling=Sampling(max_tokens=12), seed=0):
    """Rows that were sampled together, one a message."""
    player = EnginePlayer(engine=engine, sampling=sampling)

    async def one(i, message):
        ask = Ask(seat="policy", say=(message,))
        row = Row(segments=player.hear(ask, first=True, closed=False, turn=0))
        said = await player.act(row, (message,), ask, (seed, i))
        return row.add(Segment(ids=said.ids, logp=said.logp, policy="policy", trained=True, version=0, text=said.text))

    async def every():
        return await asyncio.gather(*(one(i, m) for i, m in enumerate(messages)))

    return asyncio.run(every())


@torch.no_grad()
def gaps(model, rows):
    batch = pack([Example(row=r, columns={}) for r in rows])
    return (forward(model, batch, ("logp",))["logp"] - batch["behaviour_logp"]).abs()[batch.mask > 0]


@pytest.mark.parametrize("packed", [True, False])
def test_engine_and_trainer_agree_with_pictures_in_the_prompt(model, packed):
    a, b, c = picture(1), picture(2), picture(3)
    messages = [question(a), question(b), question(a, c), question(), question(a)] * 2
    rows = played(OwnEngine(model), messages)
    model.__dict__["packs"] = packed
    try:
        found = gaps(model, rows)
    finally:
        model.__dict__["packs"] = True
    assert len(found) > 60 and agree(found)


def test_agreement_right_after_an_update_that_moves_the_eyes(model):
    own = load("tiny")
    own.add_head("eyes")
    engine, messages = OwnEngine(own), [question(picture(i)) for i in range(4)]
    before = played(engine, messages)
    torch.manual_seed(0)  # how far apart two float32 sums are depends on the tokens drawn
    with torch.no_grad():
        for name, p in own.named_trainable().items():
            p.add_(0.001 * torch.randn_like(p) if name.startswith("head.eyes") else 0)
    engine.version = 1
    engine.forget()
    assert float(gaps(own, before).max()) > 1e-4  # the eyes count
    assert agree(gaps(own, played(engine, messages)))


def test_a_second_turn_goes_on_from_the_slot_of_the_first(model):
    """A prefix that is held is not read again, though it ends within or behind a picture."""
    engine, a = OwnEngine(model), picture(1)
    played(engine, [question(a, words="what is in the picture at the top?")])
    read = engine.read_tokens
    rows = played(engine, [question(a, words="what is in the picture below?"), question(a)])
    assert engine.reused_tokens > 16 and engine.read_tokens - read < 60
    assert agree(gaps(model, rows))


def test_prompts_that_differ_in_a_picture_alone_share_no_slot_and_no_prompt_run(model):
    """Equal words, other pixels: one bit is enough."""
    a = picture(1)
    b = replace(a, data=bytes([a.data[0] ^ 1]) + a.data[1:])
    engine = OwnEngine(model)
    first, second = (played(engine, [question(p)])[0] for p in (a, b))
    ids = [r.segments[0].ids for r in (first, second)]
    places = [[i for i in x if i >= FIRST_PLACE] for x in ids]
    assert not set(places[0]) & set(places[1]) and [len(p) for p in places] == [16, 16]
    begin = ids[0].index(places[0][0])
    assert ids[0][:begin] == ids[1][:begin] and ids[0][begin + 16 :] == ids[1][begin + 16 :]
    held, n = engine.prefixes.longest((*ids[1], 0))
    assert held.ids[:n] == ids[1][:n] and n > begin
    assert engine.reused_tokens <= begin
    batch = pack([Example(row=r, columns={}) for r in (first, second, first)])
    prompts, owner, _ = prompts_and_tails(batch)
    assert len(prompts) == 2 and owner == [0, 1, 0]


def test_pictures_of_equal_pixels_at_other_places_share_nothing(model):
    """Two patches swapped, or the same numbers in another shape."""
    a = picture(1)
    pixels = np.frombuffer(a.data, np.uint8).reshape(a.shape).copy()
    pixels[:8, :8], pixels[24:, 24:] = pixels[24:, 24:].copy(), pixels[:8, :8].copy()
    b = replace(a, data=pixels.tobytes())
    c = Picture(shape=(64, 16, 3), data=a.data)
    assert sorted(a.data) == sorted(b.data) and len({a.digest, b.digest, c.digest}) == 3
    assert not set(a.ids(16)) & set(b.ids(16)) and not set(a.ids(16)) & set(c.ids(16))
    engine, words = OwnEngine(model), "what is this?"
    rows = [played(engine, [question(p, words=words)])[0] for p in (a, b)]
    assert engine.reused_tokens < rows[0].segments[0].ids.index(a.ids(1)[0]) + 1
    assert agree(gaps(model, rows))


def test_the_same_picture_shares_its_slot_and_its_prompt_run(model):
    """An equal copy, made from the same pixels, is the same picture."""
    a, engine = picture(1), OwnEngine(model)
    copy = Picture(shape=a.shape, data=bytes(bytearray(a.data)))
    assert copy is not a and copy.ids(16) == a.ids(16)
    first = played(engine, [question(a)])[0]
    read, places = engine.read_tokens, len(first.segments[0].ids)
    again = played(engine, [question(copy)] * 3, seed=1)
    assert engine.reused_tokens >= 16 and engine.read_tokens - read < places
    batch = pack([Example(row=r, columns={}) for r in (first, *again)])
    prompts, owner, _ = prompts_and_tails(batch)
    assert len(prompts) == 1 and owner == [0] * 4
    assert len(Seen.in_batch(batch).digest_M) == 1


def test_different_pictures_are_seen_as_different(model):
    with torch.no_grad():
        ids = torch.tensor([picture(1).ids(16), picture(2).ids(16)])
        seen = Seen.of([picture(1), picture(2)], model.device)
        x = model.embed(ids, seen)
        assert not torch.allclose(x[0], x[1], atol=1e-2)
        torch.testing.assert_close(x[1], model.eyes(seen.pixels_MHWC)[seen.digest_M.tolist().index(picture(2).digest)])


def test_a_picture_has_the_same_bits_whoever_else_is_in_the_pass(model):
    pictures = [picture(i) for i in range(7)]
    with torch.no_grad():
        for p in pictures:
            alone = model.embed(torch.tensor([p.ids(16)]), Seen.of([p], model.device))
            beside = model.embed(torch.tensor([q.ids(16) for q in pictures]), Seen.of(pictures, model.device))
            torch.testing.assert_close(alone[0], beside[pictures.index(p)], rtol=0, atol=0)


def test_places_are_never_trained(model):
    dialect, a = OwnEngine(model).dialect, picture(1)
    shown = replace(question(a), role="assistant", author="demonstration", trained=True)
    pieces = dialect.extend((question(a), shown), first=True, closed=False)
    assert any(p.trained for p in pieces)
    for p in pieces:
        assert not (p.trained and any(i >= FIRST_PLACE for i in p.ids))
        assert [x.digest for x in p.pictures] == list(dict.fromkeys(digest_of(i) for i in p.ids if i >= FIRST_PLACE))
    # whatever marks a whole segment as trained, or gives a mask of its own
    places = a.ids(16)
    row = Row(segments=(Segment(ids=(5, *places, 6), trained=True, policy="policy", pictures=(a,)),))
    assert row.view().trained_T.tolist() == [True, *[False] * 16, True]
    batch = pack([Example(row=row, columns={"trained": np.ones(18, bool)})])
    assert batch.mask[0].tolist() == [0.0] * 17 + [1.0]


def test_places_are_never_sampled_and_no_text_writes_a_picture(model):
    engine = OwnEngine(model)
    a = picture(1)
    ids = engine.dialect.encode_text(PICTURE_MARK)
    assert ids and max(ids) < model.vocabulary and engine.dialect.decode(ids) == PICTURE_MARK
    for role, author in (("tool", "environment"), ("assistant", "policy"), ("user", "environment")):
        text = Message(role=role, content=f"{PICTURE_MARK} {a!r}", author=author)
        pieces = engine.dialect.extend((question(), text), first=True, closed=False)
        assert all(i < FIRST_PLACE for p in pieces for i in p.ids) and not any(p.pictures for p in pieces)
    rows = played(engine, [question(a)] * 4, Sampling(max_tokens=40, temperature=3.0))
    assert all(i < model.vocabulary for r in rows for s in r.segments if s.logp for i in s.ids)
    # text of others cannot take the place of a picture unnoticed
    with pytest.raises(ValueError, match="2 places"):
        Message(role="tool", content=f"{PICTURE_MARK}{PICTURE_MARK}", pictures=(a,))


def test_the_row_without_its_places_is_that_of_the_words_alone(model):
    dialect, a = OwnEngine(model).dialect, picture(1)

    def ids(message):
        return [i for p in dialect.extend((message,), first=True, closed=False) for i in p.ids]

    with_it, without = ids(question(a)), ids(question())
    assert [i for i in with_it if i < FIRST_PLACE] == without and len(with_it) == len(without) + 16
    assert dialect.decode(with_it) == dialect.decode(without)


def test_pixels_travel_with_rows_through_a_checkpoint_and_to_a_fresh_model(model, tmp_path):
    rows = played(OwnEngine(model), [question(picture(1)), question(picture(2), picture(3))])
    plain, tensors = encode({"queue": rows})
    found = decode(json.loads(json.dumps(plain)), tensors)["queue"]
    assert found == rows and found[1].pictures == (picture(2), picture(3))
    save(model, tmp_path)
    assert agree(gaps(load(str(tmp_path)), found))
    assert agree(gaps(frozen_copy(model), found))


def test_missing_pixels_are_an_error_wherever_ids_come_in(model):
    row = played(OwnEngine(model), [question(picture(1))])[0]
    bare = replace(row, segments=tuple(replace(s, pictures=()) for s in row.segments))
    with pytest.raises(UserError, match="pixels"):
        pack([Example(row=bare, columns={})])
    with pytest.raises(UserError, match="pixels"):
        score_pairs(model, [(row.context(), (5,))])
    with pytest.raises(UserError, match="pixels"):
        asyncio.run(OwnEngine(model).generate(row.context(), Sampling(max_tokens=1), (0,)))
    with pytest.raises(UserError, match="pixels"):
        model.embed(torch.tensor([picture(2).ids(16)]), Seen.of([picture(1)], model.device))


def test_pictures_of_any_size_are_stretched_to_what_the_eyes_see(model):
    """Each pixel of 32 x 32 is repeated in 2 rows and 3 columns, and half of the picture is flat: the same pixels come out,
    up to what a filter mixes at their borders; and in any company a picture's features have the same bits.
    """
    plain, flat = picture(1), Picture(shape=(64, 40, 3), data=bytes([200, 10, 90]) * (64 * 40))
    assert torch.equal(fit_picture(plain), torch.from_numpy(np.frombuffer(plain.data, np.uint8).copy()).view(32, 32, 3))
    assert torch.equal(fit_picture(flat), torch.tensor([200, 10, 90], dtype=torch.uint8).expand(32, 32, 3))
    halves = np.zeros((48, 100, 3), np.uint8)
    halves[:, 50:] = 255
    seen = fit_picture(Picture(shape=halves.shape, data=halves.tobytes()))
    assert (seen[:, :15] == 0).all() and (seen[:, 17:] == 255).all()
    ids = torch.tensor([[*flat.ids(16)], [*plain.ids(16)]])
    both = Seen.of([flat, plain], model.device)
    with in_measured_rows(model.eyes):
        together = model.embed(ids, both)
        for i, alone in enumerate((flat, plain)):
            assert torch.equal(together[i], model.embed(ids[i : i + 1], Seen.of([alone], model.device))[0])
    torch.testing.assert_close(model.embed(ids, both), together)


def test_who_sees_nothing_refuses_pictures(model):
    a = picture(1)
    with pytest.raises(UserError, match="has no eyes"):
        OwnEngine(load("tiny")).dialect.extend((question(a),), first=True, closed=False)
    with pytest.raises(UserError, match="engine 'own'"):
        Chat(model.tokenizer).extend((question(a),), first=True, closed=False)
    with pytest.raises(UserError, match="text alone"):
        ChatRequest(messages=(question(a),))
    with pytest.raises(UserError, match="text alone"):
        ask = Ask(seat="user", say=(question(a),))
        asyncio.run(EndpointPlayer(client=None).act(Row(), (question(a),), ask, (0,)))
    with pytest.raises(UserError, match="8x8x1 numbers; tiny sees pictures of 3 colours"):
        grey = Picture(shape=(8, 8, 1), data=bytes(64))
        OwnEngine(model).dialect.extend((question(grey),), first=True, closed=False)
    engine = OwnEngine(model)
    blind = type("Blind", (), {"dialect": engine.dialect, "generate": engine.generate})()
    with pytest.raises(UserError, match="Blind cannot show"):
        played(blind, [question(a)])


def test_a_message_without_pictures_reads_as_before():
    """Tasks are drawn by the text of their messages."""
    assert repr(Message(role="user", content="hi", name="x")) == (
        "Message(role='user', content='hi', author='environment', trained=False, hidden=False)"
    )
    assert repr(question(picture(1))) != repr(question(picture(2)))


def test_digests_are_the_same_everywhere_and_a_clash_is_an_error(monkeypatch):
    grey = Picture(shape=(2, 2, 3), data=bytes(12))
    assert grey.digest == DIGEST
    assert grey.ids(2) == (FIRST_PLACE + (DIGEST << 12), FIRST_PLACE + (DIGEST << 12) + 1)
    assert max(Picture(shape=(1, 1, 1), data=bytes([i])).ids(4096)[-1] for i in range(256)) < 2**63
    assert Picture(shape=(4, 1, 3), data=bytes(12)).digest != grey.digest
    with pytest.raises(ValueError, match="no picture"):
        Picture(shape=(2, 2, 3), data=bytes(11))
    monkeypatch.setattr(Picture, "digest", 7)
    with pytest.raises(UserError, match="digest 7"):
        by_digest([picture(1), picture(2)])


DIGEST = 251517608230290
