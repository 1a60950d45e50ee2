"""The claim of critique-grpo: improved answers, learned without what improved them."""

from dataclasses import replace

import numpy as np

import palaestra as pl
from palaestra.claims.starts import RATES, ThinkInstead
from palaestra.recipes.data.critique_grpo import MARK, build

LONGEST = 96  # tokens of an answer


@pl.stage
class OfWrong:
    """What `rewrite` shows, else the question as it is, where the attempt is wrong: nobody speaks
    of it.
    """

    rewrite: "pl.rollout.Rewrite | None" = None

    def __call__(
        self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator
    ) -> pl.Task | None:
        if all(e.solved for e in group.valid):
            return None
        return self.rewrite(ctx, group, rng) if self.rewrite else group.task


@pl.stage
class AnyLine:
    """A critique whose line is drawn at random from those of the working, whatever is wrong."""

    def __call__(
        self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator
    ) -> pl.Task | None:
        critique = pl.Feedback("critique")(ctx, group, rng)
        if critique is None:
            return None
        working = pl.rollout.written_answer(ctx.bench.tasks, group.task, rng, "work").splitlines()
        line = int(rng.integers(len(working))) + 1
        message = replace(critique.prompt[-1], content=f"line {line} is wrong, try again")
        return replace(critique, prompt=(*critique.prompt[:-1], message))


def refined(rewrite: "pl.rollout.Rewrite | None" = None) -> pl.Recipe:
    """8 prompts a step; a wrong answer is shown as `rewrite` puts it. The critique is the number of
    the first wrong line, which the task knows: a program stands for the critic.
    """
    learned = build("verdict", length=LONGEST)
    revision = rewrite or pl.Feedback("critique")
    learned = pl.override(learned, "collect.links.2.link.rewrite", revision)
    return pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=200))


def own_loss() -> pl.Shaped:
    """What the recipe takes of the policy's own answers."""
    return pl.Shaped("power", old="behaviour", reduce="constant", length=LONGEST)


def unlearned() -> pl.Recipe:
    """The refinement counts in the mean of its group, and nothing is learned from it."""
    own = pl.On(MARK, own_loss(), absent=True)
    return pl.vary(refined(), objective=own + 0.001 * pl.Entropy())


def plain() -> pl.Recipe:
    """Eight answers, and Critique-GRPO's own loss of them."""
    return pl.vary(
        refined(),
        collect=pl.links(pl.Sample(n=8), pl.Score()),
        credit=pl.chain(pl.Center("group")),
        objective=own_loss() + 0.001 * pl.Entropy(),
    )


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "grpo": plain(),
        "critique": refined(),
        "verdict": refined(pl.Feedback("verdict")),
        "answer": refined(pl.Feedback("answer")),
        "not learned": unlearned(),
        "asked again": refined(OfWrong()),
        "any line": refined(AnyLine()),
        "think instead": refined(OfWrong(ThinkInstead())),
    },
    expect=pl.ledger.Greater(
        "critique", "grpo", by=0.03, why="three of the 4.5 points that the paper gains"
    ),
    reasons=(
        pl.ledger.Needs("asked again", "more than another attempt of which the best is kept"),
        pl.ledger.Needs("any line", "where the answer is wrong"),
        pl.ledger.Needs(
            "think instead", "what is said of the answer, and not only a word that says to work"
        ),
        pl.ledger.Needs("not learned", "the refinement in the loss"),
    ),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy without critiques (temperature 1)",
    tuned={"optimiser.lr": RATES},
    task=f"chain(operands=(6,7),max_tokens={LONGEST})",
    tokens=8_000,
    evaluate=128,
    samples=8,
    seconds=40.0,
    controls={
        "surrogate of refinements": pl.ledger.Logged(f"{MARK}/shaped", last=0),
        "entropy": pl.ledger.Logged("entropy_sampled"),
    },
)
