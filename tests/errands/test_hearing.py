"""Sounds of my own and a model of the hub that hears: trained, stopped, resumed, saved, loaded elsewhere; beside pictures."""

import base64
import json
import wave
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForMultimodalLM

from tests.errands.shell import palaestra, write_rows
from tests.errands.test_pictures import write_pictures
from tests.hearing import HEARING, save_hearing


def wav(pitch, seconds, rate):
    """The bytes of a file with a tone."""
    room = BytesIO()
    samples = np.sin(2 * np.pi * pitch * np.arange(int(seconds * rate)) / rate) * 9000
    with wave.open(room, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return room.getvalue()


@pytest.fixture(scope="module", autouse=True)
def sounds(folder):
    """mine.jsonl with sounds of unequal length and rate, in each form; both.jsonl with pictures beside them."""
    write_pictures()
    Path("clips").mkdir()
    rows = []
    for i in range(8):
        name = ("low", "high")[i % 2]
        data = wav({"low": 200, "high": 2000}[name], 0.2 + 0.1 * i, (8000, 16000, 22050)[i % 3])
        Path(f"clips/{i}.wav").write_bytes(data)
        forms = [
            {"audio": f"clips/{i}.wav"},
            {"audio": {"bytes": None, "path": f"clips/{i}.wav"}},
            {"audio": {"array": [0.1 * (-1) ** k for k in range(3200)], "sampling_rate": 8000}},
            {"audios": [f"clips/{i}.wav", "data:audio/wav;base64," + base64.b64encode(data).decode()]},
        ]
        rows.append({**forms[i % 4], "prompt": "Which tone?", "options": ["low", "high"], "answer": name})
    write_rows("mine.jsonl", rows)
    beside = [
        {"image": f"photos/{i}.png"} if i % 2 else {"video": [f"photos/{i}.png", f"photos/{i + 1}.png"]}
        for i in range(8)
    ]
    meant = {"demonstration": "<context>a tone</context><think>it is so</think><answer>A</answer>", "answer": "A"}
    meant |= {"context": "a tone", "problem_type": "multiple choice"}
    write_rows("both.jsonl", [{**r, **b} for r, b in zip(rows, beside, strict=True)])
    write_rows("meant.jsonl", [{**r, **b, **meant} for r, b in zip(rows, beside, strict=True)])
    asked = {"problem": "What is meant?", "options": ["A. low", "B. high"]}
    kinds = [("multiple choice", "B"), ("emer_ov_mc", "A,B"), ("multiple choice", "A"), ("judge", "Yes")] * 2
    released = [
        {**asked, "problem_type": kind, "solution": f"<answer>{gold}</answer>", **b}
        for (kind, gold), b in zip(kinds, beside, strict=True)
    ]
    for row in released[1::2]:  # of several right letters the options stand in the question
        row["problem"] += "\n" + "\n".join(row.pop("options"))
    Path("qa.json").write_text(json.dumps([{**r, "audio": f"clips/{i}.wav"} for i, r in enumerate(released)]))
    Path("letters.py").write_text(
        "def pay(responses, answers, **_):\n    return [len(set(r)) / 10 for r in responses]\n"
    )


def said(words):
    screen = palaestra(words)
    assert screen.status == 0, screen.err
    return screen


def weights(folder):
    return AutoModelForMultimodalLM.from_pretrained(folder).state_dict()


@pytest.mark.parametrize("kind", HEARING)
def test_it_is_trained_resumed_saved_and_loaded_by_transformers(kind):
    model = save_hearing(kind, Path(kind).resolve())
    data = {"qwen2_5_omni": "both.jsonl", "qwen2_audio": "mine.jsonl"}[kind]
    asked = (
        f"train grpo --model {model} --data {data} --max-tokens 4 schedule.prompts=2 sample.n=2 --reward letters.py:pay"
    )
    said(f"{asked} --steps 2 --out {kind}-whole")
    said(f"{asked} --steps 1 --out {kind}-parts")
    said(f"train --resume {kind}-parts --steps 2")
    start, whole, parts = (
        weights(f) for f in (model, f"{kind}-whole/checkpoints/step-2", f"{kind}-parts/checkpoints/step-2")
    )
    assert whole.keys() == parts.keys() == start.keys()
    assert all(torch.equal(whole[n], parts[n]) for n in whole)
    changed = {n for n in whole if not torch.equal(whole[n], start[n])}
    assert any("language_model" in n for n in changed) and any("audio_tower" in n for n in changed)
    assert any("visual" in n for n in changed) or kind == "qwen2_audio"
    before, after = (
        json.loads((f / "processor_config.json").read_text())
        for f in (Path(model), Path(f"{kind}-whole/checkpoints/step-2"))
    )
    assert before == after and "feature_extractor" in after


def test_the_rows_on_sounds_train_it(folder):
    """omni-r1 on sounds beside pictures and videos, humanomni-intent with its start as the judge; ears frozen."""
    model = save_hearing("qwen2_5_omni", Path("thinker").resolve())
    small = f"--model {model} --max-tokens 6 --steps 1"
    said(f"train omni-r1 --data both.jsonl {small} samples=2 exam=2 schedule.prompts=2 'rates={{tower=0}}' --out omni")
    start, after = weights(model), weights("omni/checkpoints/step-1")
    assert all(torch.equal(start[n], after[n]) for n in start if "audio_tower" in n and ".proj." not in n)
    said(
        f"train humanomni-intent --data meant.jsonl {small} samples=2 exam=0 schedule.prompts=2 frozen=True --out intent"
    )
    said(
        f"train humanomni-intent --data qa.json {small} samples=2 exam=2 schedule.prompts=2 frozen=True --out released"
    )
    after = weights("intent/checkpoints/step-1")
    assert all(torch.equal(start[n], after[n]) for n in start if "audio_tower.layers" in n)
    assert after.keys() == start.keys()  # no small eyes or ears beside those of the model


def test_clips_that_are_too_long_are_refused_or_cut(folder):
    model = save_hearing("qwen2_audio", Path("short").resolve())
    Path("clips/long.wav").write_bytes(wav(300, 3, 16000))
    write_rows("long.jsonl", [{"audio": "clips/long.wav", "prompt": f"{i}: which?", "answer": "low"} for i in range(4)])
    small = "--max-tokens 4 --steps 1 schedule.prompts=2 sample.n=2 --reward letters.py:pay"
    asked = f"train grpo --model {model} --data long.jsonl {small}"
    screen = palaestra(f"{asked} --out refused")
    assert screen.status and "hears up to 2 s; cut it, or give --max-duration 2" in screen.err
    said(f"{asked} --max-duration 2 --out cut")
    screen = palaestra("train grpo --max-duration 2 --steps 1")
    assert screen.status and "--max-duration needs --data" in screen.err
