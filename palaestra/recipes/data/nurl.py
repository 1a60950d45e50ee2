"""NuRL: prompts that nobody solves are sampled again with an abstract cue, which the model wrote.

Before training, the policy that is to be trained explains for every prompt why its gold answer is
right, and makes of that a hint: the knowledge that is needed, without the answer or a step of the
working. A hint that gives the answer away is written again. Training is GRPO until it no longer
gains (`warm` steps); then a group of G whose answers are all wrong is replaced by G - 1 answers
behind [question; hint] and one to the bare question, so that not all can be right
(arXiv:2509.25666):

    A = (r - mean r) / (std r + 1e-6), ddof 1:   7 hinted right, the bare one wrong: 0.35 and -2.47

Without the bare one all would be equal and train nothing. A group with a right answer stays, and so
does one without a hint; hints are never shown in an evaluation. What the bare answer pays for being
wrong is large: `scaled=False` leaves the deviation out. Between the stages the paper drops prompts
that all answers solve, which have no gradient here.

Nothing says which prompt the hinted answers are trained behind: `context` "hinted" is the one that
was seen, on-policy; "bare" hides the hint, with the ratio to the hinted one.

`kind`: "cue" is the column `hint`, else of how many steps the working is; "written" is a hint that
the run's start writes for every task drawn, as in the paper (two calls or more a task, which take
several times as long as its answers); "steps" half of the working; "explanation" the whole;
"answer" the answer. `place="start"` begins the reply with it. `write_hints` writes the column
beforehand, by an endpoint; a file of the tasks with the column `hint` is trained on by
`palaestra train nurl --data FILE`. `every` hints all prompts, and samples no group without a hint
but where there is none.
What SmolLM2 makes of it stands in docs/runs.md.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl

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
                pl.needs.HINT, otherwise="nothing but the number of steps", when={"kind": ("cue",)}
            ),
        ),
        shows="is:guided",
        own={"kind": "cue"},
    ),
)
MARK = "guided"
EXPLAIN = "{question}\n\nThe answer is {answer}. Explain step by step why it is right."
ABSTRACT = (
    "{question}\n\nAn explanation of its answer:\n{explanation}\n\nWrite a hint of one or two sentences: "
    "only the knowledge that is needed to solve it. Say neither the answer nor a step of the working."
)


@pl.stage
class StepCount:
    """How many steps the working has: a cue that holds nothing of the problem's numbers."""

    def __call__(self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> str:
        lines = (
            pl.rollout.written_answer(ctx.bench.tasks, group.task, rng, "work").strip().splitlines()
        )
        return f"in {len(lines) - 1} steps" if len(lines) > 1 else ""


@pl.stage
class AnswerTold:
    """The answer itself."""

    def __call__(self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> str:
        return "" if group.task.answer is None else f"the answer is {group.task.answer}"


async def write_hints(
    source: pl.Source,
    tasks: Sequence[pl.Task],
    attempts: int = 4,
    seed: int = 0,
    ctx: pl.Context | None = None,
) -> list[str]:
    """A hint for each task, in the words of a chat model that is shown the answer; "" where each of
    `attempts` gave the answer away or said nothing. A model of a run needs that run's `ctx`.
    """
    client = source.open(ctx)

    async def ask(text: str, number: int) -> str:
        asked = pl.ChatRequest(
            messages=pl.services.question_messages(text),
            temperature=1.0,
            seed=pl.seed_of((seed, number)),
        )
        return (await client.chat(asked)).text.strip()

    async def hint(task: pl.Task) -> str:
        question = pl.tasks.question_text(task)
        for n in range(attempts):
            why = await ask(EXPLAIN.format(question=question, answer=task.answer), 2 * n)
            said = await ask(ABSTRACT.format(question=question, explanation=why), 2 * n + 1)
            if said and not pl.rollout.leaks_answer(said, task.answer):
                return said
        return ""

    return list(await asyncio.gather(*map(hint, tasks)))


@pl.declare(columns=("hint",))
@pl.stage
class WithHints:
    """Draws as `source` does, each task with a hint that `writer` wrote for it. Equal tasks have equal
    hints; the state counts the tasks, and those without one.
    """

    source: pl.Draw = pl.Shuffled()
    writer: pl.Source = pl.LocalModel("writer")
    attempts: int = 4

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        drawn, inner = self.source(ctx, key, n, dict(state.get("inner", {})))
        hints = await write_hints(self.writer, drawn, self.attempts, ctx.seed, ctx)
        told = [
            replace(t, meta={**t.meta, "hint": h}) if h else t
            for t, h in zip(drawn, hints, strict=True)
        ]
        counts = {"asked": len(drawn), "without": hints.count("")}
        found = {k: state.get(k, 0) + v for k, v in counts.items()}
        return told, {**state, **found, "inner": inner}


def any_there(found: np.ndarray) -> bool:
    """Whether something was sampled."""
    return bool(len(found))


def none_there(found: np.ndarray) -> bool:
    return not any_there(found)


def build(
    kind: Literal["cue", "written", "steps", "explanation", "answer"] = "cue",
    place: Literal["prompt", "start"] = "prompt",
    context: Literal["hinted", "bare"] = "hinted",
    bare: int = 1,
    every: bool = False,
    warm: int = 0,
    scaled: bool = True,
    shuffled: bool = False,
    lines: int = 0,
    n: int = 8,
) -> pl.Recipe:
    """`bare` answers of a new group are without the hint. With `every` each group is such a one from the
    beginning, where there is a hint. `shuffled` shows the working of another
    task, and `lines` so many lines of it in place of a half: controls.
    """
    said = guidance(kind, shuffled, lines)
    more = pl.Sample(n=n - bare)
    if place == "start":
        hinted: pl.Collect = pl.rollout.Begin(said, more, MARK)
    else:
        hinted = pl.Under(pl.Hinted(said), more, MARK)
        hinted = pl.links(hinted, pl.Hide(MARK)) if context == "bare" else hinted
    beside = (pl.When(any_there, pl.links(pl.Sample(n=bare), pl.Score())),) if bare else ()
    again = pl.links(hinted, pl.Score(), *beside)
    nudge: Any = again if every else pl.When(pl.none_right, pl.Instead(again))
    if warm:
        rounds: Any = pl.Jump(0, 1, warm)  # hints are tried so often: not at all, then once
        nudge = pl.rollout.Until(any_there, nudge, rounds)
    first = pl.links(pl.Sample(n=n), pl.Score())
    collect = pl.links(*first.links, nudge)
    if every:
        collect = pl.links(nudge, pl.When(none_there, first))
    scope = pl.Stratum(fact="")
    scale = (pl.Scale(scope),) if scaled else ()
    by_start = {"draw": WithHints(), "references": {"writer": "policy"}}
    return pl.vary(
        pl.recipe("grpo"),
        **(by_start if kind == "written" else {}),
        collect=collect,
        credit=pl.chain(pl.Fact(MARK), pl.Center(scope), *scale),
        objective=pl.Clipped(reduce="tokens") + pl.Track((f"is:{MARK}",)),
    )


def guidance(kind: str, shuffled: bool, lines: int) -> pl.rollout.GuidanceSource:
    """What is shown of a task."""
    if kind == "answer":
        return AnswerTold()
    if kind == "written":
        return pl.rollout.Unleaked(pl.rollout.HintColumn())
    if kind == "cue":
        return pl.rollout.Unleaked(pl.rollout.HintColumn(otherwise=StepCount()))
    if lines:
        return pl.Working(float(lines), "lines", shuffled)
    return pl.Working(0.5 if kind == "steps" else 1.0, "steps", shuffled)
