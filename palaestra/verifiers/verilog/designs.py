"""A design in a reply, judged by simulation against a reference design."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from palaestra.errors import UserError
from palaestra.types import stage
from palaestra.verifiers.base import (
    Judgement,
    failed_judgement,
    guard_verifier,
    require_field,
    strip_thinking,
)
from palaestra.verifiers.verilog.bench import ROOT, DesignBench, bench_of
from palaestra.verifiers.verilog.simulate import Simulated, simulate
from palaestra.verifiers.verilog.source import extract_design, violation
from palaestra.verifiers.verilog.testbench import (
    UserBench,
    bench_texts,
    checked_bench,
    says_passed,
)

NO_DESIGN = "There is no design in Verilog in the answer."


@stage
class VerilogDesign:
    """The share of checks that the reply's last Verilog block passes in simulation; 0 if it does not
    compile, is not done in time, or uses a system task.

    `answer` is the reference design. Its inputs get random stimuli, or every value where they have at
    most 8 bits and no clock; `stimuli`, lines such as `a=3 b=1`, come before them. A design passes a
    check where its outputs equal the reference's, x and z of the reference aside. `partial=false`
    pays 1 if all are passed, else 0. The part `mutants_killed` is the share of at most `mutants`
    mutants of the reference that the stimuli tell from it.

    With `testbench`, one self-checking bench in Verilog or a list of them, the score is the share of the
    benches that print that the design passes, and no reference is needed. A bench that an empty design
    passes, or that a reference fails, is refused.
    """

    partial: bool = True
    mutants: int = 8
    kills: float = 0.75  # below it the stimuli are made more
    seconds: float = 4.0

    def __post_init__(self) -> None:
        if self.mutants < 0 or not 0 <= self.kills <= 1 or not self.seconds > 0:
            raise UserError(
                "VerilogDesign: give mutants of at least 0, kills in [0, 1] and seconds above 0"
            )

    @guard_verifier
    def __call__(
        self,
        response: str,
        answer: Any,
        *,
        stimuli: str = "",
        clock: str = "",
        testbench: str | Sequence[str] = "",
    ) -> Judgement:
        if texts := bench_texts(testbench):
            return self._by_testbenches(response, answer, texts)
        reference = require_field(answer, "answer", str, self)
        bench = self.bench(reference, stimuli, clock)
        mutants_part = {} if bench.killed is None else {"mutants_killed": bench.killed}
        design = extract_design(strip_thinking(response), reference)
        if design is None:
            none = dict.fromkeys(("compiles", "passed", "all"), 0.0)
            return failed_judgement("unparsable", **none, **mutants_part)
        source, top = design
        ran = Simulated("compile") if violation(source) else run(source, top, bench, self.seconds)
        passed = bench.passed(ran)
        parts = {
            "compiles": float(ran.status != "compile"),
            "passed": passed,
            "all": float(passed == 1),
            **mutants_part,
        }
        status = {"timeout": "timeout", "compile": "failed"}.get(ran.status, "ok")
        score = passed if self.partial else parts["all"]
        return Judgement(score=score, parts=parts, status=status)

    def _by_testbenches(self, response: str, answer: Any, texts: Sequence[str]) -> Judgement:
        ran = self._testbench_runs(response, answer, texts)
        if ran is None:
            return failed_judgement("unparsable", compiles=0.0, passed=0.0, all=0.0)
        passed = sum(map(says_passed, ran)) / len(ran)
        parts = {
            "compiles": float(any(r.status != "compile" for r in ran)),
            "passed": passed,
            "all": float(passed == 1),
        }
        late = any(r.status == "timeout" for r in ran)
        status = "ok" if parts["compiles"] and not late else "timeout" if late else "failed"
        score = passed if self.partial else parts["all"]
        return Judgement(score=score, parts=parts, status=status)

    def _testbench_runs(
        self, response: str, answer: Any, texts: Sequence[str]
    ) -> list[Simulated] | None:
        """What became of the reply's design in each bench; None where it has none."""
        reference = str(answer) if answer and "module" in str(answer) else ""
        benches = [checked_bench(text, reference, self.seconds) for text in texts]
        design = extract_design(strip_thinking(response), reference or stub_of(benches[0].design))
        if design is None:
            return None
        return [
            Simulated("compile", (), f"{why} is not allowed in a design")
            if (why := violation(design[0]) or bench.reaches_into(design[0]))
            else run_testbench(design[0], bench, self.seconds)
            for bench in benches
        ]

    def feedback(
        self,
        response: str,
        answer: Any,
        *,
        stimuli: str = "",
        clock: str = "",
        testbench: str | Sequence[str] = "",
    ) -> str:
        """What the compiler or the bench says of a reply's design, for its writer; "" where it passes.

        Of a bench of stimuli it is the first check that fails, with its inputs and the expected outputs.
        """
        if texts := bench_texts(testbench):
            each = self._testbench_runs(response, answer, texts)
            if each is None:
                return NO_DESIGN
            failed = next((r for r in each if not says_passed(r)), None)
            return "" if failed is None else words_of(failed, "\n".join(failed.lines[-8:]))
        reference = require_field(answer, "answer", str, self)
        design = extract_design(strip_thinking(response), reference)
        if design is None:
            return NO_DESIGN
        source, top = design
        if why := violation(source):
            return f"The design does not compile: {why} is not allowed in it."
        bench = self.bench(reference, stimuli, clock)
        ran = run(source, top, bench, self.seconds)
        if ran.status == "ran" and bench.passed(ran) == 1:
            return ""
        return words_of(ran, bench.first_failure(ran))

    def bench(self, reference: str, stimuli: str = "", clock: str = "") -> DesignBench:
        """The bench of a reference design. Raises UserError."""
        return bench_of(reference, stimuli, clock, self.mutants, self.kills, self.seconds)


@lru_cache(maxsize=4096)
def run(source: str, top: str, bench: DesignBench, seconds: float) -> Simulated:
    """A candidate's simulation, in a sandbox of its own."""
    [ran] = simulate([(source, bench.source(top))], ROOT, seconds)
    return ran


@lru_cache(maxsize=4096)
def run_testbench(source: str, bench: UserBench, seconds: float) -> Simulated:
    """A candidate's simulation with a bench that a user wrote."""
    return bench.run(source, seconds)


def stub_of(name: str) -> str:
    """A module of a name alone."""
    return f"module {name}();\nendmodule\n"


def words_of(ran: Simulated, checks: str) -> str:
    """What is said of a design that failed."""
    if ran.status == "compile":
        return f"The design does not compile:\n{ran.error.strip()[-400:]}"
    if ran.status == "timeout":
        return "The simulation of the design does not end in time."
    return f"The design compiles, and fails in simulation:\n{checks.strip()[-400:]}"
