"""I have a model that sees and ten pictures of my own. The page docs/pictures.md is all that I read."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from tests.errands.shell import palaestra, write_rows
from tests.vision import save_tiny

COLOURS = {"red": (220, 30, 30), "blue": (30, 30, 220)}


@pytest.fixture(scope="module", autouse=True)
def model(folder):
    return save_tiny("idefics3", Path("seeing").resolve())


def write_pictures():
    """Ten rows in mine.jsonl, and their pictures of unequal sizes."""
    Path("photos").mkdir()
    rows = []
    for i in range(10):
        name = ("red", "blue")[i % 2]
        noise = np.random.default_rng(i).integers(-25, 25, (40 + 5 * i, 60, 3))
        Image.fromarray(np.clip(np.array(COLOURS[name]) + noise, 0, 255).astype(np.uint8)).save(f"photos/{i}.png")
        rows.append({"image": f"photos/{i}.png", "prompt": "Which colour?", "answer": name, "demonstration": name})
    write_rows("mine.jsonl", rows)


@pytest.fixture(scope="module", autouse=True)
def pictures(folder):
    write_pictures()


@pytest.mark.slow
def test_it_learns_to_name_their_colours_and_goes_on_by_rewards():
    fast = "--max-tokens 6 optimiser.lr=0.003"
    said = palaestra(f"train sft --model seeing --data mine.jsonl --steps 30 {fast} rates={{tower=0}} --out imitated")
    assert said.status == 0, said.err
    assert "invisible" not in said.err + said.out
    said = palaestra("train --resume imitated --steps 60")
    assert said.status == 0, said.err
    trained = "imitated/checkpoints/step-60"
    said = palaestra(f"eval --model {trained} --data mine.jsonl --test-data mine.jsonl --max-tokens 6 --k 1 --json")
    assert said.status == 0, said.err
    assert json.loads(said.out.splitlines()[-1])["greedy"]["mean"] >= 0.9
    # its tower is as it was, and its language part is not; transformers loads it with its processor
    before, after = (AutoModelForImageTextToText.from_pretrained(m).state_dict() for m in ("seeing", trained))
    moved = {n for n in before if not torch.equal(before[n], after[n])}
    assert moved and not any("vision" in n for n in moved)
    assert AutoProcessor.from_pretrained(trained).image_token == "<image>"
    small = "--max-tokens 6 --steps 1 schedule.prompts=2 sample.n=2 --lora 2 --max-pixels 900"
    said = palaestra(f"train grpo --model {trained} --data mine.jsonl {small} --out rewarded")
    assert said.status == 0, said.err
    assert Path("rewarded/checkpoints/step-1/processor_config.json").is_file()


def test_what_i_did_wrong_is_said_before_the_run():
    write_rows("url.jsonl", [{"image": "https://x.org/a.png", "prompt": "?", "answer": "a"}])
    said = palaestra("train grpo --model seeing --data url.jsonl --steps 1 --out no")
    assert said.status != 0 and "download the picture" in said.err
    said = palaestra("train grpo --model tiny --data mine.jsonl --steps 1 --out no2")
    assert said.status != 0 and "tiny has no eyes" in said.err and "vision-language model" in said.err
