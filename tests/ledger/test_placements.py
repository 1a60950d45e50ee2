"""Every row stands somewhere on the axes: by its recipe where that can be read off, and a recipe contradicts no typed cell."""

import importlib
import json

import palaestra as pl
import pytest
from palaestra import catalogue
from palaestra.cli.main import main
from palaestra.curriculum.replay import Replay
from palaestra.errors import UserError
from palaestra.ledger import placements, read_off
from palaestra.ledger.axes import columns
from palaestra.ledger.placements import PlacedCell, choose, counts, placed, typed_cells
from palaestra.types import stage

from tests.rows import every

ALL = catalogue.all_entries()
NAMED = {sign.rooms: sign for sign in read_off.SIGNS}
ROOMS = sorted({r for rooms in (*NAMED, read_off.GRADIENTS, read_off.IMITATIONS) for r in rooms})


def entry(name):
    return next(e for e in ALL if e.id == name)


@every("each", ALL, ids=lambda e: e.id)
def test_every_row_is_placed_in_every_column(each):
    for name, cell in placed(each).items():
        assert cell.values, f"{each.id} has no {name}: type one in palaestra/surveys/placements.tsv"
        assert set(cell.values) <= set(columns()[name].values), (name, cell.values)
        assert not cell.contradicted, f"{name}: the recipe says {cell.read}, typed is {cell.typed}"
        assert each.built or not cell.read
    assert ("none" in placed(each)["optimiser"].values) == (placed(each)["optimiser"].values == ("none",))


def test_typed_cells_are_of_rows_that_are_there():
    assert set(typed_cells()) <= {e.id for e in ALL}
    assert {name for row in typed_cells().values() for name in row} == set(columns())
    lines = (catalogue.resources.files("palaestra") / "surveys" / "placements.tsv").read_text().splitlines()
    assert len(lines) - 1 == len(typed_cells()), "a row is typed twice"


@every("room", ROOMS)
def test_rooms_of_signs_are_there(room):
    """A room that is moved would be read off silently no more."""
    try:
        importlib.import_module(f"palaestra.{room}")
    except ModuleNotFoundError:
        module, _, name = room.rpartition(".")
        assert hasattr(importlib.import_module(f"palaestra.{module}"), name)


# ---- what is read off


@stage
class Praise:
    """A reward of a recipe's own, whose code asks a public part."""

    async def __call__(self, ctx, group):
        return [pl.rewards.AnswerProbability()]


SAMPLED = pl.links(pl.Sample(n=2), pl.Score())
BASE = pl.recipe("grpo")
ASKED = pl.Judge(client=pl.LocalModel("ref"))
CASES = {
    "a value head is a critic": (pl.recipe("ppo"), "optimiser", {"critic"}),
    "without one there is none": (BASE, "optimiser", {"critic-free"}),
    "a lag is off-policy": (pl.vary(BASE, schedule=pl.Schedule(lag=2)), "optimiser", {"critic-free", "off-policy"}),
    "a lag that moves is, too": (
        pl.vary(BASE, schedule=pl.Schedule(lag=pl.Jump(0, 4, 10))), "optimiser", {"critic-free", "off-policy"}),
    "an age that may grow is, too": (
        pl.vary(BASE, schedule=pl.Schedule(max_age=3)), "optimiser", {"critic-free", "off-policy"}),
    "and a replay": (pl.vary(BASE, pool=Replay()), "optimiser", {"critic-free", "off-policy"}),
    "pairs": (pl.recipe("dpo"), "optimiser", {"pairs"}),
    "pairs are preference learning": (pl.recipe("dpo"), "phase", {"preference"}),
    "recorded pairs": (pl.recipe("dpo", pairs="data"), "feedback", {"data"}),
    "demonstrations are imitated": (pl.recipe("sft"), "optimiser", {"imitation"}),
    "and nothing is paid": (pl.recipe("sft"), "reward", {"none"}),
    "what is imitated alone is supervised": (pl.recipe("sft"), "phase", {"supervised"}),
    "recorded attempts are offline": (
        pl.vary(BASE, collect=pl.links(pl.Recorded())), "optimiser", {"offline"}),
    "another's samples as records are offline as well": (
        pl.vary(BASE, collect=pl.links(pl.Sample(n=2, model="ref"), pl.Score(), pl.Offline())),
        "optimiser", {"critic-free", "offline"}),
    "a balance is a residual": (pl.vary(BASE, objective=pl.objective.Balance()), "optimiser", {"residual"}),
    "the problem's own rule": (BASE, "reward", {"verifiable"}),
    "a judge": (pl.vary(BASE, collect=pl.links(pl.Sample(n=2), pl.Score(reward=ASKED))), "reward", {"judge"}),
    "comes from another model": (
        pl.vary(BASE, collect=pl.links(pl.Sample(n=2), pl.Score(reward=ASKED))), "feedback", {"ai"}),
    "a fitted reward": (
        pl.vary(BASE, collect=pl.links(pl.Sample(n=2), pl.Score(reward=pl.Learned("reward")))), "reward", {"learned"}),
    "its own probabilities": (
        pl.vary(BASE, collect=pl.links(pl.Sample(n=2), pl.Score(reward=pl.rewards.AnswerProbability()))), "feedback", {"self"}),
    "what the code of its own reward asks": (
        pl.vary(BASE, collect=pl.links(pl.Sample(n=2), pl.Score(reward=Praise()))), "reward", {"intrinsic"}),
    "turns that are paid": (
        pl.vary(BASE, credit=pl.chain(pl.credit.TurnReturns(), pl.Center("group"))), "reward", {"verifiable", "process"}),
    "all parts of a pipeline": (pl.recipe("sft-grpo"), "phase", {"supervised", "rl"}),
    "nothing of a program without parts": (pl.recipe("best-of-n"), "optimiser", set()),
}  # fmt: skip


@every("name", CASES)
def test_read_off(name):
    built, column, values = CASES[name]
    assert set(read_off.read_off(built).get(column, ())) == values


def test_a_world_pays_where_the_problem_has_no_rule():
    assert read_off.read_off(BASE, "grid")["reward"] == ("world",)
    assert read_off.read_off(BASE, "chain")["reward"] == ("verifiable",)
    assert read_off.read_row("gigpo")["reward"] == ("process", "world")  # that of its claim


def test_a_learner_that_grades_is_no_policy():
    grader = pl.Learner(credit=pl.Compare(), objective=pl.BradleyTerry(), heads=("score",))
    both = pl.vary(BASE, learners={**BASE.learners, "taste": grader})
    assert read_off.read_off(both)["target"] == ("grader", "policy")
    assert read_off.read_off(both)["optimiser"] == ("critic-free", "fit")
    alone = pl.vary(BASE, learners={"verifier": BASE.learners["policy"]})
    assert read_off.read_off(alone)["target"] == ("grader",) and "optimiser" not in read_off.read_off(alone)


def test_what_is_drawn_again_within_a_step_is_not_older():
    """`credit.again` holds both: examples of earlier steps, and some of this step's trained on more often."""
    assert "off-policy" not in read_off.read_row("pf-ppo")["optimiser"]
    assert "off-policy" in read_off.read_row("eframe")["optimiser"]


# ---- read and typed together


def test_read_and_typed():
    both = PlacedCell(read=("world",), typed=("process", "world"))
    assert (both.values, both.source, both.contradicted) == (("process", "world"), "completed", False)
    assert (PlacedCell(read=("world",)).source, PlacedCell(typed=("world",)).source) == ("computed", "typed")
    assert PlacedCell(read=("world",), typed=("world",)).source == "computed"
    assert PlacedCell(read=("world",), typed=("judge",)).contradicted


def test_a_typed_cell_that_its_recipe_contradicts_is_named(monkeypatch, capsys):
    monkeypatch.setattr(catalogue, "all_entries", lambda: [entry("grpo"), entry("ppo")])
    monkeypatch.setattr(placements, "typed_cells", lambda: {"ppo": {"optimiser": ("critic-free",)}})
    placed.cache_clear()
    try:
        assert placements.main() == 1
        told = capsys.readouterr().err
        assert "row ppo, column optimiser: the recipe says critic, typed is critic-free" in told
        assert "write critic,critic-free, or leave the cell empty" in told and told.count("\n") == 1
    finally:
        placed.cache_clear()


def test_counts():
    found = counts([entry("grpo"), entry("best-of-n"), entry("igpo")])["reward"]
    assert found == {"computed": 1, "completed": 1, "typed": 1}


# ---- choosing


def test_choose():
    rows = [entry(name) for name in ("sft", "grpo", "ppo", "sft-grpo", "dpo")]
    chosen = lambda **wanted: [e.id for e in choose(rows, wanted)]
    assert chosen(optimiser="critic-free") == ["grpo", "sft-grpo"]
    assert chosen(optimiser="critic-free,imitation") == ["sft-grpo"], "all of them must be there"
    assert chosen(optimiser="critic-free", phase="supervised") == ["sft-grpo"]
    assert chosen(optimiser="") == ["sft", "grpo", "ppo", "sft-grpo", "dpo"]
    with pytest.raises(UserError, match="--reward has no value 'verifable'; did you mean verifiable"):
        chosen(reward="verifable")


def test_listed(capsys):
    assert main(["list", "--family", "base", "--optimiser", "critic", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["id"], found["optimiser"], found["reward"]) == ("ppo", ["critic"], ["verifiable"])
    assert main(["list", "--family", "surveys", "--phase", "literature"]) == 0
    out = capsys.readouterr().out
    assert "\n7 methods: 7 built" in out and "survey-irl" in out
    assert main(["list", "--target", "policies"]) == 2
    assert "did you mean policy?" in capsys.readouterr().err
