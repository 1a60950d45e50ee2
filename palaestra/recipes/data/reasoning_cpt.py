"""Reasoning CPT: pre-training goes on with texts, each behind the thoughts that its author may have had.

    document = [BOS] <think> z </think> x [EOS],    L = - sum_t log pi(d_t | d_<t)   over all tokens

x is a text, z the hidden thought that leads to it, which another model wrote (arXiv:2505.10182);
plain CPT leaves z out (`thoughts=False`). All tokens count, those of z, of x and the marks; the first
one has nothing before it.

x is the column `text`, a paragraph of a .txt file, else a question with the answer on a line below. z is
the column `thought`, else what `writer`, a language model, writes of x; by default this is the frozen
start of the run. A thought is dropped, and its text stays, where it refuses, is empty or quotes: more
than `copied` of its word 3-grams stand in x. A document that is longer than the model's context loses
its thought too, and where that is not enough it is an error.

Without a writer the thought is the working that the task's source writes, as on the embedded problem.
RL from the weights is a run of its own: `palaestra train grpo --model RUN --data QUESTIONS`.

Deviations: documents are rows of their own, and are not packed into sequences of one length.
"""

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
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "text",
                "text",
                (
                    "Water boils at 100 degrees at sea level.",
                    "The court held that the contract was void.",
                    "A triangle with sides 3, 4 and 5 has a right angle.",
                ),
                "a text to train on; a .txt file has one a paragraph",
                otherwise="the question, with the answer below it",
            ),
            pl.needs.NeededColumn(
                "thought",
                "text",
                ("First I recall how pressure and boiling are related.",),
                "the thought that leads to the text",
                otherwise="`writer` writes it",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "writer of thoughts",
                "writer",
                "writes the hidden thought of each text",
                example="endpoint(url='http://HOST:PORT/v1',model='NAME')",
                otherwise="the model itself, as it is at the start, writes them",
            ),
        ),
        shows="thought",
        off={"thoughts": False},
        own={"schedule.prompts": 4},
    ),
    use="It helps where the texts say results and leave out how they were reached, and a good model writes "
    "the thoughts; it costs a reply of the writer for each document.",
    lacks=(
        "A text that is longer than the model's context is not split: it ends the run.",
        "Documents are not packed into sequences of one length.",
        "The benchmarks by difficulty, and the length of thoughts by difficulty, are not measured.",
    ),
    grade="A",
)
WRITER = "writer"
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
    text_words = text.split()
    known = {tuple(text_words[i : i + n]) for i in range(len(text_words) - n + 1)}
    return sum(r in known for r in runs) / len(runs)


def is_thought(thought: str, text: str, copied: float = 0.5) -> bool:
    """Whether a thought is one: not empty, no refusal, and in its own words."""
    if not thought.strip() or copy_ratio(thought, text) > copied:
        return False
    return not any(thought.strip().casefold().startswith(words) for words in REFUSALS)


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
    text = task.meta.get("text", task.meta.get("document"))
    if text is not None:
        return "", str(text)
    if task.answer is None:
        return "", pl.curriculum.prompt_text(task)
    return pl.curriculum.prompt_text(task), pl.tasks.format_answer([], task.answer)


@pl.stage
class ImitateDocuments:
    """Every document, with the column "thought": 1 where a thought stands in it, else 0."""

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples, state = pl.credit.Imitate()(groups, signals, state)
        thoughts = [any(OPEN in s.text for s in e.row.segments) for e in examples]
        return [
            replace(e, columns={**e.columns, "thought": np.full(len(e.row.context()), float(t))})
            for e, t in zip(examples, thoughts, strict=True)
        ], state


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
    writer: pl.Source | None = pl.LocalModel(WRITER),
    thoughts: bool = True,
    copied: float = 0.5,
    steps: int = 60,
    lr: float = 5e-4,
) -> pl.Recipe:
    """`writer` writes the thoughts of texts without the column `thought`."""
    document = WriteDocument(thoughts=thoughts, writer=writer, copied=copied)
    local = thoughts and writer == pl.LocalModel(WRITER)
    return pl.vary(
        pretrain(document, steps, lr),
        credit=ImitateDocuments(),
        objective=pl.Imitation() + pl.Track(("thought",)),
        references={WRITER: "policy"} if local else {},
    )


def embedded(thoughts: bool = True, steps: int = 20, **options: Any) -> pl.Recipe:
    """On the embedded problem, whose source writes the workings."""
    return build(None, thoughts, steps=steps, **options)
