"""Answers to held-out problems of a file are judged by the verifier that a recipe trains on, where it has one."""

import asyncio
import json

import palaestra
import palaestra as pl
import pytest
from palaestra import catalogue
from palaestra.rewards.verify import Verify
from palaestra.run.own_verifier import own_verifier
from palaestra.run.setup import bench_of, brings_reward, describe_verifier
from palaestra.run.unmet import arguments_of_run
from palaestra.settings.fields import Settings
from palaestra.settings.overrides import arguments
from palaestra.tasks.oracle import episode_saying
from palaestra.types import Group

from tests.own.files import rows_of, write_rows

THINK = "<think>It is asked.</think>"
PATCH = f"""{THINK}<solution>
```
### a.py
<<<<<<< SEARCH
def add(a, b):
=======
def add(a: int, b: int):
>>>>>>> REPLACE
```
</solution>"""
RIGHT = {  # a reply that is wholly right on the card's example, in the form that the method asks for
    "think2sql": f"{THINK}<answer>SELECT count(*) FROM city</answer>",
    "reasoning-sql": "<reasoning>It is asked.</reasoning><answer>SELECT COUNT(*) FROM city</answer>",
    "recode": f"{THINK}<answer>```python\nx = float(3)\n```</answer>",
    "mt-r1-zero": f"{THINK}<translate>Good morning.</translate>",
    "swe-rl": PATCH,
}


def bench_on_own(method, folder, reward=""):
    needs = catalogue.find(method).CARD.needs
    rows = rows_of(needs, arguments_of_run(arguments(method), needs.own))
    recipe = pl.recipe(method)
    settings = Settings(recipe=method, data=str(write_rows(folder / f"{method}.jsonl", rows)), reward=reward)
    return bench_of(settings, judged=brings_reward(recipe), recipe=recipe)[0]


def judged(bench, text):
    tasks = [bench.tasks.task(split, i) for split in ("train", "test") for i in range(bench.tasks.test_size)]
    groups = [Group(task=t, episodes=(episode_saying(text, ()),)) for t in tasks]
    return [asyncio.run(bench.reward(None, g))[0].solved for g in groups]


@pytest.mark.parametrize("method", RIGHT)
def test_a_right_reply_in_the_form_of_the_method_is_solved(method, tmp_path):
    bench = bench_on_own(method, tmp_path)
    assert any(judged(bench, RIGHT[method])) and not any(judged(bench, "no idea"))


DESIGN = """```verilog
module invert(input a, output y); assign y = ~a; endmodule
```"""


@pytest.mark.iverilog
@pytest.mark.parametrize(("method", "gold"), [("verirl", True), ("verirl", False), ("veriprefer", True)])
def test_designs_of_a_file_are_judged_by_their_benches(method, gold, tmp_path):
    """Also where the method is a pipeline, some of whose parts pay by a model of an earlier part."""
    rows = rows_of(catalogue.find("verirl").CARD.needs, {})
    row = next(r for r in rows if "invert" in r["prompt"])
    row |= {"answer": "module invert(input a, output y); assign y = !a; endmodule"}
    row = row if gold else {k: v for k, v in row.items() if k != "answer"}
    data = write_rows(tmp_path / "designs.jsonl", [{**row, "prompt": f"{i}. {row['prompt']}"} for i in range(4)])
    recipe = pl.recipe(method)
    settings = Settings(recipe=method, data=str(data))
    bench = bench_of(settings, judged=brings_reward(recipe), recipe=recipe)[0]
    assert all(judged(bench, DESIGN)) and not any(judged(bench, DESIGN.replace("~", "")))
    assert "own verifier, verilog" in describe_verifier(recipe, bench)


def test_the_verifier_of_a_pipeline_is_that_of_all_its_parts():
    parts = pl.recipe("verirl").parts
    assert own_verifier(pl.Pipeline(parts=parts), without_answers=False).unless == "testbench"
    other = pl.vary(pl.recipe("grpo"), collect=pl.links(pl.Sample(n=2), pl.Score(pl.Verified("exact"))))
    assert own_verifier(pl.Pipeline(parts={**parts, "other": pl.Part(other)}), without_answers=False) is None
    apart = pl.Part(other, data="others.jsonl")
    assert own_verifier(pl.Pipeline(parts={**parts, "other": apart}), without_answers=False).unless == "testbench"
    assert own_verifier(pl.Pipeline(parts={"rl": pl.Part(pl.recipe("grpo"))}), without_answers=False) is None


def test_data_without_answers_are_judged_too(tmp_path):
    bench = bench_on_own("muldimif", tmp_path)
    assert {any(judged(bench, x)) for x in ("rain", "x " * 400)} == {True, False}


def test_a_named_reward_is_that_of_the_user(tmp_path):
    assert bench_on_own("recode", tmp_path, reward="exact").reward == pl.Verified("exact")


@pytest.mark.parametrize("method", ["grpo", "rlpr", "self-rewarding", "general-reasoner", "rest-rl", "alphamed"])
def test_a_proxy_judges_no_held_out_answer(method):
    assert own_verifier(pl.recipe(method), without_answers=False) is None


def test_a_verifier_of_form_judges_no_answer():
    form = pl.vary(pl.recipe("grpo"), collect=pl.links(pl.Sample(n=2), pl.Score(pl.Verified("tags", beside=True))))
    assert own_verifier(form, without_answers=False) is None


def test_a_reward_that_defers_to_the_data_is_closed_where_these_have_no_answer():
    recipe = pl.recipe("critique-coder")
    assert own_verifier(recipe, without_answers=False) is None
    own = own_verifier(recipe, without_answers=True)
    assert isinstance(own.other.other, Verify)  # else a row without tests would ask itself
    assert own_verifier(pl.recipe("critique-coder", stage_one=3), without_answers=True) is None


def test_a_run_says_so_and_measures_the_mean_reward_beside(tmp_path, capsys):
    needs = catalogue.find("swe-rl").CARD.needs
    data = write_rows(tmp_path / "rows.jsonl", rows_of(needs, {}))
    run = palaestra.train(
        "swe-rl", out=tmp_path / "run", set=dict(needs.own), data=str(data), steps=1, evaluate=2, max_tokens=16
    )
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["accuracy_after"]["mean"] == 0 and summary["reward_after"]["mean"] == -1
    assert "judged by the method's own verifier, patch" in capsys.readouterr().err
    metrics = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert not any("part/gold" in m for m in metrics)  # it would be the reward once more
