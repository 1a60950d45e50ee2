"""The atlas: directions are those of the update, equal methods coincide, distances are kept, the page says what is there."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from palaestra import catalogue
from palaestra.atlas import directions, pages
from palaestra.cli.main import main
from palaestra.explanation import given
from palaestra.explanation.method import explain
from palaestra.models.load import load, trainable_copy
from palaestra.recipes.base import grpo, reinforce, rloo, sft
from palaestra.run.parts import Parts
from palaestra.terminal.progress import Headway
from palaestra.values import vary

SILENT = lambda: None


@pytest.fixture(scope="module")
def start():
    return load("tiny")


@pytest.fixture(scope="module")
def mixed(start):
    bench, groups = directions.sample_groups(start, "chain", 10)
    some = [g for g in groups if len({e.total for e in g.valid}) > 1][:3]
    return directions.FixedBatch(about="", bench=bench, groups=some)


def test_the_direction_is_that_of_the_objective(start, mixed):
    """A small step along it lowers the loss by its squared length times the step."""
    ctx = directions.context(mixed.bench, trainable_copy(start))
    found = given.credit_groups(rloo.build(), given.prepare_context(rloo.build(), ctx), mixed.groups)
    moved = given.direction(found, ctx)
    batch = given.pack(found.examples, "policy")
    objective = found.learner.objective
    loss = lambda: objective(ctx.forward("policy", objective.needs)(batch), batch)[0].item()
    before, step, at = loss(), 1e-5, 0
    with torch.no_grad():
        for p in ctx.model("policy").trainable():
            p += step * torch.from_numpy(moved[at : at + p.numel()]).reshape(p.shape).float()
            at += p.numel()
    assert at == len(moved)
    assert before - loss() == pytest.approx(step * float(moved @ moved), rel=0.1)


def test_a_chart(start, mixed):
    """A positive factor is no other direction, a negative one the opposite; who learns nothing is still."""
    recipe = rloo.build()
    double = vary(recipe, objective=2.0 * recipe.learners["policy"].objective)
    against = vary(recipe, objective=-1.0 * recipe.learners["policy"].objective)
    nothing = vary(recipe, objective=0.0 * recipe.learners["policy"].objective)
    recipes = {"rloo": recipe, "double": double, "against": against, "nothing": nothing, "sft": sft.build(), "odd": 3}
    done = []
    found = directions.chart(mixed, start, recipes, lambda: done.append(1))
    assert len(done) == len(recipes)
    assert found.methods == ["rloo", "double", "against"] and found.still == ["nothing"]
    assert found.cosine == pytest.approx(np.array([[1, 1, -1], [1, 1, -1], [-1, -1, 1]]), abs=1e-5)
    assert found.norms[1] == pytest.approx(2 * found.norms[0], rel=1e-5)
    assert "not plain samples" in found.refused["sft"] and "no RL recipe" in found.refused["odd"]


def test_equal_rewards_move_only_some(start, mixed):
    solved = [replace(g, episodes=tuple(e for e in g.valid if e.total == 1)[:1] * 2) for g in mixed.groups]
    found = directions.chart(replace(mixed, groups=solved), start, {"grpo": grpo.build(), "rloo": rloo.build()}, SILENT)
    assert found.methods == [] and set(found.still) == {"grpo", "rloo"}


def test_other_weights_give_other_ratios(start, mixed):
    weights = directions.drift_weights(start, mixed.bench, mixed.groups)
    old = dict(start.named_trainable())
    assert any((weights[n] - old[n]).abs().max() > 1e-5 for n in weights)
    recipes = {
        "grpo": grpo.build(),
        "plain": vary(grpo.build(), objective=reinforce.build().learners["policy"].objective),
    }
    found = directions.chart(replace(mixed, weights=weights), start, recipes, SILENT)
    assert found.cosine[0, 1] < 0.999


def test_a_stopped_survey_makes_no_chart_twice(start, mixed, tmp_path, monkeypatch):
    monkeypatch.setattr(directions, "batches", lambda *_: {"first": mixed, "second": mixed})
    chart, charted = directions.chart, []

    def stop_at_second(*given):
        charted.append(1)
        if len(charted) == 2:
            raise KeyboardInterrupt
        return chart(*given)

    monkeypatch.setattr(directions, "chart", stop_at_second)
    said = []
    survey = lambda: directions.survey(["grpo", "rloo"], Parts(Headway("atlas", said.append), tmp_path / "p", {}))
    with pytest.raises(KeyboardInterrupt):
        survey()
    monkeypatch.setattr(directions, "chart", lambda *given: charted.append(2) or chart(*given))
    found = survey()
    assert charted == [1, 1, 2] and "2/4" in said[-2] and said[-1].startswith("atlas  4/4")
    assert found["batches"]["first"] == found["batches"]["second"]
    assert found["batches"]["first"]["methods"] == ["grpo", "rloo"]
    assert found == directions.survey(["grpo", "rloo"], Parts(Headway("atlas", said.append)))  # in one go


def test_methods_none_of_which_moves_have_no_map():
    data = {"families": {"a": "base"}, "batches": {"solved": {"methods": [], "cosine": [], "still": ["a"]}}}
    ((family, part),) = pages.parts(data, "solved")
    assert family == "base" and part["methods"] == [] and part["still"] == ["a"]


def test_classical_scaling_keeps_distances():
    angle = np.array([0.0, 0.5, 2.0, 3.0])
    cosine = np.cos(angle[:, None] - angle[None])
    places, kept = pages.classical_scaling(cosine)
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    assert distance == pytest.approx(np.sqrt(2 - 2 * cosine), abs=1e-7) and kept == pytest.approx(1)
    assert pages.classical_scaling(np.ones((1, 1)))[0].tolist() == [[0.0, 0.0]]


def test_a_label_of_many_names_is_short():
    assert pages._label(list("abcdefgh")) == "a = b\n= c = d\n= e = f\n= 2 more" and pages._label(["a"]) == "a"


def test_methods_alike_are_linked():
    cosine = np.array([[1, 0.2, 0.9995], [0.2, 1, 0.1], [0.9995, 0.1, 1]])
    assert pages.group_by_direction(["a", "b", "c"], cosine) == [["a", "c"], ["b"]]


def chart(methods, cosine, **more):
    data = {"about": "as they come", "task": "chain", "groups": 2, "still": [], "refused": {}}
    return data | {"methods": methods, "norms": [1.0] * len(methods), "cosine": cosine} | more


DATA = {
    "model": "tiny",
    "seed": 0,
    "samples": 8,
    "families": {"grpo": "base", "b": "objectives", "c": "objectives", "d": "rewards"},
    "batches": {
        "mixed": chart(["grpo", "b", "c"], [[1, 1, 0.2], [1, 1, 0.2], [0.2, 0.2, 1]], refused={"d": "needs a tree"}),
        "solved": chart(["c"], [[1]], still=["grpo", "b"], refused={"d": "needs a tree"}),
        "stale": chart(
            ["grpo", "b", "c"], [[1, 0.3, -0.4], [0.3, 1, 0.2], [-0.4, 0.2, 1]], refused={"d": "needs a tree"}
        ),
    },
}


def test_the_page_says_what_the_numbers_do(tmp_path):
    page = pages.page(DATA)
    for part in (
        "**grpo, b** do the same on fresh mixed groups. They part on these batches:\n\n",
        "| --- | --- | --- |\n| stale | grpo; b |  |\n",
        "Groups that are all solved: only c learn",
        "### Solved: objectives\n\n- Nothing to learn here, so nothing would move: grpo, b.",
        "Against one another: grpo and c (-0.40)",
        "| d | all | needs a tree |",
    ):
        assert part in page, part
    pages.pictures(DATA, tmp_path)  # the family `rewards` has nobody on a batch, and `solved` only one who moves
    assert {p.name for p in tmp_path.iterdir()} == {"atlas-mixed-objectives.svg", "atlas-stale-objectives.svg"}
    assert all(f"]({p.name})" in page and p.stat().st_size > 1000 for p in tmp_path.iterdir())


# ---- a recorded group


def test_a_recorded_group_is_explained_like_a_given_one(tmp_path, capsys):
    """The weights of recorded tokens are those of the closed form of `explain`, for the same rewards and lengths."""
    out = tmp_path / "run"
    sizes = ["schedule.prompts=4", "collect.links.0.n=4", "--steps", "1", "--evaluate", "0"]
    assert main(["train", "rloo", *sizes, "--out", str(out)]) == 0
    capsys.readouterr()
    for name in ("t.png", "t.html"):
        argv = ["explain", "rloo", "--rollouts", str(out), "--picture", str(tmp_path / name), "--json"]
        assert main(argv) == 0
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (tmp_path / "t.png").stat().st_size > 5000
    page = (tmp_path / "t.html").read_text()
    assert "rgb(" in page and page.count("<h2>") == 4 and "<script" not in page
    rewards, tokens, weights = (found[k][0] for k in ("rewards", "tokens", "token_weights"))
    alone = explain(rloo.build(), [[{"reward": r, "length": len(t)} for r, t in zip(rewards, tokens, strict=True)]])
    for mine, other in zip(weights, alone["token_weights"][0], strict=True):
        assert np.array(mine) == pytest.approx(np.array(other) / 4, abs=1e-6)  # of 16 rows instead of 4
    assert found["notes"] == [] and all(isinstance(a, float) for a in found["advantages"][0])


def test_a_recorded_group_under_another_method(tmp_path, capsys):
    out = tmp_path / "run"
    sizes = ["schedule.prompts=4", "collect.links.0.n=4", "--steps", "1", "--evaluate", "0"]
    assert main(["train", "rloo", *sizes, "--out", str(out)]) == 0
    capsys.readouterr()
    found = {}
    for method, says in (
        ("rapo", "these are rollouts of rloo: what this method collects by Temper() is not in them"),
        ("oreo", "the loss of this method does not use the advantages"),
        ("tempo", ""),
    ):
        assert main(["explain", method, "--rollouts", str(out)]) == 0
        assert says in capsys.readouterr().out
        assert main(["explain", method, "--rollouts", str(out), "--json"]) == 0
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert says in "".join(found["notes"]) and bool(found["notes"]) == bool(says)
    by_token = [len(a) for a in found["advantages"][0]]  # TEMPO's credit
    assert by_token == [len(t) for t in found["tokens"][0]]


@pytest.mark.parametrize("place", ["nowhere", "."])
def test_rollouts_that_are_not_there(place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "grpo", "--rollouts", place]) == 2
    assert "no rollouts" in capsys.readouterr().err


def test_the_published_page_is_of_its_numbers_and_has_every_family_that_ran():
    docs = Path(__file__).parents[2] / "docs"
    data = json.loads((docs / "atlas.json").read_text())
    page = pages.page(data)
    assert (docs / "atlas.md").read_text() == page
    named = set(re.findall(r"\((atlas-[\w-]+\.svg)\)", page))
    assert named == {p.name for p in docs.glob("atlas-*.svg")}
    drawn = {e.family for e in catalogue.all_entries() if e.id in directions.build_recipes(())}
    assert drawn == set(data["families"].values())
