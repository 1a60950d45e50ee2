"""`palaestra reproduce`: tests a paper's claim in a small experiment with a verdict, or checks that
published verdicts follow from their numbers.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from palaestra.cores import cores
from palaestra.errors import UserError
from palaestra.ledger import canaries, results
from palaestra.ledger.declared import declare, earlier_looks, with_earlier
from palaestra.ledger.experiment import TRIAL, Experiment, experiment_of
from palaestra.ledger.files import folder, parted, read_result
from palaestra.ledger.rerun import describe_numbers, describe_spot_check, rerun, spot_check
from palaestra.ledger.standing import published, recompute
from palaestra.ledger.wording import budget_of, ends, interval
from palaestra.markdown import line_by_name
from palaestra.run.parts import go_on, stoppable
from palaestra.store.checkpoint import make_folder, write_atomic
from palaestra.terminal.progress import Headway
from palaestra.view.drawing import duration

WHOLE = (1, 1)  # the share that is all of it


def run(arguments: argparse.Namespace) -> Any:
    if arguments.check and (arguments.fresh or arguments.again):
        raise UserError("--check runs nothing; ask for --fresh or --again without it")
    if arguments.check:
        return check(arguments)
    if arguments.record:
        return record(arguments)
    if arguments.again and arguments.share != WHOLE:
        return spot(arguments)
    if len(arguments.methods) != 1:
        raise UserError("reproduce takes one method, or --check and any number of them")
    method = f"{arguments.methods[0]}@{arguments.tier}" if arguments.tier else arguments.methods[0]
    experiment, out = experiment_of(method), make_folder(Path(arguments.out))
    less = [f"--{n}" for n in ("seeds", "arms", "tokens", "device") if getattr(arguments, n)]
    more = [f"--{n}" for n in ("fresh", "again") if getattr(arguments, n)]
    if len(more) > 1:
        raise UserError(f"{' and '.join(more)} are two runs; ask for one after the other")
    if more and less:
        raise UserError(
            f"{more[0]} repeats what is published, so it takes no {' and no '.join(less)}"
        )
    if arguments.seeds > (most := min(map(len, TRIAL))):
        raise UserError(f"a block of a trial has at most {most} seeds, not {arguments.seeds}")
    if more:
        return repeat(arguments, method, out)
    arms = arguments.arms.split(",") if arguments.arms else []
    declared = "a trial, which decides nothing"
    if not (arms or arguments.seeds or arguments.tokens):
        declared = f"declared in {declare(results.name_of(method), experiment, out / 'declared')}"
    print(
        f"{method}: {experiment.claim}\n{declared}\n{foretell(experiment, arms, arguments.seeds)}",
        file=sys.stderr,
        flush=True,
    )
    with stoppable(lambda: go_on(arguments.command)), Headway(f"reproduce {method}") as headway:
        outcome = results.reproduce(
            method,
            out=out,
            headway=headway,
            seeds=arguments.seeds,
            arms=arms,
            tokens=arguments.tokens,
            jobs=arguments.jobs,
            device=arguments.device or results.CPU,
        )
    result = {**outcome, "command": command(arguments)}
    kept = keep(result, out, experiment)
    if not arguments.json:
        print(table(result, kept))
    return result


def foretell(experiment: Experiment, arms: Sequence[str], seeds: int) -> str:
    """A line that says how many cells run, and how long each takes."""
    every = [a for a in experiment.every_arm if not arms or a in arms]
    tuning = sum(map(len, experiment.sweep(every).values())) * len(experiment.tuning_seeds)
    own = len(every) * sum(len(list(b)[: seeds or None]) for b in experiment.blocks)
    n = (tuning + own) * len(experiment.tasks)
    each = duration(experiment.seconds)
    return f"{n} cells of about {each} on {cores()} cores, {tuning * len(experiment.tasks)} to tune"


def command(arguments: argparse.Namespace) -> str:
    asked = ("tier", "seeds", "arms", "tokens", "device")
    given = {n: v for n in asked if (v := getattr(arguments, n)) and v != results.CPU}
    flags = [f"--{n} {shlex.quote(str(v))}" for n, v in given.items()]
    return " ".join(["palaestra", "reproduce", *arguments.methods, *flags])


def keep(result: dict[str, Any], out: Path, experiment: Experiment) -> str:
    """Writes a whole result, and in it what it replaces as an earlier look, be it in this folder or
    the published one; says what it did.
    """
    path = out / "results" / f"{result['id']}.json"
    if not is_whole(result, experiment):
        return f"not written to {path}: {result['reason']}"
    before = read_result(result["id"], path.parent) or read_result(result["id"]) or {}
    result["earlier"] = earlier_looks(before or None, result)
    if "fresh" in before and result["earlier"] == before.get("earlier", []):  # of the same numbers
        result["fresh"] = before["fresh"]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, line_by_name(result))
    return str(path)


def is_whole(result: dict[str, Any], experiment: Experiment) -> bool:
    """Whether all was run that is declared."""
    return result["verdict"] == "not-testable" or experiment.is_whole(
        result["arms"], result["blocks"], result["budget_tokens"]
    )


def table(result: dict[str, Any], kept: str) -> str:
    if result["verdict"] == "not-testable":
        return f"verdict  not-testable ({result['reason']})\nresult   {kept}"
    seeds = f"{result['seeds']} seeds{' in two blocks' if len(result['blocks']) > 1 else ''}"
    budget = f", {budget_text} a run" if (budget_text := budget_of(result)) else ""
    lines = [f"{result['metric']}{budget}, {seeds}, 95% intervals"]
    for name, arm in result["arms"].items():
        lacks = "failed" if arm["failed"] else "-"
        values = " ".join(lacks if x is None else f"{x:.4g}" for x in arm["values"])
        lines.append(f"  {name:<24} {interval(arm['interval'], 4):<34} {values}")
        lines += [f"    with {k}={v}" for k, v in arm["setting"].items()]
        lines += [f"    {label}: {error}" for label, error in arm["failed"].items()]
    lines.append(f"  {'effect':<24} {ends(result, 4)}")
    lines += [f"  {'block':<24} {ends(block, 4)}" for block in result["by_block"]]
    lines.append(f"  {'expected':<24} {result['expected']}")
    lines += [f"  {n:<24} {c['said']}" for n, c in result["controls"].items() if "said" in c]
    lines += [f"  not declared: {what}" for what in result["lacks"]]
    why = f" ({result['reason']})" if result["reason"] else ""
    lines += [f"verdict  {result['verdict']}{why}", f"result   {kept}"]
    return "\n".join(lines)


# ---- published results


def check(arguments: argparse.Namespace) -> dict[str, Any]:
    """Recomputes the verdicts of published results and runs canaries, all without a name. The
    program ends with status 1 where a verdict does not follow from its numbers, or a canary moved.
    """
    if not folder().is_dir():
        raise UserError(
            "reproduce --check reads the published results, which lie in ledger/ of a checkout and are "
            "no part of an installed package: run the command at the root of one"
        )
    given, quiet = [results.name_of(m) for m in arguments.methods], arguments.json
    names = given or published()
    wrong = wrong_verdicts(names)
    for name, why in wrong.items():
        print(f"{name}: {why}", file=sys.stderr)
    if not quiet:
        print(f"{len(names) - len(wrong)} of {len(names)} verdicts follow from their numbers")
    outcome = {"checked": names, "wrong": wrong}
    failed = bool(wrong)
    if arguments.share[0] and canaries.path_of("").parent.is_dir():
        with Headway("canaries") as headway:
            report = canaries.check(
                methods_of(given) or canaries.names(), arguments.share, headway, arguments.jobs
            )
        outcome |= {"canaries": asdict(report)}
        failed |= any(not m.undecided for m in report.moved.values()) or bool(report.unknown)
        print(describe_canaries(report), file=sys.stderr if quiet else sys.stdout)
    if failed:
        sys.exit(1)
    return outcome


def spot(arguments: argparse.Namespace) -> dict[str, Any]:
    """The first seed of a share of all published arms with today's code, or of those of some methods.
    The program ends with status 1 where one gives a number that no processor explains.
    """
    asked = [results.name_of(m) for m in arguments.methods] or [
        n for n in published() if "@" not in n
    ]
    with stoppable(lambda: go_on(arguments.command)), Headway("spot check") as headway:
        report = spot_check(
            asked,
            arguments.share,
            out=make_folder(Path(arguments.out)),
            headway=headway,
            jobs=arguments.jobs,
        )
    print(describe_spot_check(report), file=sys.stderr if arguments.json else sys.stdout)
    if report.wrong:
        sys.exit(1)
    return asdict(report)


def methods_of(names: Sequence[str]) -> list[str]:
    """Methods, whose claims on a real model have no canaries of their own."""
    return sorted({parted(results.name_of(name))[0] for name in names})


def wrong_verdicts(names: Sequence[str]) -> dict[str, str]:
    """Why verdicts do not follow from their numbers, by name."""
    wrong: dict[str, str] = {}
    for name in names:
        result = read_result(name)
        if result is None:
            raise UserError(
                f"{name} has no published result; measure it: palaestra reproduce {name}"
            )
        if why := recompute(result):
            wrong[name] = why
    return wrong


def describe_canaries(report: canaries.Report) -> str:
    """What became of canaries, for people."""
    lines = [f"{name}: {m.what}" for name, m in report.moved.items() if not m.undecided]
    lines += [
        f"{name}: {m.what}; but rounding may do this, on a processor of another kind"
        for name, m in report.moved.items()
        if m.undecided
    ]
    lines += [f"{name}: no record of this configuration" for name in report.unknown]
    n = report.ran - len(report.moved) - len(report.unknown)
    lines.append(f"{n} of {report.ran} canaries did as recorded")
    if any(not m.undecided for m in report.moved.values()):
        parts = ", ".join(report.suspects)
        lines.append(f"all that moved, and none that held, have {parts or 'no part in common'}")
        lines.append(
            "repair what you did not mean to change; for what you meant, add a line to "
            "palaestra/ledger/versions.tsv and run `palaestra reproduce --record`"
        )
    return "\n".join(lines)


def record(arguments: argparse.Namespace) -> dict[str, Any]:
    """Records canaries, of all methods without a name."""
    asked = methods_of(arguments.methods) or canaries.names()
    with stoppable(lambda: go_on(arguments.command)), Headway("canaries") as headway:
        failed = canaries.record_all(asked, headway, arguments.jobs)
    for name, why in failed.items():
        print(f"{name}: {why}", file=sys.stderr)
    if failed:
        sys.exit(1)
    return {"recorded": asked}


def repeat(arguments: argparse.Namespace, method: str, out: Path) -> dict[str, Any]:
    """A published result once more: a third block of seeds, and whether the verdict repeats on it;
    or one seed of what has other code by now, and whether its numbers do.
    """
    path = out / "results" / f"{results.name_of(method)}.json"
    result = read_result(results.name_of(method), path.parent)
    if result is None:
        raise UserError(f"{method} has no result in {path.parent}; measure it first")
    with stoppable(lambda: go_on(arguments.command)), Headway(f"repeat {method}") as headway:
        once_more = results.fresh if arguments.fresh else rerun
        outcome = once_more(method, result, out=out, headway=headway, jobs=arguments.jobs)
    if arguments.fresh:
        outcome = with_earlier(outcome, result.get("fresh"))
    write_atomic(path, line_by_name({**result, "fresh" if arguments.fresh else "again": outcome}))
    if not arguments.json:
        print(third_block(outcome, result) if arguments.fresh else one_seed(outcome))
    return outcome


def third_block(outcome: dict[str, Any], result: dict[str, Any]) -> str:
    """What a third block of seeds says, for people."""
    outcome_text = (
        "repeats" if outcome["repeats"] else f"does not repeat: {outcome['verdict']} on its own"
    )
    return "\n".join(
        [
            f"seeds {outcome['seeds'][0]} to {outcome['seeds'][-1]}: effect {ends(outcome, 4)}",
            f"verdict {result['verdict']} {outcome_text}",
            *(
                f"an earlier look at these seeds, kept: {look['verdict']}, {ends(look, 4)}"
                for look in outcome.get("earlier", [])
            ),
        ]
    )


def one_seed(outcome: dict[str, Any]) -> str:
    """What today's code gives, for people."""
    arms = ", ".join(outcome["arms"])
    return f"seed {outcome['seed']} of {arms} with today's code: {describe_numbers(outcome)}"
