"""Vision-language models of transformers: prompts as their processors write them, log-probs of sampler, trainer and of
transformers' own forward pass equal, pictures told apart, saved and loaded whole."""

import asyncio
from dataclasses import replace

import pytest
import torch
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.models.forward import forward
from palaestra.models.layout import prompts_and_tails
from palaestra.models.load import load, save
from palaestra.models.lora import LoRA
from palaestra.models.model import frozen_copy, trainable_copy
from palaestra.models.tower import model_parts, rate_share, set_rates
from palaestra.pictures import FIRST_PLACE, PICTURE_MARK
from palaestra.types import Example, Message, Row, Sampling, Segment
from palaestra.update import AdamW, pack
from transformers import AutoModelForImageTextToText

from tests.laws.test_law_14_pictures import gaps, played
from tests.laws.test_law_14_sight import choosing
from tests.rounding import agree
from tests.vision import ARCHITECTURES, noise, pillow, save_tiny


@pytest.fixture(scope="module", params=ARCHITECTURES)
def folder(request, tmp_path_factory):
    return save_tiny(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def model(folder):
    return load(folder)


def asked(*pictures, words="what is this?"):
    return Message(role="user", content=PICTURE_MARK * len(pictures) + words, pictures=pictures)


def ids_of(model, *messages):
    pieces = OwnEngine(model).dialect.extend(messages, first=True, closed=False)
    return [i for p in pieces for i in p.ids]


def talk_of(messages):
    """As transformers' processors take them."""
    talk = []
    for m in messages:
        first, *rest = m.content.split(PICTURE_MARK)
        parts = [{"type": "text", "text": first}] if first else []
        for picture, text in zip(m.pictures, rest, strict=True):
            parts += [{"type": "image", "image": pillow(picture)}, *([{"type": "text", "text": text}] if text else [])]
        talk.append({"role": m.role, "content": parts})
    return talk


def test_a_prompt_is_what_the_processor_of_the_model_writes(model):
    small, wide = noise(1, 20, 20), noise(2, 30, 90)
    middle = Message(role="user", content=f"look {PICTURE_MARK} here", pictures=(wide,))
    for messages in ([asked(small)], [middle], [asked(small), Message(role="assistant", content="red"), middle]):
        ids = ids_of(model, *messages)
        theirs = model.processor.apply_chat_template(
            talk_of(messages), tokenize=True, add_generation_prompt=True, return_dict=True
        )["input_ids"][0]
        if model.processor.__class__.__name__ == "LlavaOnevisionProcessor" and len(messages) > 1:
            continue  # it writes a picture among others otherwise than one alone
        assert [i if i < FIRST_PLACE else model.tower.place_of(small) for i in ids] == list(theirs)


def test_engine_trainer_and_transformers_agree(model, folder):
    small, wide = noise(1, 20, 20), noise(2, 30, 90)
    messages = [asked(small), asked(wide), asked(small, wide), asked(), asked(small)] * 2
    rows = played(OwnEngine(model), messages)
    assert model.packs or model.is_mutual
    before = model.packs
    for packed in {before, False}:
        model.__dict__["packs"] = packed
        try:
            found = gaps(model, rows)
        finally:
            model.__dict__["packs"] = before
        assert len(found) > 60 and agree(found)
    swapped = replace(rows[0], segments=(*rows[1].segments[:-1], rows[0].segments[-1]))
    assert float(gaps(model, [swapped]).max()) > 1e-3  # the picture counts
    plain = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager").eval()
    one = model.causal.config.model_type == "llava_onevision"  # it cuts a picture among others into no tiles
    # transformers takes an image token that was sampled for a place of a picture
    plainly = [
        i
        for i, r in enumerate(rows)
        if model.tower.place_of(small) not in r.segments[-1].ids and not (one and i % 5 == 2)
    ]
    assert len({i % 5 for i in plainly}) > 3
    for i in plainly[:6]:
        said = rows[i].segments[-1]
        torch.testing.assert_close(
            of_transformers(plain, model.processor, messages[i], said.ids),
            torch.tensor(said.logp, dtype=torch.float32),
            atol=1e-4,
            rtol=1e-4,
        )


@torch.no_grad()
def of_transformers(plain, processor, message, said):
    """Log-probs of a reply, by the whole forward pass of transformers over what its processor makes."""
    inputs = processor.apply_chat_template(
        talk_of([message]), tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    prompt = inputs.pop("input_ids")
    for name in {"attention_mask", "token_type_ids", "mm_token_type_ids"} & inputs.keys():
        inputs[name] = torch.nn.functional.pad(inputs[name], (0, len(said)), value=int(name == "attention_mask"))
    whole = torch.cat([prompt, torch.tensor([said])], 1)
    logits = plain(input_ids=whole, **inputs).logits[0, prompt.shape[1] - 1 : -1]
    return torch.log_softmax(logits.float(), -1).gather(1, torch.tensor(said)[:, None])[:, 0]


def test_a_frame_that_stays_is_seen_each_time(model, folder):
    """Still frames of a video: one picture several times in a prompt, whose places have the same ids."""
    still, moved = noise(1, 20, 20), noise(2, 20, 20)
    messages = [asked(still, still, moved, still), asked(moved, still, still)] * 2
    rows = played(OwnEngine(model), messages)
    assert agree(gaps(model, rows))
    if model.causal.config.model_type == "llava_onevision":
        return  # transformers cuts a picture among others into no tiles
    plain = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager").eval()
    plainly = [i for i, r in enumerate(rows) if model.tower.place_of(still) not in r.segments[-1].ids]
    assert plainly
    for i in plainly:
        said = rows[i].segments[-1]
        torch.testing.assert_close(
            of_transformers(plain, model.processor, messages[i], said.ids),
            torch.tensor(said.logp, dtype=torch.float32),
            atol=1e-4,
            rtol=1e-4,
        )


def test_choices_behind_pictures_agree(model):
    small, wide = noise(1, 20, 20), noise(2, 30, 90)
    rows, _ = choosing(OwnEngine(model), [asked(small), asked(wide), asked(), asked(small, wide)] * 2)
    before = model.packs
    for packed in {before, False}:
        model.__dict__["packs"] = packed
        try:
            assert agree(gaps(model, rows))
        finally:
            model.__dict__["packs"] = before


def test_a_second_turn_goes_on_behind_a_picture(model):
    """With what is held of the first, and with another picture in it."""
    engine, first = OwnEngine(model), asked(noise(1))
    ids = ids_of(model, first)
    begun = asyncio.run(engine.generate_seeing(tuple(ids), first.pictures, Sampling(max_tokens=6), (0,)))
    later = asked(noise(2, 20, 20), words="and this?")
    pieces = engine.dialect.extend((later,), first=False, closed=begun.finish == "eos")
    more = [i for p in pieces for i in p.ids]
    prompt = (*ids, *begun.ids, *more)
    shown = (*first.pictures, *later.pictures)
    again = asyncio.run(engine.generate_seeing(prompt, shown, Sampling(max_tokens=6), (1,)))
    assert engine.reused_tokens >= len(ids)
    segments = (
        Segment(ids=tuple(ids), pictures=first.pictures),
        Segment(ids=begun.ids, logp=begun.logp, policy="policy", trained=True, version=0),
        Segment(ids=tuple(more), pictures=later.pictures),
        Segment(ids=again.ids, logp=again.logp, policy="policy", trained=True, version=0),
    )
    assert agree(gaps(model, [Row(segments=segments)]))


def test_prompts_that_differ_in_a_picture_share_nothing_behind_it(model):
    engine, a = OwnEngine(model), noise(1)
    b = replace(a, data=bytes([a.data[0] ^ 1]) + a.data[1:])
    first, second = (played(engine, [asked(p)])[0] for p in (a, b))
    ids = [list(r.segments[0].ids) for r in (first, second)]
    begin = next(n for n, i in enumerate(ids[0]) if i >= FIRST_PLACE)
    assert ids[0][:begin] == ids[1][:begin] and ids[0][begin] != ids[1][begin]
    assert engine.reused_tokens <= begin
    batch = pack([Example(row=r, columns={}) for r in (first, second, first)])
    assert prompts_and_tails(batch)[1] == [0, 1, 0]
    assert agree(gaps(model, [first, second]))


def test_it_is_saved_with_its_processor_and_loaded_again(model, tmp_path):
    rows = played(OwnEngine(model), [asked(noise(1), noise(2, 20, 70))])
    save(model, tmp_path)
    again = load(str(tmp_path))
    assert (
        agree(gaps(again, rows)) and agree(gaps(frozen_copy(model), rows)) and agree(gaps(trainable_copy(model), rows))
    )
    assert ids_of(again, asked(noise(3))) == ids_of(model, asked(noise(3)))


def test_gradients_reach_tower_projector_and_language_part(folder):
    own = load(folder)
    rows = played(OwnEngine(own), [asked(noise(1))])
    batch = pack([Example(row=r, columns={}) for r in rows])
    (forward(own, batch, ("logp",))["logp"] * batch.mask).sum().backward()
    moved = {n for n, p in own.module.named_parameters() if p.grad is not None and bool(p.grad.any())}
    layers = own.module.get_decoder()
    language = {id(p) for p in (*layers.parameters(), *own.module.get_output_embeddings().parameters())}
    seeing = {n for n, p in own.module.named_parameters() if id(p) not in language and "audio_tower" not in n}
    assert len(moved & seeing) > len(seeing) / 2 and len(moved - seeing) > len(language) / 2


def test_adapters_stand_in_the_language_part_alone(folder):
    own = load(folder, lora=LoRA(rank=2))
    named = {n for n, p in own.module.named_parameters() if p.requires_grad}
    assert named and all("vision" not in n for n in named)
    rows = played(OwnEngine(own), [asked(noise(1))])
    assert agree(gaps(own, rows)) and agree(gaps(load(folder), rows))


def test_a_model_without_its_processor_reads_text_and_says_why_it_sees_nothing(tmp_path):
    folder = save_tiny("idefics3", tmp_path)
    (tmp_path / "processor_config.json").unlink()
    own = load(folder)
    assert agree(gaps(own, played(OwnEngine(own), [asked()])))
    with pytest.raises(UserError, match=r"has no processor_config\.json or preprocessor_config\.json, .*copy"):
        ids_of(own, asked(noise(1)))


def test_pictures_that_are_not_here_are_an_error(model):
    row = played(OwnEngine(model), [asked(noise(1))])[0]
    with pytest.raises(UserError, match="pixels"):
        asyncio.run(OwnEngine(model).generate(row.context(), None, (0,)))


def test_each_part_has_a_rate_of_its_own(folder):
    """AdamW's first step is the rate in every weight that has a gradient, whatever its size."""
    own = load(folder)
    set_rates(own.module, own.causal, {"tower": 0, "projector": 0.5}, own.name)
    parts = {n: part for n, (part, _) in model_parts(own.module, own.causal).items()}
    before = {n: p.detach().clone() for n, p in own.module.named_parameters()}
    assert set(parts.values()) == {"tower", "projector", "language"}
    optimiser = AdamW(lr=1e-3, eps=1e-30, clip_norm=0).build(own.trainable())
    rows = played(OwnEngine(own), [asked(noise(1), noise(2, 30, 90))])
    batch = pack([Example(row=r, columns={}) for r in rows])
    (forward(own, batch, ("logp",))["logp"] * batch.mask).sum().backward()
    AdamW(lr=1e-3).set(optimiser, 0)
    optimiser.step()
    moved = {"tower": 0.0, "projector": 0.0, "language": 0.0}
    for n, p in own.module.named_parameters():
        moved[parts[n]] = max(moved[parts[n]], float((p.detach() - before[n]).abs().max()))
    assert moved == pytest.approx({"tower": 0.0, "projector": 0.0005, "language": 0.001}, rel=1e-3)


def test_ears_of_the_projects_own_freeze_with_its_eyes():
    tiny = load("tiny")
    for sense in ("eyes", "ears"):
        tiny.add_head(sense)
    set_rates(tiny.module, tiny.causal, {"tower": 0, "projector": 0.5}, tiny.name, tiny.heads)
    for sense in ("eyes", "ears"):
        rates = {n: (p.requires_grad, rate_share(p)) for n, p in tiny.heads[sense].named_parameters()}
        assert rates.pop("out.weight") == rates.pop("out.bias") == (True, 0.5)
        assert rates and set(rates.values()) == {(False, 0.0)}, sense
    assert all(p.requires_grad for p in tiny.module.parameters())


def test_rates_of_what_is_no_part_are_refused(tmp_path):
    own = load(save_tiny("idefics3", tmp_path))
    with pytest.raises(UserError, match=r"'towr' is no part of a model.*did you mean tower\?"):
        set_rates(own.module, own.causal, {"towr": 0}, own.name)
    with pytest.raises(UserError, match="every part is frozen"):
        set_rates(own.module, own.causal, dict.fromkeys(("tower", "projector", "language"), 0), own.name)
    tiny = load("tiny")
    with pytest.raises(UserError, match="tiny sees and hears nothing"):
        set_rates(tiny.module, tiny.causal, {"tower": 0}, tiny.name)
    with pytest.raises(UserError, match="write 0, to freeze it"):
        set_rates(own.module, own.causal, {"tower": -1}, own.name)
