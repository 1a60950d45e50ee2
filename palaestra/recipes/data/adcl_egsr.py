"""ADCL and EGSR: problems come from easy to hard, with difficulty measured again during training, and
where the policy finds no solution it restates an expert's solution in its own words.

ADCL sorts all tasks by delta(x) = 1 - pass rate of the start and cuts them into K batches. Before each
batch but the first it measures delta again with the current policy and sorts the batch again. No task
changes its batch, so a pass over the data costs one more measurement of all tasks. At each boundary
the run says how much the order moved, by the normalised inversion rate NIR = 2 inversions / (m (m - 1))
of m tasks.

EGSR acts where all G answers to q are wrong. The same policy answers q beside expert material (the
solution in the column `demonstration`, or with expert="answer" the answer alone) and is asked to use
its own words. Right guided answers replace as many failures, drawn at random, and train on the bare
question:

    A over the mixed group,    rho = pi(o|q) / pi_old(o|q)

so the ratio begins at 1. `ratio="seen"` divides by pi_old(o|q, expert) instead. If the guided answers
are wrong too, the group stays as it was, without a gradient. A guided answer with nothing before its
answer only quotes, and counts as wrong (arXiv:2505.08364; NIR and ADCL by a public review, details
of EGSR are inferred).

A batch of the curriculum lasts many steps, so the order inside it is that of the updates. Each half
stands alone: `curriculum="random"`, `expert=""`; "static" keeps the order of the start. Guided answers
that are not used are muted, so that their tokens are counted.
"""

import re
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Adaptive difficulty curriculum + expert-guided self-reformulation",
    paper="arXiv:2505.08364",
    claim="Difficulty that is measured anew before each batch, and solutions in the policy's own words, "
    "together beat RL without either.",
    source="a public review for ADCL and NIR; the abstract for EGSR, whose details are inferred",
    size=pl.Size(
        setting="Qwen2.5-7B, zero RL on maths; 10 points on AIME24 and 16.6 on AIME25 above the "
        "baseline; K, G and the learning rate are not known to us",
        model="qwen2.5-7b",
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            replace(pl.needs.DEMONSTRATION, when={"expert": ("solution",)}),
        ),
        shows="answers_spread",  # `is:guided` is 0 until a guided answer is right
        off={"expert": ""},
        own={
            "schedule.prompts": 4,
            "tasks": 8,
            "batches": 2,
            "probe": 2,
            "n": 2,
            "guided": 4,
        },
    ),
    use="The curriculum helps where a fixed set of problems of very different difficulty is passed several "
    "times; the guided answers help where the model follows a solution that it does not find by itself.",
    lacks=(
        "The paper's K, G and learning rate are not known to us, and the details of EGSR are "
        "inferred.",
    ),
    grade="A",
)
MARK = "guided"
RESTATE = "Here is a solution. Understand it, then solve the problem in your own words."


@pl.stage
class WithInstruction:
    """The guidance behind a sentence that says what to do with it."""

    say: str
    guidance: pl.rollout.GuidanceSource

    def __call__(self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> str:
        text = self.guidance(ctx, group, rng)
        return f"{self.say}\n{text}" if text and self.say else text


@pl.declare(facts=("stratum", "guided"))
@pl.stage
class Reformulate:
    """Runs `link` beside what `expert` shows; its right answers take the place of as many wrong ones,
    drawn at random, and are trained behind the bare prompt.

    All that trains has the fact "stratum" 0, what is left out, muted, 1. With nothing right the group
    is as it was, but for the muted answers.
    """

    expert: pl.rollout.Rewrite
    link: pl.Collect
    quotes: bool = False  # whether an answer with nothing before it may be taken

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        n = len(group.episodes)
        hidden = pl.links(pl.Under(self.expert, self.link, MARK), pl.Hide(MARK))
        made = await hidden(ctx, key, group)
        own, guided = list(made.episodes[:n]), made.episodes[n:]
        wrong = [i for i, e in enumerate(own) if e.ok and not e.muted and not e.solved]
        right = [e for e in guided if e.ok and e.solved and (self.quotes or shows_work(e.text))]
        places = pl.rng_of((*key, "places")).permutation(wrong)[: len(right)]
        left = [own[i] for i in sorted(places)]
        for i, e in zip(sorted(places), right, strict=False):
            own[i] = e
        taken = {id(e) for e in right[: len(places)]}
        left += [e for e in guided if id(e) not in taken]
        kept = (in_stratum(e, 0) for e in own)
        gone = (replace(in_stratum(e, 1), muted=True) for e in left)
        return replace(made, episodes=(*kept, *gone))


def in_stratum(e: pl.Episode, number: int) -> pl.Episode:
    return replace(e, facts={**e.facts, "stratum": number})


def shows_work(text: str) -> bool:
    """Whether anything stands before the answer, thoughts included; of a reply that states none,
    whether it is more than one word.
    """
    place = pl.verifiers.answer_place(text)
    if place is None:
        return len(text.split()) > 1
    before = text.lstrip()[: text.lstrip().find(text[slice(*place)])]
    return bool(re.sub(r"\b(?:the|final|answer|is|so|thus|hence)\b|[\W_]", "", before, flags=re.I))


def curriculum_of(
    kind: Literal["adaptive", "static", "random"], tasks: int | None, batches: int, probe: int
) -> Any:
    """The draw: which task comes when."""
    if kind == "random":
        return pl.Shuffled()
    sample = pl.Sample(n=probe)
    return pl.curriculum.EasyToHard(tasks, batches if kind == "adaptive" else 1, probe=sample)


def build(
    curriculum: Literal["adaptive", "static", "random"] = "adaptive",
    expert: Literal["solution", "answer", ""] = "solution",
    tasks: int | None = None,
    batches: int = 5,
    probe: int = 4,
    n: int = 8,
    guided: int = 1,
    say: str = RESTATE,
    ratio: Literal["bare", "seen"] = "bare",
    scale: bool = True,
    minibatches: int = 1,
) -> pl.Recipe:
    """The first `tasks` are in the curriculum, None = all of a file. `probe` attempts measure a
    difficulty, `guided` ones follow a group without a right answer; `say` stands before the
    solution; `scale` divides by the group's deviation.
    """
    rewrite = (
        pl.Hinted(WithInstruction(say, pl.Working(1.0, "characters")))
        if expert == "solution"
        else pl.Feedback("answer")
    )
    again = Reformulate(rewrite, pl.links(pl.Sample(n=guided), pl.Score()))
    guide = (pl.When(pl.none_right, again),) if expert else ()
    links = (pl.Fact(MARK), pl.Center("stratum"), *((pl.Scale("stratum"),) if scale else ()))
    return pl.vary(
        pl.recipe("grpo"),
        draw=curriculum_of(curriculum, tasks, batches, probe),
        collect=pl.links(pl.Sample(n=n), pl.Score(), *guide),
        credit=pl.chain(*links),
        objective=pl.Clipped(old="policy" if ratio == "bare" else "behaviour")
        + pl.Track((f"is:{MARK}",)),
        needs=(("policy", "logp"),) if ratio == "bare" else (),
        update=pl.Plain(minibatches=minibatches),
    )
