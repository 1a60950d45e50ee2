"""RLPR: the reward is the probability that the policy itself gives to the reference answer behind its
own reasoning, so that no verifier is needed.

The reference y* stands in the place of the sampled answer, and one forward pass of the current
policy gives

    r = mean_j p(y*_j | x, z, y*_<j),   reward = 0.9 max(0, r - r_base) + 0.1 format, less 1 where the reply repeats itself

(arXiv:2506.18254, with constants as released in OpenBMB/RLPR). The mean of probabilities bears a
synonym that a product or a geometric mean would punish. r_base is the same without reasoning, of
the start model. A reply without an answer scores 0 before its format; so does a task whose
reference is empty. Groups whose rewards spread less than b_t are dropped and others drawn:

    b_t = c m_t,  m_t = 0.99 m_{t-1} + 0.01 (mean spread of the last step),  m first the mean of steps 6 to 10, used from 11

`form="tags"` reads <think>...</think><answer>...</answer> as in the paper, "stated" an answer in any
form: in \\boxed{}, in <answer>, behind "the answer is". A text that names every candidate before it answers raises r for any
reference: watch `length`.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="RLPR: probability reward without verifiers",
    paper="arXiv:2506.18254",
    claim="The policy's own probability of the reference answer teaches reasoning where no rule "
    "can verify an answer.",
    source="released code (OpenBMB/RLPR: reward_manager/prob.py, ray_trainer.py, repetition.py)",
    size=pl.Size(
        setting="Qwen2.5-7B, Llama3.1-8B, Gemma2-2B; 77k prompts, 768 x 8, minibatch 192, lr 1e-6, "
        "3,072 tokens, no KL",
        model="qwen2.5-7b",
        prompts=768,
        samples=8,
        tokens=3072,
        lr=1e-6,
        arguments={"form": "tags", "update.minibatches": 4},
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "answer",
                "any",
                ("42", "39", "49"),
                "the reference answer, in free form, whose probability is the reward",
            ),
        ),
        shows="part/answer",
        never_off="It is the probability of the right answer behind the policy's reasoning, which no "
        "model makes exactly 0.",
        own={"collect.links.0.n": 2, "schedule.prompts": 8},
    ),
    use="It helps where answers are short texts that no rule can compare; where a rule can, exact match "
    "is the cleaner reward. Pass form=tags for the paper's <think> and <answer>.",
    lacks=("The seven benchmarks of the paper.",),
    grade="A",
)
TAGGED = "Reason in <think></think>, then give the answer in <answer></answer>."
BOXED = "Reason step by step, and give the final answer in \\boxed{}."


@pl.stage
class Spread:
    """Keeps groups whose rewards have a standard deviation (ddof 1) of at least c m; draws until
    there are `size`; 0 = as many as a step draws.

    m moves with the mean over all groups of each step. Before step `start` everything is kept. A
    group of one spreads 0.
    """

    coefficient: float = 0.5
    size: int = 0
    momentum: float = 0.99
    collect_from: int = 6  # steps, counted from 1
    start: int = 11
    drops_equal: ClassVar[bool] = True

    def fit_to_run(self, prompts: int, max_tokens: int) -> "Spread":
        """Without a size of its own it keeps as many groups as a step draws."""
        return self if self.size else replace(self, size=prompts)

    async def __call__(
        self, ctx: pl.Context | None, groups: list[pl.Group], state: pl.State
    ) -> tuple[list[pl.Group] | None, list[pl.Group], pl.State]:
        now, m = state.get("step", 1), state.get("mean")
        least = self.coefficient * m if m is not None and now >= self.start else 0.0
        spreads = [spread(g) for g in groups]
        seen = [*state.get("seen", []), *spreads]
        kept = [
            *state.get("kept", []),
            *(g for g, s in zip(groups, spreads, strict=True) if s >= least),
        ]
        size = self.size or max(len(kept), 1)
        if len(kept) < size and now >= self.start:
            return None, [], {**state, "kept": kept, "seen": seen}
        means = [*state.get("means", []), float(np.mean(seen))] if now >= self.collect_from else []
        if m is not None:
            m = moving_average(m, means[-1], self.momentum)
        elif now + 1 >= self.start:
            m = float(np.mean(means))
        numbers = {
            "step": now + 1,
            "means": [] if m is not None else means,
            "mean": m,
            "kept": [],
            "seen": [],
        }
        return kept[:size] if now >= self.start else kept, [], numbers


def spread(group: pl.Group) -> float:
    totals = [e.total for e in group.valid]
    return float(np.std(totals, ddof=1)) if len(totals) > 1 else 0.0


def moving_average(mean: float, value: float, momentum: float) -> float:
    """The exponential average after one more value."""
    return momentum * mean + (1 - momentum) * value


def states_answer_once(text: str) -> float:
    """1 if the reply states its answer, once, and nothing but punctuation and markup behind it."""
    text = text.strip()
    place = pl.verifiers.answer_place(text)
    if place is None:
        return 0.0
    opening, behind = text[slice(*place)], text[place[1] :].strip(" \t\n}$.*`")
    again = sum(line.startswith(opening) for line in text.splitlines())
    return float(again <= 1 and bool(behind) and "\n" not in behind)


def text_before_answer(text: str) -> str | None:
    """Up to the content of the last <answer>; None where there is none."""
    start, opened_, _ = text.rpartition("<answer>")
    return start + opened_ if opened_ else None


def tags(text: str) -> float:
    """1 if each of the four tags occurs once, in order."""
    return pl.verifiers.Tags()(text, None).score


def build(
    coefficient: float = 0.5,
    how: pl.rewards.Reducer = "mean",
    baseline: str = "ref",
    form: Literal["stated", "tags"] = "stated",
) -> pl.Recipe:
    """`coefficient` c: 0.5 for Qwen, 0.9 for Llama, 1.0 for Gemma; 0 = no filter. `baseline` "" =
    none is taken off.
    """
    read = {
        "stated": (pl.rewards.reasoning_prefix, "", states_answer_once),
        "tags": (text_before_answer, "<answer>", tags),
    }
    before, opening, well_formed = read[form]
    reward = pl.rewards.AnswerProbability(
        baseline=baseline, how=how, before=before, opening=opening, format=well_formed
    )
    rlpr = pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True)),
        objective=pl.Clipped(low=0.2, high=0.27),
        references={"ref": "policy"},
        instruction=TAGGED if form == "tags" else BOXED,
    )
    return pl.vary(rlpr, pool=Spread(coefficient)) if coefficient else rlpr
