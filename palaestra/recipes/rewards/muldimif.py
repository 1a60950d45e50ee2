"""MulDimIF: a prompt has several constraints that programs can check, and the reward is the number
of them that a reply keeps.

    r = sum_j c_j(y)                 c_j in {0, 1}, checked by programs; evaluation is 1 only if all are kept (arXiv:2505.07591)

in four categories (content, format, language, length) and four levels, by the number of different
kinds of constraints. The sum is a count and no share: under a group's own scale both are the same,
over a batch prompts with more constraints weigh more. GRPO: 32 samples, temperature 0.7, KL 0.001
(k3) as a loss. `every=True` is the reward of the evaluation.

A reply is what follows the thinking. An empty or degenerate one keeps nothing (ours: it would keep
each "at most"). End tokens are cut off as whole suffixes: the released code strips a set of
characters, which eats letters of the text (`variant="released"`). Constraints are read from the
column `constraints`, a list of [category, kind, value ...] such as ["length", "words", "at most", 50];
`palaestra.verifiers.text.constraints` lists the kinds.

`expand=N` makes such prompts of plain ones, as the paper's pipeline does: constraints of kinds that the
prompt does not have are added, none of which contradicts another one, up to a level that goes round from
I to N, and the prompt says them in one of three patterns (a list, a sentence, a sentence behind an
example). With `writer`, a language model, the whole prompt is written anew in its words; it stays where
every number and word of the constraints is in it, else the pattern's prompt does.

    palaestra train muldimif --data FILE expand=4 [writer="endpoint(url='http://HOST:PORT/v1',model='NAME')"]
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Multi-dimensional constraint framework for instruction following",
    paper="arXiv:2505.07591",
    claim="RL on the number of constraints that are kept makes models follow instructions with "
    "several constraints.",
    source="released code (Junjie-Ye/MulDimIF: reward_manager/muldimif.py, evaluation.py, "
    "run_grpo.sh); levels second-hand",
    size=pl.Size(
        setting="six LLMs up to 14B, 7,906 prompts, 32 samples, batch 32, lr 1e-6, KL 0.001, 8,192 "
        "tokens, one epoch",
        model="qwen2.5-14b",
        prompts=32,
        samples=32,
        tokens=8192,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "constraints",
                "any",
                (
                    [["length", "words", "at most", 50], ["language", "lowercase"]],
                    [["content", "keyword", "rain"], ["length", "words", "at most", 80]],
                ),
                "what the reply must keep, each a list of category, kind and values",
                when={"expand": (0,)},
            ),
        ),
        models=(
            pl.needs.chat_model(
                "writer",
                "writer",
                "writes a prompt and the constraints that were added to it in its own words",
                otherwise="a pattern puts them behind the prompt",
            ),
        ),
        shows="part/share",
        never_off="It is the share of constraints that are kept, which are the whole reward.",
        own={"n": 2, "schedule.prompts": 4},
    ),
    use="It helps where instructions have several demands that a program can check and the model keeps "
    "some of them; demands of taste or content need a judge.",
    lacks=(
        "Values of added constraints come from small tables, e.g. ten keywords, and are not "
        "chosen to fit the prompt; JSON, XML, tables and scripts are never added.",
        "With `expand` held-out prompts get no constraints; accuracy by level and by pattern is "
        "not reported.",
        "A demand without a number or word to look for, such as lowercase letters, may be lost "
        "where a writer words the prompt.",
        "The 1,200 test prompts of the paper, and its analysis of attention modules.",
    ),
    grade="B",
)


@pl.stage
class AsConstraints:
    """Each character of the reference is a constraint: the answer must have it in that place."""

    def __call__(self, text: str, task: pl.Task) -> pl.rewards.VerifierInput:
        wanted = [["content", "keyword", word] for word in place_letters(str(task.answer))]
        answer = pl.tasks.final_answer(text)
        return (
            "" if answer is None else " ".join(place_letters(answer)),
            None,
            {"constraints": wanted},
        )


def place_letters(answer: str) -> list[str]:
    """`TF` as p0xT, p1xF."""
    return [f"p{i}x{c if c.isalnum() else ord(c)}" for i, c in enumerate("".join(answer.split()))]


Constraint = Sequence[Any]
PATTERNS: tuple[Literal["listing", "prose", "example"], ...] = ("listing", "prose", "example")
KEYWORDS = (
    "because", "always", "quiet", "bright", "people", "morning", "never", "old", "together", "small",
)  # fmt: skip
ADDED: tuple[Constraint, ...] = (
    *(("content", "keyword", word) for word in KEYWORDS),
    *(("content", "forbidden", word) for word in ("very", "really", *KEYWORDS)),
    *(("content", "end", mark) for mark in ("!", "?", "...")),
    ("content", "without", ";"),
    ("content", "postscript", "P.S."),
    *(("format", kind, "at least", n) for kind in ("bullets", "numbered", "bold") for n in (2, 3)),
    ("format", "headings", "exactly", 2),
    ("language", "lowercase"),
    ("language", "uppercase"),
    ("language", "capitalised"),
    *(("length", "words", "at most", n) for n in (30, 60, 100)),
    *(("length", "words", "at least", n) for n in (20, 40)),
    *(("length", "sentences", "exactly", n) for n in (2, 3, 4)),
    ("length", "paragraphs", "exactly", 2),
)
REWRITE = (
    "Write this instruction anew as one natural request of a user. Keep all of its demands, with the same "
    "words and numbers, and add none. Write the request alone.\n\n{prompt}"
)


def add_constraints(
    constraints: Sequence[Constraint], level: int, rng: np.random.Generator
) -> list[Constraint]:
    """The constraints that bring a prompt to a level: each of a kind that it does not have, and none
    contradicts another one. Fewer where no more fit.
    """
    whole, added = list(constraints), list[Constraint]()
    for i in rng.permutation(len(ADDED)):
        more = ADDED[int(i)]
        if len(whole) and pl.verifiers.constraint_level(whole) >= level:
            break
        kinds = {tuple(c[:2]) for c in whole}
        if tuple(more[:2]) not in kinds and not pl.verifiers.has_conflict([*whole, more]):
            whole, added = [*whole, more], [*added, more]
    return added


def states_constraints(text: str, constraints: Sequence[Constraint]) -> bool:
    """Whether a prompt has every word and number of the constraints, so that no demand was lost. Of
    what has none, such as "only lowercase letters", nothing can be said.
    """
    folded = text.casefold()
    values = [str(v).casefold() for c in constraints for v in c[2:] if v not in BOUNDS]
    return all(v in folded for v in values)


BOUNDS = ("at least", "at most", "exactly", "between")


@pl.declare(
    columns=(
        ("constraints", tuple, "what the text must satisfy"),
        ("level", int, "the number of different kinds of constraints, at most 4"),
    )
)
@pl.stage
class Expanded:
    """Draws as `source` does, with constraints added to each prompt: levels 1 to `most` and the three
    patterns in turn. A prompt that has constraints already keeps them.
    """

    most: int = 4
    source: pl.Draw = pl.Shuffled()

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        at = state.get("at", 0)
        tasks, inner = self.source(ctx, key, n, state.get("inner", {}))
        made = [self.expand(ctx.seed, t, at + i) for i, t in enumerate(tasks)]
        return made, {"at": at + n, "inner": inner}

    def expand(self, seed: int, task: pl.Task, number: int) -> pl.Task:
        """The task with the constraints of its number in the run."""
        own = list(task.meta.get("constraints", ()))
        rng = pl.rng_of((seed, "constraints", task.id, number))
        added = add_constraints(own, number % self.most + 1, rng)
        if not added:
            return task
        pattern = PATTERNS[number // self.most % len(PATTERNS)]
        asked = (
            f"{pl.tasks.question_text(task)}\n\n{pl.verifiers.constraint_wording(added, pattern)}"
        )
        whole = [list(c) for c in (*own, *added)]
        meta = {**task.meta, "constraints": whole, "level": pl.verifiers.constraint_level(whole)}
        return replace(pl.tasks.rephrase(task, asked), meta=meta)


def whole_prompt(reply: str, task: pl.Task) -> str | None:
    """A prompt that a model wrote anew, where no constraint was lost."""
    text = pl.curriculum.reply_text(reply, task)
    return text if text and states_constraints(text, task.meta.get("constraints", ())) else None


@pl.declare(columns=(("wording", str, "the prompt with its constraints, as a model words it"),))
@pl.stage
class Reworded:
    """Draws as `source` does; where a record has the column `wording`, this is its prompt."""

    source: pl.curriculum.WrittenColumn

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        tasks, state = await self.source(ctx, key, n, state)
        wordings = [t.meta.get("wording") for t in tasks]
        pairs = zip(tasks, wordings, strict=True)
        return [pl.tasks.rephrase(t, str(x)) if x else t for t, x in pairs], state


def build(
    every: bool = False,
    n: int = 32,
    kl: float = 0.001,
    temperature: float = 0.7,
    variant: Literal["paper", "released"] = "paper",
    expand: int = 0,
    writer: pl.Source | None = None,
) -> pl.Recipe:
    """Args:
    expand: the highest level, 1 to 4, to which constraints are added to the prompts; 0 = none are.
    writer: a language model that words the prompts with constraints that were added.
    """
    recipe = rewarded(verifier(every, variant), n, kl, temperature)
    if writer is not None and not expand:
        raise pl.UserError("muldimif: a writer words constraints that are added; say expand=4 too")
    if not 0 <= expand <= 4:
        raise pl.UserError(f"muldimif: expand={expand} is no level; write 1 to 4, or 0 for none")
    if not expand:
        return recipe
    draw: Any = Expanded(expand)
    if writer is not None:
        draw = Reworded(
            pl.curriculum.WrittenColumn(
                "wording", REWRITE, (writer,), read=whole_prompt, keep=True, source=draw
            )
        )
    starts = pl.curriculum.frozen_starts(writer)
    return pl.vary(recipe, draw=draw, references={**recipe.references, **starts})


def verifier(every: bool, variant: Literal["paper", "released"] = "paper") -> pl.Verified:
    name = "constraints" if variant == "paper" else "constraints(released=True)"
    return pl.Verified(name, paper=not every)


def rewarded(reward: pl.RewardFn, n: int, kl: float, temperature: float) -> pl.Recipe:
    """The method's learner under a reward."""
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(pl.Sample(n=n, temperature=temperature), pl.Score(reward=reward)),
    )


def embedded(
    every: bool = False, n: int = 32, kl: float = 0.001, temperature: float = 0.7
) -> pl.Recipe:
    """On the embedded problem, each character of whose answer is a constraint."""
    places = pl.Rewritten(verifier(every), unless="constraints", write=AsConstraints())
    return rewarded(places, n, kl, temperature)
