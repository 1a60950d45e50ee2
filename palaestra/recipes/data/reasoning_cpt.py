"""Reasoning CPT: pre-training goes on with texts behind the thoughts of who wrote them.

    document = [BOS] <think> z </think> x [EOS],    L = - sum_t log pi(d_t | d_<t)   over all tokens

x is a text, z the hidden thought that leads to it, which another model wrote (arXiv:2505.10182);
plain CPT leaves z out. All tokens count, those of z, of x and the marks; the first one has nothing
before it. Then comes RL from the weights that this gives.

x is the task's column `text`, else its question with the answer on a line below. z is the column
`thought`, else what `writer`, a language model, writes of x, else the working of the task's source.
A thought is dropped, and its text stays, where it refuses, is empty or quotes: more than `copied` of
its word 3-grams stand in x. A document that is longer than the model's context loses its thought
too, and where that is not enough it is an error.

`place="between"` puts the thought between question and answer, the order in which a model that is
asked will need it; "before" is the paper's. `form="chat"` writes question and answer in the form of
the model's chats, the thought being a part of the reply, and trains all of it but the marks of the
template. `shuffled` takes the thought of another text, a control. `matched` adds further texts
without thoughts until there are as many tokens as with them, the control of equal tokens.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Reasoning continual pretraining with hidden thoughts",
    paper="arXiv:2505.10182",
    claim="Continual pre-training on texts with synthesised hidden thoughts beats that on the texts "
    "alone, most on hard problems and across domains.",
    source="abstract and public overviews (corpora, counts, form of the documents); details of the "
    "training inferred",
    size=pl.Size(
        setting="Gemma2-9B; 150,000 documents of STEM (36.8M tokens of text) and as many of law (28.3M); "
        "MMLU up to 8 points better on the hardest problems",
        model="gemma-2-9b",
    ),
)
REFUSALS = ("i can't", "i cannot", "i'm sorry", "i am sorry", "as an ai")
OPEN, CLOSE = "<think>\n", "\n</think>\n"
ASKED = (
    "Below is a text. Write down the hidden thoughts of its author before writing it: what is "
    "considered, recalled, checked and decided. Do not quote the text.\n\n"
)


def copy_ratio(thought: str, text: str) -> float:
    """The share of a thought's word 3-grams that stand in the text; of fewer than three words, of
    these words.
    """
    words = thought.split()
    n = min(3, len(words))
    if not n:
        return 0.0
    runs = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    said = text.split()
    known = {tuple(said[i : i + n]) for i in range(len(said) - n + 1)}
    return sum(r in known for r in runs) / len(runs)


def is_thought(thought: str, text: str, copied: float = 0.5) -> bool:
    """Whether a thought is one: not empty, no refusal, and in its own words."""
    if not thought.strip() or copy_ratio(thought, text) > copied:
        return False
    return not any(thought.strip().casefold().startswith(words) for words in REFUSALS)


def matched_documents(documents: int, tokens: int, tokens_alone: int) -> int:
    """How many documents of `tokens_alone` predicted tokens have as many as `documents` of
    `tokens`.
    """
    return round(documents * tokens / tokens_alone)


@pl.stage
class WriteDocument:
    """Adds the task's document as an episode of one row, all of whose tokens are trained."""

    thoughts: bool = True
    place: Literal["before", "between"] = "before"
    form: Literal["document", "chat"] = "document"
    writer: pl.Source | None = None
    copied: float = 0.5
    shuffled: bool = False
    model: str = "policy"
    recorded: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task = group.task
        question, text = split_text(task)
        other = self._another(ctx, key) if self.shuffled else task
        thought = await self._thought(ctx, key, other, text) if self.thoughts else ""
        made = self.episode(ctx, question, text, thought)
        if thought and len(made.rows[0].context()) > ctx.model(self.model).context:
            made = self.episode(ctx, question, text, "")
        longest = ctx.model(self.model).context
        if (n := len(made.rows[0].context())) > longest:
            raise pl.UserError(
                f"task {task.id!r} makes a document of {n} tokens, and the context of the model holds "
                f"{longest}; split its text"
            )
        return replace(group, episodes=(*group.episodes, made))

    def _another(self, ctx: pl.Context, key: pl.Key) -> pl.Task:
        """A training problem drawn anew."""
        tasks = ctx.bench.tasks
        number = int(pl.rng_of((*key, "another")).integers(tasks.size or 1 << 30))
        return tasks.task("train", number)

    async def _thought(self, ctx: pl.Context, key: pl.Key, task: pl.Task, text: str) -> str:
        thought = task.meta.get("thought")
        if thought is None and self.writer is not None:
            thought = await ctx.ask(
                self.writer, ASKED + text, seed=int(pl.seed_of(key) % (1 << 31))
            )
        if thought is None and task.answer is not None:
            worked = pl.rollout.written_answer(ctx.bench.tasks, task, pl.rng_of(key), "work")
            thought = "\n".join(worked.splitlines()[:-1])
        thought = str(thought or "").strip()
        return thought if is_thought(thought, text, self.copied) else ""

    def episode(self, ctx: pl.Context, question: str, text: str, thought: str) -> pl.Episode:
        """A document as an episode."""
        if self.form == "chat":
            prompt = (pl.Message(role="user", content=question or text, trained=True),)
            reply = "\n".join(x for x in (thought, text if question else "") if x)
            return pl.recorded_episode(ctx, self.model, prompt, reply, 1.0, judged=False)
        marked = f"{OPEN}{thought}{CLOSE}" if thought else ""
        ahead = f"{question}\n" if question else ""
        whole = ahead + marked + text if self.place == "between" else marked + ahead + text
        return pl.rollout.document_episode(ctx, self.model, whole, 1.0)


def split_text(task: pl.Task) -> tuple[str, str]:
    """The question of a task and the text that follows it; no question where the task is a text."""
    if (text := task.meta.get("text")) is not None:
        return "", str(text)
    if task.answer is None:
        return "", pl.curriculum.prompt_text(task)
    return pl.curriculum.prompt_text(task), pl.tasks.format_answer([], task.answer)


@pl.stage
class MatchTokens:
    """Further documents without thoughts, other training problems, until a group has as many tokens
    as its document would have with a thought.
    """

    document: WriteDocument
    recorded: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        longer = await replace(self.document, thoughts=True)(ctx, key, pl.Group(task=group.task))
        most, made = tokens_of(longer), await self.document(ctx, key, group)
        rng = pl.rng_of((*key, "more"))
        size = ctx.bench.tasks.size
        while tokens_of(made) < most:
            other = ctx.bench.tasks.task("train", int(rng.integers(size or 1 << 30)))
            added = await self.document(ctx, (*key, len(made.episodes)), pl.Group(task=other))
            made = replace(made, episodes=(*made.episodes, *added.episodes))
        return made


def tokens_of(group: pl.Group) -> int:
    """Predicted tokens: all that are trained but the first of a row."""
    rows: Sequence[Any] = [r for e in group.episodes for r in e.rows]
    return sum(int(np.sum(r.view().trained_T[1:])) for r in rows)


def pretrain(
    document: pl.Collect, steps: int = 60, lr: float = 5e-4, prompts: int = 32
) -> pl.Recipe:
    """Next-token prediction on documents."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(document),
        optimiser=pl.AdamW(lr=lr),
        schedule=pl.Schedule(prompts=prompts, steps=steps),
    )


def build(
    thoughts: bool = True,
    place: Literal["before", "between"] = "before",
    form: Literal["document", "chat"] = "document",
    matched: bool = False,
    steps: int = 60,
    lr: float = 5e-4,
    data: str = "",
) -> pl.Pipeline:
    """`steps` and `lr` of the pre-training, on the texts of `data`, else the run's own problems;
    `matched` adds texts without thoughts up to the tokens that thoughts would have.
    """
    document = WriteDocument(thoughts=thoughts, place=place, form=form)
    collect = MatchTokens(replace(document, thoughts=False)) if matched else document
    first = pl.Part(pretrain(collect, steps, lr), data=data, shared=True)
    return pl.Pipeline(
        parts={"cpt": first, "rl": pl.Part(pl.recipe("grpo"), model=pl.Output("cpt"))}
    )
