"""SALSA: the soup, what holds the policy, and starts that make no soup."""

import asyncio
import json
import math

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.models.load import load, trainable_copy
from palaestra.recipes.preference import salsa

PATH = "model.layers.0.mlp.gate_proj.weight"


def test_reference_values():
    """[1, 2, -1] and [3, 0, 1] with alpha 1/2 and 1/4; the KL at the start: log pi_1 = -2, log pi_soup = -2.3."""
    weights = [{"w": torch.tensor(x)} for x in ([1.0, 2.0, -1.0], [3.0, 0.0, 1.0])]
    soup = lambda alpha: pl.models.Average(salsa.soup_shares(alpha, 1))(weights[0], weights)["w"].tolist()
    assert soup(0.5) == [2.0, 1.0, 0.0] and soup(0.25) == [2.5, 0.5, 0.5] and soup(1.0) == [1.0, 2.0, -1.0]
    assert salsa.soup_shares(0.4, 0) == (1.0,)
    assert salsa.soup_shares(0.4, 3) == pytest.approx((0.4, 0.2, 0.2, 0.2))
    rl = salsa.build(kl=0.1).parts["rl"].runnable
    assert -rl.learners["policy"].credit.links[0].kl * (-2.0 - -2.3) == pytest.approx(-0.03)


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_the_soup_is_the_reference_and_the_first_model_the_start(algorithm):
    parts = salsa.build(others="a, b", algorithm=algorithm).parts
    assert parts["soup"].models == {"other1": "a", "other2": "b"} and parts["soup"].model is None
    assert parts["soup"].runnable.shares == (0.5, 0.25, 0.25)
    assert parts["rl"].models == {"ref": pl.Output("soup")} and parts["rl"].model is None
    assert parts["rl"].runnable == pl.recipe(algorithm, kl=0.05)
    assert salsa.build(others="a", start="soup").parts["rl"].model == pl.Output("soup")
    both = salsa.embedded().parts
    assert both["rl"].model == pl.Output("first") and both["soup"].models == {"other1": pl.Output("second")}
    rates = [p.runnable.learners["policy"].optimiser.lr for p in (both["first"], both["second"])]
    assert rates[0] == 2 * rates[1] > 0


def test_bad_arguments_are_refused():
    for bad in ({"alpha": 1.5}, {"alpha": -0.1}, {"kl": 0.0}):
        with pytest.raises(UserError, match="salsa: "):
            salsa.build(others="a", **bad)


def noisy(scale, seed=0):
    """The embedded model with noise in its weights."""
    made, generator = trainable_copy(load("tiny")), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in made.module.parameters():
            p += scale * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    return made


def cook(ctx, other, alpha=0.5, **given):
    ctx.models["other1"] = other
    return asyncio.run(salsa.Soup(("other1",), salsa.soup_shares(alpha, 1), tasks=4, **given).run(ctx)).metrics


def test_the_soup_that_is_saved_and_the_policy_that_stays(context, tmp_path):
    ctx, other = context(out=tmp_path), noisy(0.02)
    before = {n: p.clone() for n, p in ctx.model("policy").module.named_parameters()}
    metrics = cook(ctx, other, alpha=0.25)
    theirs = dict(other.module.named_parameters())
    soup = dict(load(str(tmp_path / "merged")).module.named_parameters())
    for name, p in ctx.model("policy").module.named_parameters():
        assert torch.equal(p, before[name])
        torch.testing.assert_close(soup[name], 0.25 * before[name] + 0.75 * theirs[name], atol=1e-6, rtol=0)
    assert 0 < metrics["start_kl"] < 0.1 and metrics["barrier"] < 0.1
    gone = sum(float((theirs[n].double() - p.double()).detach().square().sum()) for n, p in before.items())
    assert metrics["distance/other1"] == pytest.approx(math.sqrt(gone)) and metrics["distance/policy"] == 0


def test_the_whole_share_leaves_the_start_as_the_reference(context):
    metrics = cook(context(), noisy(0.02), alpha=1.0)
    assert metrics["start_kl"] == 0 and metrics["barrier"] == pytest.approx(0, abs=1e-6)


def test_the_barrier_is_the_loss_above_the_line(context, monkeypatch):
    """Losses .2 and .6 of the starts and .7 of the soup, at alpha = 1/4: .7 - (.25 * .2 + .75 * .6)."""
    measured = {"policy": 0.2, "other1": 0.6}
    monkeypatch.setattr(salsa, "token_logps", lambda ctx, groups, model: np.full(4, -measured[model]))
    monkeypatch.setattr(salsa.Soup, "_under_soup", lambda self, ctx, groups: [np.full(4, -0.7)] * 2)
    metrics = cook(context(), noisy(0.02), alpha=0.25)
    assert metrics["barrier"] == pytest.approx(0.7 - 0.5)
    assert metrics["start_kl"] == pytest.approx(math.exp(-0.5) - 1 + 0.5)


def test_one_model_twice_is_no_soup(context):
    with pytest.raises(UserError, match=r"a start in others= is --model itself.*another fine-tune"):
        cook(context(), trainable_copy(load("tiny")))


def test_models_of_different_basins_are_refused(context):
    """The same function with its hidden units in another order: as good, and of no use in an average."""
    ctx = context()
    other = trainable_copy(ctx.model("policy"))
    weights = {n: w.clone() for n, w in pl.models.weights_of(other.module).items()}
    pl.models.write_weights(other.module, pl.models.PermuteUnits()(weights, [weights]))
    with pytest.raises(UserError, match=r"nats a token worse than the starts.*no fine-tunes of one base"):
        cook(ctx, other, most=0.1)


def test_another_vocabulary_is_refused(context):
    with pytest.raises(UserError, match=r"vocabular|tokeni"):
        cook(context(), load("tiny-agent"))


def test_the_kl_is_to_the_soup(tmp_path):
    """Before the first update the policy is the first model: its KL to the soup is above 0, and to itself it is 0."""
    other, rows = noisy(0.02), [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(12)]
    other.module.save_pretrained(tmp_path / "other")
    other.tokenizer.save_pretrained(tmp_path / "other")
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    small = {"rl.schedule.prompts": 2, "rl.collect.links.0.n": 2, "soup.tasks": 2}
    for alpha in (0.5, 1.0):
        run = pl.train(
            "salsa",
            data=str(tmp_path / "p.jsonl"),
            out=tmp_path / str(alpha),
            steps=1,
            evaluate=0,
            quiet=True,
            max_tokens=8,
            set={"others": str(tmp_path / "other"), "alpha": alpha, "algorithm": "grpo", **small},
        )
        (line,) = [json.loads(x) for x in (run.folder / "rl" / "metrics.jsonl").read_text().splitlines()]
        assert line["kl_ref"] > 1e-4 if alpha == 0.5 else abs(line["kl_ref"]) < 1e-9


def test_a_user_without_a_second_start_is_told(tmp_path):
    rows = [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(4)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(UserError, match=r"others="):
        pl.train("salsa", data=str(tmp_path / "p.jsonl"), out=tmp_path / "run", steps=1, evaluate=0, quiet=True)
