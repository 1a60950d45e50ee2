"""Law 13: a gradient on 1, 2 or 3 ranks is that of one process, within 1e-12 in float64, for every objective.

Hands are unequal, and empty where there are fewer parts than ranks. Two controls must fail the same comparison: gradients
averaged over ranks, and a coupled loss that each rank takes of its own rows.
"""

from dataclasses import dataclass
from typing import Any

import pytest
from palaestra.models.lora import LoRA
from palaestra.objective.algebra import Algebra
from palaestra.recipes.base import dpo, grpo, ppo
from palaestra.recipes.objectives import steer
from palaestra.scale.local_ranks import run_ranks
from palaestra.settings.overrides import make_smallest
from palaestra.values import override

from tests.shards import cases_of, compare, every_case, store

EXACT = 1e-12
QUICK = {"grpo": grpo.build(kl=0.1), "ppo": ppo.build(), "dpo": dpo.build(), "steer": steer.build()}


@dataclass(frozen=True)
class RankByRank(Algebra):
    """A coupled loss that each rank takes of its own rows."""

    objective: Any
    couples = "row"

    @property
    def needs(self):
        return self.objective.needs

    def __call__(self, out, batch):
        return self.objective(out, batch)


def averaged(sharded, case):
    for module in sharded.root.modules():
        if hasattr(module, "set_gradient_divide_factor"):
            module.set_gradient_divide_factor(float(sharded.ranks))
    return case.objective


def rank_by_rank(sharded, case):
    return RankByRank(case.objective)


def check(found, ranks):
    assert all(f.norm > 0 for f in found)
    assert max(f.error for f in found) < EXACT and max(f.metrics for f in found) < EXACT
    hands = [f.hands for f in found]
    assert {len(h) for h in hands} == {ranks}
    if ranks > 1:
        assert any(0 < min(h) < max(h) for h in hands) and any(min(h) == 0 for h in hands)


def compare_all(mesh, cases, few):
    """The objectives as they are, under adapters with layers that are computed twice, and the controls."""
    found = {"as it is": compare(mesh, cases), "lora": compare(mesh, few, LoRA(rank=4), recompute=True)}
    if mesh.size() > 1:
        found["averaged"] = compare(mesh, few, spoil=averaged)
        found["rank by rank"] = compare(mesh, few, spoil=rank_by_rank)
    return found


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Objectives that couple rows, units and the batch; a value head, a reference. Few: the first and the coupled."""
    folder = tmp_path_factory.mktemp("cases")
    cases = [
        case
        for name, recipe in QUICK.items()
        for case in cases_of(name, override(make_smallest(recipe), "schedule.prompts", 3))
    ]
    assert {c.objective.couples for c in cases} == {"row", "unit", "batch"}
    few = [c for c in cases if c.name in ("grpo", "steer")]
    return store(folder / "cases", cases), store(folder / "few", few)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_gradients_of_some_objectives(quick, ranks):
    found = run_ranks(ranks, compare_all, *quick)[0]
    check(found["as it is"], ranks)
    check(found["lora"], ranks)
    if ranks > 1:
        assert min(f.error for f in found["averaged"]) > 0.1
        wrong = {f.name: f.error for f in found["rank by rank"] if min(f.hands)}
        assert wrong["steer"] > 0.05 and wrong["grpo"] < EXACT, "what couples no rows may be taken rank by rank"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_gradients_of_every_objective(tmp_path, ranks):
    cases = every_case()
    assert len(cases) >= 80
    check(run_ranks(ranks, compare, store(tmp_path / "cases", cases), seconds=1500)[0], ranks)
