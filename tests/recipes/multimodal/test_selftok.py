"""Selftok: codebooks, tests of pictures and the loss by hand; two programs, one of which blobs do not deceive."""

import base64
import io

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.models.load import load, save
from palaestra.models.model import trainable_copy
from palaestra.models.vocabulary import add_tokens
from palaestra.pictures import Picture
from palaestra.recipes.multimodal import selftok
from palaestra.recipes.multimodal.selftok import detector, findings, tokens
from palaestra.recipes.multimodal.selftok.tokenizer import (
    TokenizerSettings,
    VisualTokenizer,
    k_means,
    load_tokenizer,
    nearest,
)
from palaestra.toys.grids import GROUND, INK, Grids, describe_tests, draw_grid
from palaestra.types import Message, Row, Segment, Task
from palaestra.update import pack
from PIL import Image


def pixels_in(picture):
    return np.frombuffer(picture.data, np.uint8).reshape(picture.shape)


def pictures(split, n):
    return np.stack([pixels_in(Grids().task(split, i).prompt[0].pictures[0]) for i in range(n)])


@pytest.fixture(scope="module")
def train():
    return pictures("train", 512)


@pytest.fixture(scope="module")
def fitted(train):
    return {o: VisualTokenizer.fit(TokenizerSettings(o), train, ("k",)) for o in ("nested", "spatial", "shuffled")}


def test_the_loss_of_the_catalogue():
    """Rewards 1, .5, .5, 0 give 1.414214, 0, 0, -1.414214; log(p_old / p) = .1 costs .005171 and -.1 .004837."""
    recipe = selftok.build(kl=1.0).rl
    episodes = tuple(
        pl.Episode(
            rows=(Row(segments=(Segment(ids=(0,)), Segment(ids=(1,), trained=True))),),
            reward=pl.Reward(total=r),
            status="finished",
        )
        for r in (1.0, 0.5, 0.5, 0.0)
    )
    group = pl.Group(task=Task(id="a", prompt=(), answer=None), episodes=episodes)
    examples, _ = recipe.learners["policy"].credit([group], [[[{}] for _ in episodes]], {})
    advantages = [float(np.ravel(e.columns["advantage"])[-1]) for e in examples]
    assert advantages == pytest.approx([1.414214, 0, 0, -1.414214], abs=1e-5)  # 1e-6 is added to the deviation
    for gap, cost in ((0.1, 0.005171), (-0.1, 0.004837)):
        batch = pack([replace_behaviour(e, -2.0 + gap) for e in examples[:1]], dtype=torch.float64)
        logp = torch.tensor([[0.0, -2.0]], dtype=torch.float64, requires_grad=True)
        loss, metrics = recipe.learners["policy"].objective({"logp": logp}, batch)
        assert float(metrics["kl_behaviour"]) == pytest.approx(cost, abs=1e-6)
        (slope,) = torch.autograd.grad(loss, logp)
        # of -A log p + (p_old / p - log(p_old / p) - 1): no ratio stands before A
        assert slope[0, 1].item() == pytest.approx(-advantages[0] + 1 - np.exp(gap), abs=1e-6)
    assert selftok.build(kl=0.0).rl.learners["policy"].objective == pl.Reinforce(reduce="sequences")


def replace_behaviour(example, logp):
    from dataclasses import replace

    columns = {**example.columns, "behaviour_logp": np.array([0.0, logp])}
    return replace(example, columns=columns)


def test_a_prompt_with_two_tests_of_which_one_holds_pays_a_half():
    picture = pixels_in(draw_grid([("red", 1, 1), ("red", 5, 1), ("blue", 5, 5)]))
    asked = [{"colour": "red", "count": 2}, {"colour": "blue", "side": "left"}]
    assert detector.passed(asked, picture) == [True, False] and detector.score(asked, picture) == 0.5


@pytest.mark.parametrize(
    ("test", "right"),
    [
        ({"colour": "red", "count": 2}, True),
        ({"colour": "red", "count": 1}, False),
        ({"colour": "green", "count": 0}, True),
        ({"colour": "green", "side": "left"}, False),  # nothing lies nowhere
        ({"colour": "red", "side": "top"}, True),
        ({"colour": "red", "side": "left"}, False),  # one of them is on the right
        ({"colour": "blue", "side": "right"}, True),
        ({"colour": "blue", "count": 1, "side": "bottom"}, True),
        ({"colour": "black", "count": 1}, False),  # the ground is no thing
    ],
)
def test_tests_of_a_picture_by_eye(test, right):
    picture = pixels_in(draw_grid([("red", 1, 1), ("red", 5, 1), ("blue", 5, 5)]))
    assert detector.passed([test], picture) == [right]


def test_every_picture_of_the_built_in_problem_passes_both_programs():
    sized = detector.Sized.of(pictures("train", 100))
    assert sized == detector.Sized(4, 4, 1.0)
    for i in range(60):
        task = Grids(most=4).task("test", i)
        picture = pixels_in(task.prompt[0].pictures[0])
        assert detector.score(task.meta["shows"], picture) == 1 == detector.score(task.meta["shows"], picture, sized)
        assert task.prompt[0].content[1:] == describe_tests(task.meta["shows"])
    splits = [{Grids().task(s, i).prompt[0].content for i in range(80)} for s in ("train", "test")]
    assert not splits[0] & splits[1]


def blobs(*cells):
    pixels = np.full((8, 8, 3), GROUND, np.uint8)
    for colour, x, y in cells:
        pixels[y, x] = INK[colour]
    return pixels


def test_blobs_deceive_the_first_program_and_not_the_second():
    sized = detector.Sized.of(pictures("train", 50))
    asked = [{"colour": "red", "count": 2}]
    specks = blobs(("red", 0, 0), ("red", 7, 7))
    assert detector.score(asked, specks) == 1 and detector.score(asked, specks, sized) == 0
    stripe = blobs(*(("red", x, 0) for x in range(4)), *(("red", x, 5) for x in range(4)))
    assert detector.score(asked, stripe) == 1  # four cells in a row are as many as a square has, and fill their box
    flood = blobs(*(("red", x, y) for x in range(3) for y in range(8)))
    one = [{"colour": "red", "count": 1}]
    assert detector.score(one, flood) == 1 and detector.score(one, flood, sized) == 0
    corner = blobs(("red", 2, 2), ("red", 3, 3))  # corners do not connect
    assert detector.score(asked, corner) == 1 and detector.score(asked, corner, sized) == 0
    nothing = blobs()
    assert detector.score(asked, nothing) == 0 and detector.things_in(nothing) == []


def test_no_picture_is_paid_for_what_it_lacks_alone():
    """A wholly red picture has no red thing, as its ground is none, and is no picture without red either."""
    none = [{"colour": "red", "count": 0}]
    flooded = np.full((8, 8, 3), INK["red"], np.uint8)
    assert detector.passed(none, flooded) == [False] and detector.passed(none, blobs(("blue", 1, 1))) == [True]
    assert detector.passed(none, blobs(("red", 1, 1))) == [False]
    with pytest.raises(UserError, match="nothing but counts of 0, which an empty picture passes"):
        detector.check_tests(none, "a")
    assert len(detector.check_tests([*none, {"colour": "blue", "count": 1}], "a")) == 2


def test_tests_that_are_none():
    for given in (None, [], "2 red", [{"colour": "red"}], [{"colour": "mauve", "count": 1}], [{"count": 1}]):
        with pytest.raises(UserError, match=r"a: "):
            detector.check_tests(given, "a")
    for odd in ({"count": -1}, {"count": True}, {"count": "2"}, {"side": "middle"}):
        with pytest.raises(UserError, match="is no test of a picture"):
            detector.check_tests([{"colour": "red", **odd}], "a")


def test_k_means_by_hand():
    """Two pairs of points have their middles as codes, and a third code on neither changes nothing."""
    x = np.array([[0.0, 0], [0, 2], [10, 0], [10, 2]])
    book = k_means(x, 2, pl.rng_of(("a",)))
    assert sorted(book.tolist()) == [[0, 1], [10, 1]] or sorted(book[:, 1].tolist()) == [0, 2]
    assert nearest(np.array([[1.0, 1.0]]), np.array([[0.0, 1], [10, 1]])).tolist() == [0]
    assert k_means(np.ones((5, 2)), 3, pl.rng_of(("b",))).tolist() == [[1, 1]] * 3


def test_a_prefix_of_nested_tokens_decodes_to_a_coarse_picture(fitted):
    """No token makes any picture worse, before it is cut off at black and white; a spatial one says its own patch alone."""
    test = pictures("test", 40)
    nested, spatial = fitted["nested"], fitted["spatial"]
    made = nested.encode(test)
    assert made.shape == (40, 16) and made.min() >= 0 and made.max() < 64
    codes = np.stack([nested.books[k][made[:, k]] for k in range(16)], 1)
    left = (test.reshape(40, -1) / 127.5 - 1 - nested.mean)[:, None] - np.cumsum(codes, 1)
    assert (np.diff((left**2).sum(2), axis=1) <= 1e-6).all()
    errors = np.array([((nested.decode(made, k).astype(float) - test) ** 2).mean() for k in range(17)])
    assert errors[16] < 0.2 * errors[0]
    assert errors[4] < 0.5 * errors[0]  # a quarter of the tokens says more than half
    patches = spatial.encode(test)
    changed = patches.copy()
    changed[:, 5] = (changed[:, 5] + 1) % 64
    gap = (spatial.decode(changed) != spatial.decode(patches)).any(3)
    assert gap[:, 2:4, 2:4].any() and not gap[:, :2].any() and not gap[:, 4:].any()
    for t in (nested, spatial):
        cells = detector.colours_of(t.decode(t.encode(test))) == detector.colours_of(test)
        assert cells.mean() > 0.97


def test_shuffled_tokens_are_the_nested_ones_in_another_order(fitted, train):
    nested, shuffled = fitted["nested"], fitted["shuffled"]
    a, b = nested.encode(train[:20]), shuffled.encode(train[:20])
    assert (a != b).any() and (np.sort(a, 1) == np.sort(b, 1)).all()
    assert (nested.decode(a) == shuffled.decode(b)).all()
    assert (a[:, shuffled.permutation] == b).all()


def test_a_tokenizer_is_read_as_it_was_written(fitted, tmp_path, train):
    for name, t in fitted.items():
        t.save(tmp_path / name)
        other = load_tokenizer(str(tmp_path / name))
        assert (other.decode(other.encode(train[:9])) == t.decode(t.encode(train[:9]))).all()
    with pytest.raises(UserError, match="do not cut 8 x 8"):
        TokenizerSettings("spatial", tokens=9)
    with pytest.raises(UserError, match="order: 'random'"):
        TokenizerSettings("random")


@pytest.fixture(scope="module")
def folder(fitted, tmp_path_factory, train):
    made = tmp_path_factory.mktemp("visual")
    fitted["nested"].save(made)
    tokens.save_sized(made, detector.Sized.of(train))
    return str(made)


def test_a_reply_is_judged_as_a_picture(folder, fitted, monkeypatch):
    task = Grids().task("train", 3)
    gold = tokens.spell_tokens(fitted["nested"].encode(pictures("train", 4))[3])
    judge = lambda text: tokens.DecodedPicture(folder).judge(text, task)
    right = judge(gold)
    assert (right.total, right.parts["whole"], right.parts["strict"], right.solved) == (1, 1, 1, True)
    first = gold[: gold.index(">") + 1]
    for text in ("", gold[len(first) :], gold + first, f"a picture {gold}", gold.replace("<v", "<w"), gold + "."):
        assert judge(text).total == 0 and judge(text).parts["whole"] == 0
    # a speck pays by the first program, and by the second one only where things are as large
    one = Task(id="s", prompt=(), answer=None, meta={"shows": [{"colour": "red", "count": 1}]})
    monkeypatch.setattr(tokens, "decode_text", lambda text, tokenizer: blobs(("red", 1, 1)))
    loose, strict = (tokens.DecodedPicture(folder, strict=s).judge(gold, one) for s in (False, True))
    assert (loose.total, strict.total, strict.solved) == (1, 0, False)
    assert loose.parts == strict.parts == {"whole": 1.0, "loose": 1.0, "strict": 0.0}
    assert selftok.build(strict=True).strict and not selftok.build().strict
    monkeypatch.undo()
    far = gold.replace(first, "<v64>", 1)  # a code that is not there
    padded = gold.replace(first, first.replace("<v", "<v0"), 1)
    assert judge(far).parts["whole"] == 0 and judge(padded).parts["whole"] == 0
    with pytest.raises(UserError, match="`shows` is a list"):
        tokens.DecodedPicture(folder).judge(gold, Task(id="x", prompt=(), answer=None))


def test_a_model_gets_a_token_for_each_code(tmp_path):
    own = load("tiny")
    before = own.causal.get_input_embeddings().weight.detach().clone()
    twin = trainable_copy(own)  # which shares the tokenizer
    add_tokens(own, tokens.names_of_tokens(8), ("a",))
    assert len(twin.tokenizer) == twin.vocabulary == len(before)
    save(own, tmp_path)
    other = load(str(tmp_path))
    table = other.causal.get_input_embeddings().weight.detach()
    assert other.vocabulary == len(before) + 8 and torch.equal(table[: len(before)], before)
    gap = table[len(before) :] - before.mean(0)
    assert float(gap.std()) == pytest.approx(float(before.std()) / 4, rel=0.1) and len(gap.unique(dim=0)) == 8
    dialect = OwnEngine(other).dialect
    ids = dialect.encode_text("<v7><v0>")
    assert len(ids) == 2 and dialect.decode(ids) == "<v7><v0>"
    with pytest.raises(UserError, match="has the token '<v0>' already"):
        add_tokens(other, ["<v0>"], ("a",))


def test_pictures_of_a_user_are_brought_to_the_grid():
    big = Image.fromarray(pixels_in(draw_grid([("red", 0, 0)]))).resize((96, 64), Image.Resampling.NEAREST)
    data = np.asarray(big)
    made = tokens.small(Picture(shape=data.shape, data=data.tobytes()), 8)
    assert (made == pixels_in(draw_grid([("red", 0, 0)]))).all()
    grey = tokens.small(Picture(shape=(4, 4, 1), data=bytes([200]) * 16), 8)
    assert grey.shape == (8, 8, 3) and (grey == 200).all()


def test_the_price_of_a_reward():
    """.3 for 2 nats is .15 a nat; below a hundredth of a nat no price is named."""
    assert findings.gain_per_nat(0.4, 0.7, 2.0) == pytest.approx(0.15)
    assert np.isnan(findings.gain_per_nat(0.4, 0.7, 0.001))
    exam = {"reward": [0.5, 0.5], "strict": [0.5, 0.5], "whole": [1.0], "kl": [], "prompt": [0, 1]}
    hacked = {"reward": [1.0, 1.0], "strict": [0.5, 0.5], "whole": [1.0], "kl": [2.0, 2.0], "prompt": [0, 1]}
    arms = {"nested": {"tokens": {"error": 0.1, "cells": 0.9}, "before": exam, "after": hacked}}
    numbers = findings.numbers_of(arms)
    price = numbers["gain_per_nat_nested"]
    assert (price.mean, price.low, price.high, price.n) == pytest.approx((0.25, 0.25, 0.25, 2))
    assert numbers["kl_nested"] == 2 and not any("clean test" in line for line in findings.findings(numbers, arms))
    assert any("for blobs" in line for line in findings.findings(numbers, arms))
    # paid by the second program, nothing is gained; where it falls, the loss is named
    assert findings.numbers_of(arms, strict=True)["gain_per_nat_nested"].mean == 0
    arms["nested"]["after"] = {**hacked, "strict": [0.2, 0.2]}
    told = findings.findings(findings.numbers_of(arms), arms)
    assert any("nested loses 0.300 of the 0.500 that its prior has" in line for line in told)


def test_nested_against_shuffled_is_the_test_and_samples_of_a_prompt_are_one():
    """Two samples of each prompt that agree say no more than one: the interval is that of ten numbers."""
    prompts = [i for i in range(10) for _ in range(2)]
    twice = lambda values: [x for x in values for _ in range(2)]
    base = {"strict": [0.0] * 20, "whole": [1.0] * 20, "prompt": prompts}
    before = {**base, "reward": [0.0] * 20, "kl": []}
    gains = {"nested": [0.5, 0.7] * 5, "shuffled": [0.1, 0.3] * 5, "spatial": [0.0, 1.0] * 5}
    arms = {
        n: {"tokens": {"cells": 1.0}, "before": before, "after": {**base, "reward": twice(x), "kl": [2.0] * 20}}
        for n, x in gains.items()
    }
    numbers = findings.numbers_of(arms)
    assert numbers["reward_spatial"] == pl.stats.mean_interval([0.0, 1.0] * 5)
    clean = numbers["gain_per_nat_nested_less_shuffled"]
    # the same prompts are drawn for both, and there the gap is always .4 for 2 nats
    assert (clean.mean, clean.low, clean.high, clean.n) == pytest.approx((0.2, 0.2, 0.2, 10))
    spatial = numbers["gain_per_nat_spatial"]
    assert spatial.mean == pytest.approx(0.25) and 0.05 < spatial.low < 0.15 and 0.35 < spatial.high < 0.45
    lines = findings.findings(numbers, arms)
    assert lines[0].startswith("The clean test of order") and "more than that of shuffled" in lines[0]
    assert any("Nested against shuffled is the clean test" in t.note for t in findings.report("q", arms).tables)


def captioned(prompt, count, shade=0):
    return tokens.Captioned(prompt, np.full((2, 2, 3), shade, np.uint8), [{"colour": "red", "count": count}])


def test_a_problem_is_never_in_both_splits_whatever_its_picture():
    """40 pictures with 6 captions: the picture is not shown, so the caption with its tests is the problem."""
    records = [captioned(f"{i % 6} red", i % 6 + 1, i) for i in range(40)]
    train, test, note = tokens.part_prompts(records[4:], records[:4])
    ask = lambda some: {(r.prompt, r.tests[0]["count"]) for r in some}
    assert train and test and not ask(train) & ask(test)
    assert len(ask(test)) == 1 and "4 of the 4 held-out problems" in note  # a tenth of six, at least one
    # the same words with other tests are another problem, and splits without one in common stay
    a, b = [captioned("red", 1)], [captioned("red", 2)]
    assert tokens.part_prompts(a, b) == (a, b, "")
    # problems of the test alone are enough: what is trained leaves the exam, and training keeps all
    train, test, _ = tokens.part_prompts([captioned("a", 1)], [captioned("a", 1), captioned("b", 1)])
    assert (ask(train), ask(test)) == ({("a", 1)}, {("b", 1)})
    with pytest.raises(UserError, match="one and the same picture"):
        tokens.part_prompts(a, a)


def test_examples_of_the_card_are_pictures_that_show_what_they_say():
    for picture, prompt, shows in zip(selftok.PICTURES, selftok.PROMPTS, selftok.SHOWS, strict=True):
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB"))
        assert detector.score(shows, pixels) == 1 and all(t["colour"] in prompt for t in shows)


def test_what_a_user_may_get_wrong(context):
    with pytest.raises(UserError, match="orders are some of"):
        selftok.build(orders="nested,raster")
    with pytest.raises(UserError, match="do not cut"):
        selftok.build(orders="spatial", tokens=12)
    ctx = context("add")
    with pytest.raises(UserError, match="has 0 pictures; selftok learns from one picture"):
        tokens.read_records(ctx, "train", 2, 8)
    message = Message(role="user", content=pl.PICTURE_MARK, pictures=(draw_grid([("red", 0, 0)]),))
    task = Task(id="b", prompt=(message,), answer=None, meta={})

    class Wordless:
        name, size = "mine", 1

        def task(self, split, index):
            return task

    from dataclasses import replace

    bare = ctx.with_bench(replace(ctx.bench, tasks=Wordless()))
    with pytest.raises(UserError, match="has no words beside its picture"):
        tokens.read_records(bare, "train", 1, 8)
