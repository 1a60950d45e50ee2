"""What a method is measured by that samples nothing: pairs and recorded answers of the held-out problems."""

import asyncio
import json
import math

import palaestra as pl
import pytest
import torch
from palaestra.ends import HeldOut, at_ends, evaluation_of
from palaestra.objective.preference import DPO
from palaestra.objective.reward_model import BradleyTerry
from palaestra.run import setup
from palaestra.run.driver import prepare
from palaestra.run.evaluation import measure_held_out, summarise_records
from palaestra.settings.fields import Settings
from palaestra.stats import Interval, mean_interval, ratio_interval
from palaestra.store.folder import read_run
from palaestra.types import Batch
from palaestra.view.model_card import model_card
from palaestra.view.verdict import judge_change

SUMS = [(f"{a}+{b} mod 10", str((a + b) % 10)) for a in range(4) for b in range(5)]


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"prompt": q, "chosen": f"= {a}", "rejected": "= x", "answer": a} for q, a in SUMS]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def batch_of(sign, **columns):
    rows = len(sign)
    made = {
        "sign": torch.tensor(sign),
        "length": torch.full((rows,), 2),
        "trained": torch.tensor([[0.0, 1.0]] * rows),
        **{k: torch.tensor(v) for k, v in columns.items()},
    }
    units = torch.arange(rows) // 2
    return Batch(columns=made, unit_B=units, n_tokens=rows, n_rows=rows, n_units=rows // 2)


def test_margins_of_dpo():
    """By hand: 0.1 * ((-1 + 2) - (-4 + 1)) = 0.4, and 0.1 * ((-3 + 1) - (-1 + 1)) = -0.2."""
    ref = [[0, -2], [0, -1], [0, -1], [0, -1]]
    batch = batch_of([1.0, -1.0, 1.0, -1.0], ref_logp=[[float(x) for x in r] for r in ref])
    out = {"logp": torch.tensor([[9.0, -1.0], [9.0, -4.0], [9.0, -3.0], [9.0, -1.0]])}
    assert DPO(beta=0.1).measures(out, batch)["margin"].tolist() == pytest.approx([0.4, -0.2])


def test_margins_of_a_reward_model():
    """By hand: heads say 3 - 1 and 1 - 0 of the first pair, which is 1.5 on average; the second is a tie."""
    marker = [[0.0, 1.0]] * 4
    batch = batch_of([1.0, -1.0, 1.0, -1.0], marker=marker, tie=[0.0, 0.0, 1.0, 1.0])
    out = {"a": torch.tensor([[7.0, 3.0], [7, 1], [7, 5], [7, 2]])}
    out["b"] = torch.tensor([[7.0, 1.0], [7, 0], [7, 5], [7, 2]])
    first, second = BradleyTerry(heads=("a", "b")).measures(out, batch)["margin"].tolist()
    assert first == pytest.approx(1.5) and math.isnan(second)


def test_records_are_summarised():
    """By hand: of margins 2, -1, 0 one and a half are right, the mean is 1/3, and what the data call equal is left
    out; 6 nats of 4 tokens are 1.5."""
    ranking, margin = summarise_records({"margin": [2.0, -1.0, 0.0, math.nan]}, "nats")
    assert (ranking.of, ranking.interval.mean, ranking.interval.n, ranking.unit) == ("ranking", 0.5, 3, "")
    assert (margin.of, margin.interval.mean, margin.unit) == ("margin", pytest.approx(1 / 3), "nats")
    (loss,) = summarise_records({"nll": [4.0, 2.0], "tokens": [3.0, 1.0]})
    assert (loss.of, loss.interval.mean, loss.interval.n, loss.unit) == ("loss", 1.5, 2, "nats a token")
    assert summarise_records({}) == [] == summarise_records({"margin": [math.nan]})


@pytest.mark.parametrize("n", [1, 2, 3, 8, 41, 400])
def test_ties_are_chance_level_and_no_gain_is_made_of_them(n):
    """From all ties to as many right as wrong, the share is one half before and after."""
    ties = summarise_records({"margin": [0.0] * n})[0].interval
    chance = summarise_records({"margin": [(-1.0) ** i for i in range(n)]})[0].interval
    odd = n % 2 / (2 * n)
    assert ties.mean == 0.5 and chance.mean == pytest.approx(0.5 + odd)
    assert 0 <= ties.low < ties.mean < ties.high <= 1
    assert judge_change(ties, chance).startswith("No change")


def test_pairs_ranked_right_in_training_count_ties_one_half():
    """By hand: margins of 0 and 1 are one and a half of two pairs, with DPO and with a reward model."""
    ref = torch.zeros(4, 2)
    batch = batch_of([1.0, -1.0, 1.0, -1.0], ref_logp=ref.tolist(), marker=[[0.0, 1.0]] * 4, tie=[0.0] * 4)
    said = torch.tensor([[0.0, 2.0], [0, 2], [0, 3], [0, 2]])
    assert float(DPO()({"logp": said}, batch)[1]["preferred"]) == 0.75
    assert float(BradleyTerry()({"score": said}, batch)[1]["ranked"]) == 0.75


def test_the_interval_of_a_ratio():
    """Of equal counts the t interval of the mean; by hand with counts 1 and 3: residuals -+ 1 over 2."""
    plain, ratio = mean_interval([1.0, 2.0, 4.0]), ratio_interval([2.0, 4.0, 8.0], [2, 2, 2])
    assert (ratio.mean, ratio.low, ratio.high) == pytest.approx((plain.mean, plain.low, plain.high))
    found, residuals = ratio_interval([1.0, 7.0], [1, 3]), mean_interval([-0.5, 0.5])
    assert (found.mean, found.low) == pytest.approx((2.0, 2.0 + residuals.low))
    assert math.isnan(ratio_interval([], []).mean)


def test_an_evaluation_keeps_all_that_was_measured():
    told = [HeldOut(of=k, interval=Interval(mean=x, low=x, high=x, n=4)) for k, x in (("loss", 2.0), ("accuracy", 0.5))]
    found = evaluation_of(told)
    assert (found["of"], found["beside"][0]["of"]) == ("accuracy", "loss")
    ends = at_ends({}, found)
    assert list(ends) == ["accuracy_after", "loss_after"] and "beside" not in ends["accuracy_after"]


def held(recipe, **settings):
    ctx = setup.context(Settings(**settings), talk=False, recipe=recipe)
    prepare(recipe, ctx)
    found = asyncio.run(measure_held_out(ctx, recipe, 2, answers=True))
    assert ctx.seconds["forward"] == 0.0
    return {h.of: h.interval for h in found}


def test_a_start_prefers_nothing_to_its_reference(pairs):
    """The policy is the reference, so every margin is exactly 0, a tie."""
    found = held(pl.vary(pl.recipe("dpo"), collect=pl.links(pl.Recorded())), data=pairs)
    assert found.keys() == {"accuracy", "ranking", "margin"}
    assert (found["margin"].mean, found["ranking"].mean, found["ranking"].n) == (0.0, 0.5, 2)


def test_the_loss_of_imitation_is_that_of_the_model():
    """Against log-probabilities of the recorded tokens one by one."""
    recipe, settings = pl.recipe("sft"), Settings(task="count")
    found = held(recipe, task="count")
    ctx = setup.context(settings, talk=False)
    nll = tokens = 0.0
    for i in range(2):
        key = (0, "held-out records", i)
        group = asyncio.run(recipe.collect(ctx, key, pl.Group(task=ctx.bench.tasks.task("test", i))))
        ids = group.episodes[0].rows[0].context()
        said = group.episodes[0].rows[0].view().trained_T
        with torch.no_grad():
            logits = ctx.model("policy").module(torch.tensor([ids])).logits[0].double()
        for t in range(1, len(ids)):
            nll -= float(said[t]) * float(logits[t - 1].log_softmax(-1)[ids[t]])
            tokens += float(said[t])
    assert found["loss"].mean == pytest.approx(nll / tokens, rel=1e-4)
    assert found.keys() == {"accuracy", "loss"}


def test_what_samples_is_measured_by_its_answers_alone():
    assert held(pl.recipe("grpo"), task="count").keys() == {"accuracy"}
    assert held(pl.recipe("dpo"), task="count").keys() == {"accuracy"}


def test_a_sum_of_objectives_is_looked_into(pairs):
    recipe = pl.vary(pl.recipe("dpo"), collect=pl.links(pl.Recorded()), objective=pl.DPO() + 0.1 * pl.Imitation())
    assert held(recipe, data=pairs).keys() == {"accuracy", "ranking", "margin"}


def reward_model():
    learner = pl.Learner(credit=pl.Compare(), objective=pl.BradleyTerry(center=0.01), heads=("score",))
    return pl.vary(pl.recipe("grpo"), collect=pl.links(pl.Recorded()), learners={"reward": learner})


def test_a_reward_model_is_measured_by_its_pairs_and_never_by_the_policys_answers(pairs, tmp_path):
    """By the summary, the report, the card and the table of the run."""
    recipe = pl.vary(reward_model(), schedule=pl.Schedule(prompts=8, steps=15))
    run = pl.train(recipe, data=pairs, out=tmp_path / "run", steps=15, quiet=True)
    ends = [k for k in run.summary if k.endswith(("_before", "_after"))]
    assert ends == ["ranking_before", "margin_before", "ranking_after", "margin_after"]
    assert run.summary["ranking_after"]["mean"] == 1.0 and run.summary["margin_after"]["mean"] > 0
    rows = run.evaluations.to_pylist()
    assert [(r["step"], r["of"]) for r in rows] == [(0, "ranking"), (0, "margin"), (15, "ranking"), (15, "margin")]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Held-out pairs ranked right on 2 problems" in page and "Held-out margin: 0 → " in page
    assert "units of the reward" in page
    card = model_card(read_run(tmp_path / "run"), 15, "me/model")
    assert "compared the two recorded answers" in card and "accuracy" not in card


def test_imitation_without_answers_is_measured_by_its_loss(tmp_path):
    data = tmp_path / "demos.jsonl"
    data.write_text("\n".join(json.dumps({"prompt": q, "demonstration": f"= {a}"}) for q, a in SUMS))
    run = pl.train("sft", data=str(data), out=tmp_path / "run", steps=10, quiet=True)
    before, after = run.summary["loss_before"], run.summary["loss_after"]
    assert after["mean"] < before["mean"] and "accuracy_after" not in run.summary


def test_less_loss_is_better():
    high, low = (Interval(mean=x, low=x - 0.1, high=x + 0.1, n=50) for x in (2.0, 1.0))
    assert judge_change(high, low, share=False, falls=True).startswith("Better")
    assert judge_change(low, high, share=False, falls=True).startswith("Worse")
