"""RPO: DPO and eta * beta of a baseline's negative log-likelihood, by hand, and whose answer that is."""

import asyncio
import json
import math

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.recipes.base import dpo
from palaestra.recipes.preference import rpo
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.types import Example, Row, Segment
from palaestra.update import pack
from palaestra.values import override

near = lambda x: pytest.approx(x, abs=1e-6)
PAIR, REF = (-40.0, -60.0), (-42.0, -55.0)


def loss_of(objective, *answers):
    """The loss, its gradient on the first token of each answer, and the metrics. An answer is its unit, sign, log pi,
    log ref and number of tokens, over which its log-probs are spread evenly."""
    rows, logp = [], []
    for unit, sign, total, ref, n in answers:
        row = Row(segments=(Segment(ids=(0,)), Segment(ids=(1,) * n, trained=True)))
        columns = {"sign": sign, "gap": 0.0, "ref_logp": np.array([0.0, *[ref / n] * n])}
        rows.append(Example(row=row, columns=columns, unit=unit))
        logp.append([0.0, *[total / n] * n])
    width = max(map(len, logp))
    leaf = torch.tensor([x + [0.0] * (width - len(x)) for x in logp], dtype=torch.float64).requires_grad_()
    loss, metrics = objective({"logp": leaf}, pack(rows, dtype=torch.float64))
    (grad,) = torch.autograd.grad(loss, leaf)
    return loss.item(), grad[:, 1].tolist(), {k: float(v) for k, v in metrics.items()}


def pair(unit="a", tokens=(8, 5), logp=PAIR):
    return [(unit, s, x, r, n) for s, x, r, n in zip((1.0, -1.0), logp, REF, tokens, strict=True)]


@pytest.mark.parametrize(
    ("beta", "eta", "plain", "regularised"),
    [(0.01, 0.005, 0.658760, 0.660760), (0.1, 0.5, 0.403186, 2.403186)],
)
def test_reference_values(beta, eta, plain, regularised):
    """m = beta (2 + 5); the term is eta * beta * 40, whatever the number of tokens."""
    loss, _, metrics = loss_of(rpo.RPO(beta=beta, eta=eta), *pair())
    assert loss == near(regularised) and metrics["margin"] == near(beta * 7)
    assert (metrics["baseline_nll"], metrics["baseline_loss"]) == (near(40.0), near(regularised - plain))
    assert loss_of(rpo.RPO(beta=beta, eta=eta), *pair(tokens=(3, 9)))[0] == near(regularised)


def test_a_mean_over_tokens():
    """40 nats over 8 tokens; the second release's 0.2 at beta 0.5 is an eta of 0.4."""
    m = 0.5 * 7
    assert loss_of(rpo.RPO(beta=0.5, eta=0.4, reduce="mean"), *pair())[0] == near(math.log1p(math.exp(-m)) + 0.2 * 5)


def test_the_push_on_the_chosen_answer_does_not_end_with_the_margin():
    """Of a pair that is 1000 nats apart DPO moves neither answer; RPO moves the chosen one by eta * beta."""
    apart = pair(logp=(-40.0, -1060.0))
    assert loss_of(pl.DPO(beta=0.1), *apart)[1] == near([0.0, 0.0])
    assert loss_of(rpo.RPO(beta=0.1, eta=0.2), *apart)[1] == near([-0.02, 0.0])


def test_a_baseline_answer_takes_the_place_of_the_chosen_one():
    """Pair a has one of 12 nats on 4 tokens and one of 6 nats on 3, pair b has none: (9 + 40) / 2 nats."""
    rows = [*pair("a"), ("a", 0.0, -12.0, -9.0, 4), ("a", 0.0, -6.0, -9.0, 3), *pair("b")]
    loss, grad, metrics = loss_of(rpo.RPO(beta=0.1, eta=0.5), *rows)
    assert metrics["baseline_nll"] == near(24.5) and loss == near(0.403186 + 0.05 * 24.5)
    assert metrics["margin"] == near(0.7) and metrics["chosen"] == near(2.0)
    slope = 0.1 / (1 + math.exp(0.7)) / 2  # of DPO, of one of two pairs
    assert grad == near([-slope, slope, -0.0125, -0.0125, -slope - 0.025, slope])
    mean = loss_of(rpo.RPO(beta=0.1, eta=0.5, reduce="mean"), *rows)[2]
    assert mean["baseline_nll"] == near(((12 / 4 + 6 / 3) / 2 + 40 / 8) / 2)


def test_without_eta_it_is_dpo():
    for pairs in ("data", "rollouts"):
        assert rpo.build(pairs=pairs, eta=0.0, baseline="reference") == dpo.build(pairs=pairs, beta=0.01)
        assert pl.vary(rpo.build(pairs=pairs), objective=pl.DPO(beta=0.01)) == dpo.build(pairs=pairs, beta=0.01)
    plain, off = (loss_of(x, *pair(), *pair("b", logp=(-3.0, -1.0))) for x in (pl.DPO(), rpo.RPO(eta=0.0)))
    assert plain[:2] == off[:2]


def test_one_name_sets_beta_of_both_terms():
    changed = override(rpo.build(), "beta", 0.3).learners["policy"].objective
    assert loss_of(changed, *pair())[2]["baseline_loss"] == near(0.005 * 0.3 * 40)


def test_an_eta_below_0_is_refused():
    with pytest.raises(UserError, match=r"RPO\.eta"):
        rpo.build(eta=-1.0)


def steps_on(recipe, ctx, n=1):
    prepare(recipe, ctx)
    state = start(0)
    for _ in range(n):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    return metrics


def test_the_start_samples_its_own_baseline(context, small):
    """At the first step the policy is the reference, so the baseline's answer is likelier than a written one."""
    ctx = context("preferences")
    sampled = steps_on(small(rpo.embedded(baseline="reference"), **{"schedule.prompts": 4}), ctx)
    written = steps_on(small(rpo.embedded(), **{"schedule.prompts": 4}), context("preferences"))
    assert sampled["episodes"] == 12 and sampled["margin"] == 0 and written["episodes"] == 8
    assert 0 < sampled["baseline_nll"] < written["baseline_nll"]


def test_a_group_without_a_pair_teaches_no_baseline():
    mark = {rpo.MARK: True}
    row = lambda n: Row(segments=(Segment(ids=(0,)), Segment(ids=(n,), trained=True)))
    answer = lambda n, reward, **facts: pl.Episode(
        rows=(row(n),), reward=pl.Reward(total=reward), status="finished", facts=facts
    )
    made = [
        pl.Group(task=pl.Task(id=name, prompt=()), episodes=(answer(1, 1.0), answer(2, low), answer(3, 0.5, **mark)))
        for name, low in (("tie", 1.0), ("apart", 0.0))
    ]
    signals = [[[{"ref_logp": np.zeros(2)}] for _ in g.episodes] for g in made]
    found, _ = rpo.PairsAndBaselines()(made, signals, {})
    assert [(x.row.segments[1].ids, x.columns["sign"]) for x in found] == [((1,), 1.0), ((2,), -1.0), ((3,), 0.0)]
    assert len({x.unit for x in found}) == 1


def test_a_file_without_demonstrations_is_refused(tmp_path):
    """The chosen answers would be imitated, which is another method than the one that was asked for."""
    rows = [{"prompt": f"Say {x}.", "chosen": "yes", "rejected": "no"} for x in "abcd"]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(UserError, match="needs the column 'demonstration', an answer of the baseline"):
        pl.train("rpo", data=str(tmp_path / "p.jsonl"), out=tmp_path / "run", set={"baseline": "demonstration"})


def test_a_users_demonstrations(tmp_path, capsys):
    """The row without a demonstration imitates its chosen answer, and the run says so."""
    rows = [{"prompt": f"Say {x}.", "chosen": "yes", "rejected": "no"} for x in "abcd"]
    for r in rows[:3]:
        r["demonstration"] = "yes, gladly"
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = pl.train(
        "rpo",
        data=str(tmp_path / "p.jsonl"),
        out=tmp_path / "run",
        steps=1,
        evaluate=0,
        set={"baseline": "demonstration", "schedule.prompts": 4},
    )
    said = capsys.readouterr()
    assert "records have no 'demonstration'" in said.out + said.err
    (line,) = [json.loads(x) for x in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert line["episodes"] == 4 * 2 + 3
    assert line["baseline_loss"] == pytest.approx(0.005 * 0.01 * line["baseline_nll"]) and line["baseline_nll"] > 0
