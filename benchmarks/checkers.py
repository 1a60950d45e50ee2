"""`palaestra bench verifiers`: how often answer checkers are wrong, on cases that are labelled
without them.

Ours beside math-verify, verl's and lm-eval's, each in the form in which it looks for an answer. A
library that is not installed is not measured; of verl and lm-eval only the files that hold the pure
functions are loaded, so that neither needs its dependencies.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.labelled import KINDS, LabelledAnswer, draw_cases
from palaestra.run.parts import Parts
from palaestra.verifiers.registry import get_verifier

SEED = 18
Checker = Callable[[LabelledAnswer], bool]
# with time enough on a busy machine: what is measured is whether it is right
PATIENT = {"math": "math(seconds=60)", "antiderivative": "antiderivative(seconds=60)"}
VERL, LM_EVAL = "verl.utils.reward_score", "lm_eval.tasks"


def load_file(module: str) -> ModuleType | None:
    """A module by its file alone, without the packages around it; None = it is not installed."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, *rest).with_suffix(".py")
        if path.is_file():
            own = importlib.util.spec_from_file_location(f"checker_{rest[-1]}", path)
            assert own is not None and own.loader is not None
            loaded_module = importlib.util.module_from_spec(own)
            try:
                own.loader.exec_module(loaded_module)
            except Exception:
                return None
            return loaded_module
    return None


def boxed(case: LabelledAnswer) -> str:
    return case.said if case.whole else f"The answer is $\\boxed{{{case.said}}}$."


def ours(name: str) -> Checker:
    """One of this package's verifiers; of kinds with a verifier of their own, that one."""

    def check(case: LabelledAnswer) -> bool:
        verifier = get_verifier(PATIENT.get(case.verifier if name == "math" else name, name))
        return verifier(boxed(case), case.gold).score == 1.0

    return check


def math_verify() -> Checker | None:
    if importlib.util.find_spec("math_verify") is None:
        return None
    from math_verify import parse, verify  # pyright: ignore[reportMissingImports]

    def check(case: LabelledAnswer) -> bool:
        gold = case.gold if case.whole and "$" in case.gold else f"${case.gold}$"
        return bool(verify(parse(gold), parse(boxed(case))))

    return check


def verl_boxed() -> Checker | None:
    """verl's check of MATH: what is in the last box, after rewriting, as text."""
    module = load_file(f"{VERL}.math_reward")
    return module and (lambda case: bool(module.compute_score(boxed(case), gold_text(case))))


def verl_dapo() -> Checker | None:
    """verl's check of DAPO: what stands behind `Answer:`, normalised as in Minerva."""
    module = load_file(f"{VERL}.math_dapo")
    if module is None:
        return None

    def check(case: LabelledAnswer) -> bool:
        statement = case.said if case.whole else f"Answer: {case.said}"
        return bool(module.compute_score(statement, gold_text(case))["acc"])

    return check


def lm_eval_hendrycks() -> Checker | None:
    """lm-eval's check of hendrycks_math: what stands between the first and the last $, as text."""
    module = load_file(f"{LM_EVAL}.hendrycks_math.utils")
    if module is None:
        return None

    def check(case: LabelledAnswer) -> bool:
        statement = f"${case.said}$" if not case.whole else case.said
        doc = {"solution": f"\\boxed{{{gold_text(case)}}}"}
        return bool(module.process_results(doc, [statement])["exact_match"])

    return check


def lm_eval_grader() -> Checker | None:
    """lm-eval's grader of score/math, by text, number and sympy."""
    module = load_file(f"{LM_EVAL}.score.math.math_grader")
    try:
        if module is None or not module.math_equal("5", "5"):
            return None
    except RuntimeError:  # it wants another version of antlr's runtime
        return None

    def check(case: LabelledAnswer) -> bool:
        statement = module.extract_answer(boxed(case))
        return bool(module.math_equal(statement, gold_text(case), timeout=True))

    return check


def gold_text(case: LabelledAnswer) -> str:
    """A reference as those want it that read no box in it."""
    from palaestra.verifiers.answers.final import gold_of

    return gold_of(case.gold) if case.whole else case.gold


CHECKERS: Mapping[str, Callable[[], Checker | None]] = {
    "palaestra math": lambda: ours("math"),
    "palaestra exact": lambda: ours("exact"),
    "math-verify": math_verify,
    "verl math_reward": verl_boxed,
    "verl math_dapo": verl_dapo,
    "lm-eval hendrycks_math": lm_eval_hendrycks,
    "lm-eval score/math": lm_eval_grader,
}


def judge_case(check: Checker, case: LabelledAnswer) -> bool | None:
    """What a checker says; None where it raises, which pays nothing."""
    try:
        return check(case)
    except Exception:
        return None


def count_errors(check: Checker, cases: list[LabelledAnswer]) -> dict[str, Any]:
    """By kind: wrong answers that are paid and right ones that are refused, some of each, and on
    how many the checker raised, which refuses.
    """
    errors: dict[str, Any] = {}
    for case in cases:
        of = errors.setdefault(
            case.kind,
            {"wrong": 0, "paid": 0, "right": 0, "refused": 0, "raised": 0, "examples": []},
        )
        found_right = judge_case(check, case)
        of["raised"] += found_right is None
        right_found = bool(found_right)
        of["right" if case.right else "wrong"] += 1
        if right_found != case.right:
            of["paid" if right_found else "refused"] += 1
            of["examples"] += [[str(case.gold), case.said, case.right]][: 8 - len(of["examples"])]
    return errors


def measure(n: int, parts: Parts) -> dict[str, Any]:
    """The errors of every checker on `n` cases of each kind."""
    cases = draw_cases(SEED, n)
    shared = [c for c in cases if c.verifier == "math"]
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    parts.expect(len(CHECKERS))
    results: dict[str, Any] = {}
    for name, make in CHECKERS.items():
        check = make()
        asked = cases if name == "palaestra math" else shared
        count = lambda check=check, asked=asked: check and count_errors(check, asked)
        results[name] = parts.keep(name.replace("/", " "), count)
    return {
        "seed": SEED,
        "cases": len(cases),
        "wrong": sum(not c.right for c in cases),
        "checkers": results,
    }


def rate(part: int, whole: int) -> str:
    return f"{part}/{whole}" if whole else "-"


def show(result: dict[str, Any]) -> str:
    """A table in Markdown: wrong answers paid, and right ones refused, by kind."""
    names = [name for name, of in result["checkers"].items() if of is not None]
    rows = [["kind", *names]]
    for kind in KINDS:
        row = [kind]
        for name in names:
            of = result["checkers"][name].get(kind)
            row.append(
                ""
                if of is None
                else f"{rate(of['paid'], of['wrong'])}, {rate(of['refused'], of['right'])}"
            )
        rows.append(row)
    total = ["all that are asked of every one"]
    shared = [k for k in KINDS if all(k in result["checkers"][name] for name in names)]
    for name in names:
        of = [result["checkers"][name][k] for k in shared]
        sums = {key: sum(x[key] for x in of) for key in ("paid", "wrong", "refused", "right")}
        total.append(f"{rate(sums['paid'], sums['wrong'])}, {rate(sums['refused'], sums['right'])}")
    lines = [f"| {' | '.join(row)} |" for row in [*rows, total]]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    absent = [name for name, of in result["checkers"].items() if of is None]
    lines += [
        f"\nnot measured, because it or what it needs is not installed: {', '.join(absent)}"
    ] * bool(absent)
    return "\n".join(lines)
