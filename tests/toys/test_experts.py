"""Photos and words: each task's plan earns 1, a damage that is not mended costs, and its order matters."""

import asyncio

import palaestra as pl
from palaestra.run.benches import bench_by_name
from palaestra.toys.experts import PLANS, drawing, lighten, name, spoil
from palaestra.types import rng_of

WORLD = bench_by_name("experts")[0].world


def first(text):
    tasks = pl.toys.ExpertTasks()
    return next(
        t for split in ("train", "test") for i in range(600) if (t := tasks.task(split, i)).prompt[0].content == text
    )


def score(text, *plan):
    return asyncio.run(WORLD.score(first(text), plan))[0]


def test_the_plan_of_each_description_earns_1():
    tasks = pl.toys.ExpertTasks()
    for i in range(40):
        task = tasks.task("train", i)
        assert asyncio.run(WORLD.score(task, tuple(task.meta["plan"])))[0] == 1, task


def test_held_out_plans_are_not_trained_on():
    """By hand: 8 damages with 8 styles, 7 that end with a photo, 8 codes; 16 orders of the words of each."""
    tasks = pl.toys.ExpertTasks()
    train, test = ({tuple(tasks.task(s, i).meta["plan"]) for i in range(300)} for s in ("train", "test"))
    assert test and not train & test
    assert len(PLANS) == 16 * 16 + 15 + 16 and len(set(PLANS.values())) == 79


def test_the_order_of_mending_matters():
    """Rounding a dark photo makes it black; a mirrored shape has another name."""
    assert score("dark noisy photo to photo", "lighten", "denoise") == 1
    assert score("dark noisy photo to photo", "denoise", "lighten") < 0.9
    assert score("mirrored photo to name", "name") < 0.5
    assert score("photo to loud german name", "name", "loud", "german") < 0.8
    assert score("photo to loud german name", "name", "german", "loud") == 1


def test_a_photo_is_spoiled_as_its_description_says():
    clean, rng = drawing("hook"), rng_of(("t",))
    assert (spoil("hook", "photo to name", rng) == clean).all()
    assert (lighten(spoil("hook", "dark photo", rng)) == clean).all()
    assert name(spoil("hook", "mirrored photo", rng)) == "cane"
    assert spoil("hook", "coded word to word", rng) == "ubbx"
