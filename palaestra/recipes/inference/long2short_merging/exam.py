"""What a merge is worth: its accuracy and length beside those of the two models, and whether they
lie in one basin of the loss.
"""

import numpy as np
import torch

import palaestra as pl


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
        by_model = {name: await self._answers(ctx, name) for name in ("short", "long")}
        by_model["merged"] = (
            self._mixture(ctx, by_model) if self.mix else await self._answers(ctx, "policy")
        )
        ends = {name: pl.run.judge_held_out(groups).json() for name, groups in by_model.items()}
        accuracy = {name: end["mean"] for name, end in ends.items()}
        length = {name: mean_length(groups) for name, groups in by_model.items()}
        line = {f"{a:g}": await self._between(ctx, a) for a in self.shares}
        losses = [point["loss"] for point in line.values()]
        metrics = {
            **pl.ends.at_ends(ends["long"], ends["merged"]),
            "accuracy": accuracy,
            "length": length,
            "shorter": 1 - length["merged"] / max(length["long"], 1e-9),
            "length_by_domain": by_domain(by_model["merged"]),
            "above_line": above_line(length, accuracy),
            "line": line,
            "barrier": pl.models.linear_barrier(self.shares, losses),
        }
        moved = distance(ctx.model("policy").module, ctx.model("long").module)
        logged = {"accuracy": accuracy, "length": length, "shorter": metrics["shorter"]}
        ctx.log({**logged, "moved": moved})
        return pl.Result(metrics={**metrics, "sampled_tokens": ctx.sampled_tokens})

    async def _answers(self, ctx: pl.Context, model: str) -> list[pl.Group]:
        _, groups = await pl.run.greedy_held_out(ctx, self.tasks, model)
        return groups

    def _mixture(self, ctx: pl.Context, by_model: dict[str, list[pl.Group]]) -> list[pl.Group]:
        """Each problem answered by one of the two, drawn."""
        coin_N = pl.rng_of((ctx.seed, "mixture")).random(len(by_model["long"])) < self.mix
        pairs = zip(coin_N, by_model["long"], by_model["short"], strict=True)
        return [long if coin else short for coin, long, short in pairs]

    async def _between(self, ctx: pl.Context, share: float) -> dict[str, float]:
        """The average with so much of the long model, held as the policy for as long as it is
        measured.
        """
        policy = ctx.model("policy")
        modules = [ctx.model(n).module for n in ("short", "long")]
        _, ends, _ = pl.models.common_weights(policy.module, modules)
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
    for i in pl.run.chosen_tasks(ctx.bench, tasks):
        task = ctx.bench.tasks.task("test", i)
        rng = pl.rng_of((ctx.seed, "barrier", i))
        own = ctx.bench.tasks
        replies = [pl.rollout.written_answer(own, task, rng, h) for h in ("guess", "work")]
        episodes = (pl.recorded_episode(ctx, "policy", task.prompt, r, 1.0) for r in replies)
        groups.append(pl.Group(task=task, episodes=tuple(episodes)))
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


def distance(one: torch.nn.Module, other: torch.nn.Module) -> float:
    """The norm of the difference of two models' weights, of those that have one shape in both."""
    theirs = dict(other.named_parameters())
    pairs = [(p.detach(), theirs[n].detach()) for n, p in one.named_parameters() if n in theirs]
    return sum(float((a - b).square().sum()) for a, b in pairs if a.shape == b.shape) ** 0.5
