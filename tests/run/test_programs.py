"""What a program finds in its context: kept parts, log lines, models that are asked, meters."""

import asyncio
import json

import palaestra as pl
import pytest
from palaestra.cli.train import measured_beside
from palaestra.errors import Fault, UserError
from palaestra.run.programs import check_budget, total
from palaestra.services.chat.scripted import Scripted
from palaestra.store.folder import read_run
from pydantic import BaseModel


class Factor(BaseModel):
    weight: float


GOOD = Scripted(lambda request: '{"weight": 0.5}', name="good")
BAD = Scripted(lambda request: "no json", name="bad")


@pl.stage
class Study:
    """A program of two parts; `stop` ends it between them, as a kill would."""

    stop: bool = False

    async def run(self, ctx):
        made = await ctx.once("numbers", lambda: self.first(ctx))
        if self.stop:
            raise KeyboardInterrupt
        for i, x in enumerate(made["drawn"]):
            ctx.log({"drawn": x, "double": 2 * x, "i": i})
        return pl.Result(metrics={"mean": sum(made["drawn"]) / 3, "made": made["made"], "sampled_tokens": 0})

    async def first(self, ctx):
        Study.made += 1
        ctx.spend("env_steps", 40)
        rng = pl.rng_of(ctx.key("numbers"))
        return {"drawn": tuple(rng.random(3).tolist()), "made": Study.made}

    made = 0


def run(ctx, program):
    return asyncio.run(program.run(ctx))


def test_what_was_made_for_other_steps_is_made_anew(context, tmp_path):
    """Else a run that goes on with more steps would report what fewer gave."""
    Study.made = 0
    run(context(out=tmp_path, steps=2), Study())
    assert run(context(out=tmp_path, steps=2), Study()).metrics["made"] == 1
    assert run(context(out=tmp_path, steps=4), Study()).metrics["made"] == 2
    assert run(context(out=tmp_path), Study()).metrics["made"] == 3


def test_a_killed_program_goes_on_with_the_parts_it_has(context, tmp_path):
    Study.made = 0
    with pytest.raises(KeyboardInterrupt):
        run(context(out=tmp_path), Study(stop=True))
    ctx = context(out=tmp_path)
    again = run(ctx, Study())
    assert Study.made == 1 and again.metrics["made"] == 1
    assert total(ctx) == {"env_steps": 40}  # what was spent before the kill counts
    assert again.metrics["mean"] == run(context(), Study()).metrics["mean"]  # the same without a folder


def test_the_log_of_a_program_begins_again_with_it(context, tmp_path):
    for _ in range(2):
        run(context(out=tmp_path), Study())
    lines = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [x["step"] for x in lines] == [1, 2, 3] and lines[0]["double"] == 2 * lines[0]["drawn"]
    assert len(read_run(tmp_path).steps) == 3


def test_lines_after_a_recipe_follow_its_steps(context, tmp_path):
    @pl.stage
    class Then:
        async def run(self, ctx):
            result = await ctx.train(pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=2, steps=2)))
            ctx.log({"after": 1.0})
            return result

    for _ in range(2):
        run(context(out=tmp_path), Then())
    lines = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(x["step"], "after" in x) for x in lines] == [(1, False), (2, False), (3, True)]


def test_what_a_part_gives_must_be_plain(context, tmp_path):
    with pytest.raises(UserError, match="part 'odd' of a program is kept as JSON"):
        asyncio.run(context(out=tmp_path).once("odd", lambda: {"x": object()}))


def test_streams_differ_by_seed_part_and_path(context):
    a, b = context(seed=1), context(seed=2)
    assert a.key("x") == a.key("x") and len({a.key("x"), a.key("y"), b.key("x")}) == 3


def test_models_are_asked_counted_and_replaced_by_a_fallback(context):
    ctx = context()
    assert asyncio.run(ctx.ask(GOOD, "how much?")) == '{"weight": 0.5}'
    assert asyncio.run(ctx.ask_for(GOOD, "how much?", Factor)).weight == 0.5
    with pytest.raises(Fault, match="chat-format"):
        asyncio.run(ctx.ask_for(BAD, "how much?", Factor, asks=3))
    declared = Factor(weight=0.0)
    assert asyncio.run(ctx.ask_for(BAD, "how much?", Factor, fallback=declared)) is declared
    assert total(ctx) == {"calls": 2 + 3 + 2, "fallbacks": 1}


def test_who_spends_more_than_the_budget_is_no_evidence(context):
    ctx = context(budget={"env_steps": 39.0}, tokens=5)
    assert ctx.budget == {"sampled_tokens": 5, "env_steps": 39.0}
    run(ctx, Study())
    with pytest.raises(Fault, match="40 env_steps were spent, and 39 may be"):
        check_budget(ctx)
    other = context(budget={"env_steps": 40.0})
    run(other, Study())
    assert check_budget(other) == {"env_steps": 40}


def test_numbers_of_a_program_are_told(context):
    metrics = run(context(), Study()).metrics
    assert measured_beside(metrics)[0] == f"mean  {metrics['mean']:.4g}"
    many = {f"n{i}": i for i in range(20)}
    assert measured_beside(many)[-1] == "and 8 more numbers in summary.json"


def test_the_spending_of_parts_counts_once(context, tmp_path):
    pipe = pl.Pipeline(parts={"a": pl.Part(Study()), "b": pl.Part(Study())})
    for _ in range(2):
        ctx = context(out=tmp_path)
        result = run(ctx, pipe)
        assert total(ctx) == {"env_steps": 80}
    means = [result.metrics["parts"][n]["mean"] for n in "ab"]
    assert means[0] != means[1]  # parts have streams of their own
