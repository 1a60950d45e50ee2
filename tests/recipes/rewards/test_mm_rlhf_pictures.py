"""MM-RLHF on pairs about pictures: the reward model sees what the policy sees."""

import json

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load
from palaestra.recipes.rewards import mm_rlhf
from palaestra.rewards.learned import read_heads, read_seeing
from palaestra.types import Message, Row, Segment

from tests.vision import noise, pillow, save_tiny


@pytest.fixture(scope="module")
def seeing(tmp_path_factory):
    return save_tiny("idefics3", tmp_path_factory.mktemp("seeing"))


def test_a_score_depends_on_the_picture_and_is_that_of_text_without_one(seeing):
    model = load(seeing)
    torch.nn.init.normal_(model.add_head("score").out.weight, generator=torch.Generator().manual_seed(0))
    dialect = OwnEngine(model).dialect

    def row(*pictures):
        message = Message(role="user", content="\ufffc" * len(pictures) + "Is it red?", pictures=pictures)
        pieces = dialect.extend((message,), first=True, closed=False)
        return Row(segments=tuple(Segment(ids=p.ids, pictures=p.pictures) for p in pieces))

    plain = row()
    assert read_seeing(model, plain, ["score"]) == pytest.approx(
        read_heads(model, [list(plain.context())], ["score"])[0], abs=1e-5
    )
    one, other, again = (read_seeing(model, row(noise(i)), ["score"])[0] for i in (1, 2, 1))
    assert one == again and abs(one - other) > 1e-4


def test_pairs_about_pictures_train_both_parts(seeing, tmp_path):
    rows = []
    for i in range(4):
        pillow(noise(i)).save(tmp_path / f"{i}.png")
        rows.append({"image": f"{i}.png", "prompt": "What is it?", "chosen": "noise", "rejected": "a cat"})
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    pipeline = mm_rlhf.build(steps=1, critique_tokens=4)
    for part in ("reward", "dpo"):
        pipeline = pl.override(pipeline, f"{part}.schedule.prompts", 2)
    pl.train(
        pl.override(pipeline, "dpo.schedule.steps", 1),
        model=seeing,
        data=str(tmp_path / "pairs.jsonl"),
        out=tmp_path / "run",
        quiet=True,
    )
    made = json.loads((tmp_path / "run/dpo/metrics.jsonl").read_text().splitlines()[0])
    assert np.isfinite(made["loss"]) and 0.1 - 1e-6 <= made["beta"] <= 0.15 + 1e-6
