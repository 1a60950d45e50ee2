"""Offline, semi-online and online: one loop, and how many updates the weights that sample are behind.

`sync` is s, the updates between two copies of the trained weights to the generator: 1 is online, 5,
10 or 100 semi-online, 0 offline, which never copies (arXiv:2506.21495). Per prompt eight answers;

    DPO    -log sigmoid(beta [h(y+) - h(y-)]),   h(y) = log pi(y) - log pi_ref(y), ref = the start
    GRPO   PPO's clipped surrogate with group advantages, kl * KL to the start

Both recompute log pi under the present weights. DPO takes the best and the worst answer of a prompt:
of a reward model its best against its worst; of a verifier, as equal ones are exchangeable, one right
against one wrong at random. A prompt without both is left out. Mean age of a sample over a cycle: (s -
1) / 2 updates, from 0 to s - 1.

s is no property of a method. `form` is one of two ways to have it in one process:
- "minibatches": a step draws the prompts of s updates at once and cuts them into s minibatches. Units
  that are left out make these smaller. With `grpo` the ratio is to the weights that sampled.
- "snapshots": every step draws its own prompts, answered by a copy of the policy that is renewed
  every s steps. `old="policy"` then takes GRPO's ratio to the weights before the update, which leaves
  the age uncorrected.
Offline is more than a large s: its answers are those of the start, and a task that comes again has the
same ones (`SameAgain`), so that the pairs are fixed.

Tasks of several kinds in one batch, each with its own reward, are a mixture whose reward is `pl.Where`.

Left out: all right-wrong pairs of a group at once (group DPO), and a reference that is copied anew.
"""

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


def collecting(sync: int, form: str, n: int) -> pl.Collect:
    """Answers of whoever samples."""
    if sync == 0:
        fixed = SameAgain(pl.Sample(n=n, model="ref"))
        return pl.links(fixed, pl.Score(), pl.Offline())
    if sync > 1 and form == "snapshots":
        return pl.links(pl.Sample(n=n, model=GENERATOR), pl.Score(), pl.Offline())
    return pl.links(pl.Sample(n=n), pl.Score())


def build(
    sync: int = 10,
    method: Literal["dpo", "grpo"] = "dpo",
    form: Literal["minibatches", "snapshots"] = "minibatches",
    beta: float = 0.1,
    kl: float = 0.001,
    n: int = 8,
    old: Literal["behaviour", "policy"] = "behaviour",
    prompts: int = PROMPTS,
) -> pl.Recipe:
    """`beta` is DPO's, `kl` and `old` are GRPO's; `prompts` are those of an update."""
    pl.check_bounds("online-semi-online: sync", sync, least=0)
    parent = pl.recipe("dpo", beta=beta) if method == "dpo" else pl.recipe("grpo", kl=kl)
    cut = form == "minibatches" and sync > 1
    changes: dict[str, Any] = {
        "collect": collecting(sync, form, n),
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
