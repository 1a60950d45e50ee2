"""Rules that a language model writes as Python, which run in the sandbox alone, and a language model as
the world model without rules.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import palaestra as pl
from palaestra.recipes.inference.wall_e_2.rules import LoggedAction, action_kind
from palaestra.recipes.inference.wall_e_2.world import PredictedFrame

Case: TypeAlias = tuple[str, str, dict[str, str]]  # state, action, scene graph
SHOWN = 8  # transitions of each kind that a model sees at a time
MARK = "@@rules"
RUN = """import contextlib, io, json, sys
given = json.load(sys.stdin)
found = []
for code in given["rules"]:
    row = []
    with contextlib.redirect_stdout(io.StringIO()):
        names = {}
        try:
            exec(code, names)
            rule = names["rule"]
        except Exception:
            rule = None
        for state, action, scene in given["cases"]:
            try:
                feedback, success, suggestion = rule(state, action, dict(scene))
                row.append(None if success else [str(feedback), str(suggestion)])
            except Exception:
                row.append(False)
    found.append(row)
print()
print(given["mark"], json.dumps(found))
"""
ASK = """These actions of the kind {kind} were done in a world.

Failed, though it was expected to work:
{bad}

Worked:
{good}

When does it fail? Write rules that forbid none of the actions that worked. Each rule is a fence ```python
with one function and nothing else:

def rule(state: str, action: str, scene: dict) -> tuple:
    # (feedback, False, suggestion) where the action fails: why, and what to do first; else ("", True, "")

`state` is the text above, `scene` what is known of things, by name. It is called for actions of every kind."""
FORECAST = """{state}
Known: {scene}
Will the action `{action}` work here? Answer yes or no."""


def run_written(codes: Sequence[str], cases: Sequence[Case]) -> list[list[PredictedFrame | None]]:
    """What each rule says of each case, all in one sandbox; None where it breaks.

    Raises:
        Fault: this machine cannot isolate code.
    """
    cells = _run(codes, cases)
    if cells is None and len(codes) > 1:  # one of them spoils it for all
        return [run_written([code], cases)[0] for code in codes]
    if cells is None:
        return [[None] * len(cases)]
    return [[_forecast(cell) for cell in row] for row in cells]


def _forecast(cell: Any) -> PredictedFrame | None:
    """What one rule says of one case."""
    if cell is False:
        return None
    if cell is None:
        return PredictedFrame()
    return PredictedFrame(feedback=str(cell[0])[:300] or "It fails.", suggestion=str(cell[1])[:300])


def _run(codes: Sequence[str], cases: Sequence[Case]) -> list[list[Any]] | None:
    """The table that the sandbox printed; None where there is none of this shape."""
    given = json.dumps({"rules": list(codes), "cases": list(cases), "mark": MARK})
    ran = pl.services.run_program(RUN, given)
    if ran.status == "refused":
        raise pl.Fault("sandbox", f"rules that a model writes run in the sandbox: {ran.stderr}")
    _, mark, text = ran.stdout.rpartition(MARK)
    try:
        table = json.loads(text) if mark and ran.status == "ok" else None
    except ValueError:
        return None
    rows = table if isinstance(table, list) and len(table) == len(codes) else []
    fits = rows and all(isinstance(r, list) and len(r) == len(cases) for r in rows)
    cells = [c for r in rows for c in r] if fits else []
    good = fits and all(
        c is None or c is False or (isinstance(c, list) and len(c) == 2) for c in cells
    )
    return rows if good else None


async def write_rules(
    ctx: pl.Context, miner: pl.Source, batch: Sequence[LoggedAction], seed: int
) -> list[str]:
    """Rules as a model writes them for the kinds of actions of a batch that failed unexpectedly."""
    codes = list[str]()
    for kind in dict.fromkeys(action_kind(t.action) for t in batch):
        own = [t for t in batch if action_kind(t.action) == kind]
        bad = [t for t in own if not t.success and t.expected]
        if not bad:
            continue
        good = [t for t in own if t.success]
        asked = ASK.format(kind=kind, bad=_listed(bad), good=_listed(good) or "none")
        reply = await ctx.ask(miner, asked, seed=seed)
        codes += [b for b in pl.verifiers.code_blocks(reply) if re.search(r"\bdef rule\(", b)]
    return list(dict.fromkeys(codes))


def _listed(log: Sequence[LoggedAction]) -> str:
    return "\n".join(
        f"- state: {t.state!r}, scene: {json.dumps(t.scene)}, action: {t.action!r}"
        for t in log[:SHOWN]
    )


async def forecast_by_model(
    ctx: pl.Context, predictor: pl.Source, state: str, action: str, scene: dict[str, str]
) -> bool | None:
    """Whether a language model expects an action to work; None where it says neither yes nor no."""
    asked = FORECAST.format(state=state, scene=json.dumps(scene), action=action)
    reply = pl.verifiers.strip_thinking(await ctx.ask(predictor, asked))
    words = re.findall(r"\b(yes|no)\b", reply.lower())
    return words[-1] == "yes" if words else None
