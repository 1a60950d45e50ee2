"""Long to short by merging: weights of a model that answers at once and of one that works step by
step become one model, without training (arXiv:2503.20641).

    average            mean of theta_i
    task arithmetic    theta_0 + a * sum_i d_i,  d_i = theta_i - theta_0
    TIES               d_i without their smallest entries; of those the mean over the models that have the elected sign
    DARE               entries of d_i dropped at random, the others scaled up; then joined as before

Both are fine-tunes of the run's own model, theta_0: the short one imitates answers alone, the long
one workings. An answer of the merge is then as brief as it happens to be. The question is whether
it is more accurate than answers of the two models, mixed to the same mean length, would be
(`above_line`). First comes the barrier test: if the loss between the two is not above the line of
their own losses, they lie in one basin, without which nobody merges.

The paper merges a chat or maths model with a reasoning model of the same pre-training. Merges by
low rank (LoRE, Twin) and by activations (AIM, Sens) are left out.
"""

from typing import Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Long-to-short reasoning by model merging",
    paper="arXiv:2503.20641",
    claim="Merging a fast and a slow model halves the length of answers and keeps their accuracy, "
    "without training.",
    source="released code (hahahawu/Long-to-Short-via-Model-Merging: merging_methods.py, "
    "mask_weights_utils.py, README) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-Math or Instruct with DeepSeek-R1-Distill of 1.5B, 7B, 14B and 32B, greedy, "
        "10,240 tokens; TIES k 0.8 a 1 at 7B, DARE p 0.3, task arithmetic a 0.7",
    ),
)

How = Literal["average", "task-arithmetic", "ties", "dare"]
WAYS = {
    "average": pl.models.Average(),
    "task-arithmetic": pl.models.TaskArithmetic(0.7),
    "ties": pl.models.Ties(removed=0.8, scale=1.0),
    "dare": pl.models.Dare(drop=0.3, then=pl.models.TaskArithmetic(0.7)),
}


@pl.stage
class MergeExam:
    """A program, the last part: greedy answers of the policy and of the models "short" and "long"
    to held-out problems.

    Its summary has the accuracy and mean length in tokens of all three, the merge's length by
    domain, and

        above_line     accuracy - that of the line through (length, accuracy) of short and long
        barrier        largest rise of the loss of demonstrations along the weights between the two
                       above the line of their own losses, in nats a token
        line           accuracy, length and loss of averages with a share of the long one

    Args:
        tasks: held-out problems.
        shares: of the long model in the averages between.
        mix: share of problems that the long model answers instead of the policy, the others the
            short one: what lies on the line; 0 = the policy answers.
    """

    tasks: int = 256
    shares: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    mix: float = 0.0

    async def run(self, ctx: pl.Context) -> pl.Result:
        found = {name: await self._answers(ctx, name) for name in ("short", "long")}
        found["merged"] = (
            self._mixture(ctx, found) if self.mix else await self._answers(ctx, "policy")
        )
        ends = {name: pl.run.judge_held_out(groups).json() for name, groups in found.items()}
        accuracy = {name: end["mean"] for name, end in ends.items()}
        length = {name: mean_length(groups) for name, groups in found.items()}
        line = {f"{a:g}": await self._between(ctx, a) for a in self.shares}
        losses = [point["loss"] for point in line.values()]
        metrics = {
            **pl.ends.at_ends(ends["long"], ends["merged"]),
            "accuracy": accuracy,
            "length": length,
            "shorter": 1 - length["merged"] / max(length["long"], 1e-9),
            "length_by_domain": by_domain(found["merged"]),
            "above_line": above_line(length, accuracy),
            "line": line,
            "barrier": pl.models.linear_barrier(self.shares, losses),
        }
        return pl.Result(metrics={**metrics, "sampled_tokens": ctx.sampled_tokens})

    async def _answers(self, ctx: pl.Context, model: str) -> list[pl.Group]:
        _, groups = await pl.run.greedy_held_out(ctx, self.tasks, model)
        return groups

    def _mixture(self, ctx: pl.Context, found: dict[str, list[pl.Group]]) -> list[pl.Group]:
        """Each problem answered by one of the two, drawn."""
        coin_N = pl.rng_of((ctx.seed, "mixture")).random(len(found["long"])) < self.mix
        pairs = zip(coin_N, found["long"], found["short"], strict=True)
        return [long if coin else short for coin, long, short in pairs]

    async def _between(self, ctx: pl.Context, share: float) -> dict[str, float]:
        """The average with so much of the long model, held as the policy for as long as it is
        measured.
        """
        policy = ctx.model("policy")
        ends = [pl.models.weights_of(ctx.model(n).module) for n in ("short", "long")]
        made = pl.models.Average((1 - share, share))(ends[0], ends)
        ctx.moving("policy")
        undo = pl.models.write_weights(policy.module, made)
        groups = await self._answers(ctx, "policy")
        loss = demonstration_loss(ctx, self.tasks)
        ctx.moving("policy")
        undo()
        return {
            "accuracy": pl.run.judge_held_out(groups).interval.mean,
            "length": mean_length(groups),
            "loss": loss,
        }


def demonstration_loss(ctx: pl.Context, tasks: int) -> float:
    """-log p of demonstrations under the policy, half of them worked, in nats a token."""
    groups: list[pl.Group] = []
    for i in range(tasks):
        task = ctx.bench.tasks.task("test", i)
        rng = pl.rng_of((ctx.seed, "barrier", i))
        replies = [pl.tasks.demonstration(ctx.bench.tasks, task, rng, h) for h in ("guess", "work")]
        shown = (pl.recorded_episode(ctx, "policy", task.prompt, r, 1.0) for r in replies)
        groups.append(pl.Group(task=task, episodes=tuple(shown)))
    signals = ctx.measure(groups, (("policy", "logp"),))
    logp = sum(float(row["policy_logp"].sum()) for g in signals for e in g for row in e)
    n = sum(int(r.view().trained_T.sum()) for g in groups for e in g.episodes for r in e.rows)
    return -logp / max(n, 1)


def mean_length(groups: list[pl.Group]) -> float:
    """Tokens of an answer."""
    return float(np.mean([e.n_sampled for g in groups for e in g.valid]))


def by_domain(groups: list[pl.Group]) -> dict[str, float]:
    """Tokens of an answer, by the domain of its problem."""
    names = sorted({g.task.domain for g in groups})
    return {n: mean_length([g for g in groups if g.task.domain == n]) for n in names}


def above_line(length: dict[str, float], accuracy: dict[str, float]) -> float:
    """How much more accurate the merge is than a mixture of the two models' answers of its mean
    length; beyond either end, than that end.
    """
    ends = sorted((length[n], accuracy[n]) for n in ("short", "long"))
    x, y = zip(*ends, strict=True)
    return accuracy["merged"] - float(np.interp(length["merged"], x, y))


def fine_tune(habit: Literal["guess", "work"], steps: int, lr: float) -> pl.Recipe:
    """Imitation of one way to answer: at once, or after its steps."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(pl.Demonstrate(habit=habit)),
        optimiser=pl.AdamW(lr=lr, warmup=5),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )


def build(how: How = "ties", steps: int = 20, lr: float = 3e-4, tasks: int = 256) -> pl.Pipeline:
    """`steps` and `lr` of both fine-tunes; `tasks` held-out problems."""
    ends = {name: pl.Output(name) for name in ("short", "long")}
    return pl.Pipeline(
        parts={
            "short": pl.warm(fine_tune("guess", steps, lr)),
            "long": pl.warm(fine_tune("work", steps, lr)),
            "merged": pl.Part(pl.run.Merged(("short", "long"), WAYS[how]), models=ends),
            "exam": pl.Part(MergeExam(tasks), model=pl.Output("merged"), models=ends),
        }
    )
