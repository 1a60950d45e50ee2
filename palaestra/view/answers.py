"""What a page may ask of runs, by address. A server gives the answers, or a file holds them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palaestra.errors import Fault, UserError
from palaestra.store.folder import flatten_settings, read_run
from palaestra.types import value_class
from palaestra.view.problems import fates
from palaestra.view.reader import RunReader
from palaestra.view.signs import judges, rise, signs
from palaestra.view.verdict import verdict
from palaestra.view.versus import versus

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"


@value_class
class PageAnswer:
    """Bytes and what they are."""

    data: bytes
    media: str = JSON


class PageAnswers:
    """Answers by the parts of an address below `api/`; LookupError for one that there is not,
    UserError for a question that cannot be answered.
    """

    def __init__(self, runs: Sequence[RunReader]):
        self.runs = runs

    def get(self, parts: Sequence[str], query: Mapping[str, str]) -> PageAnswer:
        match list(parts):
            case ["runs"]:
                for run in self.runs:
                    run.refresh()
                return as_json([r.about for r in self.runs])
            case ["methods"]:
                return as_json(methods())
            case ["compare", left, right]:
                return as_json(versus(self.run(left), self.run(right)))
            case ["run", number, *rest]:
                return of_run(self.run(number), rest, query)
            case _:
                raise LookupError("/".join(parts))

    def run(self, number: str) -> RunReader:
        if not number.isdecimal() or int(number) >= len(self.runs):
            raise LookupError(number)
        return self.runs[int(number)]


OF_RUNS: Mapping[str, Callable[[RunReader], Any]] = {
    "metrics": lambda run: run.metrics,
    "signs": signs,
    "judges": judges,
    "settings": lambda run: flatten_settings(run.config),
    "verdict": lambda run: verdict(read_run(run.folder)),
}


def of_run(run: RunReader, parts: Sequence[str], query: Mapping[str, str]) -> PageAnswer:
    match list(parts):
        case [name] if name in OF_RUNS:
            return as_json(OF_RUNS[name](run))
        case ["rise"]:
            span = (int(query[k]) if query.get(k, "").isdecimal() else None for k in ("from", "to"))
            return as_json(rise(run, *span))
        case ["explain", method, step, group]:
            return as_json(explained(run, method, whole(step), whole(group)))
        case ["table", name, "index"]:
            table = run.table(name)
            table.refresh()
            return PageAnswer(data=table.arrow(), media=ARROW)
        case ["table", name, "search"]:
            return as_json(run.table(name).search(query.get("q", "")))
        case ["table", name, "excerpts"]:
            rows = [int(x) for x in query.get("rows", "").split(",") if x.isdecimal()]
            return as_json(run.table(name).excerpts(rows))
        case ["table", name, "problems"]:
            return as_json(fates(run.table(name).index))
        case ["table", name, "group", step, group]:
            return as_json(run.table(name).group(whole(step), whole(group)))
        case _:
            raise LookupError("/".join(parts))


def whole(text: str) -> int:
    if not text.isdecimal():
        raise LookupError(text)
    return int(text)


def methods() -> list[str]:
    """Methods of the catalogue that are built, by id. No other name is taken: a file would be run."""
    from palaestra.catalogue import all_entries

    return [e.id for e in all_entries() if e.built]


def explained(run: RunReader, method: str, step: int, group: int) -> dict[str, Any]:
    """What another method of the catalogue makes of a group, with the run's own model and problem."""
    if method not in methods():
        raise UserError(f"{method!r} is no built method of the catalogue")
    from palaestra.explanation.recorded import explain_rollouts
    from palaestra.method import Recipe
    from palaestra.settings.overrides import build

    recipe = build(method, {})
    if not isinstance(recipe, Recipe):
        raise UserError(f"{method!r} has no advantages to explain")
    file = run.table("training").file_of(step)
    if file is None:
        raise LookupError(str(step))
    try:
        return explain_rollouts(method, recipe, file, group).json()
    except (ValueError, KeyError, Fault) as error:  # what it reads is not in the file
        raise UserError(f"{method} cannot be explained here: {error}") from None


def as_json(value: Any) -> PageAnswer:
    return PageAnswer(data=json.dumps(finite(value), default=str).encode("utf-8", "replace"))


def finite(x: Any) -> Any:
    """JSON knows no NaN."""
    if isinstance(x, float):
        return x if math.isfinite(x) else None
    if isinstance(x, dict):
        return {str(k): finite(v) for k, v in x.items()}
    return [finite(v) for v in x] if isinstance(x, list | tuple) else x
