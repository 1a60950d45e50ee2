"""UI-R1: the catalogue's values by hand, which answers are right, and which screens are chosen."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import palaestra
import pytest
from palaestra.cli.main import main
from palaestra.credit.length import length_terms
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.pictures import Picture
from palaestra.recipes.multimodal import ui_r1
from palaestra.run.benches import from_data
from palaestra.step import start, step
from palaestra.store.codec import decode, encode
from palaestra.toys.screen import ACTIONS, Screen, action_parts, point_in_box, read_action
from palaestra.types import Message, Task

from tests.recipes.objectives.helpers import advantages, near
from tests.vision import noise, save_tiny

BOX = (400, 40, 420, 60)


def said(action, point, form="<think>t</think><answer>[{{'action': '{}', 'coordinate': [{},{}]}}]</answer>"):
    return form.format(action, *point)


def test_a_point_is_scaled_and_cut_before_it_is_looked_for():
    """(330, 41) at (1.25, 1.25) is (412, 51), inside of [400, 40, 420, 60]."""
    assert (int(330 * 1.25), int(41 * 1.25)) == (412, 51)
    assert point_in_box((330, 41), BOX, (1.25, 1.25))
    # borders are inside, and cutting leads to the top left
    assert point_in_box((320, 32), BOX, (1.25, 1.25)) and point_in_box((336, 48), BOX, (1.25, 1.25))
    assert not point_in_box((319, 32), BOX, (1.25, 1.25)) and not point_in_box((337, 48), BOX, (1.25, 1.25))
    assert point_in_box((420, 60), BOX) and not point_in_box((421, 60), BOX)
    assert point_in_box((336, 41), (400, 40, 420, 60), (1.2529, 1.25))  # 420.97 is cut to 420


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (said("click", (330, 41)), "click", (1, 1, 1)),
        (said("click", (100, 41)), "click", (1, 0, 1)),
        (said("scroll", (330, 41)), "click", (0, 0, 1)),
        (said("scroll", (0, 0)), "scroll", (1, 1, 1)),  # no point is asked for
        ("<think>t</think><answer>{action: click, [330,41]}</answer>", "click", (1, 1, 1)),
        ('<think>t</think><answer>{"action": "click", "coordinate": [330, 41]}</answer>', "click", (1, 1, 1)),
        ("<answer>action: click [330,41]</answer>", "click", (1, 1, 0)),
        ("x <think>t</think><answer>action: click [330,41]</answer>", "click", (1, 1, 0)),
        ("<think>t</think><answer>action: click [330,41]</answer> x", "click", (1, 1, 0)),
        ("<think>action: click [330,41]</think><answer></answer>", "click", (0, 0, 1)),
        ("<think>t</think><answer>action: click</answer>", "click", (1, 0, 1)),  # (0, 0)
        ("<think>t</think><answer>action: scroll, action: click [330,41]</answer>", "click", (0, 0, 1)),
        ("<think>t</think><answer>action: click [1,1] [330,41]</answer>", "click", (1, 0, 1)),
        ("action: click [330,41]", "click", (0, 0, 0)),
        ("<think>t</think><answer>nothing</answer>", "click", (0, 0, 1)),
        ("", "click", (0, 0, 0)),
    ],
)
def test_what_an_answer_is_worth(text, kind, expected):
    assert tuple(action_parts(text, kind, BOX, (1.25, 1.25)).values()) == expected


def test_without_thoughts_the_form_is_an_answer_alone():
    text = "<answer>action: click [330,41]</answer>"
    assert action_parts(text, "click", BOX, (1.25, 1.25), thinking=False)["format"] == 1
    assert action_parts(f"<think>t</think>{text}", "click", BOX, (1.25, 1.25), thinking=False)["format"] == 0


def test_an_answer_without_a_pair_points_at_the_corner():
    assert read_action("<answer>action: click</answer>") == ("click", (0, 0))
    assert read_action("") == ("", (0, 0))


@pytest.mark.parametrize(
    ("rewards", "lengths", "totals"),
    [
        ((3, 3, 2, 1), (40, 80, 60, 100), (3.75, 3.5, 1.675, 0.9)),
        ((1, 1, 1, 1), (50, 100, 50, 100), (0.45, 0.9, 0.45, 0.9)),  # longer is preferred on hard items
        ((3, 3, 3, 3), (20, 40, 60, 80), (3.8, 3.6, 3.4, 3.2)),
    ],
)
def test_length_terms(rewards, lengths, totals):
    terms = length_terms(np.array(rewards, float), np.array(lengths, float), 3.0, -0.5, 0.5)
    assert list(np.array(rewards) + terms) == near(totals, 1e-9)


def test_advantages_with_and_without_the_length_term():
    """Rewards 3 3 2 1: mean 2.25, std .957427; with lengths 40 80 60 100 of 3.75 3.5 1.675 .9: mean 2.45625, std 1.384726."""
    answers = [{"reward": r, "length": n} for r, n in zip((3, 3, 2, 1), (40, 80, 60, 100), strict=True)]
    plain = list(advantages(ui_r1.build(kl=0.0), *answers))
    assert plain == near([0.783267, 0.783267, -0.261089, -1.305445], 1e-5)
    totals = np.array([3.75, 3.5, 1.675, 0.9])
    term = list(advantages(ui_r1.build(kl=0.0, length=True), *answers))
    assert term == near((totals - totals.mean()) / (totals.std(ddof=1) + 1e-4), 1e-6)


def test_parts_that_do_not_count_are_told():
    task = Screen().task("train", 0)
    right = Screen().demonstration(task, None, "work")
    reward = ui_r1.ActionReward().judge(right, task)
    assert (reward.total, reward.solved, dict(reward.parts)) == (3, True, {"type": 1, "point": 1, "format": 1})
    assert ui_r1.ActionReward(("type", "format")).judge(right, task).total == 2
    with pytest.raises(UserError, match="parts"):
        ui_r1.ActionReward(("typo",))
    with pytest.raises(UserError, match="no action on a screen"):
        ui_r1.ActionReward().judge("", Task(id="x"))


def test_wrong_screens_are_chosen_kind_by_kind():
    kinds = ["click", "click", "click", "scroll", "open_app", "scroll", "click"]
    rates = np.array([0, 0, 0, 0, 1, np.nan, 0])
    assert ui_r1.choose_by_kind(kinds, rates, 3) == [0, 3, 1]
    assert ui_r1.choose_by_kind(kinds, rates, 6) == [0, 3, 1, 2, 6, 4]


def test_few_screens_come_once_an_epoch(context):
    ctx, state, seen = context("screen"), {}, []
    draw = ui_r1.FewScreens(5, "first", 5)
    for i in range(4):
        tasks, state = asyncio.run(draw(ctx, ("k", i), 5, state))
        seen.append([t.id for t in tasks])
    assert len(set(map(tuple, seen))) > 1 and all(len(set(ids)) == 5 for ids in seen)
    assert {i for ids in seen for i in ids} == {f"screen/train/{i}" for i in range(5)}
    with pytest.raises(UserError, match="cannot be chosen"):
        ui_r1.FewScreens(9, "first", 5)


def test_no_layout_is_in_both_splits_and_themes_and_blind_ones_are_the_same_screens():
    def layout(t):
        pixels = np.frombuffer(t.prompt[0].pictures[0].data, np.uint8).reshape(32, 32, 3)
        lit = (pixels.reshape(4, 8, 4, 8, 3) != (20, 20, 30)).any((1, 3, 4))
        return tuple(np.flatnonzero(lit).tolist())

    train, test = ({layout(Screen().task(s, i)) for i in range(150)} for s in ("train", "test"))
    assert len(train) > 60 and len(test) > 8 and not train & test
    for i in range(5):
        one, light, blind = (Screen(**o).task("test", i) for o in ({}, {"theme": "light"}, {"blind": True}))
        assert one.meta == light.meta == blind.meta and one.prompt != light.prompt
        assert blind.prompt[0].content == one.prompt[0].content[1:] and not blind.prompt[0].pictures
    kinds = [Screen().task("train", i).meta["action"] for i in range(300)]
    assert set(kinds) == set(ACTIONS) and 0.4 < kinds.count("click") / 300 < 0.6


def test_the_middle_of_every_widget_is_right_and_the_next_cell_is_wrong():
    for i in range(40):
        task = Screen(widgets=4).task("train", i)
        right = Screen().demonstration(task, None, "work")
        assert Screen().check(right, task) == {"type": 1, "point": 1, "format": 1, "total": 1, "solved": 1}
        cell = task.meta["cell"]
        moved = right.replace(f"[{4 * (cell % 4) + 2},", f"[{(4 * (cell % 4) + 6) % 16},")
        assert moved != right
        assert Screen().check(moved, task)["solved"] == float(task.meta["action"] != "click")


def test_a_run_sees_the_same_pixels_after_a_checkpoint(context, small):
    """Two steps with a lag of one, so that rows with pictures wait in the state: the second gives the same
    whether or not the state has been written and read in between, by a process that has seen no picture."""

    def recipe():
        made = small(ui_r1.build(kl=0.0, items=0))
        return replace(made, schedule=replace(made.schedule, prompts=2, lag=1))

    from palaestra.run.driver import prepare

    def begin():
        ctx = context("screen")
        prepare(recipe(), ctx)
        return ctx

    ctx = begin()
    state, _ = asyncio.run(step(recipe(), ctx, start(0)))
    weights = {k: v.clone() for k, v in ctx.model("policy").named_trainable().items()}
    optimiser = ctx.optimiser_state("policy")
    import copy

    optimiser = copy.deepcopy(optimiser)
    waiting = [e for groups in state["queue"] for g in groups for e in g.episodes]
    assert waiting and all(len(e.rows[0].pictures) == 1 for e in waiting)
    plain, tensors = encode(state)
    on, _ = asyncio.run(step(recipe(), ctx, state))

    other = begin()
    for k, v in other.model("policy").named_trainable().items():
        v.data.copy_(weights[k])
    other.optimisers["policy"].load_state_dict(optimiser)
    again, _ = asyncio.run(step(recipe(), other, decode(plain, tensors)))

    def without_clock(state):
        groups = lambda found: [replace(g, episodes=[replace(e, seconds=0.0) for e in g.episodes]) for g in found]
        return encode({**state, "queue": [groups(found) for found in state["queue"]]})[0]

    assert without_clock(again) == without_clock(on)
    for k, v in other.model("policy").named_trainable().items():
        assert v.equal(ctx.model("policy").named_trainable()[k]), k


def test_it_learns_screens_where_nothing_is_said(tmp_path):
    assert main(["train", "ui-r1", "--smoke", "--out", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["task"] == "screen" and summary["steps"] == 2


def test_a_start_with_eyes_keeps_them(context, small, tmp_path):
    """The eyes that a run has trained are those that another begins with."""
    import palaestra as pl

    ctx = context("screen", out=tmp_path, evaluate=0, steps=1)
    shown = small(pl.vary(pl.recipe("sft"), heads=("eyes",)))
    result = asyncio.run(shown.run(ctx))
    found = load(result.artifacts["policy"])
    assert found.eyes is not None
    for name, p in ctx.model("policy").eyes.named_parameters():
        assert p.equal(dict(found.eyes.named_parameters())[name])
    fresh = load("tiny")
    fresh.add_head("eyes")
    assert not fresh.eyes.patch.weight.equal(found.eyes.patch.weight)


@pytest.mark.parametrize("choice", ["hard", "first"])
def test_a_file_of_fewer_screens_gives_all_of_them(context, tmp_path, choice):
    """`train ui-r1 --data F` asked for task 408 of a short file, and found no reward there."""
    rows = [{"prompt": f"press {i}", "action": "click", "box": [0, 0, 4, 4]} for i in range(6)]
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    bench = from_data(str(tmp_path / "f.jsonl"), "", "", judged=True)
    ctx = context("screen")
    ctx = ctx.with_bench(bench)
    tasks, state = asyncio.run(ui_r1.FewScreens(choice=choice)(ctx, ("k",), 4, {}))
    size = bench.tasks.size
    assert len(tasks) == 4 and sorted(state["chosen"]) == list(range(size))


def test_a_file_without_actions_is_refused_with_the_column(tmp_path):
    (tmp_path / "f.jsonl").write_text("".join(f'{{"prompt": "press {i}", "answer": "1"}}\n' for i in range(12)))
    with pytest.raises(UserError, match="needs the column 'action'"):
        palaestra.train("ui-r1", data=str(tmp_path / "f.jsonl"), out=tmp_path / "run", quiet=True)


def own_screen(size, box=(10, 20, 40, 60), **meta):
    width, height = size
    picture = Picture(shape=(height, width, 3), data=bytes(height * width * 3))
    prompt = (Message(role="user", content="\ufffcpress", pictures=(picture,)),)
    return Task(id="s", prompt=prompt, meta={"action": "click", "box": box, **meta})


def test_points_are_moved_by_the_size_of_the_screen(context):
    """A file of 1080 x 2400 is read as 670 x 1490: (335, 745) there is (540, 1200) of the file."""
    ctx, reward = context("screen"), ui_r1.ActionReward()
    task = own_screen((670, 1490), (530, 1190, 550, 1210), screen_size=[1080, 2400])
    scale = reward.scale_of(task, ctx)
    assert scale == near((1080 / 670, 2400 / 1490), 1e-9)
    assert reward.judge(said("click", (335, 745)), task, scale).solved
    assert not reward.judge(said("click", (540, 1200)), task, scale).solved
    thousandths = ui_r1.ActionReward(thousandths=True)
    assert thousandths.scale_of(task, ctx) == near((1.08, 2.4), 1e-9)
    assert thousandths.judge(said("click", (500, 500)), task, thousandths.scale_of(task, ctx)).solved
    assert reward.scale_of(own_screen((64, 90)), ctx) == (1, 1)
    assert reward.scale_of(own_screen((64, 90), scale=[2, 3]), ctx) == (2, 3)


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (own_screen((670, 1490)), "may have been larger; give the screen's own"),
        (own_screen((64, 90), (10, 20, 65, 60)), r"64 x 90 pixels, and the box \[10, 20, 65, 60\] reaches beyond it"),
        (own_screen((64, 90), (40, 60, 10, 20)), r"write \[left, top, right, bottom\]"),
        (own_screen((64, 90), (10, 20, 40)), r"write \[left, top, right, bottom\]"),
        (own_screen((64, 90), (0.1, 0.2, 0.3, 1)), "which are shares of the screen; multiply them"),
        (own_screen((64, 90), action="tap"), "the action is 'tap'"),
        (own_screen((64, 90), scale=[0, 1]), "scale is .* two numbers above 0"),
        (own_screen((64, 90), screen_size=[64]), "screen_size is .* two numbers above 0"),
    ],
)
def test_screens_that_no_answer_can_match_are_refused(context, task, why):
    with pytest.raises(UserError, match=why):
        ui_r1.ActionReward().scale_of(task, context("screen"))


def test_of_a_model_with_grids_a_point_is_in_what_its_processor_makes(tmp_path):
    """40 x 60 pixels become a grid of whole patches, in which the model says its points."""
    model = load(save_tiny("qwen2_5_vl", tmp_path))
    picture = noise(1)
    rows, columns = model.sight.grid(picture)
    vision = model.causal.config.vision_config
    side = vision.patch_size * vision.spatial_merge_size
    ctx = SimpleNamespace(model=lambda name: model, bench=SimpleNamespace(tasks=None))
    assert ui_r1.shown_size(ctx, picture) == (columns * side, rows * side)
    task = replace(own_screen((60, 40)), prompt=(Message(role="user", content="\ufffc", pictures=(picture,)),))
    task = replace(task, meta={"action": "click", "box": (10, 10, 20, 20)})
    assert ui_r1.ActionReward().scale_of(task, ctx) == near((60 / (columns * side), 40 / (rows * side)), 1e-9)
    assert (columns * side, rows * side) != (60, 40)
