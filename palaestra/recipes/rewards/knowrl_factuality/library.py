"""The knowledge of a user: documents in which the statements of a thought are looked up."""

import asyncio
from collections.abc import Sequence

import palaestra as pl

PASSAGES = 3  # that a statement is compared with
SUPPORT = f"""Does one of the passages say what the statement says? {pl.judges.CAUTION}

<rubric>{{rubric}}</rubric>
<response>{{response}}</response>

{{instruction}}"""


def read_library(path: str) -> pl.services.BM25:
    """An index of the documents of a file or folder, records with `text`, and `title` if they have
    one. Raises UserError where a record has no text.
    """
    documents: list[tuple[str, str]] = []
    for records in pl.tasks.open_records(path).values():
        for i, record in enumerate(records):
            text = record.get("text")
            if not isinstance(text, str) or not text.strip():
                raise pl.UserError(
                    f'{records.where(i)}: a document is {{"text": "..."}}, with "title" if it has '
                    "one; write it so"
                )
            title = str(record.get("title") or "")
            documents.append((str(len(documents)), f"{title}. {text}" if title else text))
    if not documents:
        raise pl.UserError(f"{path}: no documents; it needs one a line")
    return pl.services.BM25(tuple(documents))


@pl.stage
class Library:
    """Which statements the documents support.

    `entails` reads the passages that share most words with a statement, and says yes or no; without
    it a statement is supported if it stands in one of them word for word.
    """

    index: pl.services.BM25
    entails: pl.Source | None = None
    passages: int = PASSAGES

    async def supported(
        self, ctx: pl.Context, task: pl.Task, statements: Sequence[str]
    ) -> list[bool]:
        """For each statement. Raises Fault where the model gives no verdict."""
        return list(await asyncio.gather(*(self._one(ctx, task, s) for s in statements)))

    async def _one(self, ctx: pl.Context, task: pl.Task, statement: str) -> bool:
        texts = [text for _, text, _ in self.index.search(statement, self.passages)]
        if self.entails is None or not texts:
            return any(statement in pl.verifiers.normalise_text(text) for text in texts)
        judge = pl.Judge(
            client=self.entails,
            template=SUPPORT,
            read=pl.judges.MarkedLabel((("YES", 1.0), ("NO", 0.0))),
            rubric="\n\n".join(pl.judges.defuse(text) for text in texts),
            unparsed=0.0,
            name="entails",
        )
        return (await judge.judge_one(ctx, task, statement)).score == 1
