"""Logics-STEM: what a fine-tuned model fails at is looked up, and new problems are written of that.

With P0 the data, P* the target and l the loss, the target risk is E_{P0}[(P*/P0) l]: what is rare in
the data and failed weighs most. Two stages approximate that weight (arXiv:2601.01562):

    1. SFT on the data, without what is there twice, nearly so, or held out
    2. the model attempts `queries` problems of the target, `attempts` times each; F = those solved in
       at most `failed` of them. For x in F documents are looked up,

           k(d | x) = exp(sim(x, d) / tau) / sum over the `top` most similar documents,

       problems are written of the documents drawn, in the style of x, and GRPO trains on these and on F

    A document gives at most `cap` problems. With `referee` a failure stays only where another model's
    answer is the task's: else its label may be wrong.

sim is the cosine of the counts of character 1- to 3-grams. Documents are `documents`, a JSON Lines
file with `text` and `domain`, else training problems of the task with their working. The queries
are training problems of the task from number `first` on, so they are no held-out ones; what is
written is also compared with those.

Who writes is `draw.writer`: the source of the document's domain, or a user's model. Annotation of
the data, distillation by a teacher and the 2.2M sample are not built: a user's file stands for them.
K, tau and sizes of the paper are not known.
What SmolLM2 makes of it stands in docs/runs.md.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

import palaestra as pl

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
)


def density_weights(data: Sequence[float], target: Sequence[float]) -> np.ndarray:
    """[R] P*(r) / P0(r) of regions."""
    return np.asarray(target, np.float64) / np.asarray(data, np.float64)


def risks(
    data: Sequence[float], target: Sequence[float], losses: Sequence[float]
) -> dict[str, float]:
    """The loss on the data and on the target, and the latter again as a weighted mean over the
    data.
    """
    weights, loss_R = density_weights(data, target), np.asarray(losses, np.float64)
    return {
        "data": float(np.asarray(data) @ loss_R),
        "target": float(np.asarray(target) @ loss_R),
        "weighted": float((np.asarray(data) * weights) @ loss_R),
    }


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
    """A JSON Lines file with `text` and `domain`. Raises UserError where a line has none."""
    found: list[Document] = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        try:
            record = json.loads(line)
            found.append(Document(text=str(record["text"]), domain=str(record["domain"])))
        except (ValueError, KeyError, TypeError):
            raise pl.UserError(
                f'{path}, line {number}: a document is {{"text": ..., "domain": ...}}; write it so'
            ) from None
    if not found:
        raise pl.UserError(f"{path}: no documents; it needs one a line")
    return found


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
        found: list[pl.Task] = []
        for i in range(at, at + n):
            epoch, place = divmod(i, len(pool))
            order = pl.rng_of((ctx.seed, "failure-driven", epoch)).permutation(len(pool))
            found.append(pool[int(order[place])])
        return found, {**state, "cursor": at + n}

    async def _make(self, ctx: pl.Context, key: pl.Key) -> dict[str, Any]:
        tasks = ctx.bench.tasks
        first = pl.curriculum.first_number(ctx) + self.first
        asked = [tasks.task("train", first + i) for i in range(self.queries)]
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
        tested = [tasks.task("test", i) for i in pl.run.chosen_tasks(ctx.bench, 256)]
        cleaned = self.clean([*made, *kept], tested)
        if not cleaned.kept:
            raise pl.Fault("starved", "no written problem was left; ask for more, or other ones")
        ctx.say(
            f"{len(hard)} of {len(asked)} queries fail; {len(cleaned.kept)} problems to train on"
        )
        found = {
            "failures": len(hard),
            "labels": len(hard) - len(kept),
            "by_domain": dict(Counter(t.domain for t in cleaned.kept)),
            "dropped": cleaned.duplicates + cleaned.near + cleaned.held_out,
        }
        return {"written": list(cleaned.kept), "found": found}

    async def _is_labelled_right(self, ctx: pl.Context, task: pl.Task) -> bool:
        """Whether the referee, if any, has the task's answer."""
        if self.referee is None:
            return True
        reply = await ctx.ask(self.referee, pl.ChatRequest(messages=task.prompt, max_tokens=2048))
        found, _ = pl.curriculum.agreed_answer([reply], pl.curriculum.prompt_text(task))
        return found == str(task.answer).strip()

    def _documents(self, ctx: pl.Context) -> list[Document]:
        if self.documents:
            return read_documents(self.documents)
        tasks, first = ctx.bench.tasks, pl.curriculum.first_number(ctx) + 2 * self.first
        found: list[Document] = []
        for i in range(self.corpus):
            task = tasks.task("train", first + i)
            worked = pl.rollout.written_answer(tasks, task, pl.rng_of(("corpus", i)), "work")
            found.append(
                Document(text=f"{pl.curriculum.prompt_text(task)}\n{worked}", domain=task.domain)
            )
        return found

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
                    domain=about.domain, n=1, document=about.text, examples=(task,)
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


def build(
    steps: int = 35, lr: float = 5e-4, written: int = 256, data: str = "", task: str = ""
) -> pl.Pipeline:
    """`steps` and `lr` of the first stage, which imitates `data` or `task`, else the run's own
    problems.
    """
    imitate = pl.vary(
        pl.recipe("sft"),
        optimiser=pl.AdamW(lr=lr),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )
    first = pl.Part(imitate, data=data, task=task, shared=True)
    second = pl.Part(second_stage(FailureDriven(written=written)), model=pl.Output("sft"))
    return pl.Pipeline(parts={"sft": first, "rl": second})
