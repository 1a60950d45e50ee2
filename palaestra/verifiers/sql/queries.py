"""SQL by execution, and with the partial rewards of Reasoning-SQL and Think2SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from palaestra.errors import Fault, UserError
from palaestra.services.lines import Died, Expired
from palaestra.types import stage
from palaestra.verifiers.answers.final import tagged_answer
from palaestra.verifiers.base import (
    Judgement,
    failed_judgement,
    fences,
    guard_verifier,
    require_field,
    strip_thinking,
)
from palaestra.verifiers.sql.orders import is_ordered
from palaestra.verifiers.sql.tables import Database, Engine, file_of
from palaestra.verifiers.text.formats import Tags
from palaestra.verifiers.text.similarity import jaccard, ngrams
from palaestra.verifiers.worker import START, Alarmed, ask

CHILD = "palaestra.verifiers.sql.worker"
FENCES = ("sql", "sqlite", "sqlite3", "duckdb", "postgresql", "postgres", "mysql", "")
# bytes of a database file at most of which other instances are made: they are kept
MOST_COPY_BYTES = 20_000_000
SEEDS = (1, 2)  # of the instances with moved values
COMMENT = re.compile(r"""--[^\n]*|/\*.*?\*/|('[^']*'|"[^"]*"|`[^`]*`)|(/\*\s*\S).*""", re.DOTALL)
# the most that a table is worth which is not the gold one: cells do not see the order of rows
WRONG_TABLE_WORTH = 0.9
WORD = re.compile(
    r"'[^']*'|::\w+|\"([^\"]+)\"|`([^`]+)`|\[([A-Za-z_][^][]*)]|([A-Za-z_]\w*)(\s*\()?"
)
KEYWORDS = """
select from where and or not in is null like between exists as on using join inner left right full outer
cross natural group by order having limit offset asc desc distinct all union intersect except with
recursive case when then else end cast integer int real varchar values nulls first last over partition
true false glob collate escape interval current_date current_time current_timestamp
"""
RESERVED_WORDS = frozenset(KEYWORDS.split())


def extract_query(text: str) -> str:
    """The query of a reply: the last <answer>, the last fence in it; without comments."""
    inside = tagged_answer(text)
    inside = text if inside is None else inside
    blocks = fences(inside, FENCES)
    return strip_query(blocks[-1] if blocks else inside)


def strip_query(query: str) -> str:
    """A query without comments and the semicolons behind it.

    A comment that is not closed leaves its first character: sqlite runs it, duckdb must refuse it.
    """
    return COMMENT.sub(lambda m: m[1] or m[2] or " ", query).strip().rstrip("; \t\r\n")


def names(query: str) -> set[Any]:
    """The tables and columns that a query names: its identifiers without keywords, functions and
    its own aliases.
    """
    name_list: list[tuple[str, bool]] = []
    for m in WORD.finditer(query):
        word = next((w for w in m.groups()[:4] if w), "").lower()
        if word and not m[5]:
            name_list.append((word, bool(m[4])))
    aliases = {b for (a, _), (b, _) in pairwise(name_list) if a == "as"}
    aliases |= (
        set(re.findall(r"\b(?:from|join)\s+[\w\"`]+\s+(\w+)", query.lower())) - RESERVED_WORDS
    )
    return {w for w, bare in name_list if not (bare and w in RESERVED_WORDS) and w not in aliases}


Bags: TypeAlias = Literal["", "sets", "bags"]


@stage
class Sql:
    """1 if the query gives the rows of the reference query, in its order where that has ORDER BY.

    `schema` is a script that makes the database, or a list of scripts that make several; `database`
    a file. With `thin`, every database (not a file over 20 MB) is also tried with either half of
    its rows, with values moved to other rows, and with rows added that have ties, NULLs, or values
    beside the literals of the reference, so that no query passes that agrees by chance on the rows
    seen; without `nulls` no NULLs are added, for schemas that do not say which columns are NOT
    NULL. What the reference leaves open, such as the order of ties, is not held against a query.
    `seconds`: of a query on one database. A reference without rows in any database proves little:
    status "weak", and a right query is worth `weak`.
    """

    engine: Engine = "sqlite"
    seconds: float = 5.0
    thin: bool = True
    nulls: bool = True
    columns_ordered: bool = True
    weak: float = 0.0

    @guard_verifier
    def __call__(
        self, response: str, answer: Any, *, schema: str | Sequence[str] = "", database: str = ""
    ) -> Judgement:
        query = extract_query(strip_thinking(response))
        return (
            self.execution(query, answer, schema, database)
            if query
            else failed_judgement("unparsable")
        )

    def execution(
        self, query: str, answer: Any, schema: str | Sequence[str], path: str, likeness: Bags = ""
    ) -> Judgement:
        """1 if all databases agree; parts: `runs`, `rows`, the share of databases that agree, and
        `likeness` (QATCH).
        """
        gold = str(require_field(answer, "answer", str, self)).strip().rstrip(";")
        schemas, path = self.databases(schema, path)
        thin = self.thin and not (
            path and file_of(Database(path=path)).stat().st_size > MOST_COPY_BYTES
        )
        request = {
            "task": "compared", "engine": self.engine, "schemas": schemas, "path": path,
            "said": query, "gold": gold, "bare": strip_query(gold),
            "halves": ("", "odd", "even") if thin else ("",), "seeds": SEEDS if thin else (),
            "added": ("ties", "nulls") if self.nulls else ("ties",),
            "seconds": self.seconds,
            "ordered": is_ordered(strip_query(gold)), "columns_ordered": self.columns_ordered,
            "likeness": likeness,
        }  # fmt: skip
        reply = self.ask_child(request)
        if "error" in reply:
            return failed_judgement(
                "timeout" if reply["error"] == "timeout" else "failed",
                runs=0.0,
                rows=0.0,
                likeness=0.0,
            )
        right = reply["agree"] == reply["of"]
        parts = {"runs": 1.0, "rows": reply["agree"] / reply["of"]}
        if reply["likeness"]:
            parts["likeness"] = sum(reply["likeness"]) / len(reply["likeness"])
        weak = right and not reply["rows"]
        if weak:
            parts["weak"] = 1.0
        return Judgement(
            score=self.weak if weak else float(right), parts=parts, status="weak" if weak else "ok"
        )

    def ask_child(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the process finds that has the databases."""
        # of references, and of making databases
        longest = START + 100 * self.seconds * len(request["schemas"])
        try:
            reply = ask(CHILD, request, longest)
        except Alarmed:
            return {"error": "timeout"}
        except Expired:
            raise UserError(
                f"the reference query {request['gold'][:80]!r} and its databases take {longest:g} s"
            ) from None
        except Died:
            return {"error": "the process ended"}
        if "user" in reply:
            raise UserError(reply["user"])
        if "refused" in reply:
            missing = "duckdb is not installed; pip install 'palaestra[duckdb]'"
            raise Fault(
                "verifier",
                missing if "named 'duckdb'" in reply["refused"] else str(reply["refused"]),
            )
        return reply["result"]

    def databases(self, schema: str | Sequence[str], path: str) -> tuple[list[str], str]:
        """The scripts and the file."""
        scripts = [schema] if isinstance(schema, str) else list(schema)
        if not any(scripts) and not path:
            raise UserError(
                f"{type(self).__name__}: no database; give `schema`, a script, or `database`, a "
                "file"
            )
        return scripts or [""], path and str(file_of(Database(path=path)))


def weakness(judgement: Judgement) -> dict[str, float]:
    """The part `weak`, by which reports name answers to a reference that proves little."""
    return {name: x for name, x in judgement.parts.items() if name == "weak"}


@stage
class PartialSql(Sql):
    """Reasoning-SQL (arXiv:2503.23157): 3 execution + 2 judge + syntax + schema + n-grams + format,
    over its maximum.

    `feedback` is a judge's verdict in [0, 1]; without it the maximum is 7. A query with other rows
    is worth less than (3 + syntax + format) of it, so no wrong one beats a right one.
    """

    n: int = 2  # words of an n-gram
    margin: float = 0.01

    @guard_verifier
    def __call__(
        self,
        response: str,
        answer: Any,
        *,
        schema: str | Sequence[str] = "",
        database: str = "",
        feedback: float | None = None,
    ) -> Judgement:
        gold = require_field(answer, "answer", str, self)
        form = Tags(tags=("reasoning", "answer"))(response, None).score
        query = (
            extract_query(strip_thinking(response))
            if form or tagged_answer(response) is not None
            else ""
        )
        if not query:
            return Judgement(
                score=form / self._most(feedback),
                parts={"format": form, "paper": form},
                status="unparsable",
            )
        reply = self.execution(query, gold, schema, database)
        gold = strip_query(gold)
        words = [q.lower().split() for q in (gold, query)]
        parts = {
            "execution": reply.score,
            "syntax": reply.parts["runs"],
            "schema": jaccard(names(gold), names(query)),
            "ngrams": jaccard(ngrams(words[0], self.n), ngrams(words[1], self.n)),
            "format": form,
            "feedback": min(1.0, max(0.0, feedback or 0.0)),
        }
        paper = (
            2 * reply.score
            + 2 * parts["feedback"]
            + sum(v for k, v in parts.items() if k != "feedback")
        )
        if not reply.score:
            paper = min(paper, 3 + parts["syntax"] + form - self.margin)
        return Judgement(
            score=paper / self._most(feedback),
            parts={**parts, **weakness(reply), "paper": paper},
            status=reply.status,
        )

    def _most(self, feedback: float | None) -> float:
        return 7.0 if feedback is None else 9.0


@stage
class TableSql(Sql):
    """Think2SQL (arXiv:2504.15077): 0.85 R_sql + 0.10 R_format + 0.05 R_tags, on
    <think></think><answer>SQL</answer>.

    R_sql is 1 for equal tables (`mode` "ex"), or their likeness ("qatch"; `bag` counts repeated
    cells, which as released are free). Values within a row have no order. Where the paper looks for
    forbidden words in the text, here the database forbids all that is no reading, so that a column
    `updated_at` can be asked for. `newlines`: tags on lines of their own.
    """

    columns_ordered: bool = False
    weak: float = 1.0  # in the paper two empty tables are equal
    mode: Literal["ex", "qatch"] = "qatch"
    bag: bool = True
    newlines: bool = False
    weights: tuple[float, float, float] = (0.85, 0.10, 0.05)

    @guard_verifier
    def __call__(
        self, response: str, answer: Any, *, schema: str | Sequence[str] = "", database: str = ""
    ) -> Judgement:
        form = Tags(newlines=self.newlines)(response, None)
        query = (
            extract_query(response)
            if tagged_answer(response) is not None or form.score
            else extract_query(strip_thinking(response))
        )
        if not query:
            return failed_judgement("unparsable", format=form.score, tags=form.parts["tags"])
        measured: Bags = "" if self.mode == "ex" else "bags" if self.bag else "sets"
        reply = self.execution(query, answer, schema, database, measured)
        exact = reply.score or reply.status == "weak" or not measured
        likeness = reply.score if exact else min(WRONG_TABLE_WORTH, reply.parts["likeness"])
        parts = {
            "table": likeness,
            "execution": reply.score,
            "format": form.score,
            "tags": form.parts["tags"],
        }
        a, b, c = self.weights
        score = min(1.0, a * likeness + b * form.score + c * form.parts["tags"])
        return Judgement(
            score=score, parts={**parts, **weakness(reply), "paper": score}, status=reply.status
        )
