"""PIVOT: losses by hand, arms that differ in one thing, probes and maps with known answers, a user's file."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pyarrow.parquet as pq
import pytest
import torch
from palaestra.errors import UserError
from palaestra.pictures import Picture
from palaestra.recipes.multimodal import pivot
from palaestra.recipes.multimodal.pivot import arms, findings, look
from palaestra.recipes.multimodal.pivot.look import SeenItem
from palaestra.recipes.multimodal.pivot.maps import draw_maps, heat_map
from palaestra.toys.scenes import KINDS, Figure, Scenes, draw_scene
from palaestra.types import Message, Task
from PIL import Image

from tests.objective.test_preference import batch_of

PAIR, REF = (-10.0, -20.0), (-12.0, -18.0)  # log-probs of chosen and rejected, of the policy and the reference


def test_losses_of_the_catalogue():
    """m = .1 (2 - (-2)) = .4: loss .513015, weight .401312; the SFT loss of the same item is 10, of both replies 30."""
    built = pivot.build(arms="sft,both,dpo")
    batch, out = batch_of(PAIR, ref=REF, tokens=(2, 4))
    losses = {n: r.learners["policy"].objective(out, batch)[0] for n, r in built.arms.items()}
    assert losses["dpo"].item() == pytest.approx(0.513015, abs=1e-6)
    assert (losses["sft"].item(), losses["both"].item()) == pytest.approx((10.0, 30.0))
    (slope,) = torch.autograd.grad(losses["dpo"], out["logp"])
    assert slope[:, 1].tolist() == pytest.approx([-0.0401312, 0.0401312], abs=1e-7)  # beta times the weight
    (slope,) = torch.autograd.grad(losses["both"], out["logp"])
    assert slope[0, 1:3].tolist() == [-1.0, -1.0] and slope[1, 1:5].tolist() == [-1.0] * 4


def test_arms_have_items_updates_and_optimiser_in_common():
    built = pivot.build(arms=",".join(arms.ARMS)).arms
    assert len({repr((r.draw, r.schedule, r.learners["policy"].optimiser)) for r in built.values()}) == 1
    assert {n: dict(r.learners["policy"].rates) for n, r in built.items() if r.learners["policy"].rates} == {
        "frozen": {"tower": 0.0}
    }
    assert repr(built["dpo"].learners["policy"].objective) == repr(built["random"].learners["policy"].objective)
    assert built["grpo"].collect.links[1].reward == arms.SaysChosen()


def test_a_random_rejected_reply_is_of_another_item(context):
    ctx = context("scenes")
    ctx.model("policy").add_eyes()
    task = Scenes(asks="where").task("train", 0)
    others = set()
    for i in range(6):
        group = asyncio.run(arms.RandomRejected()(ctx, ("k", i), pl.Group(task=task)))
        chosen, rejected = (e.rows[0].segments[-1].text for e in group.episodes)
        assert chosen == task.meta["chosen"] and rejected != chosen
        others.add(rejected)
    assert len(others) > 2
    alike = replace(ctx.bench, tasks=Same(task))
    with pytest.raises(UserError, match="no other item has a rejected reply"):
        asyncio.run(arms.RandomRejected()(ctx.with_bench(alike), ("k",), pl.Group(task=task)))


class Same:
    """Items whose rejected reply is what the first one has chosen."""

    name, size = "same", 4

    def __init__(self, task):
        self.one = task

    def task(self, split, index):
        return replace(self.one, id=f"other-{index}", meta={**self.one.meta, "rejected": self.one.meta["chosen"]})


@pytest.mark.parametrize(
    ("text", "paid"),
    [
        ("Top Left", 1), (" top  left\n", 1), ("", 0), ("top left top left", 0), ("top", 0), ("top right", 0),
        ("top left or top right", 0), ("not top left", 0),
    ],
)  # fmt: skip
def test_a_reply_is_paid_for_being_the_chosen_one(text, paid):
    task = Task(id="a", prompt=(), answer=None, meta={"chosen": "top left"})
    assert arms.SaysChosen().judge(text, task).total == paid
    with pytest.raises(UserError, match="no text in `chosen`"):
        arms.SaysChosen().judge(text, replace(task, meta={"chosen": "  "}))


SHAPE = (8, 8, 3)


def test_the_share_of_a_patch_in_a_box_by_hand():
    """2 x 2 patches of 4 x 4 pixels; a box of 2 rows and 4 columns has a quarter of two patches."""
    assert look.cover([(2, 0, 5, 1)], SHAPE, (2, 2)).tolist() == pytest.approx([0.25, 0.25, 0, 0])
    assert look.cover([(0, 0, 7, 7)], SHAPE, (2, 2)).tolist() == pytest.approx([1] * 4)
    assert look.cover([(0, 0, 0, 0)], SHAPE, (1, 1)).tolist() == pytest.approx([1 / 64])
    # patches that cut pixels: thirds of 8 pixels, of which the box has the first two rows
    assert look.cover([(0, 0, 7, 1)], SHAPE, (3, 1)).tolist() == pytest.approx([0.75, 0, 0])
    twice = look.cover([(0, 0, 3, 3), (0, 0, 3, 3)], SHAPE, (2, 2))
    assert twice.tolist() == pytest.approx([1, 0, 0, 0])  # overlap counts once


def test_localisation_by_hand():
    """Of masses 4, 2, 1, 1 a box with a quarter of the first two patches has 1.5 of 8."""
    gradient = np.array([4.0, 2.0, 1.0, 1.0])
    assert look.localisation(gradient, [(2, 0, 5, 1)], SHAPE, (2, 2)) == pytest.approx(1.5 / 8)
    even = np.ones(4)  # scattered: the share is the box's area, its chance level
    assert look.localisation(even, [(2, 0, 5, 1)], SHAPE, (2, 2)) == pytest.approx(8 / 64)


def item_of(meta, shape=SHAPE):
    picture = Picture(shape=shape, data=bytes(np.prod(shape)))
    prompt = (Message(role="user", content="\ufffcwhat", pictures=(picture,)),)
    return look.SeenItem(Task(id="a", prompt=prompt, answer=None, meta=meta), picture)


def test_what_patches_show_and_what_is_asked_for():
    item = item_of({"boxes": {"cat": [0, 0, 3, 3], "dog": [4, 4, 5, 5]}, "traits": "pet", "about": ["dog"]})
    assert look.segments(item, (2, 2)) == ["cat", "background", "background", "dog"]
    assert item.target == [[4, 4, 5, 5]] and item.traits == {"label": "pet"}
    assert item_of({"boxes": {"cat": [0, 0, 3, 3]}}).target == [[0, 0, 3, 3]]
    assert item_of({"boxes": {"cat": [0, 0, 3, 3], "dog": [4, 4, 5, 5]}}).target == [] and item_of({}).traits == {}


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"boxes": {"cat": [0, 0, 9, 3]}}, "is not inside of its picture of 8 x 8"),
        ({"boxes": {"cat": [4, 0, 3, 3]}}, "is not inside"),
        ({"boxes": {"cat": "0 0 3 3"}}, "boxes are"),
        ({"boxes": [0, 0, 3]}, "boxes are"),
        ({"boxes": {"cat": [0, 0, 3, 3]}, "about": "dog"}, "about 'dog', which has no box; boxes has cat"),
    ],
)
def test_boxes_that_are_none(meta, message):
    with pytest.raises(UserError, match=message):
        _ = item_of(meta).target


def test_a_probe_reads_what_is_there_and_not_what_is_not():
    rng = np.random.default_rng(0)
    labels = [str(x) for x in rng.integers(0, 3, 300)]
    states = rng.normal(size=(300, 8))
    states[:, 2] += [3.0 * int(x) for x in labels]
    right = look.probe_right(states[:200], labels[:200], states[200:], labels[200:])
    shuffled = [labels[i] for i in rng.permutation(200)]
    wrong = look.probe_right(states[:200], shuffled, states[200:], labels[200:])
    assert np.mean(right) > 0.85 and np.mean(wrong) < 0.55 and len(right) == 100
    assert look.probe_right(states[:9], ["a"] * 9, states[9:], ["a"]) == []  # one class: nothing to tell apart


def test_the_map_of_a_gradient_by_hand(tmp_path):
    """2 x 2 patches of a picture of 4 x 4 in grey 100: half of it is 50, of the hottest patch (50 + 127, 50 + 48, 50)."""
    picture = Picture(shape=(4, 4, 3), data=bytes([100] * 48))
    drawn = heat_map(picture, [0.0, 2.0, 0.0, 1.0], (2, 2), [[0, 0, 0, 0]])
    assert drawn[0, 3].tolist() == [177, 98, 50] and drawn[3, 3].tolist() == [113, 74, 50]
    assert drawn[3, 0].tolist() == [50, 50, 50] and drawn[0, 0].tolist() == [255, 255, 255]
    task = Task(id="a", prompt=(Message(role="user", content="\ufffc?", pictures=(picture,)),), answer="")
    looks = {
        n: {"drawn": [{"task": "a", "grid": [2, 2], "gradient": g}]}
        for n, g in (("start", [1, 0, 0, 0]), ("dpo", [0] * 4))
    }
    assert draw_maps([SeenItem(task, picture)], looks, tmp_path / "maps.png") == ["picture", "start", "dpo"]
    assert Image.open(tmp_path / "maps.png").size == (3 * 164, 164)
    assert draw_maps([SeenItem(task, picture)], {"start": {}}, tmp_path / "none.png") == []
    assert not (tmp_path / "none.png").exists()


def test_findings_compare_the_same_pictures():
    """DPO reads 8 of 10 and SFT 4 of 10, never one that DPO does not; where a gradient is 0 the pair is left out."""
    sft = {"probe_x": [True] * 4 + [False] * 6, "ranked": [True] * 10, "nll": [1.0], "moved": 0.1, "kinds": ["k"] * 10}
    sft = {**sft, "answered": [True] * 10, "by_encoder": [0.0]}
    dpo = {**sft, "probe_x": [True] * 8 + [False] * 2, "moved": 0.2}
    sft, dpo = {**sft, "local": [0.1, None, 0.3], "area": [0.2]}, {**dpo, "local": [0.3, 0.9, 0.4], "area": [0.2]}
    numbers = findings.numbers_of({"start": {**sft, "moved": 0.0}, "sft": sft, "dpo": dpo}, {})
    assert numbers["encoder_moved"] == 0.2 and numbers["probe_x_dpo"].mean == pytest.approx(0.8)
    assert numbers["localisation_dpo_less_sft"].mean == pytest.approx(0.15)
    assert numbers["probe_x_dpo_less_sft"].mean > 0.2 and numbers["ranked_dpo_less_sft"].mean == pytest.approx(0)


PALE = {"answered": [False] * 20, "ranked": [True] * 20, "nll": [1.0], "moved": 0.0, "kinds": ["a", "b"] * 10}
PALE = {**PALE, "by_encoder": [0.0] * 20}


def test_dpo_is_compared_with_imitation_of_both_and_with_a_random_rejected_reply():
    """DPO answers all 20, random 19, and the others none."""
    dpo = {**PALE, "answered": [True] * 20, "by_encoder": [0.5, 1.5] * 10}
    random = {**PALE, "answered": [False, *[True] * 19]}
    looks = {"start": PALE, "sft": PALE, "both": PALE, "dpo": dpo, "random": random}
    numbers = findings.numbers_of(looks, {"dpo": dpo})
    for other, gap in (("sft", 1.0), ("both", 1.0), ("random", 1 / 20)):
        a = [float(x) for x in looks[other]["answered"]]
        assert numbers[f"answered_dpo_less_{other}"] == pl.stats.paired_share_difference(a, [1.0] * 20)
        assert np.mean(dpo["answered"]) - np.mean(a) == pytest.approx(gap)
    told = " ".join(findings.tell(numbers, looks, {}))
    assert "DPO is above SFT in questions answered right" in told
    assert "DPO is not told apart from DPO with a random rejected reply in questions answered right" in told
    assert numbers["margin_by_encoder"] == 1.0 and numbers["answered_on_dpo"].mean == 1
    alone = findings.numbers_of({"start": PALE, "frozen": PALE}, {})
    assert alone["margin_by_encoder"] == 0 and not any("less" in k for k in alone)
    # where SFT alone moved the encoder, nothing was compared
    assert (
        findings.numbers_of({"start": PALE, "sft": {**PALE, "moved": 9.0, "by_encoder": [3.0]}}, {})[
            "margin_by_encoder"
        ]
        == 0
    )


def test_answers_are_told_by_the_kind_of_question():
    look_ = {**PALE, "answered": [True, True, True, False] * 5}
    numbers = findings.numbers_of({"start": PALE, "sft": look_}, {"sft": look_})
    shares = {k: numbers[k].mean for k in ("answered_sft", "answered_a_sft", "answered_b_sft", "answered_b_on_sft")}
    assert shares == {"answered_sft": 0.75, "answered_a_sft": 1.0, "answered_b_sft": 0.5, "answered_b_on_sft": 0.5}
    (table,) = findings.kind_table({"sft": look_})
    assert list(table.columns)[1:] == ["a", "b"]
    assert findings.kind_table({"sft": {**look_, "kinds": ["a"] * 20}}) == []


def scene_at(i):
    return Scenes().task("train", i)


class Leaking:
    """Six training items; of four held-out ones the first and the third show a picture of training."""

    name, size, test_size = "leaking", 6, 4

    def __init__(self, **meta):
        self.meta = meta

    def task(self, split, index):
        own = scene_at({0: 5, 1: 20, 2: 0, 3: 21}[index] if split == "test" else index)
        meta = {**own.meta, **self.meta} if split == "test" else own.meta
        return replace(own, id=f"{split}-{index}", meta=meta)


def test_no_item_is_measured_whose_picture_training_shows(context):
    ctx = context("scenes")
    leaking = ctx.with_bench(replace(ctx.bench, tasks=Leaking()))
    assert look.unseen_numbers(leaking, 4) == {"numbers": [1, 3], "dropped": 2}
    assert look.unseen_numbers(leaking, 1) == {"numbers": [1], "dropped": 1}
    assert [x.task.id for x in look.read_items(leaking, 1, "test", (1, 3))] == ["test-1", "test-3"]
    for rejected in (None, " "):
        without = ctx.with_bench(replace(ctx.bench, tasks=Leaking(rejected=rejected)))
        with pytest.raises(UserError, match="'test-1' has no text in `rejected`, the reply that is worse"):
            look.unseen_numbers(without, 4)

    class Known(Leaking):
        def task(self, split, index):
            return super().task("train", index)

    with pytest.raises(UserError, match="each of the 4 held-out items shows a picture of training"):
        look.unseen_numbers(ctx.with_bench(replace(ctx.bench, tasks=Known())), 4)


def test_greedy_answers_are_judged_by_the_chosen_reply(context):
    """A model is asked greedily, so what it says is what a sample without temperature says, and that is right."""
    ctx = context("scenes")
    ctx.model("policy").add_eyes()
    task = scene_at(0)
    sample = pl.Sample(n=1, temperature=0.0)
    group = asyncio.run(sample(ctx, ("x",), pl.Group(task=task)))
    said = pl.response_text(group.episodes[0])
    assert said.strip()
    own = replace(task, meta={**task.meta, "chosen": said})
    ctx = context("scenes")
    ctx.model("policy").add_eyes()
    assert asyncio.run(look.greedy_right(ctx, [own, task])) == [True, False]


def test_the_part_of_the_margin_that_is_the_encoders(context):
    """With the encoder of another model the sums are that model's where nothing else differs; behind, all is as before."""
    one, two = context("scenes"), context("scenes")
    for ctx in (one, two):
        ctx.model("policy").add_eyes()
    changed = pl.models.encoder_weights(two.model("policy"))
    with torch.no_grad():
        for p in changed.values():
            p.mul_(1.5)
    groups = [look.recorded_pair(one, scene_at(i)) for i in range(3)]
    before, other = look.reply_sums(one, groups), look.reply_sums(two, groups)
    with look.encoder_of(two.model("policy"), one.model("policy")):
        assert look.reply_sums(one, groups) == other != before
    assert look.reply_sums(one, groups) == before


def test_a_model_without_eyes_is_told_of(context, tmp_path):
    from palaestra.recipes.multimodal.pivot import program

    said = []
    ctx = context("scenes")
    ctx.say, ctx.out = said.append, tmp_path
    for new in (1, 0):
        result = asyncio.run(program.KeepStart().run(ctx))
        assert result.metrics == {"new_eyes": new}
    assert len(said) == 1 and "sees no pictures, so it got new eyes, which are not trained" in said[0]
    report = findings.report("q", {"start": PALE}, {}, {}, {}, [program.NEW_EYES])
    assert report.findings[0] == program.NEW_EYES


def test_scenes_are_as_they_are_described():
    source, seen = Scenes(), {"train": set(), "test": set()}
    for split, layouts in seen.items():
        for i in range(60):
            task = source.task(split, i)
            pixels = np.frombuffer(task.prompt[0].pictures[0].data, np.uint8).reshape(32, 32, 3)
            lit = (pixels != (20, 20, 30)).any(2)
            for left, top, right, bottom in task.meta["boxes"].values():
                box = lit[top : bottom + 1, left : right + 1]
                assert box.any(0).all() and box.any(1).all()  # a shape reaches every side of its box
                lit = lit.copy()
                lit[top : bottom + 1, left : right + 1] = False
            assert not lit.any()  # and nothing lies outside
            assert source.check(task.meta["chosen"], task) == 1 == source.check(f" {task.answer}\n", task)
            assert not source.check(task.meta["rejected"], task) and not source.check("", task)
            assert task.domain in KINDS and task.meta["rejected"] != task.meta["chosen"]
            layouts.add(Scenes(asks="caption").task(split, i).answer)
    assert not seen["train"] & seen["test"]


def test_answers_about_a_scene_by_eye():
    figures = {
        "circle": Figure("circle", "red", "small", 0, 0),
        "square": Figure("square", "red", "large", 20, 20),
        "triangle": Figure("triangle", "blue", "small", 24, 2),
    }
    from palaestra.toys import scenes

    asked = {kind: scenes.ask_scene(kind, figures, pl.rng_of((kind,))) for kind in (*KINDS, "caption")}
    for kind, (question, right, _, about) in asked.items():
        first = question.split()[{"colour": -1, "where": -1, "size": -1, "left": 0}.get(kind, -1)]
        if kind in ("colour", "size", "where"):
            assert right == getattr(figures[first], kind) and about == [first]
    question, right, _, _ = asked["left"]
    one, other = question.split()[0], question.split()[-1]
    assert right == ("yes" if figures[one].left < figures[other].left else "no")
    question, right, _, about = asked["count"]
    assert right == str({"red": 2, "blue": 1}.get(question.split()[-1], 0)) and len(about) == int(right)
    assert asked["caption"][1] == "red top left, red bottom right, blue top right"
    assert draw_scene(tuple(figures.values())).shape == (32, 32, 3)


def test_what_a_user_may_get_wrong():
    with pytest.raises(UserError, match="arms: 'ppo' is unknown"):
        pivot.build(arms="sft,ppo")
    with pytest.raises(UserError, match="arms is empty"):
        pivot.build(arms=" ,")
    with pytest.raises(UserError, match="attach: 'dqo'"):
        pivot.build(attach="dqo")
    with pytest.raises(UserError, match="media"):
        pivot.build(media="gone")
    assert pivot.build(arms="dpo").attach == ("start", "dpo")  # of the default, what there is


@pytest.mark.slow
def test_a_study_of_a_user(tmp_path):
    """Two arms on a file with other names; all numbers of the report are there, and the encoder that is put on the
    fresh model does not move while that learns."""
    rows = [
        {
            "image": f"{i}.png",
            "prompt": f"what is in the middle? ({i})",
            "chosen": "a cat",
            "rejected": "a dog",
            "traits": {"kind": "ab"[i % 2]},
            "boxes": {"it": [8, 8, 20, 20]},
        }
        for i in range(16)
    ]
    for i in range(16):  # each its own, as pictures that are fitted to are not measured on
        pixels = np.frombuffer(Scenes().task("train", i).prompt[0].pictures[0].data, np.uint8)
        Image.fromarray(pixels.reshape(32, 32, 3)).save(tmp_path / f"{i}.png")
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    captions = [{"image": r["image"], "prompt": "What is shown?", "answer": "a cat on a mat"} for r in rows]
    (tmp_path / "captions.jsonl").write_text("".join(json.dumps(r) + "\n" for r in captions))
    settings = {"arms": "sft,dpo", "attach": "dpo", "prompts": 2, "updates": 2, "fresh_updates": 2, "held": 4}
    settings["caption_data"] = str(tmp_path / "captions.jsonl")
    run = pl.train("pivot", data=str(file), out=tmp_path / "run", set=settings, evaluate=0, quiet=True)
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["moved_start"] == 0 and summary["moved_sft"] > 0 and summary["moved_dpo"] > 0
    assert {"localisation_dpo", "localisation_by_chance", "ranked_on_dpo", "nll_on_dpo"} <= summary.keys()
    assert Image.open(run.folder / "gradients.png").size == (4 * 164, 2 * 164)  # picture, start, sft, dpo
    asked = lambda n: {"What is shown?" in r["prompt"] for r in rollouts_in(run.folder / n)}
    assert asked("projector-dpo") == {True} and asked("tune-dpo") == {False}
    assert 'href="gradients.png"' in (run.folder / "study.html").read_text()
    eyes = {n: encoder_in(run.folder / n) for n in ("dpo", "tune-dpo")}
    assert eyes["dpo"].keys() == eyes["tune-dpo"].keys() and len(eyes["dpo"]) > 4
    for name, w in eyes["dpo"].items():
        assert torch.equal(w, eyes["tune-dpo"][name])


def rollouts_in(folder):
    return [row for file in folder.glob("rollouts/*.parquet") for row in pq.read_table(file).to_pylist()]


def encoder_in(folder):
    from safetensors.torch import load_file

    last = max((folder / "checkpoints").glob("step-*"), key=lambda p: int(p.name.rpartition("-")[2]))
    (file,) = last.rglob("heads.safetensors")
    return {n: w for n, w in load_file(file).items() if n.startswith("eyes.") and not n.startswith("eyes.out")}
