"""Self-checking test benches that a user brings: programs in Verilog that print whether a design passes.

A bench instantiates the design by its name, checks it, and prints words such as "passed", or a count of
errors. Before it judges, it is run on an empty design with the same ports, which it must not pass. Its
own module gets a name that no design knows, and a design has no system task, so it prints nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from palaestra.errors import UserError
from palaestra.verifiers.verilog.simulate import Simulated, simulate
from palaestra.verifiers.verilog.source import modules, strip_comments, top_module

BAD = r"(?:mismatch(?:es)?|errors?|fail(?:ed|ures?|s)?)"
COUNTS = re.compile(
    rf"\b{BAD}(?:\s+(?:count|tests?|cases?))?\s*[:=]?\s*(\d+)\b|\b(\d+)\s+(?:tests?\s+|cases?\s+)?{BAD}\b|\bno\s+{BAD}\b",
    re.IGNORECASE,
)
SHARE = re.compile(r"\b(\d+)\s*(?:/|of|out of)\s*(\d+)\b[^\n]*\bpass", re.IGNORECASE)
FAILS = re.compile(rf"\b(?:{BAD}|wrong|incorrect|fatal)\b", re.IGNORECASE)
PASSES = re.compile(r"\b(?:pass(?:ed|es)?|success(?:ful(?:ly)?)?|all\s+ok)\b", re.IGNORECASE)
INSTANCE = re.compile(r"(?<![.\w$])([A-Za-z_]\w*)\s*(#\s*\()?")
SCOPE = re.compile(
    r"\b(?:task|function)\b[^;(]*?\b([A-Za-z_]\w*)\s*[;(]|\bbegin\s*:\s*([A-Za-z_]\w*)"
)
WORDS = """
always always_comb always_ff always_latch and assert assign automatic begin bit buf byte
case casex casez else end endmodule event for forever fork function generate genvar if
initial inout input int integer join localparam logic macromodule module nand negedge nor
not or output parameter posedge property real reg repeat return signed static string task
time unsigned void wait while wire xnor xor
"""  # of the language that may stand before a name and a parenthesis
NO_MODULE = frozenset(WORDS.split())


@dataclass(frozen=True, slots=True)
class UserBench:
    """A bench that an empty design does not pass.

    Args:
        source: with the bench's module under a name of its own.
        root: that name.
        design: the module that it instantiates and does not define.
        scopes: its tasks, functions and named blocks, which no design may use.
    """

    source: str
    root: str
    design: str
    scopes: tuple[str, ...]

    def run(self, source: str, seconds: float) -> Simulated:
        """A design's simulation; each line that was printed."""
        [ran] = simulate([(source, self.source)], self.root, seconds, mark="")
        return ran

    def reaches_into(self, source: str) -> str:
        """The name of the bench's that a design uses; "" = none."""
        text, own = strip_comments(source), {a or b for a, b in SCOPE.findall(source)}
        names = [n for n in self.scopes if n not in own]
        return next((n for n in names if re.search(rf"\b{n}\s*[.(;]", text)), "")


def bench_texts(given: str | Sequence[str]) -> tuple[str, ...]:
    """The benches of a task: one text, or a list. Raises UserError for what is no text."""
    texts = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(x, str) for x in texts):
        raise UserError("testbench is no text; give a test bench in Verilog, or a list of them")
    return tuple(x for x in texts if x.strip())


def says_passed(ran: Simulated) -> bool:
    """Whether a bench printed that the design passes: a word for it or a count of 0 errors, and no word for
    a failure, no other count.
    """
    if ran.status != "ran":
        return False
    text = "\n".join(ran.lines)
    counts = [int(a or b or 0) for a, b in COUNTS.findall(text)]
    shares = [int(a) == int(b) for a, b in SHARE.findall(text)]
    rest = COUNTS.sub(" ", text)
    if any(counts) or not all(shares) or FAILS.search(rest):
        return False
    return bool(counts or shares or PASSES.search(rest))


def connected(text: str, at: int) -> tuple[list[str], int, int]:
    """Of the parenthesis that opens at `at`: the names behind a dot in it, the number of its entries, and
    where it ends.
    """
    depth, names, entries = 0, list[str](), 1
    for i in range(at, len(text)):
        c = text[i]
        depth += (c in "([{") - (c in ")]}")
        if depth == 0:
            return names, entries if text[at + 1 : i].strip() else 0, i + 1
        entries += depth == 1 and c == ","
        if depth == 1 and c == "." and (match := re.match(r"\.\s*([A-Za-z_]\w*)", text[i:])):
            names.append(match[1])
    return names, entries, len(text)


def instances(text: str) -> dict[str, str]:
    """Modules that a source instantiates and does not define, each as an empty design: its ports are
    inputs, so nothing drives what the bench reads of it.
    """
    text, own, empty = strip_comments(text), modules(text), dict[str, str]()
    for match in INSTANCE.finditer(text):
        name, at, parameters = match[1], match.end(), list[str]()
        if name in NO_MODULE or name in own:
            continue
        if match[2]:
            parameters, _, at = connected(text, at - 1)
        label = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)?\(").match(text, at)
        if label is None or label[1] in NO_MODULE:
            continue
        names, entries, end = connected(text, label.end() - 1)
        if not text[end : end + 20].lstrip().startswith((";", ",")):
            continue
        ports = names or [f"port{i}" for i in range(entries)]
        values = f"#({', '.join(f'parameter {p} = 1' for p in parameters)}) " if parameters else ""
        listed = ", ".join(f"input {p}" for p in dict.fromkeys(ports))
        empty.setdefault(name, f"module {name} {values}({listed});\nendmodule\n")
    return empty


@lru_cache(maxsize=4096)
def checked_bench(text: str, reference: str = "", seconds: float = 8.0) -> UserBench:
    """A bench that was tried on an empty design, and on the reference where there is one.

    Raises:
        UserError: it instantiates no design, does not compile, passes an empty design, or fails the
            reference.
    """
    try:
        root = top_module(text)
    except UserError:
        raise UserError(
            "a testbench has no `module NAME; ... endmodule` of its own; give a whole bench in Verilog"
        ) from None
    missing = instances(text)
    named = [n for n in modules(reference) if n in missing] if reference else []
    if len(missing) != 1 and not named:
        raise UserError(
            f"the testbench {root} instantiates {', '.join(missing) or 'no design'}; it has to "
            "instantiate one module that it does not define, the design"
        )
    design = named[-1] if named else next(iter(missing))
    secret = f"{root}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    scopes = tuple(a or b for a, b in SCOPE.findall(strip_comments(text)))
    bench = UserBench(re.sub(rf"(?<![\w$.]){root}\b", secret, text), secret, design, scopes)
    stub = missing[design]
    empty = bench.run(stub, seconds)
    if empty.status == "compile" and re.search(r"bench\.v:\d+: *syntax error", empty.error):
        why = " ".join(empty.error.split())[:200]
        raise UserError(f"the testbench {root} does not compile: {why}")
    if says_passed(empty):
        raise UserError(
            f"the testbench {root} passes an empty module {design}; it has to compare the outputs of "
            "the design with expected values, x and z included (!==), and print that it failed"
        )
    if reference and not says_passed(ran := bench.run(reference, seconds)):
        why = ran.error or "; ".join(ran.lines[-3:]) or ran.status
        raise UserError(
            f"the reference design does not pass the testbench {root}: {' '.join(why.split())[:200]}; a "
            'bench prints a word such as "passed", or a count of 0 errors, where a design is right'
        )
    return bench
