"""Guide-GRPO: prompts that nobody solves are answered again behind guidance, and the bare prompt
learns from it.

A group of eight without a right answer is sampled anew under a prompt that says more, and the
update is on the bare prompt q, with the ratio to where an answer was sampled (released code,
vaskar-open-source-research/guide_rl, core_algos.py and ray_trainer.py):

    own      -min(rho A, clip(rho, 0.8, 1.2) A),    rho = pi(o | q) / pi_old(o | q)
    guided   -A rho / (rho + gamma),                rho = pi(o | q) / pi_old(o | q, guidance)

gamma is the 0.9-quantile of the guided tokens' rho, at least 1e-4, detached; so a guided token
weighs r gamma / (r + gamma)^2, at most a quarter, and is never clipped. A = (r - mean r) /
(std r + 1e-6), ddof 1, over the group as it was collected; a mean over tokens, no KL. Groups of one
kind of answer are dropped, and prompts drawn until `size` are left; more wait one step.

gamma is that of the whole batch; in the released code it is of a micro-batch, which its scripts make
one answer long. Its check of an answer's format is left out.

`guidance`: "hint" is the column `hint`, else half of the working; "answer" tells a wrong attempt the
right answer, "verdict" only that it is wrong. `mixin` fills a guided group up with unguided failures in the place of guided ones.
`every` guides all prompts. `correction` "constant" and "power" are the other shapes of the released
code; "none" takes the ratio to the bare prompt, with PPO's clip, as if the answers came from there.
`context="guided"` trains on the prompt that was seen, as GHPO does.
"""

from collections.abc import Sequence
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
)
MARK = "guided"


def none_accurate(found: np.ndarray) -> bool:
    """Whether a group is answered again: its accuracy is 0.001 at most."""
    return not len(found) or bool(found.mean() <= 0.001)


def guided_alone(group: pl.Group) -> Sequence[int]:
    """The guided answers; without one, those that there are."""
    found = [i for i, e in enumerate(group.episodes) if e.facts.get(MARK)]
    return found or range(len(group.episodes))


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
) -> pl.Recipe:
    """`gamma` is the quantile, the constant or the power. `size` groups are trained on a step."""
    hint = pl.rollout.HintColumn(otherwise=pl.Working(0.5))
    shown = (
        pl.Under(pl.Hinted(hint), pl.Sample(n=n), MARK)
        if guidance == "hint"
        else pl.Under(pl.Feedback(guidance), pl.Sample(n=1), MARK, times=n)
    )
    seen = pl.links(shown, pl.Hide(MARK)) if context == "bare" else shown
    keep = pl.rollout.Regroup(guided_and_failures if mixin else guided_alone)
    again = pl.links(seen, pl.Score(), keep)
    own = pl.Clipped(reduce="tokens")
    if context == "guided":
        loss: Any = own
    else:
        loss = pl.On(MARK, surrogate(correction, gamma)) + pl.On(MARK, own, absent=True)
    before = context == "bare" and correction == "none"
    scope = pl.Stratum(fact="")
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            pl.Sample(n=n), pl.Score(), again if every else pl.When(none_accurate, again)
        ),
        pool=pl.Mixed(size, trained=True),
        credit=pl.chain(pl.Fact(MARK), pl.Center(scope), pl.Scale(scope)),
        objective=loss + pl.Track((f"is:{MARK}",)),
        needs=(("policy", "logp"),) if before else (),
        update=pl.Plain(minibatches=2),
        schedule=pl.Schedule(prompts=size, steps=50, max_age=1),
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
