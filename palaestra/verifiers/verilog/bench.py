"""Benches: stimuli for the ports of a reference design, and what it answers to them.

The reference and a candidate are simulated apart, with the same stimuli, and their outputs are
compared here: a candidate that prints, or reaches into the bench, finds no expected value. A bit that
is x or z in the reference is open; a check whose bits are all open is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from palaestra.errors import UserError
from palaestra.types import rng_of
from palaestra.verifiers.verilog.mutants import mutants
from palaestra.verifiers.verilog.simulate import MARK, Simulated, simulate
from palaestra.verifiers.verilog.source import Port, ports_of, top_module

ROOT = "palaestra_bench"
EXHAUSTIVE_BITS = 8  # inputs of at most so many bits together get every value
MOST_STEPS = 512
CLOCK = re.compile(r"(?:[a-z]*_)?(?:clk|clock)(?:_[a-z]+)?", re.IGNORECASE)
RESET = re.compile(
    r"(?:[a-z]*_)?(?P<inverted>n)?a?(?:rst|reset)(?P<low>_?(?:n|ni|b|l))?(?:_i)?", re.IGNORECASE
)
RESET_SHARE = 1 / 16  # of the cycles behind the first two
Step = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DesignBench:
    """A bench that was checked on its reference.

    Args:
        steps: the stimuli, a value for each input.
        expected: the reference's outputs, one line a check.
        killed: share of the mutants of the reference that it tells from it; None without mutants.
    """

    ports: tuple[Port, ...]
    clock: str
    steps: tuple[tuple[tuple[str, int], ...], ...]
    expected: tuple[str, ...]
    killed: float | None = None

    def source(self, top: str) -> str:
        return bench_source(self.ports, self.clock, [dict(s) for s in self.steps], top)

    def passed(self, ran: Simulated) -> float:
        """The share of checks that a design passes, in [0, 1]."""
        checks = [i for i, line in enumerate(self.expected) if set(line) - set("xz ")]
        seen = ran.lines if ran.status == "ran" else ()
        right = sum(i < len(seen) and agree(self.expected[i], seen[i]) for i in checks)
        return right / len(checks)

    def first_failure(self, ran: Simulated) -> str:
        """The first check that a design fails: the inputs, its outputs and the expected ones."""
        outputs = " ".join(p.name for p in self.ports if p.direction == "output")
        each = 2 if self.clock else 1
        for i, line in enumerate(self.expected):
            seen = ran.lines[i] if i < len(ran.lines) else "nothing"
            if set(line) - set("xz ") and not agree(line, seen):
                given = " ".join(f"{name}={value}" for name, value in self.steps[i // each])
                return f"inputs {given}: {outputs} is {seen}, expected {line}"
        return ""


def agree(expected: str, seen: str) -> bool:
    """Whether outputs are equal where the expected bit is 0 or 1."""
    return len(expected) == len(seen) and all(
        a in "xz" or a == b for a, b in zip(expected, seen, strict=True)
    )


def bench_source(ports: Sequence[Port], clock: str, steps: Sequence[Step], top: str) -> str:
    """A bench's module. A clocked design is checked before and after each rising edge."""
    nets = [
        f"{'reg' if p.direction == 'input' else 'wire'} [{p.width - 1}:0] p_{p.name};"
        for p in ports
    ]
    links = ", ".join(f".{p.name}(p_{p.name})" for p in ports)
    outputs = [p.name for p in ports if p.direction == "output"]
    show = f'$display("{MARK}{" ".join("%b" for _ in outputs)}", {", ".join(f"p_{o}" for o in outputs)});'
    width = {p.name: p.width for p in ports}
    lines = [f"p_{clock} = 0;"] if clock else []
    for step in steps:
        lines += [f"p_{n} = {width[n]}'h{v % (1 << width[n]):x};" for n, v in step.items()]
        lines.append(f"#5 {show}")
        lines += [f"p_{clock} = 1; #5 {show} p_{clock} = 0;"] if clock else []
    body = "\n    ".join([*lines, "$finish;"])
    return "\n  ".join(
        ["`timescale 1ns/1ps", f"module {ROOT};", *nets, f"{top} dut({links});", f"initial begin\n    {body}", "end"]
    ) + "\nendmodule\n"  # fmt: skip


def stimuli(ports: Sequence[Port], clock: str, n: int) -> list[dict[str, int]]:
    """Every value where inputs are few and nothing has a clock; else `n` random steps, in which a
    quarter of the values are all zeros or ones. A reset holds for two cycles, then seldom.
    """
    inputs = [p for p in ports if p.direction == "input" and p.name != clock]
    if not clock and sum(p.width for p in inputs) <= EXHAUSTIVE_BITS:
        values = product(*(range(1 << p.width) for p in inputs))
        return [dict(zip((p.name for p in inputs), v, strict=True)) for v in values]
    rng = rng_of(("verilog", *(f"{p.name} {p.width}" for p in ports)))
    return [{p.name: value_of(p, clock, i, rng) for p in inputs} for i in range(n)]


def value_of(port: Port, clock: str, i: int, rng: np.random.Generator) -> int:
    reset = RESET.fullmatch(port.name) if clock and port.width == 1 else None
    if reset:
        active = i < 2 or rng.random() < RESET_SHARE
        return int(active != bool(reset["low"] or reset["inverted"]))
    kind = rng.random()
    if port.width > 1 and kind < 0.25:
        return 0 if kind < 0.125 else (1 << port.width) - 1
    return int.from_bytes(rng.bytes((port.width + 7) // 8), "little") % (1 << port.width)


def clock_of(ports: Sequence[Port], reference: str, given: str) -> str:
    """The clock's name; "" where the design has none. Raises UserError for a wrong name."""
    inputs = {p.name: p.width for p in ports if p.direction == "input"}
    if given and inputs.get(given) != 1:
        raise UserError(
            f"clock is {given!r}, which is no input of one bit; name one of {', '.join(inputs)}"
        )
    if given or not re.search(r"@\s*\(?[^;]*\b(?:posedge|negedge)\b", reference):
        return given
    edges = re.findall(r"\b(?:posedge|negedge)\s+(\w+)", reference)
    named = [n for n in inputs if CLOCK.fullmatch(n)]
    clocks = [n for n in named if n in edges] or named
    if not clocks and (edge := next((e for e in edges if e in inputs), "")):
        clocks = [edge]
    return clocks[0] if clocks else ""


def read_stimuli(text: str, inputs: Mapping[str, int]) -> list[dict[str, int]]:
    """Steps that a person or a model wrote: a line each, `a=3 b=0x1f`; an input that a line leaves
    out keeps its value, 0 at first. Other lines are skipped.

    Args:
        inputs: the width of each input that is not the clock.

    Raises:
        ValueError: a line names no input, or a value that does not fit.
    """
    steps, now = list[dict[str, int]](), dict.fromkeys(inputs, 0)
    for line in text.splitlines():
        pairs = re.findall(r"([A-Za-z_]\w*)\s*=\s*(0x[\da-fA-F]+|0b[01]+|\d+)", line)
        if not pairs:
            continue
        for name, value in pairs:
            if name not in inputs:
                raise ValueError(f"{name} is no input; the inputs are {', '.join(inputs)}")
            if int(value, 0) >= 1 << inputs[name]:
                raise ValueError(f"{name}={value} does not fit into {inputs[name]} bits")
            now = {**now, name: int(value, 0)}
        steps.append(now)
    if not steps:
        raise ValueError("there is no line such as " + " ".join(f"{n}=0" for n in inputs))
    return steps[:MOST_STEPS]


def inputs_of(reference: str, clock: str = "") -> dict[str, int]:
    """The width of each input of a reference design that stimuli set. Raises UserError."""
    ports = ports_of(reference, top_module(reference))
    named = clock_of(ports, reference, clock)
    return {p.name: p.width for p in ports if p.direction == "input" and p.name != named}


@lru_cache(maxsize=4096)
def bench_of(
    reference: str,
    written: str = "",
    clock: str = "",
    mutations: int = 8,
    kills: float = 0.75,
    seconds: float = 8.0,
) -> DesignBench:
    """A bench for a reference design, checked on it.

    Args:
        written: stimuli that come first, see `read_stimuli`.
        mutations: mutants of the reference that the bench should tell from it, at most.
        kills: while it tells fewer, there are four times as many random stimuli, to `MOST_STEPS`.

    Raises:
        UserError: the reference does not compile, does not end, or has no known output.
    """
    top = top_module(reference)
    ports = ports_of(reference, top)
    name = clock_of(ports, reference, clock)
    inputs = {p.name: p.width for p in ports if p.direction == "input" and p.name != name}
    try:
        first = read_stimuli(written, inputs) if written.strip() else []
    except ValueError as error:
        raise UserError(f"stimuli: {error}") from None
    n = 32
    while True:
        steps = (*first, *stimuli(ports, name, n))
        bench = checked(reference, top, DesignBench(ports, name, frozen(steps), ()), seconds)
        bench = replace(bench, killed=killed(reference, top, bench, mutations, seconds))
        exhaustive = len(steps) - len(first) != n
        enough = bench.killed is None or bench.killed >= kills
        if enough or exhaustive or 4 * n > MOST_STEPS:
            return bench
        n *= 4


def frozen(steps: Sequence[Step]) -> tuple[tuple[tuple[str, int], ...], ...]:
    return tuple(tuple(step.items()) for step in steps)


def checked(reference: str, top: str, bench: DesignBench, seconds: float) -> DesignBench:
    """The bench with the reference's outputs. Raises UserError."""
    [ran] = simulate([(reference, bench.source(top))], ROOT, seconds)
    if ran.status != "ran":
        why = " ".join(ran.error.split())[:200] or f"it does not end within {seconds:g} s"
        raise UserError(f"the reference design {top} cannot be simulated: {why}")
    if not any(set(line) - set("xz ") for line in ran.lines):
        raise UserError(
            f"the reference design {top} never has a known output; give it a reset, or stimuli that "
            "set its state"
        )
    return replace(bench, expected=ran.lines)


def killed(reference: str, top: str, bench: DesignBench, most: int, seconds: float) -> float | None:
    """Share of the mutants that compile and fail a check; None where there are none."""
    changed = mutants(reference, most) if most else []
    if not changed:
        return None
    ran = simulate([(m, bench.source(top)) for m in changed], ROOT, min(seconds, 2.0))
    living = [r for r in ran if r.status != "compile"]
    return sum(bench.passed(r) < 1 for r in living) / len(living) if living else None
