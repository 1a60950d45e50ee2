"""Icarus Verilog (Stephen Williams, github.com/steveicarus/iverilog) in the sandbox.

Each design is compiled with the bench and simulated in a folder of its own, by the processes that
`iverilog` starts too (ivlpp, ivl, vvp), without the shell between them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from palaestra.errors import Fault, UserError

MARK = "@"  # begins each line of a bench's output
REMEDY = (
    "Verilog is judged by the simulator Icarus Verilog, which this machine lacks; install it, e.g. "
    "`apt install iverilog`, on Linux with bubblewrap"
)
# runs inside: compiles and simulates each design of work.json, each within its seconds
PROGRAM = """
import json, os, subprocess
work = json.load(open("work.json"))
modules = [f"/ivl/{m}.vpi" for m in ("system", "v2005_math", "v2009") if os.path.exists(f"/ivl/{m}.vpi")]
base = ["basedir:/ivl", *(f"module:{m}" for m in modules), "generation:2012", "root:" + work["root"], "out:run.vvp"]
out = []
for n, design in enumerate(work["designs"]):
    os.mkdir(str(n)); os.chdir(str(n))
    open("bench.v", "w").write(design[1]); open("design.v", "w").write(design[0])
    open("ivl.conf", "w").write("\\n".join(base) + "\\n")
    def call(*words, to=None):
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=to or subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=work["seconds"])
    try:
        with open("all.v", "wb") as file:
            first = call("/ivl/ivlpp", "-L", "bench.v", "design.v", to=file)
        second = first if first.returncode else call("/ivl/ivl", "-C", "ivl.conf", "-C", "/ivl/vvp.conf", "--", "all.v")
        if second.returncode or not os.path.exists("run.vvp"):
            said = (first.stderr + second.stderr).decode(errors="replace")
            out.append(["compile", [], said[-600:]])
        else:
            ran = call("/usr/bin/vvp", "-n", "run.vvp")
            text, mark = ran.stdout.decode(errors="replace"), work["mark"]
            lines = [x[len(mark):].strip() for x in text.splitlines() if x.startswith(mark)]
            out.append(["ran", lines, ""])
    except subprocess.TimeoutExpired:
        out.append(["timeout", [], ""])
    os.chdir("..")
print(json.dumps(out))
"""


@dataclass(frozen=True, slots=True)
class Simulated:
    """What became of a design: `lines` are the bench's, `error` the compiler's words."""

    status: Literal["ran", "compile", "timeout"]
    lines: tuple[str, ...] = ()
    error: str = ""


def check_simulator() -> None:
    """Raises UserError where designs cannot be simulated on this machine."""
    from palaestra.services.sandbox import programs, sandbox_kind

    if programs.icarus() is None:
        raise UserError(REMEDY)
    if refusal := sandbox_kind().refusal():
        raise UserError(refusal)
    if sandbox_kind().name != "bubblewrap":
        raise UserError(f"{REMEDY}; it is not run without isolation")


def simulate(
    designs: Sequence[tuple[str, str]],
    root: str,
    seconds: float,
    memory_mb: int = 512,
    mark: str = MARK,
) -> list[Simulated]:
    """Compiles and simulates designs, each with its bench.

    Args:
        designs: (design, bench) as sources.
        root: the bench's module.
        seconds: each of the three steps of a design may take.
        mark: begins each line that is kept; "" = all are.

    Raises:
        UserError: there is no simulator.
        Fault: the sandbox failed.
    """
    from palaestra.services import sandbox

    check_simulator()
    work = {"designs": list(designs), "root": root, "seconds": seconds, "mark": mark}
    limits = sandbox.Limits(
        seconds=3 * seconds * len(designs) + 2, memory_mb=memory_mb, output_bytes=8_000_000
    )
    ran = sandbox.run_program(PROGRAM, files={"work.json": json.dumps(work)}, limits=limits)
    if ran.status in ("memory", "timeout", "output"):
        return [Simulated("timeout")] * len(designs)
    if ran.status != "ok":
        raise Fault("sandbox", f"the simulator did not run: {ran.stderr.strip()[-300:]}")
    return [Simulated(s, tuple(lines), error) for s, lines, error in json.loads(ran.stdout)]
