"""RL-PLUS: demonstrations in the group, weighed by multiple importance sampling and an
exploration-based advantage.

Each prompt has seven samples and one external demonstration, which is right; A_i = R_i - mean R over
all eight. Whoever wrote the demonstration is unknown, so its tokens are taken as drawn from the
policy before the step or from a stranger whose density is estimated as pi_w = (pi_old + U) / 2:

    external   - r_t A C_t,   r_t = 2 pi / (pi_old + pi_w),   C_t = (1 - pi)^gamma detached
    own        - rho_t A,     rho_t = pi / pi_behaviour

both without a clip, summed over tokens and divided by the longest answer allowed; 0.001 of entropy is
added, no KL (arXiv:2508.00222; released code, rlplus_core_alg.py and train_RL-PLUS.sh). The
denominator never falls below U / 2, and a token that is mastered has no gradient. A group without a
demonstration is Dr. GRPO without a clip. U = 1 is a density, not the 1 / V of a uniform choice.

`external="plain"` has the denominator 1, so that r = pi, and `gamma=0` has C = 1; "luffy" is the
shape pi / (pi + 0.1) of LUFFY (arXiv:2504.14945); "none" shows no demonstration. `clip` bounds the own
ratios again. With `rescue` a demonstration takes the place of one of eight answers, and only where all
are wrong.

    palaestra train rl-plus --data FILE.jsonl --model DIR
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="RL-PLUS: multiple importance sampling + exploration-based advantage",
    paper="arXiv:2508.00222",
    claim="Learning from demonstrations by multiple importance sampling, most from the tokens that "
    "the policy would rarely say, keeps RL inside no boundary of what the start can do.",
    source="released code (YihongDong/RL-PLUS: rlplus_core_alg.py, train_RL-PLUS.sh) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-Math-7B, 7 samples and 1 demonstration, 128 prompts in minibatches of 64, "
        "temperature 1, 8,192 tokens, lr 1e-6, entropy 0.001, no KL, gamma 0.5, U = 1",
        model="qwen2.5-7b",
        prompts=128,
        samples=7,
        tokens=8192,
        lr=1e-6,
        arguments={"length": 8192},
    ),
    needs=pl.needs.Requirements(
        columns=(pl.needs.PROMPT, pl.needs.ANSWER, pl.needs.DEMONSTRATION),
        shows="is:demonstration",
        off={"external": "none"},
        own={"schedule.prompts": 4, "collect.links.0.n": 3},
    ),
    use="It helps where right solutions of a better model are at hand that the policy would rarely write; "
    "without a clip, small batches may take large steps.",
    grade="A",
)
MARK = "demonstration"


def build(
    gamma: float = 0.5,
    density: float = 1.0,
    entropy: float = 0.001,
    length: float | None = None,
    minibatches: int = 2,
    external: Literal["mis", "plain", "luffy", "none"] = "mis",
    clip: bool = False,
    rescue: bool = False,
) -> pl.Recipe:
    """`external` is the surrogate of the demonstrations' tokens; gamma 0 leaves out C."""
    other = {
        "mis": pl.Shaped(
            "mixture", old="policy", density=density, reduce="constant", length=length
        ),
        "plain": pl.Shaped("power", reduce="constant", length=length),
        "luffy": pl.Shaped("saturating", reduce="constant", length=length),
        "none": None,
    }[external]
    own = (
        pl.Clipped(reduce="constant", length=length)
        if clip
        else pl.Shaped("power", old="behaviour", reduce="constant", length=length)
    )
    loss: Any = pl.On(MARK, own, absent=True)
    demonstrate: tuple[pl.Collect, ...] = ()
    if other:
        weigh = pl.objective.Unmastered(gamma)
        external_loss = pl.objective.TokenWeighted(other, weigh) if gamma else other
        loss = pl.On(MARK, external_loss) + loss
        give = pl.rollout.Mark(pl.Demonstrate(), MARK)
        demonstrate = (pl.rollout.Swap(k=1, mark=MARK) if rescue else give,)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=7 + rescue), pl.Score(), *demonstrate),
        credit=pl.chain(pl.Fact(MARK), pl.Center("group")),
        objective=loss + entropy * pl.Entropy() if entropy else loss,
        needs=(("policy", "logp"),) if external == "mis" else (),
        update=pl.Plain(minibatches=minibatches),
    )
