"""The claim of endogenous-reward: Endogenous generalist reward from next-token prediction (inverse
RL).
"""

from dataclasses import replace

import palaestra as pl
from palaestra.claims.beyond import BestAccuracy, untrained
from palaestra.recipes.rewards.endogenous_reward import build

TASKS = 192


@pl.stage
class OtherAnswers:
    """A reward, given to the answers of its group in another order."""

    reward: pl.RewardFn

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        found = list(await pl.judge_group(ctx, self.reward, group))
        rng = pl.rng_of(("other answers", ctx.seed, ctx.step, group.task.id))
        return [
            replace(r, total=other.total)
            if isinstance(r, pl.Reward) and isinstance(other := found[int(k)], pl.Reward)
            else r
            for r, k in zip(found, rng.permutation(len(found)), strict=True)
        ]


def arm(recipe: pl.Recipe) -> pl.Recipe:
    """8 prompts with 8 answers a step."""
    return pl.vary(recipe, schedule=pl.Schedule(prompts=8, steps=400))


def by_group(reward: pl.RewardFn) -> pl.Recipe:
    """The same reward and KL with GRPO's advantage in the place of PPO's critic."""
    return pl.vary(
        pl.recipe("grpo", kl=0.01),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True)),
        references={"ref": "policy"},
    )


REWARD = pl.Endogenous("ref", alpha=1.0, per_token=False)

EXPERIMENT = pl.Experiment(
    claim="On `rec`, the best accuracy, greedy or sampled, is at least 2 points higher after training on the "
    "endogenous reward than that of the untrained start at its best temperature.",
    quantity="five mathematical benchmarks improve with Qwen2.5-Math-7B (no number is known to us)",
    start=untrained(TASKS),
    arms={
        "ppo": arm(build()),
        "grpo": arm(by_group(REWARD)),
        "per token": arm(by_group(replace(REWARD, per_token=True))),
        "other answers": arm(by_group(OtherAnswers(REWARD))),
    },
    expect=pl.Greater(
        "grpo",
        "start",
        by=0.02,
        why="two points, beyond what a lower temperature gives for nothing",
    ),
    falsified_if="training on the endogenous reward is less than 2 points above the start at its best temperature",
    reasons=(pl.Needs("other answers", "the likelihood of each answer itself"),),
    measure=BestAccuracy(),
    metric="held-out accuracy, the better of greedy and temperature 1; of the start, the best of six",
    tuned={"optimiser.lr": (1e-4,)},
    blocks=pl.TWENTY_SEEDS,
    task="rec",
    tokens=24_000,
    evaluate=TASKS,
    samples=8,
    seconds=15.0,
    controls={
        "sampled at 1": pl.Final("sampled_after.pass@1.mean"),
        "pass@8": pl.Final("sampled_after.pass@8.mean"),
        "length": pl.Logged("length"),
        "entropy": pl.Logged("entropy_sampled"),
    },
    note="The older test compared samples at temperature 1 with those of the start, .285 against .212, while the start's greedy "
    "accuracy was .438 and that of the trained model .41. Here each arm has the better of greedy and sampled, and the start the "
    "best of six temperatures, which favours it a little. The likeliest token at each step is not the likeliest "
    "answer, which is what training is after, so it may win. The learner of the expectation is GRPO, whose advantage "
    "of a group needs no value: within a group the reward is the likelihood plus a constant, so both have one optimum. "
    "`ppo` is as the paper has it. On trial seed 3000 its own reward fell from 5.6 to 1.0 in ten steps, as it "
    "fell from 5.4 to 1.5 in the older test, entropy rose and greedy accuracy fell from .38 to .25; the squared error of "
    "its untaught critic was 51, which probably drowns the rest of the gradient. So the older arm did not follow "
    "its reward, and the expectation cannot rest on it. `other answers` gives each answer the "
    "reward of another of its group. `per token` divides by the length, as sums favour the short. "
    "Where the likeliest answer is wrong, as on `chain`, the same reward does harm. Cannot show: a model whose likelihood "
    "knows more than its samples, which pre-training at scale is said to give.",
)
