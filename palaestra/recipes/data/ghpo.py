"""GHPO: prompts that nobody solves are asked again with the beginning of their solution.

A group of eight whose accuracies are all 0 is sampled anew with a hint, the first round(omega |s|)
characters of the written solution s behind the question; omega climbs 0.25, 0.5, 0.75 while the whole
group stays wrong, and the last attempt is kept whatever it is. All answers and the prompt of the
group are replaced, and the update is on the hinted prompt that was used, on-policy, so nothing needs
a correction (arXiv:2507.10628; hkgc-1/GHPO, ghpo_trainer.py):

    r = accuracy + 0.5 format,    A_i = (r_i - mean r) / (std r + 1e-4), ddof 1,    clip 0.2, mean over the batch's tokens, no KL

Only the accuracy decides on a hint: a wrong answer may have its format. Rounding is half to even. A
share that rounds to nothing leaves the group as it is; a prompt that does not
fit is an error, where the released code cuts off its beginning.

`place="start"` makes the hint a forced start of the reply, which carries no gradient: reverse
curriculum. `context="bare"` trains on the bare prompt instead, with the ratio to the hinted one.
`every` guides every prompt, by the last of `shares` alone, and samples no bare answers but where there
is nothing to show. Hints begin at step `warm`.
"""

from typing import Any, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="GHPO: adaptive guidance",
    paper="arXiv:2507.10628",
    claim="Hints that grow only as far as a prompt needs them beat RL without hints and a fixed share "
    "of hints, judged without hints.",
    source="released code (hkgc-1/GHPO: ghpo_trainer.py, config_ghpo.yaml) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-Math-7B, MATH levels 3 to 5 with olympiad and AIME problems, G = 8, lr 1e-6 "
        "cosine, warm-up 0.1, temperature 1, 5 epochs, about 20 first steps with a fixed hint",
        model="qwen2.5-7b",
        samples=8,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        columns=(pl.needs.PROMPT, pl.needs.ANSWER, pl.needs.DEMONSTRATION),
        shows="is:guided",
        off={"warm": 99},
        own={"every": True, "schedule.prompts": 3},
    ),
    use="It helps where many prompts are never solved and their solutions are at hand; where some answer of "
    "most groups is right, it is GRPO at a higher cost.",
    lacks=(
        "There is no cold start, in which about 20 first steps show every prompt a fixed hint.",
        "A prompt that becomes too long by its hint is an error, not cut off.",
    ),
    grade="A",
)
BOXED = "Reason step by step, and give the final answer in \\boxed{}."
MARK = "guided"
ATTEMPT = pl.Stratum(fact="")  # whatever the number of turns


def none_paid(accuracies: np.ndarray) -> bool:
    """Whether a group is asked again."""
    return not np.any(accuracies > 0)


def nothing_there(score_N: np.ndarray) -> bool:
    """Whether no answer was sampled."""
    return not len(score_N)


def build(
    shares: tuple[Any, ...] = (0.25, 0.5, 0.75),
    unit: Literal["characters", "tokens", "steps", "lines"] = "characters",
    place: Literal["prompt", "start"] = "prompt",
    context: Literal["hinted", "bare"] = "hinted",
    shuffled: bool = False,
    every: bool = False,
    form: float = 0.5,
    warm: int = 0,
) -> pl.Recipe:
    """`shares` are numbers or schedules. With `every` all answers have the last of them, and none is
    sampled without a hint where there is one. `form` weighs the format; `shuffled` shows the working
    of another task, a control.
    """
    score = pl.Score(reward=pl.rewards.AccuracyAndFormat(form)) if form else pl.Score()
    sample = pl.Sample(n=8)

    def guided(share: Any) -> pl.Collect:
        share_shown: Any = pl.Jump(0.0, share, warm) if warm else share
        working = pl.Working(share_shown, unit, shuffled)
        if place == "start":
            return pl.rollout.Begin(working, sample, MARK, share_shown)
        hinted = pl.Under(pl.Hinted(working), sample, MARK, share_shown)
        return pl.links(hinted, pl.Hide(MARK)) if context == "bare" else hinted

    steps = [pl.links(guided(share), score) for share in shares]
    again = [pl.When(none_paid, pl.Instead(s), "accuracy") for s in steps]
    alone = pl.When(nothing_there, pl.links(sample, score))
    collect = pl.links(steps[-1], alone) if every else pl.links(sample, score, *again)
    return pl.vary(
        pl.recipe("grpo"),
        collect=collect,
        credit=pl.chain(pl.Fact(MARK), pl.Center(ATTEMPT), pl.Scale(ATTEMPT, eps=1e-4)),
        objective=pl.Clipped(reduce="tokens") + pl.Track((f"is:{MARK}",)),
        instruction=BOXED if form else "",
    )
