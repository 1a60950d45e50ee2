"""The agent that writes questions: one about a document, made harder by facts of other documents and by
vaguer words, each version kept only where it passes checks.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import BaseModel

import palaestra as pl

WAVE = 16  # seed documents that are worked on at a time
LENGTH = 6000  # characters of a document that the writer reads
SEARCHED = 64  # passages among which another document about an entity is searched
RIVALS = 3  # different wrong answers that are tried as right ones
KINDS = ("inject", "fuzz")
WORD = re.compile(r"\w+")
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)

FIRST = (
    "Write a question about this document that has one short right answer, a name, a number or a few words "
    "of the document. The question must be clear without the document. Give also the statement of the document "
    "that answers it.\n\n{documents}"
)
CHOOSE = (
    "A question is to become harder to answer, with the same answer.\n\nquestion: {question}\nanswer: {answer}\n"
    "facts:\n{statements}\n\nChoose one action.\ninject: name an entity of the question, which will be replaced by "
    "facts of another document about it.\nfuzz: write the question with one detail made vaguer, such that it "
    "still has one right answer.\nstop: the question takes long research and no single detail of it gives the "
    "answer away."
)
INJECT = (
    "Write this question anew, with the same answer: replace {entity!r} by a fact of the document below, so that "
    "the document has to be found first. Do not name {entity!r}, and do not put two questions in a row. Give also "
    "the statement of the document that was used.\n\nquestion: {question}\nanswer: {answer}\n\n{documents}"
)
VALID = (
    "Is this a valid question? It is where it is not two questions put together, the answer is the only right one, "
    "and the documents are enough to find it.\n\nquestion: {question}\nanswer: {answer}\nfacts:\n{statements}\n\n"
    "{documents}"
)
RIVAL = (
    "The right answer to this question is {answer!r}. Is {other!r} right as well: does it meet everything that the "
    "question says?\n\nquestion: {question}\nfacts:\n{statements}"
)
SOLVE = "Answer in a few words, in <answer></answer>, and write nothing else.\n\n{documents}question: {question}"


class FirstQuestion(BaseModel):
    question: str
    answer: str
    statement: str


class RewriteAction(BaseModel):
    action: Literal["inject", "fuzz", "stop"]
    entity: str = ""
    question: str = ""


class InjectedQuestion(BaseModel):
    question: str
    statement: str


class QuestionVerdict(BaseModel):
    yes: bool


@pl.value_class
class DraftQuestion:
    """A question as it is so far."""

    question: str
    answer: str
    documents: tuple[str, ...]  # names of those that it rests on
    statements: tuple[str, ...]
    steps: tuple[str, ...] = ()  # kinds of the rewritings that were kept
    history: tuple[str, ...] = ()  # the questions before
    right: int = 0  # answers without documents that are right


@pl.stage
class WriteSearchQuestions:
    """A program: writes questions about the documents of the run's search, at most one a seed document.

    A first question is written about the seed. Then, up to `steps` times, the writer chooses: to inject, and
    the entity that it names is searched in the other documents and a fact of the best one takes its place; to
    fuzz, and a detail is written vaguer; or to stop, which counts only once no answer without documents is
    right. A version is kept where all of this holds:

        formed      the answer's words stand in the seed document and not in the question, which is a new one
        valid       the writer, shown the documents, says that it is one question with one right answer
        reached     the writer, shown the documents, answers it rightly
        not easier  of `tries` answers without documents no more are right than before
        unique      none of the wrong ones is right too, as the writer says

    The last version is written down where at most `known` of the answers without documents are right and at
    least `least` rewritings were kept.

    Files: questions.jsonl, with `gold` the documents that a question rests on; dropped.jsonl, seeds without a
    question and the check that failed last; documents.jsonl, the passages, for `--docs`.

    Args:
        writer: the language model.
        seeds: documents that are tried, in a random order; more than there are start over.
        own: the questions of the run's data are written down too, with their splits.
    """

    writer: pl.Source = pl.LocalModel()
    seeds: int = 64
    steps: int = 6
    tries: int = 8
    known: int = 0
    least: int = 1
    own: bool = True
    writes_questions: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, least in (("seeds", 1), ("steps", 0), ("tries", 1), ("known", 0), ("least", 0)):
            pl.check_bounds(f"asearcher: {name}", getattr(self, name), least=least)

    async def run(self, ctx: pl.Context) -> pl.Result:
        world = ctx.bench.world
        if not isinstance(world, pl.worlds.Search) or not isinstance(world.index, pl.services.BM25):
            raise pl.UserError(
                "asearcher writes questions about documents: --docs FOLDER, or --task wiki-far"
            )
        index = world.index
        pages = {name: " ".join(t for _, t in part) for name, part in index.pages.items()}
        order = pl.rng_of(ctx.key("seeds")).permutation(len(pages)).tolist()
        names = [list(pages)[order[i % len(order)]] for i in range(self.seeds)]
        records = list[dict[str, Any]]()
        for at in range(0, len(names), WAVE):
            wave = [(i, names[i]) for i in range(at, min(at + WAVE, len(names)))]
            work = lambda wave=wave: self._wave(ctx, world, pages, wave)
            records += await ctx.once(f"questions-{at}", work)
        kept = distinct([r for r in records if not r["dropped"]])
        self._check(ctx, kept, records)
        own = own_questions(ctx) if self.own else []
        files = {
            "questions": [*({**r, "split": "train"} if own else r for r in kept), *own],
            "dropped": [r for r in records if r["dropped"]],
            "documents": [{"id": name, "text": text} for name, text in index.docs],
        }
        artifacts = {
            name: pl.tasks.write_records(ctx.folder / f"{name}.jsonl", rows)
            for name, rows in files.items()
        }
        return pl.Result(metrics=self._numbers(ctx, kept, records), artifacts=artifacts)

    async def _wave(
        self,
        ctx: pl.Context,
        world: pl.worlds.Search,
        pages: Mapping[str, str],
        wave: Sequence[tuple[int, str]],
    ) -> list[dict[str, Any]]:
        """A record for each seed; "dropped" is the check that failed, "" = it is a question."""
        agent = QuestionAgent(ctx, self, world, pages)
        return await asyncio.gather(*(agent.write(i, name) for i, name in wave))

    def _check(
        self, ctx: pl.Context, kept: Sequence[Any], records: Sequence[Mapping[str, Any]]
    ) -> None:
        """Raises UserError where fewer than two questions are left, one to train on and one to measure."""
        why = Counter(str(r["dropped"]) for r in records if r["dropped"])
        reasons = ", ".join(f"{n} {name}" for name, n in why.most_common()) or "all alike"
        ctx.say(f"asearcher: {len(kept)} questions of {len(records)} seed documents ({reasons})")
        if len(kept) < 2:
            raise pl.UserError(
                f"asearcher: {len(kept)} of {len(records)} questions passed the checks ({reasons}), and two are "
                "needed; name a stronger model, writer=endpoint(...), or raise write, known or tries"
            )

    def _numbers(
        self, ctx: pl.Context, kept: Sequence[Any], records: Sequence[Mapping[str, Any]]
    ) -> dict[str, float]:
        steps = Counter(kind for r in kept for kind in r["steps"])
        numbers = {
            "questions": float(len(kept)),
            "questions_kept": len(kept) / len(records),
            **{f"questions_{kind}": steps[kind] / len(kept) for kind in KINDS},
            "questions_documents": sum(len(r["gold"]) for r in kept) / len(kept),
        }
        ctx.log(numbers)
        return {**numbers, "sampled_tokens": ctx.sampled_tokens}


class QuestionAgent:
    """Writes the question of one seed document after another; `how` has its limits."""

    def __init__(
        self,
        ctx: pl.Context,
        how: WriteSearchQuestions,
        world: pl.worlds.Search,
        pages: Mapping[str, str],
    ) -> None:
        assert isinstance(world.index, pl.services.BM25)
        self.ctx, self.how, self.world, self.pages = ctx, how, world, pages
        self.index = world.index

    async def write(self, number: int, seed: str) -> dict[str, Any]:
        """The record of a seed document."""
        key, record = (*self.ctx.key("question"), number), {"id": f"written-{number}", "seed": seed}
        try:
            draft, why = await self._first((*key, "first"), seed)
            for i in range(self.how.steps if draft is not None else 0):
                assert draft is not None
                after, why = await self._step((*key, i), draft)
                if after is None:
                    break
                draft = after
        except pl.Fault as fault:
            if fault.cause not in ("chat-format", "chat-refused"):
                raise
            return {**record, "dropped": fault.cause, "steps": []}
        if draft is None:
            return {**record, "dropped": why, "steps": []}
        dropped = "known without documents" if draft.right > self.how.known else ""
        dropped = dropped or ("not rewritten" if len(draft.steps) < self.how.least else "")
        return {
            **record,
            "prompt": draft.question,
            "answer": draft.answer,
            "gold": list(draft.documents),
            "steps": list(draft.steps),
            "statements": list(draft.statements),
            "history": list(draft.history),
            "right_without": f"{draft.right}/{self.how.tries}",
            "dropped": f"{dropped} ({why})" if dropped and why else dropped,
        }

    async def _first(self, key: pl.Key, seed: str) -> tuple[DraftQuestion | None, str]:
        """The first question, and the check that it fails, if any."""
        made = await self._ask(key, FIRST.format(documents=self._shown((seed,))), FirstQuestion)
        draft = DraftQuestion(
            question=made.question,
            answer=made.answer.strip(),
            documents=(seed,),
            statements=(made.statement,),
        )
        return await self._checked(key, draft, most=self.how.tries)

    async def _step(self, key: pl.Key, draft: DraftQuestion) -> tuple[DraftQuestion | None, str]:
        """The question after one more rewriting, the same where that fails a check; None = it is done."""
        chosen = await self._ask((*key, "choose"), filled(CHOOSE, draft), RewriteAction)
        if chosen.action == "stop":
            done = draft.right <= self.how.known and len(draft.steps) >= self.how.least
            return (None, "") if done else (draft, "stopped early")
        changed = replace(draft, question=chosen.question)
        if chosen.action == "inject":
            other = self._other_document(draft, chosen.entity)
            if not other:
                return draft, "no other document"
            text = filled(INJECT, draft, entity=chosen.entity, documents=self._shown((other,)))
            made = await self._ask((*key, "inject"), text, InjectedQuestion)
            if same_text(chosen.entity, made.question):
                return draft, "entity still named"
            documents, statements = (*draft.documents, other), (*draft.statements, made.statement)
            changed = replace(
                draft, question=made.question, documents=documents, statements=statements
            )
        changed = replace(
            changed,
            steps=(*draft.steps, chosen.action),
            history=(*draft.history, draft.question),
        )
        after, why = await self._checked(key, changed, most=draft.right)
        return after or draft, why

    async def _checked(
        self, key: pl.Key, draft: DraftQuestion, most: int
    ) -> tuple[DraftQuestion | None, str]:
        """The draft with its answers without documents counted, or the check that it fails.

        Args:
            most: right answers without documents that it may have.
        """
        if why := fault_of_form(draft, self.pages[draft.documents[0]]):
            return None, why
        passages = self._shown(draft.documents)
        if not (
            await self._ask(
                (*key, "valid"), filled(VALID, draft, documents=passages), QuestionVerdict
            )
        ).yes:
            return None, "not valid"
        if not is_right(draft.answer, await self._answer((*key, "reached"), draft, passages)):
            return None, "not reached through documents"
        asked = [self._answer((*key, "alone", i), draft, "") for i in range(self.how.tries)]
        answers = await asyncio.gather(*asked)
        right = sum(is_right(draft.answer, text) for text in answers)
        if right > most:
            return None, "easier than before"
        wrong = dict.fromkeys(" ".join(t.split()) for t in answers if not is_right(draft.answer, t))
        for other in [text for text in wrong if text][:RIVALS]:
            asked_of = filled(RIVAL, draft, other=other)
            if (await self._ask((*key, "rival", other), asked_of, QuestionVerdict)).yes:
                return None, "another answer is right too"
        return replace(draft, right=right), ""

    def _other_document(self, draft: DraftQuestion, entity: str) -> str:
        """The document that says most of an entity of the question, of those not used; "" = none does."""
        if not same_text(entity, draft.question) or same_text(draft.answer, entity):
            return ""
        hits = self.index.search(entity, SEARCHED)
        pages = (pl.services.document_of(name) for name, _, _ in hits)
        others = (x for x in pages if x not in draft.documents)
        return next((x for x in others if same_text(entity, self.pages[x])), "")

    def _shown(self, names: Sequence[str]) -> str:
        return "".join(f"document {n}:\n{self.pages[n][:LENGTH]}\n\n" for n in names)

    async def _answer(self, key: pl.Key, draft: DraftQuestion, documents: str) -> str:
        """An answer to the question by a writer that reads these documents, or none."""
        request = self._request(key, SOLVE.format(documents=documents, question=draft.question))
        reply = (await self.ctx.client(self.how.writer).chat(request)).text
        return (ANSWER.findall(reply) or [reply])[-1].strip()

    async def _ask(self, key: pl.Key, text: str, form: type[Any]) -> Any:
        return await self.ctx.ask_for(self.how.writer, self._request(key, text), form)

    def _request(self, key: pl.Key, text: str) -> pl.ChatRequest:
        messages = pl.services.question_messages(text)
        seed = pl.seed_of(key) % (1 << 31)
        return pl.ChatRequest(messages=messages, temperature=0.8, max_tokens=512, seed=seed)


def filled(template: str, draft: DraftQuestion, **more: str) -> str:
    fields = {"question": draft.question, "answer": draft.answer}
    return template.format(**fields, statements="\n".join(draft.statements), **more)


def same_text(term: str, text: str) -> bool:
    """Whether a text has the words of a term; False where it has none."""
    words = pl.verifiers.normalise_text(term)
    return bool(words) and pl.verifiers.contains_term(term, pl.verifiers.normalise_text(text))


def is_right(answer: str, text: str) -> bool:
    """Whether what was said is the answer, or has its words."""
    return pl.verifiers.matches_gold([answer], text) or same_text(answer, text)


def fault_of_form(draft: DraftQuestion, seed: str) -> str:
    """What is wrong with a question that can be seen without a model; "" = nothing."""
    if not words_of(draft.question) or not words_of(draft.answer):
        return "empty"
    if same_text(draft.answer, draft.question):
        return "answer in the question"
    if not same_text(draft.answer, seed):
        return "answer not in the document"
    return "unchanged" if words_of(draft.question) in map(words_of, draft.history) else ""


def words_of(text: str) -> str:
    """A text in lower case without punctuation, so that two that differ in it are alike."""
    return " ".join(WORD.findall(text.casefold()))


def distinct(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The questions without those that were written before."""
    return list({words_of(r["prompt"]): r for r in reversed(rows)}.values())[::-1]


def own_questions(ctx: pl.Context) -> list[dict[str, Any]]:
    """The questions of a user's data; none of another source."""
    tasks = ctx.bench.tasks
    if not isinstance(tasks, pl.tasks.FileTasks):
        return []
    sizes = {"train": tasks.size, "test": tasks.test_size}
    tasks_of_splits = [
        (split, tasks.task(split, i)) for split, n in sizes.items() for i in range(n)
    ]
    return [
        {
            "id": task.id,
            "prompt": pl.tasks.plain_question(task),
            "answer": task.answer,
            "split": split,
            **({"gold": task.meta["gold"]} if "gold" in task.meta else {}),
        }
        for split, task in tasks_of_splits
    ]
