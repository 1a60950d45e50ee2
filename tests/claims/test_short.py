"""What claims about losses and credit compare with, in short runs."""

from collections import Counter
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.claims.objectives.oreo import EveryAnswer
from palaestra.claims.objectives.steer import WeightsElsewhere
from palaestra.claims.objectives.tempo import TermsElsewhere
from palaestra.credit.table import Table
from palaestra.ledger.experiment import experiment_of
from palaestra.types import Group, Task

from tests.claims.two_steps import runs_two_steps
from tests.fake import episode
from tests.rows import every

# two arms, and the fields of a recipe in which alone they may differ
PAIRS = [
    ("lite-ppo", "lite-ppo", "grpo", ("learners",)),
    ("lite-ppo", "lite-ppo", "deviation of the group", ("learners",)),
    ("lite-ppo", "lite-ppo", "mean over answers", ("learners",)),
    ("lite-ppo", "lite-ppo", "no deviation", ("learners",)),
    *(("high-entropy-tokens", "top 20%", n, ("learners",)) for n in ("all", "bottom 80%", "random 20%", "top 50%")),
    *(("tempo", "tempo", n, ("learners",)) for n in ("grpo", "td-only", "elsewhere")),
    *(("egsw", "egsw", n, ("learners",)) for n in ("grpo", "advantage alone", "entropy alone")),
    *(("steer", "linear", n, ("learners",)) for n in ("clip-higher", "exp", "elsewhere", "entropy bonus")),
    ("confucius3", "+both", "+pshw", ("schedule",)),
    ("confucius3", "+both", "+rsr", ("learners",)),
    ("confucius3", "+both", "easy first", ("learners",)),
    ("confucius3", "+both", "dapo", ("learners", "schedule")),
    *(("attention-rhythm", "coupled", n, ("learners",)) for n in ("grpo", "global", "random", "bottom")),
    *(("rec", "one-side", n, ("learners",)) for n in ("no mask", "one-side with IS", "one-side to 2")),
    ("rec", "no mask", "no mask and fresh", ("schedule",)),
    ("agro", "agro", "grpo", ("learners", "references")),
    ("agro", "agro", "no log-ratios", ("learners", "references")),
    ("agro", "agro", "agro fresh", ("schedule",)),
    ("agro", "grpo", "grpo fresh", ("schedule",)),
    ("agro", "grpo", "clipped", ("learners",)),
]
PAIRS += [
    *(("nsr", "nsr", n, ("learners",)) for n in ("psr", "w-reinforce", "reinforce", "any answer")),
    *(("g2rl", "g2rl", n, ("learners",)) for n in ("grpo", "g2rl by equation 12", "placebo")),
    ("g2rl", "g2rl", "mixed groups", ("pool",)),
    ("g2rl", "placebo", "placebo of mixed groups", ("pool",)),
    *(("rover", "rover", n, ("learners",)) for n in ("grpo unscaled", "entropy bonus", "no bootstrap")),
    *(("effective-rank", "verl", n, ("learners",)) for n in ("grpo", "placebo", "count of tokens")),
    *(("rapo", "rapo", n, ("learners", "collect")) for n in ("reverse KL",)),
    ("rapo", "rapo", "no KL", ("learners", "collect", "references")),
    ("rapo", "rapo", "forward KL", ("collect",)),
    ("oreo", "oreo", "oreo-response", ("learners",)),
    ("oreo", "oreo", "dpo", ("learners",)),
    ("oreo", "dpo", "dpo on extremes", ("learners",)),
]
RATES = {"nsr": 2, "oreo": 4, **dict.fromkeys(("steer", "g2rl", "rover", "effective-rank", "rapo"), 1)}  # else three
METHODS = tuple(dict.fromkeys(m for m, *_ in PAIRS))


@every(("method", "one", "other", "fields"), PAIRS)
def test_arms_differ_in_settings_alone(method, one, other, fields):
    a, b = (experiment_of(method).arms[n] for n in (one, other))
    assert a != b and replace(a, **{f: getattr(b, f) for f in fields}) == b
    assert all(getattr(a, f) != getattr(b, f) for f in fields)
    kept = [(r.learners["policy"].optimiser, r.learners["policy"].update, r.schedule.prompts) for r in (a, b)]
    assert kept[0] == kept[1]


@every("method", METHODS)
def test_every_arm_is_tuned_over_the_same_rates(method):
    e = experiment_of(method)
    (path,) = e.tuned
    rates = {a: {s[path] for s in e.settings_of(a)} for a in e.arms}
    assert not e.lacks() and len({frozenset(r) for r in rates.values()}) == 1
    assert all(len(r) == RATES.get(method, 3) for r in rates.values())
    assert {x for m, *pair, _ in PAIRS if m == method for x in pair} == set(e.arms)


def test_terms_elsewhere_are_those_of_their_answer():
    texts = ((1, 2, 3, 4), (1, 2, 5, 6), (1, 7, 8, 9), (1, 7, 3, 4))
    made = tuple(episode((0,), ids, float(r)) for ids, r in zip(texts, (1, 0, 1, 0), strict=True))
    table = Table([Group(task=Task(id="a/0", domain="a"), episodes=made)], [], {})
    x = pl.Values(level="episode", x_N=np.array([1.0, -1.0, 1.0, -1.0]))
    own, other = (stage(x, table).x_N.reshape(4, 4) for stage in (pl.credit.PrefixTree(1.0), TermsElsewhere()))
    assert [Counter(r.round(6)) for r in own] == [Counter(r.round(6)) for r in other]
    assert not np.allclose(own, other)


def test_weights_elsewhere_are_those_of_the_batch():
    ids_BT = torch.arange(12).reshape(2, 6)
    trained_BT = torch.tensor([[0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0]]).float()
    columns = {"ids": ids_BT, "trained": trained_BT, "behaviour_logp": torch.linspace(-3, -0.1, 12).reshape(2, 6)}
    columns["advantage"] = torch.linspace(-1, 2, 12).reshape(2, 6)
    batch = pl.Batch(columns=columns, unit_B=torch.tensor([0, 1]), n_tokens=9, n_rows=2, n_units=2)
    out = {"logp": columns["behaviour_logp"], "entropy": torch.linspace(0.1, 1, 12).reshape(2, 6)}
    on_BT = batch.mask > 0
    own, other = (s(out, batch)[0] for s in (WeightsElsewhere().weight, WeightsElsewhere()))
    assert torch.equal(own[on_BT].sort().values, other[on_BT].sort().values)
    assert not torch.equal(own, other) and not other[~on_BT].any()


def test_every_answer_is_in_a_pair():
    def group(*totals):
        made = (episode((0,), (i,), float(r)) for i, r in enumerate(totals))
        return Group(task=Task(id="a/0", domain="a"), episodes=tuple(made))

    groups = [group(1, 0, 0, 1, 0), group(1, 1), group(0, 0, 0)]
    found, _ = EveryAnswer()(groups, [[[{}]] * len(g.episodes) for g in groups], {})
    said = [(x.unit, x.row.segments[-1].ids[0], x.columns["sign"]) for x in found]
    pairs = [(0, 1), (3, 2), (0, 4)]
    assert said == [(f"pair 0 {k}", e, s) for k, p in enumerate(pairs) for e, s in zip(p, (1, -1), strict=True)]


def test_fresh_episodes_pay_for_as_many_steps_as_reused_ones():
    """loop: a step of the optimiser for every prompt, in every arm."""
    e = experiment_of("loop")
    plans = {n: (a.learners["policy"].update, a.schedule.prompts) for n, a in e.arms.items()}
    assert {u.epochs * u.minibatches / prompts for u, prompts in plans.values()} == {1.0}
    assert not e.lacks() and {len(e.settings_of(a)) for a in e.arms} == {3}
    token = e.arms["token"]
    assert all(replace(token, learners=e.arms[n].learners) == e.arms[n] for n in ("turn", "trajectory", "std"))


ARMS = [(m, n, a) for m in (*METHODS, "loop") for n, a in experiment_of(m).arms.items()]


@pytest.mark.by_row
@pytest.mark.parametrize("arm", [pytest.param(a, id=f"{m}:{n}") for m, n, a in ARMS])
def test_every_arm_runs(arm, context, small):
    runs_two_steps(small(arm), context())
