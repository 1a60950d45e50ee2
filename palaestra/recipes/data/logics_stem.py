"""Logics-STEM: what a fine-tuned model fails at is looked up, and new problems are written of that.

With P0 the data, P* the target and l the loss, the target risk is E_{P0}[(P*/P0) l]: what is rare in
the data and failed weighs most. Two stages approximate that weight (arXiv:2601.01562):

    1. SFT on the data as they are
    2. the model attempts `queries` problems of the target, `attempts` times each; F = those solved in
       at most `failed` of them. For x in F documents are looked up,

           k(d | x) = exp(sim(x, d) / tau) / sum over the `top` most similar documents,

       problems are written of the documents drawn, in the style of x, and GRPO trains on these and on F

    What is written is left out where it is there twice, nearly so, or held out.
    A document gives at most `cap` problems. With `referee` a failure stays only where that model's
    answer is the task's: else its label may be wrong.

sim is the cosine of the counts of character 1- to 3-grams. Documents are a user's (`documents`: a JSON
Lines file with `text`, or plain text with one a paragraph), else training problems with their working.
The queries are training problems, so they are no held-out ones; what is written is also compared with
those. Of a user's file they are drawn from its training problems.

`writer` is a language model that writes a problem of a document, whose answer is that on which most of its
solutions agree: by default the model itself, as it is when the second stage begins. With `writer=none`
further problems of the document's domain stand in, from the task's source or the file. `referee` is a
model too. `teacher`, a better model, solves the data of the first stage and, with `stage2=sft`, what
was written for the second: the first of `tries` solutions with the right answer is imitated, and a
problem without one is left out. The solutions lie in RUN/sft/written/demonstration.jsonl.

    palaestra train logics-stem --data F teacher=DIR documents=TEXTS [stage2=sft]

Annotation of the data, their cleaning before the first stage, and the 2.2M sample are not built: a user's
file stands for them. K,
tau and sizes of the paper are not known.
What SmolLM2 makes of it stands in docs/runs.md.

Long because its draw is a pipeline between two stages of training: it finds failures, has their labels
checked, retrieves documents, orders problems with a cap for each document, and cleans what is written.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl

WRITER = "writer"
CARD = pl.Card(
    title="Logics-STEM: failure-driven post-training, data engine",
    paper="arXiv:2601.01562",
    claim="New problems out of documents that are looked up for a model's failures raise it more "
    "than as many others do.",
    source="abstract and public reviews (risk decomposition, stages); kernel, K, tau and sizes are ours",
    size=pl.Size(
        setting="8B and 32B models, 10M problems with long workings of which 2.2M are sampled; 4.68% "
        "above the next best 8B model on average",
        model="qwen3-8b",
    ),
    task="add(d=3)+bool(d=4)+chain(modulo=9)",
    needs=pl.needs.Requirements(
        models=(
            pl.needs.NeededModel(
                "writer",
                "writer",
                "writes problems of the documents, and solves them",
                inert=pl.LocalModel(WRITER),
                example="endpoint(url='http://HOST:PORT/v1',model='NAME')",
                otherwise="the model itself does, as it is when the second stage begins",
            ),
            pl.needs.NeededModel(
                "teacher",
                "teacher",
                "solves the problems that are imitated; solutions with a wrong answer are left out",
                inert=None,
                otherwise="the column `demonstration` is imitated, else the answer alone",
            ),
            pl.needs.NeededModel(
                "referee",
                "referee",
                "solves what the policy failed at, so that wrong labels are dropped",
                inert=None,
                otherwise="every label is taken to be right",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "documents",
                "a corpus that problems are written of, one text a line or paragraph",
                flag="documents=FILE",
                otherwise="the training problems with their workings are the documents",
            ),
        ),
        shows="looked_up",
        off={"rl.draw.of": "anything"},
        own={
            "writer": "none",
            "sft.schedule.prompts": 4,
            "rl.schedule.prompts": 2,
            "rl.collect.links.0.n": 2,
            "rl.draw.queries": 6,
            "rl.draw.attempts": 2,
            "rl.draw.written": 12,
        },
    ),
    use="It helps where a corpus holds what the model lacks and a good model writes the problems; where the "
    "model fails at everything or nothing, the lookup chooses nothing.",
    lacks=(
        "The data set of 10M problems is not there, nor are the annotation and the stratified "
        "sampling that made it: a file of the user's stands for it.",
        "Duplicates and held-out problems are dropped from what is written for failures, not "
        "from the data of the first stage.",
        "Documents are looked up by their letters and not by embeddings.",
        "The paper's K and tau are not known to us: the kernel's numbers are ours.",
    ),
    grade="B",
)


LOOKED_UP = "looked_up"


def retrieval_odds(similarities: Sequence[float], tau: float, top: int) -> np.ndarray:
    """[D] k(d | x): a softmax over the `top` most similar documents, 0 elsewhere; of equals the
    first.
    """
    sim_D = np.asarray(similarities, np.float64)
    odds_D = np.zeros(len(sim_D))
    best = np.argsort(-sim_D, kind="stable")[:top]
    odds_D[best] = np.exp((sim_D[best] - sim_D.max()) / tau)
    return odds_D / odds_D.sum()


@pl.value_class
class Document:
    """A text of the corpus, and the domain that it belongs to."""

    text: str
    domain: str


def read_documents(path: str) -> list[Document]:
    """The texts of a file or folder; `domain` says which domain one belongs to, "" = that of the
    failure it is looked up for. Raises UserError where a record has no text.
    """
    documents: list[Document] = []
    for records in pl.tasks.open_records(path).values():
        for i, record in enumerate(records):
            text = record.get("text")
            if not isinstance(text, str) or not text.strip():
                raise pl.UserError(
                    f'{records.where(i)}: a document is {{"text": "..."}}, with "domain" if it has '
                    "one; write it so"
                )
            documents.append(Document(text=text, domain=str(record.get("domain") or "")))
    if not documents:
        raise pl.UserError(f"{path}: no documents; it needs one a line")
    return documents


@pl.declare(
    columns=(("looked_up", bool, "written of a document that was looked up for a failure"),)
)
@pl.stage
class FailureDriven:
    """Draws problems written for the policy's failures, and these themselves; all is made before
    the first step, with the policy of then.

    `of` says what the documents are looked up for: the "failures", or "anything": any query, with
    documents drawn evenly, a control in which the failures themselves are trained on as well. The
    state's `found` counts what was made.
    """

    queries: int = 64
    attempts: int = 4
    failed: float = 0.25
    written: int = 256
    corpus: int = 256
    documents: str = ""
    top: int = 8
    tau: float = 0.1
    cap: int = 8
    of: Literal["failures", "anything"] = "failures"
    writer: pl.curriculum.ProblemWriter = pl.curriculum.ProblemsFromSource()
    referee: pl.Source | None = None
    clean: pl.curriculum.Deduplicate = pl.curriculum.Deduplicate()
    first: int = 1 << 20

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        if "written" not in state:
            state = {**state, **await self._make(ctx, (*key, "failures"))}
        at, pool = state.get("cursor", 0), state["written"]
        tasks: list[pl.Task] = []
        for i in range(at, at + n):
            epoch, place = divmod(i, len(pool))
            order = pl.rng_of((ctx.seed, "failure-driven", epoch)).permutation(len(pool))
            tasks.append(pool[int(order[place])])
        return tasks, {**state, "cursor": at + n}

    async def _make(self, ctx: pl.Context, key: pl.Key) -> dict[str, Any]:
        tasks = ctx.bench.tasks
        asked = [tasks.task("train", i) for i in self._numbers(ctx, self.queries, "queries", 1)]
        rate_N = await pl.pass_rates(ctx, key, asked, pl.Sample(n=self.attempts))
        hard = [t for t, p in zip(asked, rate_N, strict=True) if p <= self.failed]
        kept = [t for t in hard if await self._is_labelled_right(ctx, t)]
        sought = kept if self.of == "failures" else asked
        if not sought:
            ctx.say("the policy fails at none of the queries; what is written is of any")
            sought = asked
        documents = self._documents(ctx)
        orders = self._orders(sought, documents, pl.rng_of((*key, "documents")))
        made: list[pl.Task] = []
        for i, order in enumerate(orders):
            made += await self.writer(ctx, (*key, "write", i), order)
        if self.of == "failures" and kept:
            made = [replace(t, meta={**t.meta, LOOKED_UP: True}) for t in made]
        tested = [tasks.task("test", i) for i in pl.run.chosen_tasks(ctx.bench, 256)]
        cleaned = self.clean([*made, *kept], tested)
        if not cleaned.kept:
            raise pl.Fault("starved", "no written problem was left; ask for more, or other ones")
        ctx.say(
            f"{len(hard)} of {len(asked)} queries fail; {len(cleaned.kept)} problems to train on"
        )
        counts = {
            "failures": len(hard),
            "labels": len(hard) - len(kept),
            "by_domain": dict(Counter(t.domain for t in cleaned.kept)),
            "dropped": cleaned.duplicates + cleaned.near + cleaned.held_out,
        }
        return {"written": list(cleaned.kept), "found": counts}

    def _numbers(self, ctx: pl.Context, n: int, name: str, place: int) -> Sequence[int]:
        """Of `n` training problems: those from `place` times `first` on, which no draw reaches, or
        some of the problems of a source that comes to an end.
        """
        size = ctx.bench.tasks.size
        if size is None:
            first = pl.curriculum.first_number(ctx) + place * self.first
            return range(first, first + n)
        order = pl.rng_of((ctx.seed, "failure-driven", name)).permutation(size)
        return [int(i) for i in order[:n]]

    async def _is_labelled_right(self, ctx: pl.Context, task: pl.Task) -> bool:
        """Whether the referee, if any, has the task's answer."""
        if self.referee is None:
            return True
        reply = await ctx.ask(self.referee, pl.ChatRequest(messages=task.prompt, max_tokens=2048))
        answer, _ = pl.curriculum.agreed_answer([reply], pl.curriculum.prompt_text(task))
        return answer == str(task.answer).strip()

    def _documents(self, ctx: pl.Context) -> list[Document]:
        if self.documents:
            return read_documents(self.documents)
        tasks = ctx.bench.tasks
        documents: list[Document] = []
        for i, number in enumerate(self._numbers(ctx, self.corpus, "corpus", 2)):
            task = tasks.task("train", number)
            worked = pl.rollout.written_answer(tasks, task, pl.rng_of(("corpus", i)), "work")
            documents.append(
                Document(text=f"{pl.curriculum.prompt_text(task)}\n{worked}", domain=task.domain)
            )
        return documents

    def _orders(
        self, sought: Sequence[pl.Task], documents: Sequence[Document], rng: np.random.Generator
    ) -> list[pl.curriculum.ProblemOrder]:
        """One order of one problem each: the queries in turn, a document for each."""
        counts = [pl.verifiers.count_character_ngrams(d.text, 3) for d in documents]
        known: dict[str, np.ndarray] = {}
        given, orders = Counter[int](), list[pl.curriculum.ProblemOrder]()
        for i in range(self.written):
            task = sought[i % len(sought)]
            if task.id not in known:
                known[task.id] = self._odds(task, counts)
            odds_D = known[task.id] * [given[j] < self.cap for j in range(len(documents))]
            if odds_D.sum() <= 0:
                continue
            at = int(rng.choice(len(documents), p=odds_D / odds_D.sum()))
            given[at] += 1
            about = documents[at]
            orders.append(
                pl.curriculum.ProblemOrder(
                    domain=about.domain or task.domain,
                    n=1,
                    document=about.text,
                    examples=(task,),
                )
            )
        return orders

    def _odds(self, task: pl.Task, counts: Sequence[Mapping[str, int]]) -> np.ndarray:
        if self.of == "anything":
            return np.full(len(counts), 1 / len(counts))
        asked = pl.verifiers.count_character_ngrams(pl.curriculum.prompt_text(task), 3)
        return retrieval_odds(
            [pl.verifiers.count_cosine(asked, c) for c in counts], self.tau, self.top
        )


def second_stage(draw: Any = FailureDriven()) -> pl.Recipe:
    """GRPO on what `draw` gives."""
    return pl.vary(pl.recipe("grpo"), draw=draw)


SOLVE = "{prompt}\n\nSolve it step by step, and write the final answer in \\boxed{}."


def solved_by(teacher: pl.Source | None, tries: int, draw: Any) -> Any:
    """What `draw` gives, with the teacher's first solution that has the right answer."""
    if teacher is None:
        return draw
    return pl.curriculum.WrittenColumn(
        "demonstration", SOLVE, (teacher,), solved=True, tries=tries, source=draw
    )


def imitate(draw: Any, steps: int, lr: float, teacher: pl.Source | None) -> pl.Recipe:
    """Supervised fine-tuning on what `draw` gives."""
    return pl.vary(
        pl.recipe("sft"),
        draw=draw,
        optimiser=pl.AdamW(lr=lr),
        schedule=pl.Schedule(prompts=32, steps=steps),
        references=pl.curriculum.frozen_starts(teacher),
    )


def build(
    writer: pl.Source | None = pl.LocalModel(WRITER),
    documents: str = "",
    referee: pl.Source | None = None,
    written: int = 256,
    steps: int = 35,
    lr: float = 5e-4,
    data: str = "",
    task: str = "",
    teacher: pl.Source | None = None,
    tries: int = 4,
    stage2: Literal["rl", "sft"] = "rl",
) -> pl.Pipeline:
    """`steps` and `lr` of the first stage, which imitates `data` or `task`, else the run's own
    problems. `written` problems are asked for. `teacher` solves what is imitated, in `tries` tries.
    """
    first = imitate(solved_by(teacher, tries, pl.Shuffled()), steps, lr, teacher)
    writes = pl.curriculum.ProblemsByModel(writer) if writer else pl.curriculum.ProblemsFromSource()
    draw = FailureDriven(written=written, documents=documents, referee=referee, writer=writes)
    if stage2 == "sft":
        solver = teacher or writer
        second = imitate(solved_by(solver, tries, draw), steps, lr, solver)
    else:
        second = pl.vary(
            second_stage(draw),
            credit=pl.chain(
                pl.credit.TaskColumn(LOOKED_UP), pl.Center("group"), pl.Scale("group", ddof=1)
            ),
            objective=pl.Clipped(reduce="sequences") + pl.Track((LOOKED_UP,)),
        )
    starts = pl.curriculum.frozen_starts(writer, referee)
    second = pl.vary(second, references={**second.references, **starts})
    return pl.Pipeline(
        parts={
            "sft": pl.Part(first, data=data, task=task, shared=True),
            "rl" if stage2 == "rl" else "sft2": pl.Part(second, model=pl.Output("sft")),
        }
    )


def embedded(steps: int = 10, written: int = 64, **options: Any) -> pl.Pipeline:
    """On the embedded problem, whose source writes the problems: short stages of eight prompts."""
    own: dict[str, Any] = {"writer": None, "written": written, "steps": steps}
    made = build(**(own | options))
    *_, last = made.parts
    return pl.override(
        pl.override(made, f"{last}.schedule.prompts", 8), f"{last}.schedule.steps", 10
    )
