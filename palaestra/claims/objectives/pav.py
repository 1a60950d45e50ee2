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
    claim="On chains of 5 or 6 numbers, at equal answers of the policy, progress under the best of 4 tries, "
    "beside the outcome, gives a held-out accuracy at least 3 points above the outcome alone.",
    quantity="more than 6 points of accuracy and five to six times fewer samples than outcomes alone",
    arms={
        "outcome": arm(outcomes()),
        "pav": arm(build(), VALUED),
        "prover is policy": arm(build(k=1), VALUED),
        "other steps": arm(build(), VALUED, OtherSteps()),
    },
    expect=pl.ledger.Greater("pav", "outcome", by=0.03, why="half of the paper's gain in accuracy"),
    falsified_if="progress gains less than 3 points over outcomes, or as much on other steps",
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
    note="The older claim charged an arm for the tokens of its continuations, which label the verifier in the "
    "paper and are not charged there. Here the budget is so large that it is never reached: all arms end "
    "after 12 steps of 32 answers of the policy, by which the paper counts, and the price of the "
    "continuations is shown by the sampled tokens of a run. The prover is the best of 4 tries of the policy "
    "itself, by 4 continuations from every line's end, so the best of 4 is taken of quarters: "
    "a noisy labeller. `other steps` has the values of an answer's prefixes on others of its prefixes,"
    " first and last as they were, so that an answer gains as much in all. Looked at before the declaration, "
    "one cell on trial seed 2000 at 1e-4, in its last steps: with `pav` the share of right training answers "
    "went from .50 to .72 in 11 steps, 17,700 tokens in all, three to four times those of the answers alone; "
    "three quarters of the groups or more had both kinds until the last step. Greedy answers of the start are"
    " right in .23, of 128. With as many steps "
    "`outcome` had .79 and `pav` with 2 continuations .84 of the samples right; at 3e-4 greedy answers fell, so the "
    "highest rate is 2e-4. What is learned is partly to work instead of "
    "guessing, which progress by lines can see. Cannot show: a trained verifier, search by it, the factor of "
    "five in samples, which needs longer runs to a level, and a prover that is too strong.",
)
