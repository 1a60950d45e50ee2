"""Models of transformers that hear: prompts as their processors write them, log-probs of sampler, trainer and of
transformers' own forward pass equal, sounds told apart, saved and loaded whole."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.models.forward import forward
from palaestra.models.layout import prompts_and_tails
from palaestra.models.load import load, save
from palaestra.models.lora import LoRA
from palaestra.models.model import frozen_copy, trainable_copy
from palaestra.models.tower import model_parts, set_rates
from palaestra.pictures import FIRST_PLACE, PICTURE_MARK
from palaestra.planning.dimensions import dimensions, module_of
from palaestra.sounds import Sound, samples_of
from palaestra.types import Example, Message, Row, Sampling, Segment
from palaestra.update import AdamW, pack
from transformers import AutoModelForMultimodalLM, AutoProcessor

from tests.hearing import HEARING, clip, save_hearing
from tests.laws.test_law_14_pictures import gaps, played
from tests.models.test_tower import asked, ids_of
from tests.rounding import agree
from tests.vision import noise, pillow, save_tiny


@pytest.fixture(scope="module", params=HEARING)
def folder(request, tmp_path_factory):
    return save_hearing(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def model(folder):
    return load(folder)


@pytest.fixture
def omni(tmp_path):
    return load(save_hearing("qwen2_5_omni", tmp_path))


def with_processor(model, messages, speak=True):
    """What the model's own processor makes of messages."""
    talk, media = [], {"audio": [], "images": []}
    for m in messages:
        first, *rest = m.content.split(PICTURE_MARK)
        parts = [{"type": "text", "text": first}] if first else []
        for medium, text in zip(m.pictures, rest, strict=True):
            kind = "audio" if isinstance(medium, Sound) else "images"
            media[kind].append(samples_of(medium) if kind == "audio" else pillow(medium))
            parts += [{"type": kind.removesuffix("s"), "audio": ""} if kind == "audio" else {"type": "image"}]
            parts += [{"type": "text", "text": text}] if text else []
        talk.append({"role": m.role, "content": parts})
    text = model.tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=speak)
    return model.processor(text=text, return_tensors="pt", **{k: v for k, v in media.items() if v})


@torch.no_grad()
def of_transformers(plain, model, messages, said):
    """Log-probs of a reply, by the whole forward pass of transformers over what its processor makes."""
    inputs = dict(with_processor(model, messages))
    prompt = inputs.pop("input_ids")
    inputs["attention_mask"] = torch.nn.functional.pad(inputs["attention_mask"], (0, len(said)), value=1)
    inputs.pop("num_audio_tokens", None)
    logits = plain(input_ids=torch.cat([prompt, torch.tensor([said])], 1), **inputs).logits[0, prompt.shape[1] - 1 : -1]
    return torch.log_softmax(logits.float(), -1).gather(1, torch.tensor(said)[:, None])[:, 0]


def some_questions(model):
    """Prompts with sounds of unequal length, several in one, none, and where the model sees, with a picture."""
    short, long = clip(1, 0.3), clip(2, 1.1)
    own = [asked(short), asked(long), asked(short, long), asked(), asked(long, short, short)]
    return [*own, asked(noise(1, 30, 90), long), asked(short, noise(2, 20, 20), long)] if model.tower.sees else own


def test_a_prompt_is_what_the_processor_of_the_model_writes(model):
    said = Message(role="assistant", content="red")
    middle = Message(role="user", content=f"listen {PICTURE_MARK} here", pictures=(clip(2, 1.1),))
    for messages in (*([m] for m in some_questions(model)), [middle], [asked(clip(1)), said, middle]):
        ids, sounds = ids_of(model, *messages), {p.digest for m in messages for p in m.pictures if isinstance(p, Sound)}
        tokens = {True: model.tower.place_of(clip(1)), False: model.tower.place_of(noise(1))}
        named = [i if i < FIRST_PLACE else tokens[(i - FIRST_PLACE) >> 12 in sounds] for i in ids]
        assert named == with_processor(model, messages)["input_ids"][0].tolist()


def test_engine_trainer_and_transformers_agree(model, folder):
    messages = some_questions(model) * 2
    rows = played(OwnEngine(model), messages)
    before = model.packs
    for packed in {before, False}:
        model.__dict__["packs"] = packed
        try:
            found = gaps(model, rows)
        finally:
            model.__dict__["packs"] = before
        assert len(found) > 60 and agree(found)
    swapped = replace(rows[0], segments=(*rows[1].segments[:-1], rows[0].segments[-1]))
    assert float(gaps(model, [swapped]).max()) > 1e-3  # the sound counts
    plain = AutoModelForMultimodalLM.from_pretrained(folder, attn_implementation="eager").eval()
    marks = {model.tower.place_of(clip(1)), model.tower.place_of(noise(1))}
    plainly = [i for i, r in enumerate(rows) if not marks & set(r.segments[-1].ids)]
    assert len({i % len(some_questions(model)) for i in plainly}) > 3
    for i in plainly:
        said = rows[i].segments[-1]
        torch.testing.assert_close(
            of_transformers(plain, model, [messages[i]], said.ids),
            torch.tensor(said.logp, dtype=torch.float32),
            atol=1e-4,
            rtol=1e-4,
        )


def test_a_second_turn_goes_on_behind_a_sound(model):
    """With what is held of the first, and with another sound in it."""
    engine, first = OwnEngine(model), asked(clip(1))
    ids = ids_of(model, first)
    begun = asyncio.run(engine.generate_seeing(tuple(ids), first.pictures, Sampling(max_tokens=6), (0,)))
    later = asked(clip(2, 0.3), words="and this?")
    more = [i for p in engine.dialect.extend((later,), first=False, closed=begun.finish == "eos") for i in p.ids]
    shown = (*first.pictures, *later.pictures)
    again = asyncio.run(engine.generate_seeing((*ids, *begun.ids, *more), shown, Sampling(max_tokens=6), (1,)))
    assert engine.reused_tokens >= len(ids)
    segments = (
        Segment(ids=tuple(ids), pictures=first.pictures),
        Segment(ids=begun.ids, logp=begun.logp, policy="policy", trained=True, version=0),
        Segment(ids=tuple(more), pictures=later.pictures),
        Segment(ids=again.ids, logp=again.logp, policy="policy", trained=True, version=0),
    )
    assert agree(gaps(model, [Row(segments=segments)]))


def test_prompts_that_differ_in_one_sample_share_nothing_behind_the_sound(model):
    engine, a = OwnEngine(model), clip(1)
    b = replace(a, data=bytes([a.data[0] ^ 1]) + a.data[1:])
    first, second = (played(engine, [asked(p)])[0] for p in (a, b))
    ids = [list(r.segments[0].ids) for r in (first, second)]
    begin = next(n for n, i in enumerate(ids[0]) if i >= FIRST_PLACE)
    assert ids[0][:begin] == ids[1][:begin] and ids[0][begin] != ids[1][begin]
    assert engine.reused_tokens <= begin
    batch = pack([Example(row=r, columns={}) for r in (first, second, first)])
    assert prompts_and_tails(batch)[1] == [0, 1, 0]
    assert agree(gaps(model, [first, second]))


def test_a_sound_has_the_same_bits_whoever_else_is_in_the_pass(model):
    rows = played(OwnEngine(model), [asked(clip(1)), asked(clip(2, 1.1), clip(1))])
    logp = lambda some: forward(model, pack([Example(row=r, columns={}) for r in some]), ("logp",))["logp"][0]
    width = len(rows[0].segments[0].ids) + 2
    with torch.no_grad():
        a, b = model.tower.look(clip(1)), model.tower.look(clip(2, 1.1))
        assert torch.equal(a, model.tower.look(clip(1))) and len(a) != len(b)
        torch.testing.assert_close(logp(rows[:1])[: width - 2], logp(rows)[: width - 2], atol=1e-5, rtol=1e-5)


def test_it_is_saved_with_its_processor_and_loaded_again(model, tmp_path):
    rows = played(OwnEngine(model), [asked(clip(1), clip(2, 0.3))])
    save(model, tmp_path)
    again = load(str(tmp_path))
    for other in (again, frozen_copy(model), trainable_copy(model)):
        assert agree(gaps(other, rows))
    assert ids_of(again, asked(clip(3))) == ids_of(model, asked(clip(3)))
    assert type(AutoModelForMultimodalLM.from_pretrained(tmp_path)) is type(model.causal)
    if not model.tower.sees:  # the other's processor asks for torchvision
        assert type(AutoProcessor.from_pretrained(tmp_path)) is type(model.processor).__mro__[1]


def test_each_part_has_a_rate_of_its_own(folder):
    """AdamW's first step is the rate in every weight that has a gradient, whatever its size."""
    own = load(folder)
    set_rates(own.module, own.causal, {"tower": 0, "projector": 0.5}, own.name)
    parts = {n: part for n, (part, _) in model_parts(own.module, own.causal).items()}
    heard = {n: part for n, part in parts.items() if "audio_tower" in n or "multi_modal" in n}
    assert {part for n, part in heard.items() if ".conv1." in n or ".layers." in n} == {"tower"}
    assert sum(part == "projector" for part in heard.values()) == 2  # a matrix and its bias
    before = {n: p.detach().clone() for n, p in own.module.named_parameters()}
    optimiser = AdamW(lr=1e-3, eps=1e-30, clip_norm=0).build(own.trainable())
    rows = played(OwnEngine(own), [asked(clip(1), clip(2, 1.1))])
    batch = pack([Example(row=r, columns={}) for r in rows])
    (forward(own, batch, ("logp",))["logp"] * batch.mask).sum().backward()
    AdamW(lr=1e-3).set(optimiser, 0)
    optimiser.step()
    moved = {"tower": 0.0, "projector": 0.0, "language": 0.0}
    for n, p in own.module.named_parameters():
        moved[parts[n]] = max(moved[parts[n]], float((p.detach() - before[n]).abs().max()))
    assert moved == pytest.approx({"tower": 0.0, "projector": 0.0005, "language": 0.001}, rel=1e-3)


def test_gradients_reach_ears_and_adapters_stand_in_the_language_part_alone(folder):
    own = load(folder)
    rows = played(OwnEngine(own), [asked(clip(1))])
    batch = pack([Example(row=r, columns={}) for r in rows])
    (forward(own, batch, ("logp",))["logp"] * batch.mask).sum().backward()
    moved = {n for n, p in own.module.named_parameters() if p.grad is not None and bool(p.grad.any())}
    ears = {n for n in dict(own.module.named_parameters()) if "audio_tower" in n}
    assert len(moved & ears) > len(ears) / 2 and any("language_model" in n for n in moved)
    adapted = load(folder, lora=LoRA(rank=2))
    named = {n for n, p in adapted.module.named_parameters() if p.requires_grad}
    assert named and all("audio" not in n and "visual" not in n for n in named)
    assert agree(gaps(adapted, rows))


def test_another_rate_is_brought_to_the_models(model):
    """A tone is the same tone at 8 kHz, at 16 kHz and at 11.025 kHz."""
    tone = {
        rate: Sound.from_samples(0.4 * np.sin(2 * np.pi * 500 * np.arange(rate) / rate), rate)
        for rate in (8000, 11025, 16000)
    }
    heard = {rate: model.tower._processed(s).inputs["input_features"] for rate, s in tone.items()}
    assert len({model.places(s) for s in tone.values()}) == 1
    loudest = heard[16000][0, :, 10:90].mean(1).argmax()
    for rate in (8000, 11025):
        assert heard[rate].shape == heard[16000].shape
        mel = heard[rate][0, :, 10:90].mean(1)
        assert mel.argmax() == loudest and abs(float(mel[loudest] - heard[16000][0, loudest, 10:90].mean())) < 0.02


def test_what_is_too_long_or_too_short_is_refused_with_a_remedy(model):
    with pytest.raises(UserError, match=r"2\.5 s long, and .* hears up to 2 s; cut it, or give --max-duration 2"):
        ids_of(model, asked(clip(1, 2.5)))
    assert ids_of(model, asked(clip(1, 2)))
    with pytest.raises(UserError, match="too short"):
        ids_of(model, asked(clip(1, 0.01)))


def test_of_a_whole_qwen2_5_omni_the_thinker_is_read(tmp_path):
    torch.manual_seed(0)
    thinker, processor = HEARING["qwen2_5_omni"]()
    config = transformers.Qwen2_5OmniConfig(thinker_config=thinker.config.to_dict(), enable_audio_output=False)
    whole = transformers.Qwen2_5OmniForConditionalGeneration(config)
    whole.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    own = load(str(tmp_path))
    read, saved = dict(own.causal.named_parameters()), dict(whole.thinker.named_parameters())
    assert read.keys() == saved.keys() and all(torch.equal(read[n], saved[n]) for n in read)
    assert agree(gaps(own, played(OwnEngine(own), [asked(clip(1), noise(1))])))
    assert dimensions(module_of(tmp_path / "config.json")).layers == 2  # for `palaestra doctor`


def test_who_has_no_ears_or_no_eyes_says_what_to_take(tmp_path):
    sees = load(save_tiny("idefics3", tmp_path / "sees"))
    with pytest.raises(
        UserError, match=r"has no ears, and a prompt holds a sound; take a model that hears.*Qwen2\.5-Omni"
    ):
        ids_of(sees, asked(clip(1)))
    with pytest.raises(UserError, match="has no ears"):
        sees.places(clip(1))  # as a run's checks of the data ask
    hears = load(save_hearing("qwen2_audio", tmp_path / "hears"))
    with pytest.raises(UserError, match=r"has no eyes, and a prompt holds a picture; take a model that sees"):
        ids_of(hears, asked(noise(1)))
    for own in (sees, hears):
        own.add_ears()
        own.add_eyes()
        assert not own.heads
    (tmp_path / "hears" / "processor_config.json").unlink()
    without = load(str(tmp_path / "hears"))
    assert agree(gaps(without, played(OwnEngine(without), [asked()])))
    with pytest.raises(UserError, match=r"has no processor_config\.json or preprocessor_config\.json, .*copy"):
        ids_of(without, asked(clip(1)))
