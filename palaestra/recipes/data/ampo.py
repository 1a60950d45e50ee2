"""AMPO: where no answer is right, solutions of several teachers take the place of some failures.

Eight answers, paid 0.9 for the answer and 0.1 for its form. If none is right, two failures, drawn at
random, give way to two of up to four teachers' solutions (the column `demonstrations`), which are
paid 1. Those are taken that the policy comprehends best,

    score = max(0, mean_t p(a_t | q, reasoning) - mean_t p(a_t | q)),

a_t the tokens of the gold answer, behind the teacher's reasoning and behind nothing; of equal ones the
shorter. A = r - mean r over the mixed group, so all wrong but two teachers has 0.75 and -0.25
(arXiv:2510.02227; SII-Enigma/AMPO, mix_core_alg.py, mix_dapo_trainer.py, reward_manager/prob.py):

    own        PPO's clip at 0.2, of a negative advantage at most 10 A
    teacher    -A p / (p + 0.1),    p = pi(o | q)

summed over tokens and divided by the longest answer allowed, 0.001 of entropy, no KL. A teacher's
token weighs 0.1 p / (p + 0.1)^2, most where the policy would rarely say it.

`level="sequences"` means each teacher's tokens first, so that a long solution does not weigh more, as
the paper has it. The released code has an option of that name, but its loss is the sum over tokens
in either case: only the logged number is a mean, so "tokens" is the default. A teacher whose answer
is wrong has to be left out of the data beforehand. `choice="random"` draws the solutions;
`always_on` guides groups that have right answers too.
"""

from typing import Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="AMPO: adaptive multi-teacher guidance",
    paper="arXiv:2510.02227",
    claim="Solutions of several teachers, only where all answers fail and those that the policy "
    "comprehends best, end above GRPO and above one teacher, most in pass@k.",
    source="released code (SII-Enigma/AMPO: mix_dapo_trainer.py, mix_core_alg.py, "
    "reward_manager/prob.py, train_ampo.sh) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-7B-Instruct, also 1.5B and Llama-8B; 8.5k prompts of OpenR1-Math with 4 long "
        "solutions, G = 8, 128 prompts in minibatches of 64, 8,192 tokens, lr 1e-6, 510 steps",
        model="qwen2.5-7b",
        prompts=128,
        samples=8,
        tokens=8192,
        lr=1e-6,
        arguments={"length": 8192},
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            pl.needs.NeededColumn(
                "demonstrations",
                "texts",
                (
                    ["17 + 25 = 30 + 12 = 42", "17 + 20 + 5 = 42"],
                    ["8 + 31 = 39", "31 + 8 = 39"],
                    ["40 + 9 = 49", "9 + 40 = 49"],
                ),
                "right replies, each by another teacher",
            ),
        ),
        shows="is:demonstration",
        off={"k": 0},
        own={"always_on": True, "schedule.prompts": 4, "collect.links.0.n": 3},
    ),
    use="It helps where many prompts are never solved and several models or people have written solutions; "
    "where some answer of most groups is right, no teacher is heard.",
    lacks=(
        "Teachers are not asked during the run: their solutions are a column of the file, and "
        "those whose answer is wrong are not left out.",
        "Comprehension is measured where a solution states its answer; one that states none "
        "scores 0, and of equal ones the shortest is taken.",
    ),
    grade="A",
)
BOXED = "Reason step by step, and give the final answer in \\boxed{}."
MARK = "demonstration"


def always(score_N: np.ndarray) -> bool:
    """Whatever the rewards are."""
    return True


def build(
    k: int = 2,
    choice: Literal["comprehension", "random"] = "comprehension",
    always_on: bool = False,
    level: Literal["tokens", "sequences"] = "tokens",
    form: float = 0.1,
    entropy: float = 0.001,
    length: float | None = None,
) -> pl.Recipe:
    """`k` failures give way, 0 = none; `form` is the share of the reward that the answer's form
    earns.
    """
    score = pl.rewards.AnswerProbability(baseline="policy") if choice == "comprehension" else None
    when = always if always_on else pl.none_right
    swap = (pl.rollout.Swap(k=k, when=when, mark=MARK, score=score),) if k else ()
    reward = pl.rewards.AccuracyAndFormat(form, accuracy=1 - form) if form else None
    teacher = (
        pl.Shaped("saturating", reduce="constant", length=length)
        if level == "tokens"
        else pl.Shaped("saturating", reduce="sequences")
    )
    own = pl.DualClipped(low=0.2, high=0.2, c=10.0, reduce="constant", length=length)
    loss = pl.On(MARK, teacher) + pl.On(MARK, own, absent=True)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward), *swap),
        credit=pl.chain(pl.Fact(MARK), pl.Center("group")),
        objective=loss + entropy * pl.Entropy() if entropy else loss,
        update=pl.Plain(minibatches=2),
        instruction=BOXED if form else "",
    )
