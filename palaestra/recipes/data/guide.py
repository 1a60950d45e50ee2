"""Guide-GRPO and Guide-PPO: a prompt that every answer fails is sampled again with guidance, and the
update is for the bare prompt.

A group of eight without a right answer is sampled again behind a prompt that says more. The update
raises or lowers the guided answers behind the bare prompt q, so its ratio is to the prompt that they
were sampled behind (released code, vaskar-open-source-research/guide_rl, core_algos.py and
ray_trainer.py):

    own      -min(rho A, clip(rho, 0.8, 1.2) A),    rho = pi(o | q) / pi_old(o | q)
    guided   -A rho / (rho + gamma),                rho = pi(o | q) / pi_old(o | q, guidance)

gamma is the 0.9-quantile of the guided tokens' rho, at least 1e-4, detached; a guided token has the
weight rho gamma / (rho + gamma)^2, at most a quarter, and is never clipped. The loss is a mean over
tokens, without a KL.

    palaestra train guide --data FILE.jsonl --model DIR
    palaestra train guide algorithm=ppo --data FILE.jsonl --model DIR

`algorithm` "grpo": A = (r - mean r) / (std r + 1e-6), ddof 1, over the group as it was collected.
Groups of one kind of answer are dropped, and prompts are drawn until `size` are left; further ones
wait one step. "ppo": a value head on the bare prompt, A from GAE (gamma 1, lambda 0.95), whitened over
all trained tokens of the batch, and half of the clipped value loss; no group is dropped, so each
step trains `size` prompts.

`guidance` "hint" shows the column `hint`, else half of the column `demonstration`; "answer" tells a
wrong attempt the right answer, "verdict" only that it is wrong. `mixin` keeps right guided answers
and puts unguided failures in the place of the others. `every` guides all prompts. `correction`
"constant" and "power" are the other shapes of the released code; "none" takes the ratio to the bare
prompt, with PPO's clip. `context="guided"` trains on the prompt that was seen, as GHPO does.

Deviations: gamma is that of the whole batch; in the released code it is of a micro-batch, which its
scripts make one answer long. Its check of an answer's format is left out. The released code has no
PPO, which the paper names beside GRPO: settings of the critic are those of `ppo`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Guide-GRPO: adaptive guidance with off-policy correction",
    paper="arXiv:2506.13923",
    claim="Guidance only where all answers fail, with importance weights to the bare prompt, makes "
    "a model better without guidance than RL alone.",
    source="released code (vaskar-open-source-research/guide_rl: ray_trainer.py, core_algos.py, "
    "guide_grpo_qwen.sh) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-Math-7B, G = 8, 128 prompts in minibatches of 64, temperature 1, 1,024 "
        "tokens of prompt and 3,072 of answer, lr 1e-6, clip 0.2, no KL, no entropy, 2 epochs",
        model="qwen2.5-7b",
        prompts=128,
        samples=8,
        tokens=3072,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            replace(pl.needs.HINT, or_else="demonstration", when={"guidance": ("hint",)}),
            replace(
                pl.needs.DEMONSTRATION,
                otherwise="the column `hint` is shown",
                when={"guidance": ("hint",)},
            ),
        ),
        shows="is:guided",
        never_off="Guidance is shown where every answer of a group is wrong, and no argument turns "
        "that off; where none is, the number is 0.",
        own={"algorithm": "ppo", "n": 2, "size": 4},
    ),
    use="It helps where many prompts are failed by every answer and guidance makes some of them right; "
    "where most groups have a right answer, it is GRPO or PPO at a higher cost.",
    lacks=(
        "Hints are not written by a model: they are a column of the file, or half of a "
        "demonstration.",
        "The format of an answer is not checked.",
    ),
    grade="A",
)
MARK = "guided"


def none_accurate(score_N: np.ndarray) -> bool:
    """Whether a group is answered again: its accuracy is 0.001 at most."""
    return not len(score_N) or bool(score_N.mean() <= 0.001)


def guided_alone(group: pl.Group) -> Sequence[int]:
    """The guided answers; without one, those that there are."""
    guided = [i for i, e in enumerate(group.episodes) if e.facts.get(MARK)]
    return guided or range(len(group.episodes))


def guided_and_failures(group: pl.Group) -> Sequence[int]:
    """The guided answers that are right, and unguided failures in the place of the others, as far
    as there are some.
    """
    guided = [i for i, e in enumerate(group.episodes) if e.facts.get(MARK) and e.ok]
    right = [i for i in guided if group.episodes[i].solved]
    if not guided:
        return range(len(group.episodes))
    failed = [i for i, e in enumerate(group.episodes) if not e.facts.get(MARK) and e.ok]
    wrong = [i for i in guided if i not in right]
    return [*right, *[*failed, *wrong][: len(wrong)]]


def build(
    guidance: Literal["hint", "answer", "verdict"] = "hint",
    correction: Literal["quantile", "constant", "power", "none"] = "quantile",
    gamma: float = 0.9,
    context: Literal["bare", "guided"] = "bare",
    every: bool = False,
    mixin: bool = False,
    n: int = 8,
    size: int = 16,
    algorithm: Literal["grpo", "ppo"] = "grpo",
) -> pl.Recipe:
    """Args:
    gamma: the quantile, the constant or the power of the correction.
    size: how many groups a step trains on.
    algorithm: where advantages come from, the group or a value head.
    """
    hint = pl.rollout.HintColumn(otherwise=pl.Working(0.5))
    begin = (
        pl.Under(pl.Hinted(hint), pl.Sample(n=n), MARK)
        if guidance == "hint"
        else pl.Under(pl.Feedback(guidance), pl.Sample(n=1), MARK, times=n)
    )
    seen = pl.links(begin, pl.Hide(MARK)) if context == "bare" else begin
    keep = pl.rollout.Regroup(guided_and_failures if mixin else guided_alone)
    again = pl.links(seen, pl.Score(), keep)
    own = pl.Clipped(reduce="tokens")
    if context == "guided":
        loss: Any = own
    else:
        loss = pl.On(MARK, surrogate(correction, gamma)) + pl.On(MARK, own, absent=True)
    before = (("policy", "logp"),) if context == "bare" and correction == "none" else ()
    collect = pl.links(
        pl.Sample(n=n), pl.Score(), again if every else pl.When(none_accurate, again)
    )
    guided = pl.vary(
        pl.recipe("grpo"),
        collect=collect,
        objective=loss + pl.Track((f"is:{MARK}",)),
        needs=before,
        update=pl.Plain(minibatches=2),
        schedule=pl.Schedule(prompts=size, steps=50, max_age=1),
    )
    return by_critic(guided) if algorithm == "ppo" else by_group(guided, size)


def by_group(guided: pl.Recipe, size: int) -> pl.Recipe:
    """Advantages of GRPO, on `size` groups a step that have right and wrong answers."""
    scope = pl.Stratum(fact="")
    credit = pl.chain(pl.Fact(MARK), pl.Center(scope), pl.Scale(scope))
    return pl.vary(guided, pool=pl.Mixed(size, trained=True), credit=credit)


def trains(table: pl.Table, episode: int) -> bool:
    """The scope of all answers that are trained: those that guided ones replaced are no part of it."""
    return not table.episodes[episode].muted


def by_critic(guided: pl.Recipe) -> pl.Recipe:
    """Advantages and value loss of PPO; values are those of the prompt that is trained."""
    learner = guided.learners["policy"]
    loss: Any = learner.objective
    rewards = pl.Gae(gamma=1.0, lam=0.95)
    return pl.vary(
        guided,
        credit=pl.chain(pl.Fact(MARK), rewards, pl.Center(trains), pl.Scale(trains)),
        objective=loss + 0.5 * pl.ValueLoss(clip=0.2),
        needs=(*learner.needs, ("policy", "value")),
        heads=("value",),
    )


def surrogate(correction: str, gamma: float) -> pl.Shaped | pl.Clipped:
    """The loss of guided tokens, whose ratio is to the prompt that was seen, but for "none"."""
    if correction == "quantile":
        return pl.Shaped("quantile", old="behaviour", quantile=gamma)
    if correction == "constant":
        return pl.Shaped("saturating", old="behaviour", constant=gamma)
    if correction == "power":
        return pl.Shaped("power", old="behaviour", power=gamma)
    return pl.Clipped(reduce="tokens", old="policy")
