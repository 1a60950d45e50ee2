"""Private alignment: learns from a user's pairs or demonstrations so that the trained weights hardly
tell whether any one line of the data was there.

    g = ( sum over lines i of g_i min(1, C / |g_i|) + N(0, sigma^2 C^2 I) ) / L

g_i is the gradient of the loss of one line (DPO: of the pair, both answers together), C the clip, L
the prompts of a step, which are drawn each by a coin of its own. sigma is the least noise with which
all steps of the run take `epsilon` by the Renyi accountant; `epsilon` of each step's log is what was
spent up to there, added up over steps of different rates. The keys of coins and noise are drawn from
the operating system, not from --seed, and a line is held out or not by its own hash. DP-AdamW
(arXiv:2505.08849) takes the noise's variance from the second moment of Adam. What is private is
(epsilon, delta) for one line more or less, and the weights alone: the run folder holds the data, and a
comparison of settings on the same lines is not accounted.

Without `--lora` only the last `layers` decoder layers learn, as noise grows with the square root of the
number of weights. `loss="reward"` trains a reward model: reinforcement learning against it on public
prompts (`--reward FOLDER`) takes no further budget, as in DP-RLHF.
"""

import math
from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

Loss = Literal["dpo", "sft", "reward"]
STEPS = 100
PAIRED = {"loss": ("dpo", "reward")}

CARD = pl.Card(
    title="Differentially private alignment (DP-AdamW with DPO, SFT or a reward model)",
    paper="arXiv:2505.08849",
    claim="DP-AdamW with DPO improves alignment by up to 15% over earlier private methods at epsilon "
    "from 2 to 5.",
    source="abstract and a public review of the paper; accounting by opacus instead of the paper's",
    size=pl.Size(
        setting="Llama 8B, GPT-2 and DeepSeek-LLM 7B chat; DPO and PPO; epsilon from 0 to 10; the "
        "data sets, batches and rates are not known to us",
    ),
    task="preferences",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            replace(pl.needs.CHOSEN, when=PAIRED),
            replace(pl.needs.REJECTED, when=PAIRED),
            replace(
                pl.needs.DEMONSTRATION,
                otherwise="the answer is imitated, without a working",
                when={"loss": ("sft",)},
            ),
        ),
        shows="noise",
        off={"epsilon": math.inf},
        own={"schedule.prompts": 4},
    ),
    use="It helps where the pairs are of people who must stay unknown and there are thousands of them; "
    "with a few hundred lines, noise outweighs what they teach.",
    lacks=(
        "The built-in run has a public seed of coins and noise, so it promises nothing; a run on --data has "
        "secret ones.",
        "Who has the run folder has the secret of the noise and the data: publish the weights alone.",
        "Losses, margins, accuracies, gradient norms, held-out numbers and answers that a run logs are made from "
        "the data without noise, so they are outside of the guarantee, as report and model card say.",
        "A short file can have no held-out line, as each line decides that alone; give --test-data.",
        "The number of lines counts as public: delta, the noise and the rate of drawing follow from it.",
        "Several runs on the same lines are not added up: their epsilons and deltas add. A --model that was "
        "trained on the lines without noise is no private start.",
        "Two runs that go on from copies of one checkpoint share its secret: publish one of them.",
        "A pool or schedule.window of yours makes draws that the accountant does not know; a line that comes "
        "twice in a step is refused, a line that waits for a later one is not seen.",
        "Weight decay is 0 unless it is set, so the default is DP-Adam with the corrected moment.",
        "The paper's comparison over budgets, models and costs, and its guidelines, are not measured.",
        "DP-RLHF is the private reward model and a run of its own against it on public prompts; PPO on "
        "private prompts is not there.",
        "DP-SGD, the paper's weakest arm, is not there; DP-Adam is `correct=false`.",
        "Several lines of one person are several units: gather what a person gave in one line.",
        "The noise comes from a counter-based generator and float32, not from a cryptographic one.",
    ),
    grade="B",
)


def build(
    loss: Loss = "dpo",
    epsilon: float = 8.0,
    delta: float = 0.0,
    clip: float = 1.0,
    beta: float = 0.1,
    layers: int = 1,
    correct: bool = True,
    public_seed: int = 0,
) -> pl.Recipe:
    """The lines are those of --data.

    Args:
        epsilon: of the whole run; inf = clipping without noise.
        delta: 0 = 1 / (2 lines).
        clip: C, the norm of a line's gradient at most.
        layers: the last decoder layers that learn where there are no adapters; 0 = all weights.
        correct: the second moment is corrected for the noise (DP-AdamW), or not (DP-Adam).
        public_seed: above 0 = coins and noise that anybody can repeat, for tests: no guarantee holds.
    """
    plain = parent(loss, beta)
    [learner] = plain.learners.values()
    return pl.vary(
        plain,
        draw=pl.privacy.Poisson(public_seed=public_seed),
        credit=pl.privacy.EachLine(learner.credit),
        update=pl.privacy.PrivateSteps(
            epsilon=epsilon, delta=delta, clip=clip, steps=STEPS, public_seed=public_seed
        ),
        optimiser=pl.privacy.DPAdamW() if correct else pl.AdamW(betas=(0.9, 0.999), clip_norm=0.0),
        layers=layers,
        schedule=pl.Schedule(prompts=16, steps=STEPS),
    )


def parent(loss: Loss, beta: float) -> pl.Recipe:
    """The method without privacy."""
    if loss == "dpo":
        return pl.recipe("dpo", pairs="data", beta=beta)
    return pl.recipe("reward-model" if loss == "reward" else "sft")


def embedded(lines: int = 512, public_seed: int = 1, **options: Any) -> pl.Recipe:
    """On the built-in pairs, which have no end: the first `lines` are the data. They are of nobody,
    so that anybody may repeat the run.
    """
    private = pl.privacy.Poisson(lines, public_seed=public_seed)
    recipe = pl.vary(build(public_seed=public_seed, **options), draw=private)
    return pl.override(recipe, "update.lines", lines)
