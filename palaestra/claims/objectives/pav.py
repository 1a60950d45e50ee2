"""The claim of pav: Rewarding Progress: process advantage verifiers (PAV)."""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.objectives.pav import build

N = 4  # answers to a prompt
STEPS = 12


@pl.stage
class OtherSteps:
    """The values of an answer's prefixes, given to others of its prefixes: as much progress in all,
    and not where it was made.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        def mixed(e: pl.Episode) -> pl.Episode:
            if "prefix_values" not in e.facts:
                return e
            first, *inner, last = e.facts["prefix_values"]
            order = pl.rng_of(("other steps", ctx.seed, ctx.step, e.text)).permutation(len(inner))
            values = (first, *(inner[i] for i in order), last)
            return replace(e, facts={**e.facts, "prefix_values": values})

        return replace(group, episodes=tuple(map(mixed, group.episodes)))


@pl.stage
class EqualAnswers:
    """Ends after so many steps, whatever the continuations cost."""

    recipe: pl.Recipe
    steps: int = STEPS

    async def run(self, ctx: Any) -> pl.Result:
        ctx.plan = replace(ctx.plan, steps=self.steps)
        return await ctx.train(self.recipe)


def arm(recipe: pl.Recipe, *after: pl.Collect) -> EqualAnswers:
    """12 steps of 8 prompts with 4 answers, whose prefixes are valued by 4 continuations each."""
    collect = pl.links(pl.Sample(n=N), pl.Score(), *after)
    schedule = pl.Schedule(prompts=8, steps=STEPS)
    return EqualAnswers(pl.vary(recipe, collect=collect, schedule=schedule))


def outcomes() -> pl.Recipe:
    """The recipe without progress."""
    return pl.vary(build(), credit=pl.chain(pl.Center("group")))


VALUED = pl.rollout.PrefixValues(n=4)

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "outcome": arm(outcomes()),
        "pav": arm(build(), VALUED),
        "prover is policy": arm(build(k=1), VALUED),
        "other steps": arm(build(), VALUED, OtherSteps()),
    },
    expect=pl.ledger.Greater("pav", "outcome", by=0.03, why="half of the paper's gain in accuracy"),
    reasons=(
        pl.ledger.Needs("prover is policy", "a prover that is another than the policy"),
        pl.ledger.Needs("other steps", "reward where the progress was made"),
    ),
    vetoes={"pass@4": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@4.mean"), falls=0.03)},
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    tuned={"optimiser.lr": (3e-5, 1e-4, 2e-4)},
    task="chain(operands=(5,6),max_tokens=96)",
    tokens=60_000,
    evaluate=128,
    samples=8,
    seconds=25.0,
    controls={
        "reward": pl.ledger.Logged("reward"),
        "length": pl.ledger.Logged("length"),
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
    },
)
