"""NuRL: prompts that the policy never solves are sampled again with a hint that it wrote itself.

Before training, the model that is to be trained explains for every prompt why its gold answer is
right, and makes of that a hint: the knowledge that is needed, without the answer or a step of the
working. A hint that gives the answer away is written again. Training is GRPO until it no longer
gains (`warm` steps); then a group of G whose answers are all wrong is replaced by G - 1 answers
to [question; hint] and one to the question alone, so that not all can be right (arXiv:2509.25666):

    A = (r - mean r) / (std r + 1e-6), ddof 1:   7 right with a hint, 1 wrong without: 0.35 and -2.47

Without the last one all would be equal and train nothing. A group with a right answer stays, and so
does one whose task has no hint; an evaluation shows no hints. What the last answer loses by being
wrong is large: `scaled=False` leaves the deviation out. Between the stages the paper drops prompts
that all answers solve, which have no gradient here.

    palaestra train nurl --data FILE.jsonl --model DIR

A hint is the column `hint` of the file; where it is empty, `writer` writes it when the task is drawn:
a frozen copy of the start, as in the paper, or another model (`writer=endpoint(...)`). That takes two
calls or more a task. `kind=cue` shows the column alone and writes nothing. The paper's other kinds
give more away: "steps" shows half of the working, "explanation" all of it, "answer" the answer;
workings are the column `demonstration`.

The sources do not say which prompt the hinted answers are trained behind: `context` "hinted" is the one
that was seen, on-policy; "bare" hides the hint, with the ratio to the hinted one. `place="start"` begins
the reply with the hint. `every` gives a hint to all prompts from the beginning.
What SmolLM2 makes of it stands in docs/runs.md.
"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.data.nurl.hints import WRITER, WithHints

CARD = pl.Card(
    title="NuRL: nudging with self-generated hints",
    paper="arXiv:2509.25666",
    claim="Abstract hints in the model's own words, only for prompts that it never solves, raise "
    "pass@k where GRPO leaves it.",
    source="the abstract and a public note on the paper; nothing was found that says which prompt "
    "hinted answers are trained behind",
    size=pl.Size(
        setting="Llama-3.2-3B, OctoThinker-3B and Qwen3-4B, hints written by the start itself, GRPO "
        "until it no longer gains, then with hints; pass@k up to 1,024",
        model="llama-3.2-3b",
        samples=8,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            replace(
                pl.needs.HINT,
                otherwise="`writer` writes it from the answer",
                when={"kind": ("written",)},
            ),
            replace(pl.needs.HINT, when={"kind": ("cue",)}),
            replace(pl.needs.DEMONSTRATION, when={"kind": ("steps", "explanation")}),
        ),
        models=(
            pl.needs.NeededModel(
                "writer",
                "writer",
                "writes the hints that the file does not have",
                inert=pl.LocalModel(WRITER),
                example="endpoint(url='http://HOST:PORT/v1',model='NAME')",
                otherwise="a frozen copy of the start does",
                when={"kind": ("written",)},
            ),
        ),
        shows="is:guided",
        off={"warm": 99},
        own={"n": 2, "schedule.prompts": 8},
    ),
    use="It helps where many prompts are never solved and the model can read a hint and write one; where "
    "some answer of most groups is right, it is GRPO at a higher cost.",
    lacks=(
        "The start of the second stage is a number of steps (`warm`): nothing sees that GRPO no longer gains.",
        "Prompts that all answers solve are not removed between the stages.",
    ),
    grade="A",
)
MARK = "guided"
Kind = Literal["written", "cue", "steps", "explanation", "answer"]


@pl.stage
class RevealAnswer:
    """The answer itself, as a hint."""

    def __call__(self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> str:
        return "" if group.task.answer is None else f"the answer is {group.task.answer}"


def any_sampled(rewards: np.ndarray) -> bool:
    """Whether the group has an answer."""
    return bool(len(rewards))


def none_sampled(rewards: np.ndarray) -> bool:
    """Whether the group has no answer."""
    return not any_sampled(rewards)


def build(
    kind: Kind = "written",
    place: Literal["prompt", "start"] = "prompt",
    context: Literal["hinted", "bare"] = "hinted",
    bare: int = 1,
    every: bool = False,
    warm: int = 0,
    scaled: bool = True,
    n: int = 8,
    writer: pl.Source = pl.LocalModel(WRITER),
) -> pl.Recipe:
    """Args:
    kind: what a hint is.
    bare: how many answers of a new group come without the hint.
    every: each group is such a one from the beginning, where there is a hint.
    warm: steps of GRPO before the first hint.
    writer: writes hints of the kind "written".
    """
    hint, more = guidance(kind), pl.Sample(n=n - bare)
    if place == "start":
        hinted: pl.Collect = pl.rollout.Begin(hint, more, MARK)
    else:
        hinted = pl.Under(pl.Hinted(hint), more, MARK)
        hinted = pl.links(hinted, pl.Hide(MARK)) if context == "bare" else hinted
    beside = (pl.When(any_sampled, pl.links(pl.Sample(n=bare), pl.Score())),) if bare else ()
    again = pl.links(hinted, pl.Score(), *beside)
    nudge: Any = again if every else pl.When(pl.none_right, pl.Instead(again))
    if warm:
        rounds: Any = pl.Jump(0, 1, warm)  # hints are tried so often: not at all, then once
        nudge = pl.rollout.Until(any_sampled, nudge, rounds)
    first = pl.links(pl.Sample(n=n), pl.Score())
    collect = pl.links(*first.links, nudge)
    if every:
        collect = pl.links(nudge, pl.When(none_sampled, first))
    scope = pl.Stratum(fact="")
    scale = (pl.Scale(scope),) if scaled else ()
    start = {WRITER: "policy"} if writer == pl.LocalModel(WRITER) else {}
    by_model = {"draw": WithHints(writer=writer), "references": start}
    return pl.vary(
        pl.recipe("grpo"),
        **(by_model if kind == "written" else {}),
        collect=collect,
        credit=pl.chain(pl.Fact(MARK), pl.Center(scope), *scale),
        objective=pl.Clipped(reduce="tokens") + pl.Track((f"is:{MARK}",)),
    )


def guidance(kind: Kind) -> pl.rollout.GuidanceSource:
    """What is shown of a task; nothing where that would hold the answer, but for the kinds that do."""
    if kind == "answer":
        return RevealAnswer()
    if kind in ("written", "cue"):
        return pl.rollout.Unleaked(pl.rollout.HintColumn())
    return pl.Working(0.5 if kind == "steps" else 1.0, "steps")


def embedded(kind: Kind = "steps", **options: Any) -> pl.Recipe:
    """On the embedded problem, whose model cannot write hints: half of the working is shown."""
    return build(kind, **options)
