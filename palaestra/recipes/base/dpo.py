"""DPO: raises the likelihood of the chosen answer of each pair over that of the rejected one,
measured against the start: a classification of pairs by the policy's own log-ratios.

loss = -log sigmoid(beta * [(log pi - log ref)(chosen) - (log pi - log ref)(rejected)])
(arXiv:2305.18290v3, eq. 7). Pairs are recorded (`pairs="data"`: columns prompt, chosen, rejected)
or built from the policy's own rollouts, the best against the worst of a group (`pairs="rollouts"`,
online DPO as in arXiv:2402.04792).

Options, all off: `smoothing` is the share of labels taken to be flipped (conservative DPO); with
`robust` the loss is corrected for that share instead (arXiv:2403.00409); `normalise` takes log-ratios
per token; `sft` adds that much of the chosen answer's loss per token (RPO, arXiv:2404.19733).

`loss` is another function of the same two log-ratios, by its name in TRL: "hinge" (SLiC, arXiv:2305.10425),
"exo_pair" (EXO, arXiv:2402.00856, which needs a `smoothing` above 0), "nca_pair" (NCA, arXiv:2402.05369),
"sppo_hard" (SPPO, arXiv:2405.00675), "apo_zero" and "apo_down" (APO, arXiv:2408.06266), "discopop"
(arXiv:2406.08414).
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import palaestra as pl

CARD = pl.Card(
    title="Direct Preference Optimization",
    paper="arXiv:2305.18290",
    claim="Preferences can be optimised without a reward model and without sampling, at the "
    "quality of PPO.",
    source="paper",
    size=pl.Size(
        setting="Pythia 2.8B on Anthropic HH, GPT-J on TL;DR, beta 0.1, lr 1e-6, batch 64",
        model="pythia-2.8b",
        prompts=64,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        columns=pl.needs.PAIRS,
        shows="margin",
        off={"optimiser.lr": 0.0},  # the reference itself
        own={"pairs": "data", "schedule.prompts": 4},
    ),
    use="It helps where people or models compared answers and nothing can verify one; with a verifier, "
    "methods that sample learn more.",
    lacks=("The data sets of the paper, and its comparison with PPO, are not there.",),
    grade="A",
)

Loss: TypeAlias = Literal[
    "sigmoid", "hinge", "exo_pair", "nca_pair", "sppo_hard", "apo_zero", "apo_down", "discopop"
]
OTHERS: Mapping[str, Callable[[float, float], Any]] = {  # by beta and smoothing
    "hinge": lambda beta, _: pl.objective.Hinge(beta=beta),
    "exo_pair": lambda beta, smoothing: pl.objective.ReversePairKL(beta=beta, smoothing=smoothing),
    "nca_pair": lambda beta, _: pl.objective.NoiseContrastive(beta=beta),
    "sppo_hard": lambda beta, _: pl.objective.SquaredSides(beta=beta),
    "apo_zero": lambda beta, _: pl.objective.AnchoredPair(beta=beta),
    "apo_down": lambda beta, _: pl.objective.AnchoredPair(beta=beta, anchor="down"),
    "discopop": lambda beta, _: pl.objective.LogRatioModulated(beta=beta),
}


def build(
    pairs: Literal["data", "rollouts"] = "rollouts",
    beta: float = 0.1,
    smoothing: float = 0.0,
    robust: bool = False,
    normalise: bool = False,
    sft: float = 0.0,
    loss: Loss = "sigmoid",
) -> pl.Recipe:
    if loss == "exo_pair" and not smoothing:
        raise pl.UserError(
            "dpo: loss=exo_pair needs a share of flipped labels, e.g. smoothing=0.001"
        )
    objective: Any = OTHERS[loss](beta, smoothing) if loss in OTHERS else None
    if objective is None:
        objective = pl.DPO(beta=beta, smoothing=smoothing, robust=robust, normalise=normalise)
    elif robust or normalise or (smoothing and loss != "exo_pair"):
        raise pl.UserError(
            f"dpo: loss={loss} takes no robust and no normalise, and smoothing goes with sigmoid and exo_pair alone"
        )
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score())
        if pairs == "rollouts"
        else pl.links(pl.Recorded()),
        credit=pl.credit.Prefer(),
        objective=objective + sft * pl.objective.ImitatePreferred() if sft else objective,
        needs=(("ref", "logp"),),
        references={"ref": "policy"},
    )
