"""Kimi k1.5: mirror descent on whole answers, which are rewarded for being brief, with prioritised
sampling and partial rollouts.

Every iteration freezes pi_i and solves max E[r] - tau KL(pi || pi_i). Its optimum satisfies r - tau
log Z = tau log(pi*/pi_i), whose squared residual on k samples of pi_i, over 2 tau, is the loss
(arXiv:2501.12599, 2.3.2):

    -dL/d log pi(y_j) = (1/k) [(r_j - rbar) - tau log pi(y_j)/pi_i(y_j)]          log-probs of whole generations

`baseline="soft"` takes tau log mean exp(r/tau) for tau log Z instead of rbar, its limit for large
tau. The log-ratio is not centred, which is the difference to AGRO. An iteration is one batch of
rollouts; the optimiser forgets its moments at its start.

`length` > 0: answers are rewarded for being shorter than others of their group (2.3.3), from step
`length_from` on. The default is the measured `palaestra train kimi-k1.5 length=0.5`; with
`length=0` it is mirror descent alone. The number "length_reward" of a step is the mean size of that
reward.

`sampling`: "prioritised" draws problems with p ~ 1 - success rate, "curriculum" also opens them
from easy to hard (2.3.4); both know all problems, or the first `draw.problems=N`. `partial`
> 0: at most so many tokens a rollout and iteration; what is unfinished goes on in the next one
(2.6.2). Old parts stay in the loss, against the log-probs they were sampled with. `long2short`
(2.4) trains instead on the shortest right answer of each group: "rejection" imitates it, "dpo"
prefers it to longer ones; its other two ways are this recipe with `length` and a smaller --max-
tokens, and an average of weights. A group of one is pulled towards pi_i; so are groups of equal
rewards.
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="Kimi k1.5 (mirror-descent policy objective, length reward, curriculum and prioritised "
    "sampling, partial rollouts, long2short)",
    paper="arXiv:2501.12599",
    claim="Mirror descent on whole answers, with a length reward, gives accurate, brief reasoning "
    "without a critic.",
    source="technical report; tau, k and the length weight are not given there",
    size=pl.Size(
        setting="Kimi k1.5, a closed multimodal model of unpublished size, up to 128k tokens of "
        "context; tau, k and the length weight are not given",
    ),
    needs=pl.needs.Requirements(
        shows="length_reward",
        off={"length": 0.0},
        own={"length_from": 0, "schedule.prompts": 4, "update.minibatches": 2},
    ),
    use="It helps where answers are longer than they need be and accuracy is to stay; where right "
    "answers have one length the length reward has nothing to say.",
    lacks=(
        "The model of the report is multimodal and trained with contexts of 128k tokens.",
        "The curriculum takes the length of a prompt for its difficulty, and prompts whose "
        "answer is easily guessed are not filtered.",
        "Prioritised sampling, partial rollouts and long-to-short are off by default.",
        "Weights are not averaged for long-to-short; long2short-merging does that.",
        "Repetition is not detected in a rollout.",
    ),
    grade="B",
)


def build(
    tau: float = 0.1,
    baseline: Literal["mean", "soft"] = "mean",
    length: float = 0.5,
    length_from: int = 20,
    sampling: Literal["uniform", "prioritised", "curriculum"] = "uniform",
    partial: int = 0,
    long2short: Literal["", "rejection", "dpo"] = "",
    right: float | None = None,
) -> pl.Recipe:
    """`right` is the reward from which on `long2short` takes an answer for right; None = as the
    reward says, else 1.
    """
    if long2short:
        return long2short_recipe(long2short == "dpo", right)
    weight: Any = pl.Jump(0.0, length, length_from)
    bonus = (pl.credit.LengthReward(weight),) if length else ()
    centre = pl.Center("group") if baseline == "mean" else pl.credit.SoftCenter(tau)
    return pl.vary(
        pl.recipe("grpo"),
        draw=pl.Shuffled()
        if sampling == "uniform"
        else pl.curriculum.Prioritised(None, rise=50 if sampling == "curriculum" else 0),
        observe=pl.Unchanged() if sampling == "uniform" else pl.curriculum.Successes(),
        collect=pl.links(pl.rollout.Partial(n=8, cap=partial), pl.rollout.Finished(pl.Score()))
        if partial
        else pl.links(pl.Sample(n=8), pl.Score()),
        pool=pl.curriculum.Whole() if partial else pl.curriculum.Everything(),
        credit=pl.Chain((*bonus, centre), unit="group"),
        objective=pl.objective.Balance(beta=tau, model="behaviour", centred=False, weight="policy"),
        update=pl.Plain(minibatches=4, fresh=True),
        schedule=pl.Schedule(prompts=16, steps=50, max_age=8 if partial else None),
    )


def long2short_recipe(pairs: bool, right: float | None) -> pl.Recipe:
    """Long-to-short: the shortest right answer to imitate, or to prefer to the start
    policy's odds.
    """
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.credit.Shortest(pairs=pairs, right=right),
        objective=pl.DPO() if pairs else pl.Imitation(),
        needs=(("ref", "logp"),) if pairs else (),
        references={"ref": "policy"} if pairs else {},
    )
