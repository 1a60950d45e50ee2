"""What a plain `build()` sets: the numbers that the papers and their released codes print, as the catalogue has them.

A name is the end of a path of the flattened configuration; every leaf with that end must have the value. What a method does not
name is USUAL. Budgets of the papers (prompts, samples, rates, lengths) stand on the cards: recipes have those of a small model.
"""

from importlib import import_module
from pathlib import Path

import pytest
from palaestra.recipes import objectives
from palaestra.values import flatten

from tests.rows import every

USUAL = {
    "links.0.n": 8,  # samples a prompt
    "links.0.temperature": 1.0,
    "update.epochs": 1,
    "update.minibatches": 1,
    "update.fresh": False,
    ".low": 0.2,  # PPO's eps
    ".high": 0.2,
    ".ratio": "token",
    ".old": "behaviour",
    ".ddof": 1,
    ".length": None,
    ".trust": "all",
    ".weighted": False,
    "schedule.prompts": 16,
    "schedule.steps": 50,
    "schedule.lag": 0,
    "schedule.max_age": None,
}
SEQUENCES, TOKENS = {"objective.reduce": "sequences"}, {"objective.reduce": "tokens"}  # GRPO's mean, DAPO's
CLIP_HIGHER = {".low": 0.2, ".high": 0.28}
PPO = {"update.epochs": 2, "update.minibatches": 4, ".gamma": 1.0, ".lam": 0.95, "objective.clip": 0.2}
DEFAULTS = {
    "agro": {".beta": 0.1, ".weight": "variance", ".centred": True, ".on_policy": False},  # beta 1e-3 to 1e-1
    "apo": {"1.eps": 1e-9, ".base": 1.00001, "parts.1.weight": 1e-3, ".kind": "k3", "objective.weight": "kl_weight"},
    "asymre": {".by": 0.1, "schedule.lag": 8, **TOKENS},  # V = mean - .1; no std
    "attention_rhythm": {"2.window": 10, ".near": 10, ".far": 50, ".amplify": 1.5, ".share": 0.4, ".alpha": 0.5, ".lookback": 3,
                         ".mode": "coupled"},
    "capo": {".client.model": "policy", ".right": 2.0, ".wrong": 1.0, "links.2.n": 4, ".vote": "majority", ".ddof": 0,
             **SEQUENCES},
    "carft": {**PPO, "links.0.n": 1, "schedule.prompts": 128, "0.kl": 0.05, ".temperature": 0.2, "links.0.temperature": 1.0,
              "parts.0.reduce": "sequences", "parts.1.weight": 0.1, "parts.2.weight": 1.0},
    "cola": {"acting.start": 0.0, "acting.end": 1.0, "acting.step": 15, "then.reduce": "sequences"},
    "confucius3": {**CLIP_HIGHER, ".slope": -0.256, ".level": 1.256, "links.0.positive": 1.0, "links.0.negative": -1.0,
                   "schedule.max_age": 1, "objective.reduce": "constant", ".length": None, ".old": "policy", "pool.size": 0},
    "dr_grpo": {"objective.reduce": "constant", ".length": None},  # of the run's longest answer
    "effective_rank": {".stride": 40, ".kappa": 2.0, ".gain": 2.0, ".keep": 0.7, **SEQUENCES},
    "egsw": {".alpha": 0.3, "links.2.temperature": 1.0, "links.2.level": "episode", ".advantage": 1.0, **SEQUENCES},
    "embodied_planner_r1": {"parts.0.reduce": "tokens", "parts.1.weight": 1e-3, ".kind": "k3", "parts.2.weight": 1e-3},
    "g2rl": {"0.weight": 1.0, ".bound": 3.0, ".form": "text", **SEQUENCES},
    "gigpo": {".gamma": 0.95, "parts.0.0": 1.0, "parts.1.0": 1.0, ".penalty": 0.1, ".similarity": 1.0, "0.reduce": "tokens"},
    "high_entropy_tokens": {**CLIP_HIGHER, ".c": 10.0, ".share": 0.2, ".by": "entropy", ".over": "all", **TOKENS},
    "igpo": {".gamma": 1.0, ".pool": "joint", "0.reduce": "sequences"},
    "incorrect_synthetic_data": {"links.2.n": 5, ".beta": 0.1, ".form": "root", ".smoothing": 0.0, ".wrong_only": True},
    "kimi_k1_5": {".beta": 0.1, "objective.model": "behaviour", ".centred": False, ".weight": "policy", "update.minibatches": 4,
                  "update.fresh": True, "weight.start": 0.0, "weight.end": 0.5, "weight.step": 20},
    "lite_ppo": {"links.0.scope": "batch", "links.1.scope": "group", "links.0.eps": 1e-6, **TOKENS},
    "loop": {".low": pytest.approx(1 - 1 / 1.1), ".high": 0.1, "update.epochs": 2, "update.minibatches": 4, ".least": 0.01, 
             ".others": True, **SEQUENCES},  # 128 rollouts in minibatches of 32
    "nsr": {"links.0.positive": 0.0, "links.0.negative": -1.0, **TOKENS},
    "oreo": {".beta": 0.03, "parts.1.weight": 0.01, ".kind": "k2", "parts.0.level": "token", "parts.0.reduce": "tokens"},
    "pav": {".alpha": 3.0, ".k": 4, "links.2.n": 4, **SEQUENCES},
    "rapo": {"parts.1.weight": 0.01, "parts.2.weight": 1e-3, ".how": "sample", "parts.0.reduce": "sequences"},
    "rec": {".trust": "one-side", "schedule.lag": 6, ".far_low": 0.6, ".far_high": 2.0, **TOKENS},
    "rover": {".rho": 1.0, ".bootstrap": True, "update.minibatches": 4},  # 128 prompts in minibatches of 32
    "spa_rl": {**PPO, "0.alpha": 1.0, "0.beta": 0.5, "parts.1.weight": 0.5, "policy.update.on": (0,), "estimator.update.on": (),
               "update.warmup": 10, "policy.update.warms": False, "estimator.update.warms": True},
    "srpo_gream": {"links.0.n": 10, ".k": 4, "parts.0.0": 1.0, "parts.1.0": 1.0, "1.eps": 1e-6, "pool.size": 16, **TOKENS},
    "steer": {**CLIP_HIGHER, ".c": 10.0, ".lowest": 0.8, ".highest": 1.2, ".mapping": "linear", "objective.reduce": "tokens"},
    "stratified_grpo": {"parts.0.0": 0.8, "parts.1.0": pytest.approx(0.2), **SEQUENCES},
    "tba": {".beta.start": 0.012, ".beta.end": 0.004, ".beta.steps": 500, ".weight": "balance", ".recent": 0.95,
            ".capacity": 100, "schedule.lag": 2, "schedule.max_age": 32, ".centred": True},
    "tempo": {**CLIP_HIGHER, ".outcome": 1.0, "parts.0.reduce": "tokens"},
}  # fmt: skip
OPTIONS = {  # what an argument sets that is off by default; signs of added terms
    "confucius3": ({"phase": 1}, {"parts.1.weight": 0.001, ".target": 0.55, ".high": 0.2}),
    "egsw": ({"kl": 0.02}, {"parts.1.weight": 0.02, ".kind": "k3"}),
    "gigpo": ({"kl": 0.01, "std": True}, {"parts.2.weight": 0.01, ".kind": "k3", "parts.2.objective.reduce": "tokens"}),
    "kimi_k1_5": ({"length": 0.3, "length_from": 5}, {"weight.start": 0.0, "weight.end": 0.3, "weight.step": 5}),
    "loop": ({"ratio": "turn", "eps": 0.25}, {".low": pytest.approx(0.2), ".high": 0.25, ".ratio": "turn"}),
    "pav": ({"kl": 0.001}, {"parts.1.weight": 0.001, ".kind": "k3"}),
    "rec": ({"high": 2.0, "trust": "ring", "tau": 1.0}, {".high": 2.0, ".trust": "ring", "objective.weight": 0.5}),
    "srpo_gream": ({"kl": 0.001}, {"parts.1.weight": 0.001, ".kind": "k3", "parts.1.objective.reduce": "tokens"}),
}


def check(recipe, wanted):
    leaves = flatten(recipe)
    for end, expected in wanted.items():
        longer = [e for e in wanted if e != end and e.endswith(end)]  # an end that says more goes before
        found = {p: v for p, v in leaves.items() if p.endswith(end) and not any(p.endswith(e) for e in longer)}
        assert found or end in USUAL, f"no leaf ends with {end!r}"
        assert found == dict.fromkeys(found, expected)


@every("name", DEFAULTS)
def test_defaults_are_the_published_ones(name):
    check(import_module(f"{objectives.__name__}.{name}").build(), USUAL | DEFAULTS[name])


@pytest.mark.parametrize("name", OPTIONS)
def test_options_set_what_they_say(name):
    arguments, wanted = OPTIONS[name]
    check(import_module(f"{objectives.__name__}.{name}").build(**arguments), wanted)


def test_every_method_has_defaults():
    files = Path(objectives.__path__[0]).glob("*.py")
    assert sorted(DEFAULTS) == sorted(f.stem for f in files if f.stem != "__init__") and len(DEFAULTS) == 32
