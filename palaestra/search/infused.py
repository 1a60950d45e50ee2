"""Knowledge infused decoding as a strategy of search, see `palaestra.engines.infused`."""

from __future__ import annotations

from functools import lru_cache

from palaestra.engines.infused import InfusedAnswer, InfusedWriter, Infusion, least_surprising
from palaestra.engines.knowledge import KnowledgeTrie
from palaestra.errors import Fault, UserError
from palaestra.search.lines import PartialAnswer
from palaestra.search.problem import SearchProblem, SearchResult
from palaestra.services.index import BM25
from palaestra.tasks.documents import read_documents
from palaestra.tasks.phrasing import question_text
from palaestra.types import need_at_least, stage
from palaestra.worlds.question import Question


@stage
class InfusedDecoding(Infusion):
    """Answers are sampled one after the other, `tries` at most or until the budget is spent; the one with the
    lowest perplexity under the model alone is chosen. It asks nobody what an answer is worth.

    Args:
        docs: a folder or file of documents, see `tasks.documents`.
        retrieved: passages that are looked up by the question.
        tries: answers at most.
    """

    docs: str = ""
    retrieved: int = 5
    tries: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        need_at_least(self, retrieved=1, tries=1)

    async def __call__(self, problem: SearchProblem) -> SearchResult:
        if not self.docs:
            raise UserError(
                "kid decodes with documents: name their folder, --with \"kid(docs='FOLDER')\""
            )
        bench = problem.ctx.bench
        if not isinstance(bench.world, Question):
            raise UserError(
                f"kid answers a question at once, and {bench.name} is played over several turns; leave "
                "out --docs and --env: kid reads its documents itself, --with \"kid(docs='FOLDER')\""
            )
        passages = index_of(self.docs).search(question_text(problem.task), self.retrieved)
        answers = await self.answers(problem, KnowledgeTrie.of(text for _, text, _ in passages))
        writer = await problem.lines(self.temperature)
        episodes = [
            writer.episode(PartialAnswer(ids=x.ids, logp=x.logp, finish=x.finish)) for x in answers
        ]
        if not episodes:
            return problem.result(None, episodes)
        at = least_surprising(answers)
        return problem.result(episodes[at], episodes, -answers[at].nats)

    async def answers(self, problem: SearchProblem, trie: KnowledgeTrie) -> list[InfusedAnswer]:
        """Up to `tries` answers with the knowledge of a trie, paid from the problem's budget.

        Raises UserError in a world of several turns, for a prompt with pictures, and for an endpoint.
        """
        lines = await problem.lines(self.temperature)
        decoder = InfusedWriter(
            self,
            problem.ctx.model("policy"),
            problem.ctx.engine().dialect,
            tuple(int(i) for i in lines.row.context()),
            trie,
            question_text(problem.task),
            lines.player.stop(lines.ask),
        )
        made: list[InfusedAnswer] = []
        while len(made) < self.tries and problem.left:
            key = (*problem.key, "infused", len(made))
            try:
                allowed = await problem.tokens.take(lines.player.limit(lines.ask))
            except Fault:  # nothing is left
                break
            used = 0
            try:
                with problem.ctx.phase("forward"):
                    made.append(decoder.answer(allowed, key))
                used = len(made[-1].ids)
            finally:
                problem.tokens.settle(allowed, used)
            if not used:  # the prompt fills the context
                made.pop()
                break
        return decoder.with_nats(made)


@lru_cache(4)
def index_of(docs: str) -> BM25:
    """The index of a folder's passages, read once."""
    return BM25(read_documents(docs))
