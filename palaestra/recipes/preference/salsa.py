"""SALSA: RLHF whose KL is taken to the average of several fine-tuned starts, a soup, in place of the
policy's own start.

    theta_soup = alpha * theta_1 + (1 - alpha) * theta_2
    max E[r(x, y)] - kl * KL(pi || pi_soup),    pi begins at theta_1

(arXiv:2411.01798; alpha 1/2.) All weights are averaged, in float64. By `algorithm=ppo` -kl * (log
pi_old - log pi_soup) is added to the reward of every token, with the reward r at the end; by `grpo` the
KL is a loss. theta_1 is the run's --model and theta_2 is `others`, a second fine-tune of the same base
with another seed or order of data; several folders, with commas, share 1 - alpha.

    palaestra train salsa --data prompts.jsonl --reward DIR --model DIR others=DIR2 [alpha=0.5] [kl=0.05]

The policy is not the soup, so that the KL is above 0 before the first step, `start_kl`. Two starts of
different pre-training have no useful average. So the program "soup" lets every start answer some held-out
prompts, measures these answers under each start and under the soup, and refuses a soup whose loss is more
than `most` nats a token above the line between the losses of the starts, `barrier`. It refuses starts
that are the same model. Controls: `alpha=1` is the algorithm with its own start as the reference,
`alpha=0` has theta_2 as it, and `start=soup` begins at the soup. A gain may come of a weaker anchor alone,
so compare runs at an equal KL to theta_1.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="SALSA: model-soup reference for RLHF",
    paper="arXiv:2411.01798",
    claim="A reference that is the average of two fine-tuned models lets PPO reach higher rewards than "
    "one that is its own start.",
    source="abstract and public accounts; alpha, the start of the policy and the constants of PPO are "
    "inferred",
    size=pl.Size(
        setting="Llama2-7B, Mistral-7B and Gemma-2B on UltraFeedback, MT-Bench and Arena-Hard",
        model="llama-2-7b",
    ),
    task="chain(modulo=9)",
    needs=pl.needs.Requirements(
        models=(
            pl.needs.NeededModel(
                "second start",
                "others",
                "is averaged with --model, and is another fine-tune of its base",
                inert="",
                reads_tokens=True,
            ),
        ),
        shows="start_kl",
        off={"alpha": 1.0},
        own={"rl.schedule.prompts": 4, "rl.collect.links.0.n": 2, "soup.tasks": 2},
    ),
    grade="B",
    use="It helps where two fine-tunes of one base exist and the KL to the start holds the policy back; "
    "models of different pre-training are refused.",
    lacks=(
        "The two fine-tuned models are not made of your data: `palaestra train sft --seed 1` and "
        "`--seed 2` make them.",
        "MT-Bench, Arena-Hard and UltraFeedback are not measured, and no robustness out of "
        "distribution.",
    ),
)
Algorithm = Literal["ppo", "grpo"]


@pl.stage
class Soup:
    """A program that averages its policy with the models `inputs`, and checks that the soup is one.

    Its artifact "policy" is the soup. Metrics: "start_kl", KL(policy || soup) in nats a token, estimated
    by exp(d) - 1 - d on answers that the policy samples, d = log pi_soup - log pi; "barrier", by how much
    the soup's loss on the answers of all starts is above the line between the starts' own, in nats a
    token; distance/NAME as of `Merged`.

    Args:
        shares: of the policy, and of every input; their sum is 1.
        tasks: held-out prompts that every start answers.
        most: the largest barrier, in nats a token.
    """

    inputs: tuple[str, ...]
    shares: tuple[float, ...]
    tasks: int = 16
    most: float = 1.0

    async def run(self, ctx: pl.Context) -> pl.Result:
        if ctx.model("policy").adapted:
            raise pl.UserError("salsa averages whole weights; leave --lora off")
        average = pl.models.Average(self.shares)
        made = await pl.run.Merged(("policy", *self.inputs), average).run(ctx)
        for name in self.inputs:
            if made.metrics[f"distance/{name}"] == 0:
                raise pl.UserError(
                    "salsa: a start in others= is --model itself, and their average too; give another "
                    "fine-tune of the same base, e.g. of `palaestra train sft --seed 2`"
                )
        metrics = {**made.metrics, **await self._compare(ctx)}
        ctx.log(metrics)
        if metrics["barrier"] > self.most:
            raise pl.UserError(
                f"salsa: the average is {metrics['barrier']:.2f} nats a token worse than the starts, so "
                "they are no fine-tunes of one base; give two that are, or raise soup.most "
                f"(= {self.most:g})"
            )
        return pl.Result(
            metrics={**metrics, "sampled_tokens": ctx.sampled_tokens}, artifacts=made.artifacts
        )

    async def _compare(self, ctx: pl.Context) -> dict[str, float]:
        """The barrier, and the policy's KL to the soup."""
        starts = ("policy", *self.inputs)
        groups = [await self._answers(ctx, name) for name in starts]
        own = [[mean_logp(token_logps(ctx, g, name)) for g in groups] for name in starts]
        policy_N = token_logps(ctx, groups[0], "policy")
        with_soup = self._under_soup(ctx, groups)
        line = np.array(self.shares) @ np.array(own).mean(1)
        d_N = with_soup[0] - policy_N
        return {
            "barrier": float(line - np.mean([mean_logp(x) for x in with_soup])),
            "start_kl": float(np.mean(np.expm1(d_N) - d_N)) if len(d_N) else 0.0,
        }

    async def _answers(self, ctx: pl.Context, model: str) -> list[pl.Group]:
        """Held-out prompts with an answer of one of the starts, as rows of the policy."""
        sample = pl.links(pl.Sample(n=1, model=model), pl.Offline())
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        keys = [(ctx.seed, "soup", model, i) for i in numbers]
        return await asyncio.gather(
            *(sample(ctx, key, pl.Group(task=t)) for key, t in zip(keys, tasks, strict=True))
        )

    def _under_soup(
        self, ctx: pl.Context, groups: Sequence[Sequence[pl.Group]]
    ) -> list[np.ndarray]:
        """[tokens] log-probs of each list of groups under the soup, which is held as the policy for
        as long as it is measured.
        """
        policy = ctx.model("policy")
        modules = [ctx.model(n).module for n in self.inputs]
        whole, others, _ = pl.models.common_weights(policy.module, modules)
        soup = pl.models.Average(self.shares)(whole, [whole, *others])
        ctx.moving("policy")
        undo = pl.models.write_weights(policy.module, soup)
        logps = [token_logps(ctx, each, "policy") for each in groups]
        ctx.moving("policy")
        undo()
        return logps


def token_logps(ctx: pl.Context, groups: Sequence[pl.Group], model: str) -> np.ndarray:
    """[tokens] log-probs of all trained tokens of groups under a model, in nats."""
    signals = ctx.measure(list(groups), ((model, "logp"),))
    rows = [
        row_signals[f"{model}_logp"][row.view().trained_T.astype(bool)]
        for group, of_group in zip(groups, signals, strict=True)
        for episode, of_episode in zip(group.episodes, of_group, strict=True)
        for row, row_signals in zip(episode.rows, of_episode, strict=True)
    ]
    return np.concatenate(rows) if rows else np.zeros(0)


def mean_logp(logp_N: np.ndarray) -> float:
    return float(logp_N.mean()) if len(logp_N) else 0.0


def soup_shares(alpha: float, others: int) -> tuple[float, ...]:
    """The share of the policy's start, and of each of the others, which share what is left."""
    pl.check_bounds("salsa: alpha", alpha, least=0, most=1)
    if not others:
        return (1.0,)
    return (alpha, *((1 - alpha) / others,) * others)


def stages(
    policy: pl.Output | None,
    others: Mapping[str, pl.Output | str],
    alpha: float,
    kl: float,
    algorithm: Algorithm,
    start: Literal["first", "soup"],
) -> dict[str, pl.Part]:
    """The soup, and RL that is held by it."""
    soup = Soup(tuple(others), soup_shares(alpha, len(others)))
    made = pl.Output("soup")
    return {
        "soup": pl.Part(soup, model=policy, models=others),
        "rl": pl.Part(
            pl.recipe(algorithm, kl=kl),
            model=made if start == "soup" else policy,
            models={"ref": made},
        ),
    }


def build(
    others: str = "",
    alpha: float = 0.5,
    kl: float = 0.05,
    algorithm: Algorithm = "ppo",
    start: Literal["first", "soup"] = "first",
) -> pl.Pipeline:
    """`others`: folders or hub ids, with commas between them; without one the reference is the start."""
    pl.check_bounds("salsa: kl", kl, above=0)
    names = [x.strip() for x in others.split(",") if x.strip()]
    named = {f"other{i}": name for i, name in enumerate(names, 1)}
    return pl.Pipeline(parts=stages(None, named, alpha, kl, algorithm, start))


def embedded(
    alpha: float = 0.5,
    kl: float = 0.05,
    algorithm: Algorithm = "grpo",
    start: Literal["first", "soup"] = "first",
    steps: int = 8,
    lr: float = 2e-4,
) -> pl.Pipeline:
    """Both starts are made first, by imitation of the same problems, the second at half the learning
    rate. It is short, so that they do not solve the problem yet. GRPO learns more here than PPO in as
    many steps.
    """
    second = {"other1": pl.Output("second")}
    return pl.Pipeline(
        parts={
            "first": pl.warm(imitation(steps, lr)),
            "second": pl.warm(imitation(steps, lr / 2)),
            **stages(pl.Output("first"), second, alpha, kl, algorithm, start),
        }
    )


def imitation(steps: int, lr: float) -> pl.Recipe:
    """A supervised start."""
    return pl.vary(
        pl.recipe("sft"),
        optimiser=pl.AdamW(lr=lr),
        schedule=pl.Schedule(prompts=16, steps=steps),
    )
