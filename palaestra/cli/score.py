"""`palaestra score`: scores given responses with a verifier, or a run's answers with a reward."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from palaestra.api.run import Run
from palaestra.errors import Fault, UserError
from palaestra.explanation.rescoring import Rescoring
from palaestra.markdown import escape_controls
from palaestra.plugins import Plugin, refused
from palaestra.tasks.records import Lines, Record
from palaestra.verifiers.base import judge_response
from palaestra.verifiers.registry import VERIFIERS, describe_verifier, get_verifier

STEPS = 10  # of a run, the last ones
SHOWN, EXCERPT = 5, 60  # answers, and characters of each
CASE = '{"response": "...", "answer": "..."}'


def run(arguments: argparse.Namespace) -> list[Any] | dict[str, Any]:
    if arguments.list:
        return list_verifiers(arguments.json)
    if not arguments.verifier:
        raise UserError("name a verifier; `palaestra score --list` shows them")
    if arguments.run:
        if arguments.cases:
            raise UserError("--cases and --run exclude each other: they are both the answers")
        return rescore(arguments)
    if arguments.steps:
        raise UserError("--steps goes with --run")
    if not arguments.cases:
        raise UserError(
            "--cases is missing: a file with lines {'response': ..., 'answer': ...}; or --run DIR"
        )
    result = score_cases(arguments.verifier, Path(arguments.cases))
    if not arguments.json:
        for line in result:
            parts = "  ".join(f"{k} {v:.4g}" for k, v in line["parts"].items())
            print(
                f"{'  -' if line['score'] is None else format(line['score'], '6.4f')}  "
                f"{line['status']:<11} {parts}"
            )
    return result


def rescore(arguments: argparse.Namespace) -> dict[str, Any]:
    """Scores the answers of a run with another reward."""
    run = Run(arguments.run)
    rescoring = run.rescore(arguments.verifier, arguments.steps or STEPS)
    if not arguments.json:
        print(*comparison_lines(arguments.verifier, run, rescoring), sep="\n")
    record = {"reward": arguments.verifier, "run": str(run.folder), "notes": list(rescoring.notes)}
    return record | asdict(rescoring.comparison)


def comparison_lines(reward: str, run: Run, rescoring: Rescoring) -> Iterator[str]:
    """What another reward changes, and the answers where it changes most."""
    c = rescoring.comparison
    steps = sorted({x.step for x in rescoring.pairs})
    steps_text = f", steps {steps[0]} to {steps[-1]}" if steps else ""
    yield f"{reward} on {c.answers:,} answers of {run.folder}{steps_text}"
    if c.mean is not None:
        yield f"{'':<24}{'the run':>10}{'now':>10}"
        yield f"{'  mean reward':<24}{c.mean[0]:>10.4g}{c.mean[1]:>10.4g}"
    if c.judged:
        a, b = (n / c.judged for n in c.solved)
        yield (
            f"{'  solved':<24}{a:>10.1%}{b:>10.1%}  "
            f"({c.now_wrong} no longer, {c.now_right} are now, of {c.judged:,})"
        )
    if c.groups:
        a, b = c.mixed
        yield f"{'  mixed groups':<24}{a:>10}{b:>10}  (rewards differ, of {c.groups})"
    if c.agreement is not None:
        yield f"{'  same order':<24}{'':>10}{c.agreement:>10.2f}  (Kendall's tau-b within groups, 1 = the same)"
    if c.unscored:
        yield f"  {c.unscored} answers had no reward in the run"
    if c.unscored_now:
        why = next((f": {x.error}" for x in rescoring.pairs if x.error), "")
        yield f"  {c.unscored_now} answers got no reward now{why}"
    if c.bare:
        yield (
            f"  {c.bare} problems are not in the data as they were asked: the reward had their "
            "prompt and answer alone"
        )
    moves = sorted((x for x in rescoring.pairs if x.difference), key=lambda x: -abs(x.difference))
    for x in moves[:SHOWN]:
        end = escape_controls(" ".join(x.text.split()))[-EXCERPT:]
        place = f"{x.part and f'{x.part}, '}step {x.step}, group {x.group}, answer {x.sample}"
        yield f"  {place}: {x.reward:.4g} -> {x.other:.4g}  ...{end}"
    yield from (f"note: {note}" for note in rescoring.notes)


def list_verifiers(silent: bool) -> list[Any]:
    ours = [describe_verifier(name) for name in VERIFIERS]
    plugins = [offered(p, why) for p, why in refused("verifiers", VERIFIERS).items()]
    if not silent:
        for d in (*ours, *plugins):
            notes = "".join(f"  [{d[k]}]" for k in ("extra", "package") if d.get(k))
            print(f"{d['name']:<15} {', '.join(d['fields'][1:])}{notes}")
            print(f"{'':<15} {d['summary']}")
    return [*ours, *plugins]


def offered(plugin: Plugin, why: str) -> dict[str, Any]:
    """A verifier of another package, or why it is not used."""
    try:
        if not why:
            return {**describe_verifier(plugin.name), "package": plugin.package}
    except UserError as error:
        why = str(error)
    return {
        "name": plugin.name,
        "summary": f"not used: {why}",
        "fields": [],
        "required": [],
        "settings": {},
        "extra": "",
        "alone": False,
        "package": plugin.package,
    }


def score_cases(spec: str, path: Path) -> list[Any]:
    """A judgement a line. A verifier that failed gives the status "error:CAUSE" and no score."""
    verifier, scores = get_verifier(spec), []
    for where, record in records(path):
        given = {k: v for k, v in record.items() if k not in ("response", "answer")}
        try:
            j = judge_response(verifier, record["response"], record.get("answer"), given)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        except Fault as fault:
            scores.append({"score": None, "parts": {}, "status": f"error:{fault}"})
            continue
        scores.append({"score": j.score, "parts": dict(j.parts), "status": j.status})
    return scores


def records(path: Path) -> Iterator[tuple[str, Record]]:
    """The cases with their places."""
    try:
        lines = Lines(path, CASE)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a JSONL file") from None
    if not len(lines):
        raise UserError(f"{path}: no cases; it needs one a line, {CASE}")
    for i, record in enumerate(lines):
        if not isinstance(record.get("response"), str):
            raise UserError(f"{lines.where(i)}: no text 'response'; write {CASE}")
        yield lines.where(i), record
