"""Declarations: what an experiment is, written down before it runs.

`ledger/declared/ID-DIGEST.json` holds the whole experiment. The digest covers what decides (arms,
measures, margin, vetoes, what is tuned, tasks, budgets, seeds), so a result that names it was made
from it, and an experiment that is changed afterwards is another one: its result keeps the older one
as an earlier look. Sentences and further numbers that are shown have a digest of their own: better
words make no other experiment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.ledger.digests import canonical, sha256
from palaestra.ledger.expectations import Expectation, Greater, Needs, Same, Veto
from palaestra.ledger.experiment import Experiment
from palaestra.markdown import line_by_name
from palaestra.store.checkpoint import write_atomic

# of a declaration, what describes the experiment and decides nothing
WORDING = ("claim", "quantity", "falsified_if", "metric", "controls")
HEAD = ("id", "digest", "wording", "declared")  # what a file says before the experiment
SHOWN = 12  # characters of the digest in the name of a file
# of a result, what an earlier look keeps of it
LOOKED_AT = (
    "declaration", "effect", "ci95", "verdict", "seeds", "budget_tokens", "commit", "fresh",
)  # fmt: skip


def declaration(experiment: Experiment) -> dict[str, Any]:
    """The whole experiment as plain data."""
    e = experiment
    return {
        "claim": e.claim,
        "quantity": e.quantity,
        "falsified_if": e.falsified_if,
        "expected": canonical(e.expect),
        "reasons": canonical(e.reasons),
        "vetoes": canonical(e.vetoes),
        "measure": canonical(e.measure),
        "metric": e.metric,
        "controls": canonical(e.every_control),
        "arms": {name: canonical(arm) for name, arm in e.every_arm.items()},
        "tuned": {name: e.settings_of(name) for name in e.every_arm},
        **({"tuning_tokens": e.tuning_tokens} if e.tuning_tokens else {}),
        "choose": canonical(e.chooses),
        "task": list(e.tasks),
        "model": e.model,
        "tokens": e.tokens,
        **({"budget": dict(e.budget)} if e.budget else {}),
        "evaluate": e.evaluate,
        **({"exams": list(e.exams)} if e.exams else {}),
        "samples": e.samples,
        "blocks": [list(b) for b in e.blocks],
        "tuning_seeds": list(e.tuning_seeds),
        "illustration": e.illustration,
        "not_testable": e.not_testable,
    }


def deciding(whole: Mapping[str, Any]) -> dict[str, Any]:
    """What decides of a declaration: all but its wording, and the reasons of a margin or an arm."""
    kept = {k: v for k, v in whole.items() if k not in WORDING}
    name, expected = whole["expected"]
    kept["expected"] = [name, {k: v for k, v in expected.items() if k != "why"}]
    kept["reasons"] = sorted(given["without"] for _, given in whole["reasons"])
    return kept


def wording(whole: Mapping[str, Any]) -> dict[str, Any]:
    """What a declaration says beside what decides."""
    texts = {k: whole[k] for k in WORDING}
    return texts | {"why": whole["expected"][1].get("why", ""), "reasons": whole["reasons"]}


def digest(experiment: Experiment) -> str:
    """Of what decides."""
    return sha256(deciding(declaration(experiment)))


def declare(method: str, experiment: Experiment, folder: Path) -> Path:
    """Writes the declaration where it is not there yet, or has other words; where it lies."""
    whole = declaration(experiment)
    path = folder / f"{method}-{digest(experiment)[:SHOWN]}.json"
    day = datetime.now(UTC).date().isoformat()
    if path.is_file():
        known = json.loads(path.read_text(encoding="utf-8"))
        if known["wording"] == sha256(wording(whole)):
            return path
        day = known["declared"]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(path, line_by_name(head(method, whole, day) | whole))
    return path


def head(method: str, whole: Mapping[str, Any], day: str) -> dict[str, str]:
    """What the file of a declaration begins with; `day` is the date (ISO) of its first writing."""
    digests = {"digest": sha256(deciding(whole)), "wording": sha256(wording(whole))}
    return {"id": method, **digests, "declared": day}


def is_whole(path: Path) -> bool:
    """Whether a declaration has the digests that it says."""
    declaration = json.loads(path.read_text(encoding="utf-8"))
    content = {k: v for k, v in declaration.items() if k not in HEAD}
    named = path.stem.endswith(f"-{declaration['digest'][:SHOWN]}")
    return (
        named
        and head(declaration["id"], content, declaration["declared"]).items() <= declaration.items()
    )


def read_declaration(result: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The declaration that a result names.

    Raises:
        UserError: it is not there, or its content has another digest.
    """
    path = folder / f"{result['id']}-{result['declaration'][:SHOWN]}.json"
    if not path.is_file():
        raise UserError(f"its declaration {path.name} is not in {folder}")
    declaration = json.loads(path.read_text(encoding="utf-8"))
    if declaration.get("digest") != result["declaration"] or not is_whole(path):
        raise UserError(f"{path} is not the declaration that the result was made by")
    return declaration


def expectation(record: Mapping[str, Any]) -> Expectation:
    """What a declaration expects."""
    name, given = record["expected"]
    if name == Greater.__name__:
        return Greater(given["better"], given["than"], by=float(given["by"]))
    return Same(given["one"], given["other"], within=float(given["within"]))


def reasons(record: Mapping[str, Any]) -> list[Needs]:
    """The arms without a reason that a declaration names."""
    return [Needs(**given) for _, given in record["reasons"]]


def vetoes(record: Mapping[str, Any]) -> dict[str, Veto]:
    """What a declaration allows to fall, and against which arm; without what is measured."""
    return {
        n: Veto(falls=float(given["falls"]), against=given.get("against", ""))
        for n, (_, given) in record["vetoes"].items()
    }


def earlier_looks(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The earlier looks of a result that takes the place of `before`: the latter's own, and itself
    where it was of another declaration, or found other numbers or another verdict. What was taken
    back is kept with the verdict that it had.
    """
    if before is None:
        return []
    kept = list(before.get("earlier", []))
    arms = {name: arm["values"] for name, arm in before["arms"].items()}
    same = before.get("declaration") == now["declaration"]
    alike = before["verdict"] == now["verdict"] and all(
        a in now["arms"] and now["arms"][a]["values"] == v for a, v in arms.items()
    )
    if same and alike:
        return kept
    look = {k: before[k] for k in LOOKED_AT if k in before} | {"arms": arms}
    if "rules" not in before:
        back = before.get("taken_back", {})
        why = f"older rules; taken back: {back['why']}" if back else "older rules"
        return [*kept, look | {"verdict": back.get("verdict", before["verdict"]), "why": why}]
    why = "the same declaration with other code" if same else "another declaration"
    return [*kept, look | {"why": why}]


def with_earlier(record: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """A third block that takes the place of `before`: other numbers, or another verdict, on the
    same seeds stay under its "earlier".
    """
    if before is None:
        return dict(record)
    kept, look = before.get("earlier", []), {k: v for k, v in before.items() if k != "earlier"}
    same = all(look.get(k) == record[k] for k in ("values", "verdict"))
    looks = kept if same else [*kept, look]
    return {**record, "earlier": looks} if looks else dict(record)
