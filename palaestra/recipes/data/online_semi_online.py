"""Offline, semi-online and online training in one loop: they differ in how many updates the weights
that sample are behind the trained ones.

The trained weights are copied to the generator every `sync` = s updates: s = 1 is online, 5, 10 or 100
semi-online, and 0 offline, which never copies them (arXiv:2506.21495). Each prompt has eight answers;

    DPO    -log sigmoid(beta [h(y+) - h(y-)]),   h(y) = log pi(y) - log pi_ref(y), ref = the start
    GRPO   PPO's clipped surrogate with group advantages, kl * KL to the start

Both compute log pi with the current weights. DPO takes the best and the worst answer of a prompt; of
answers with equal scores, as a verifier gives them, it takes one at random. A prompt whose answers all
have the same score is left out. Over a cycle the age of a sample is 0 to s - 1 updates, (s - 1) / 2 on
average.

Verifiable and other tasks train together: prompts with an answer get the run's reward, and `judge`
(a reward model's folder, or a judge) scores those without. A file that has both kinds needs --reward
too, such as --reward math, since records without an answer are refused otherwise.

`form` gives s in one process in one of two ways:
- "minibatches": a step draws the prompts of s updates at once and cuts them into s minibatches, which
  are smaller where prompts are left out. GRPO's ratio is to the weights that sampled.
- "snapshots": each step draws its own prompts, which a copy of the policy answers that is renewed every
  s steps. `old="policy"` takes GRPO's ratio to the weights before the update, so that the age is not
  corrected.
Offline is more than a large s: the start answers, and a task that comes again has the same answers
(`SameAgain`), so that the pairs are fixed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="Offline, semi-online and online DPO / GRPO, verifiable + non-verifiable",
    paper="arXiv:2506.21495",
    claim="Semi-online DPO, online DPO and GRPO are about equal, and all far above offline DPO; "
    "learning verifiable and other tasks together improves both.",
    source="abstract and public accounts (WildChat-1M, Athene-RM-8B, s); hyper-parameters from memory",
    size=pl.Size(
        setting="Llama-3.1-8B-Instruct, NuminaMath with math-verify and WildChat with Athene-RM-8B, "
        "beta 0.1, lr 1e-6, batches of 32 to 64 prompts, G = 8, 1,000 to 2,000 tokens",
        model="llama-3.1-8b",
        prompts=32,
        samples=8,
        tokens=2048,
        lr=1e-6,
        arguments={"sync": 1},
        beside={"reward model": 8.0},
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            replace(
                pl.needs.ANSWER,
                otherwise="with --reward NAME for the prompts that have one, `judge` scores the others",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "reward model",
                "judge",
                "scores replies to prompts without an answer, such as instructions",
                inert=None,
                otherwise="the run's reward scores all replies",
            ),
        ),
        shows="clipped",
        off={"sync": 1},
        own={"method": "grpo", "sync": 2, "prompts": 2, "n": 4, "optimiser.lr": 0.01},
    ),
    use="It helps where copying weights to the generator, or waiting for it, costs time: a lag of some "
    "updates costs little quality; never copying them costs much.",
    lacks=(
        "Group DPO, all pairs of a right and a wrong answer of a group at once, is not there.",
        "The reference model is never copied from the policy again.",
        "The time that a generator of its own saves is not measured: all runs in one process here.",
    ),
    grade="A",
)
GENERATOR = "generator"
PROMPTS = 16  # of an update


@pl.stage
class SameAgain:
    """Runs `link` with a random stream of the task alone: where the model that samples does not
    move, a task that comes again has the same answers.
    """

    link: pl.Collect

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        return await self.link(ctx, ("same again", ctx.seed, group.task.id), group)


def collecting(sync: int, form: str, n: int, reward: pl.RewardFn | None = None) -> pl.Collect:
    """Samples answers with the weights that `sync` and `form` say, and scores them."""
    score = pl.Score(reward=reward)
    if sync == 0:
        fixed = SameAgain(pl.Sample(n=n, model="ref"))
        return pl.links(fixed, score, pl.Offline())
    if sync > 1 and form == "snapshots":
        return pl.links(pl.Sample(n=n, model=GENERATOR), score, pl.Offline())
    return pl.links(pl.Sample(n=n), score)


@pl.stage
class ByAnswer:
    """The run's reward for tasks that have an answer, `other` for tasks without one."""

    other: pl.RewardFn

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
        own = ctx.bench.reward if group.task.answer is not None else None
        return await pl.judge_group(ctx, own or self.other, group)


def build(
    sync: int = 10,
    method: Literal["dpo", "grpo"] = "dpo",
    form: Literal["minibatches", "snapshots"] = "minibatches",
    beta: float = 0.1,
    kl: float = 0.001,
    n: int = 8,
    old: Literal["behaviour", "policy"] = "behaviour",
    prompts: int = PROMPTS,
    judge: pl.RewardFn | None = None,
) -> pl.Recipe:
    """`beta` is DPO's, `kl` and `old` are GRPO's; `prompts` are those of an update. `judge` scores the
    replies to prompts without an answer.
    """
    pl.check_bounds("online-semi-online: sync", sync, least=0)
    parent = pl.recipe("dpo", beta=beta) if method == "dpo" else pl.recipe("grpo", kl=kl)
    cut = form == "minibatches" and sync > 1
    changes: dict[str, Any] = {
        "collect": collecting(sync, form, n, ByAnswer(judge) if judge else None),
        "schedule": replace(parent.schedule, prompts=prompts * (sync if cut else 1)),
        "references": {"ref": "policy"},
    }
    if cut:
        changes["update"] = pl.Plain(minibatches=sync)
    elif sync > 1:
        changes["references"] |= {GENERATOR: pl.rollout.Snapshots(every=sync, keep=1)}
    if method == "grpo":
        loss: Any = pl.Clipped(old=old)
        changes["objective"] = loss + kl * pl.KL() if kl else loss
        needs = ((("ref", "logp"),) if kl else ()) + (
            (("policy", "logp"),) if old == "policy" else ()
        )
        changes["needs"] = needs
    return pl.vary(parent, **changes)
