"""Five contrasting methods through the one step: the cheapest proof that the shapes hold.

dr-grpo (constant reduction), prefix trees (token credit), guidance (hidden context, a loss coupled over the batch),
adaptive sampling with muting, trajectory balance (coupled groups, a reference model).
"""

import asyncio
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from palaestra.credit.links import Center, Chain, Scale, chain
from palaestra.credit.table import Values
from palaestra.curriculum.pool import Mixed
from palaestra.method import Learner, Recipe
from palaestra.objective.algebra import Algebra, reduce_terms
from palaestra.objective.policy import Clipped, log_ratio
from palaestra.rollout.collect import Until, When, links
from palaestra.rollout.queue import Schedule
from palaestra.step import start, step
from palaestra.types import Group, Segment, stage
from palaestra.update import AdamW, backward, pack, recount

from tests.fake import FakeContext, episode, rewards, task

EASY = task("easy", (0,), (1, 2, 3))
HARD = task("hard", (1,), (4, 4, 4), hint=(5,))


@stage
class Cycle:
    tasks: tuple = (EASY, HARD)

    def __call__(self, ctx, key, n, state):
        at = state.get("cursor", 0)
        return [self.tasks[(at + i) % len(self.tasks)] for i in range(n)], state | {"cursor": at + n}


@stage
class Attempt:
    n: int = 8
    hint: bool = False
    fresh: bool = False

    async def __call__(self, ctx, key, group):
        hint = group.task.meta["hint"] if self.hint else ()
        new = [ctx.sample(group.task, (*key, i), hint) for i in range(self.n)]
        return replace(group, episodes=(*(() if self.fresh else group.episodes), *new))


@stage
class Balance:
    """Mutes all but `n` right and `n` wrong episodes."""

    n: int = 2

    async def __call__(self, ctx, key, group):
        left, out = {True: self.n, False: self.n}, []
        for e in group.episodes:
            left[e.total > 0.7] -= 1
            out.append(replace(e, muted=left[e.total > 0.7] < 0))
        return replace(group, episodes=tuple(out))


@stage
class PrefixTree:
    """z_i + difference of mean z over the samples that share the prefix."""

    def __call__(self, x, table):
        z, sets, at = x.x_N, {}, table.tokens
        paths = [tuple(v.ids_T[v.trained_T]) for (v,) in table.views]
        for i, path in enumerate(paths):
            for t in range(len(path) + 1):
                sets.setdefault((table.group_E[i], path[:t]), []).append(z[i])
        first = {}
        out = np.empty(len(at.episode_N))
        for n, (e, p) in enumerate(zip(at.episode_N, at.position_N, strict=True)):
            t = p - first.setdefault(e, p)
            value = lambda k, e=e: np.mean(sets[table.group_E[e], paths[e][:k]])
            out[n] = z[e] + value(t + 1) - value(t)
        return Values(level="token", x_N=out)


@stage
class GuidedColumn:
    """Marks the rows that were sampled with a hint."""

    def __call__(self, x, table):
        hidden = [float(any(s.hidden for s in e.rows[0].segments)) for e in table.episodes]
        table.columns["guided"] = Values(level="episode", x_N=np.array(hidden))
        return x


@dataclass(frozen=True)
class GuidedLoss(Algebra):
    """Shapes guided tokens by rho / (rho + their q-quantile over the batch): couples the whole batch."""

    q: float = 0.9
    couples: ClassVar = "batch"

    def __call__(self, out, batch):
        rho, A = log_ratio(out, batch).exp(), batch["advantage"]
        guided = (batch["guided"] > 0) & (batch.mask > 0)
        gamma = torch.quantile(rho[guided].detach(), self.q) if guided.any() else torch.tensor(1.0)
        plain = -torch.minimum(rho * A, rho.clamp(0.8, 1.2) * A)
        return reduce_terms(torch.where(guided, -A * rho / (rho + gamma), plain), batch, "tokens"), {}


@dataclass(frozen=True)
class TrajectoryBalance(Algebra):
    beta: float = 0.5
    couples: ClassVar = "unit"

    def __call__(self, out, batch):
        d = batch["reward"] - self.beta * ((out["logp"] - batch["ref_logp"]) * batch.mask).sum(1)
        same = (batch["group"][:, None] == batch["group"][None]).to(d)
        return ((d - (same @ d / same.sum(1)).detach()) ** 2).sum() / self.beta**2 / batch.n_rows, {}


def failed(r):
    return r.max() <= 0


def balanced(r):
    return min((r > 0.7).sum(), (r <= 0.7).sum()) >= 2


def dr_grpo(**learner):
    base = Learner(
        credit=chain(Center()), objective=Clipped(reduce="constant", length=4), optimiser=AdamW(lr=1.0, clip_norm=0)
    )
    return Recipe(
        draw=Cycle(),
        collect=links(Attempt()),
        learners={"policy": replace(base, **learner)},
        schedule=Schedule(prompts=2),
    )


RECIPES = {
    "dr_grpo": dr_grpo(optimiser=AdamW(lr=4.0, clip_norm=0)),
    "tempo": dr_grpo(credit=chain(Center(), Scale(ddof=0), PrefixTree()), objective=Clipped(reduce="tokens")),
    "guide": replace(
        dr_grpo(credit=chain(Center(), Scale(ddof=0), GuidedColumn()), objective=GuidedLoss()),
        pool=Mixed(2),
        collect=links(Attempt(), When(failed, Attempt(hint=True, fresh=True))),
    ),
    "ada": replace(dr_grpo(), collect=links(Until(balanced, Attempt()), Balance())),
    "tba": dr_grpo(
        credit=Chain((Center(),), unit="group"),
        objective=TrajectoryBalance(),
        needs=(("ref", "logp"),),
        optimiser=AdamW(lr=0.1, clip_norm=0),
    ),
}


def world(seed=0):
    ctx = FakeContext(seed)
    with torch.no_grad():
        m, ref = ctx.models["policy"], ctx.models["ref"]
        m.U[0, 1] += 2
        m.U[1, 2] += 1
        m.U[2, 3] += 1
        m.C[1, 4] -= 1
        m.C[5, 4] += 3
        m.U[4, 4] += 1
        ref.load_state_dict(m.state_dict())
    return ctx


def chance(ctx, t):
    e = episode(t.meta["ids"], t.answer, 0.0)
    from palaestra.types import Example

    batch = pack([Example(row=e.rows[0], columns={})])
    return float(ctx.models["policy"].outputs(batch)["logp"].detach().sum().exp())


def run(recipe, steps, seed=0):
    ctx, state = world(), start(seed)
    for _ in range(steps):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    return ctx, state, metrics


@pytest.mark.parametrize("name", RECIPES)
def test_learns_the_easy_task(name):
    before = chance(world(), EASY)
    ctx, state, _ = run(RECIPES[name], 60)
    assert state["step"] == 60
    assert chance(ctx, EASY) > 2 * before


def test_guidance_reaches_what_plain_sampling_cannot():
    plain, guided = run(RECIPES["dr_grpo"], 60)[0], run(RECIPES["guide"], 60)[0]
    assert chance(guided, HARD) > 100 * chance(plain, HARD)


def test_muted_episodes_count_in_the_baseline_and_train_nothing():
    group = Group(
        task=EASY,
        episodes=(episode((0,), (1, 2, 3), 1.0), *(episode((0,), (1, 1, 1), 0.0, muted=i > 0) for i in range(3))),
    )
    examples, _ = RECIPES["ada"].learners["policy"].credit([group], [], {})
    assert [round(e.columns["advantage"][-1], 6) for e in examples] == [0.75, -0.25]


def test_prefix_tree_reference_values():
    """rewards [1,0,0,0], ABC ABD AEF AEG: z = [1.732051, -.577350 x 3], ddof 0."""
    a, b, c, d, e, f = range(6)
    paths = ((a, b, c), (a, b, d), (a, e, f), (a, e, c))
    group = Group(task=EASY, episodes=tuple(episode((0,), p, float(i == 0)) for i, p in enumerate(paths)))
    examples, _ = RECIPES["tempo"].learners["policy"].credit([group], [], {})
    got = [x.columns["advantage"][1:].tolist() for x in examples]
    assert got[0] == pytest.approx([1.732051, 2.309401, 2.886751], abs=1e-5)
    assert got[1] == pytest.approx([-0.577350, 0, -1.732051], abs=1e-5)
    assert got[2] == pytest.approx([-0.577350, -1.154701, -0.577350], abs=1e-5)


@pytest.mark.parametrize("name", RECIPES)
def test_gradient_is_the_same_for_every_split(name):
    """Law 2 on real batches of all five, moved off the sampling policy."""
    ctx, caught = world(), {}
    recipe = RECIPES[name]

    def catch(ctx, name, learner, batch, state):
        caught["batch"] = batch
        return {"skipped": 0.0}, state

    held = replace(recipe, learners={"policy": replace(recipe.learners["policy"], update=catch)})
    asyncio.run(step(held, ctx, start(5)))
    model, batch, objective = ctx.models["policy"], caught["batch"], recipe.learners["policy"].objective
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(9), dtype=p.dtype)

    def gradient(budget):
        model.zero_grad()
        backward(lambda b: model.outputs(b, objective.needs), objective, batch, budget)
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    whole = gradient(10**9)
    model.zero_grad()
    loss, _ = objective(model.outputs(batch, objective.needs), batch)
    loss.backward()
    plain = torch.cat([p.grad.flatten() for p in model.parameters()])
    for budget in (1, 9, 25, 60):
        assert float((gradient(budget) - plain).norm() / plain.norm()) < 1e-12
    assert torch.equal(whole, plain)


def test_columns_follow_the_training_view():
    row = episode((0,), (1, 2, 3), 1.0).rows[0]
    hinted = replace(row, segments=(row.segments[0], Segment(ids=(5, 5), hidden=True), row.segments[1]))
    assert hinted.context() == (0, 5, 5, 1, 2, 3)
    assert hinted.view().ids_T.tolist() == [0, 1, 2, 3]


def test_counts_stay_with_the_whole_batch():
    group = Group(task=EASY, episodes=tuple(episode((0,), (1,) * n, float(n)) for n in (1, 2, 4)))
    examples, _ = chain(Center())([group], [], {})
    batch = pack(examples)
    part = batch.part(torch.tensor([0]))
    assert (part.n_tokens, part.n_rows, part["ids"].shape) == (7, 3, (1, 2))
    assert recount(part).n_tokens == 1


def test_step_names_no_method():
    from pathlib import Path

    import palaestra.step

    source = Path(palaestra.step.__file__).read_text().lower()
    assert not [m for m in ("grpo", "ppo", "dpo", "rloo", "hint", "isinstance(r,") if m in source]


def test_rewards_helper():
    assert rewards(Group(task=EASY, episodes=(episode((0,), (1,), 0.5),))).tolist() == [0.5]
