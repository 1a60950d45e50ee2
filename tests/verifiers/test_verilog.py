"""Verilog by simulation: ports and mutants as text, and shares of checks counted by hand."""

import shutil

import pytest
from palaestra.errors import Fault, UserError
from palaestra.services.sandbox import programs
from palaestra.verifiers.verilog import simulate as simulation
from palaestra.verifiers.verilog.bench import (
    DesignBench,
    agree,
    bench_of,
    bench_source,
    clock_of,
    read_stimuli,
    stimuli,
)
from palaestra.verifiers.verilog.designs import VerilogDesign
from palaestra.verifiers.verilog.mutants import mutants
from palaestra.verifiers.verilog.simulate import Simulated, check_simulator
from palaestra.verifiers.verilog.source import (
    Port,
    constant,
    extract_design,
    ports_of,
    top_module,
    violation,
)

from tests.rows import every

runs = pytest.mark.iverilog
ADD = "module add(input [3:0] a, input [3:0] b, output [4:0] s);\n  assign s = a + b;\nendmodule\n"
COUNTER = """
module counter #(parameter W = 4) (input clk, input rst_n, input en, output reg [W-1:0] q);
  always @(posedge clk) if (!rst_n) q <= 0; else if (en) q <= q + 1'b1; // counts
endmodule
"""
DELAY = "module d(input clk, input x, output reg y); always @(posedge clk) y <= x; endmodule"
SECRET = "module secret(input [15:0] a, output y); assign y = a == 16'h1234; endmodule"


def block(text):
    return f"```verilog\n{text}\n```"


def score(design, reference=ADD, **fields):
    return VerilogDesign(mutants=0)(block(design), reference, **fields)


@every("case", [
    ("module m(input [3:0] a, b, output y); endmodule", "m", (("a", 4), ("b", 4), ("y", 1))),
    ("module m(a, y); input a; output [7:0] y; reg [7:0] y; endmodule", "m", (("a", 1), ("y", 8))),
    (COUNTER, "counter", (("clk", 1), ("rst_n", 1), ("en", 1), ("q", 4))),
    ("module m #(parameter N = 5, M = N*2)(input signed [M-1:0] a, output logic [0:$clog2(N)] y); endmodule", "m",
     (("a", 10), ("y", 4))),
    ("module m(input wire [1:0][3:0] a, output y); function f; input z; f = z; endfunction endmodule", "m",
     (("a", 8), ("y", 1))),
])  # fmt: skip
def test_ports(case):
    source, name, expected = case
    assert tuple((p.name, p.width) for p in ports_of(source, name)) == expected


def test_ports_that_no_bench_drives_are_refused():
    for ports, why in (("inout a, output y", "inout"), ("input a", "no output"), ("input [Q:0] a, output y", "'Q'")):
        with pytest.raises(UserError, match=why):
            ports_of(f"module m({ports}); endmodule", "m")
    with pytest.raises(UserError, match="endmodule"):
        top_module("assign y = a;")
    assert constant("4'd9 + (1 << 3) / 2", {}) == 13


def test_the_top_is_the_module_that_none_has():
    half = "module half(input a, output y); assign y = ~a; endmodule\n"
    whole = "module whole(input a, output y); wire t; half one(a, t); half two(t, y); endmodule\n"
    assert top_module(half + whole) == top_module(whole + half) == "whole"


def test_what_a_reply_s_design_is():
    assert extract_design("words", ADD) is None
    assert extract_design(f"{block('assign s = 0;')}\n{block(ADD)}", ADD) == (ADD + "\n", "add")
    assert extract_design(f"So: {ADD}", ADD) == (ADD.strip(), "add")
    assert extract_design(block("module sum(output y); endmodule"), ADD)[1] == "sum"
    body, top = extract_design(block("assign s = 1;"), ADD)
    assert top == "add" and body.startswith("module add(input [3:0] a") and body.rstrip().endswith("endmodule")
    assert extract_design(block("module add(input a"), ADD) is None


@every("case", [
    ("initial $finish;", "$finish"), ("x = $ fopen(1);", "$fopen"), ("`include \"x\"", "`include"),
    ("`define F finish\ninitial $`F;", "$"), ("`define J(a,b) a``b", "a macro that joins names"),
    ("assign y = $signed(a) >>> $clog2(8); // $display", ""), ("`define N 4\nassign y = `N;", ""),
    ('initial $readmemh("f", m);', "$readmemh"), ("initial $system(1);", "$system"),
])  # fmt: skip
def test_what_a_design_may_not_contain(case):
    text, found = case
    assert violation(text) == found


def test_mutants_change_one_thing_behind_the_header():
    assert mutants(ADD, 8) == [
        ADD.replace("a + b", "a  -  b"),
        ADD.replace("assign s = a + b", "assign s =~( a + b)"),
    ]
    changed = "".join(mutants(COUNTER, 99))
    assert "negedge" in changed and "q  -  1'b1" in changed and "q + 1'b0" in changed and "counts" not in changed
    assert "W+1" not in changed and len(mutants(COUNTER, 2)) == 2


def test_stimuli_are_every_value_or_random_with_a_reset_first():
    few = stimuli((Port("a", "input", 2), Port("b", "input", 1), Port("y", "output", 1)), "", 5)
    assert len(few) == 8 and len({tuple(s.items()) for s in few}) == 8
    ports = ports_of(COUNTER, "counter")
    steps = stimuli(ports, "clk", 200)
    assert len(steps) == 200 and all(s.keys() == {"rst_n", "en"} for s in steps)
    assert [s["rst_n"] for s in steps[:2]] == [0, 0] and 0 < sum(s["rst_n"] == 0 for s in steps[2:]) < 40
    assert clock_of(ports, COUNTER, "") == "clk" and clock_of(ports_of(ADD, "add"), ADD, "") == ""
    other = "module m(input go, input d, output reg y); always @(posedge go) y <= d; endmodule"
    assert clock_of(ports_of(other, "m"), other, "") == "go"
    with pytest.raises(UserError, match="no input of one bit"):
        clock_of(ports, COUNTER, "q")


def test_stimuli_as_text():
    assert read_stimuli("# first\na=3 b=0x1\nb = 0b10\n", {"a": 2, "b": 2}) == [{"a": 3, "b": 1}, {"a": 3, "b": 2}]
    for text, why in (("c=1", "no input"), ("a=4", "2 bits"), ("none", "no line such as a=0 b=0")):
        with pytest.raises(ValueError, match=why):
            read_stimuli(text, {"a": 2, "b": 2})


def test_the_share_of_checks_by_hand():
    """Open bits of the reference do not count, nor checks that are all open; lines that lack are failed."""
    assert agree("01x", "010") and agree("01x", "01z") and not agree("01x", "00x") and not agree("01", "0x")
    bench = DesignBench((), "", (), ("xx", "0x", "11", "10", "00"))
    assert bench.passed(Simulated("ran", ("00", "01", "11", "1x"))) == 0.5  # 01 and 11 of four
    assert bench.passed(Simulated("compile")) == bench.passed(Simulated("timeout")) == 0


def test_a_clocked_bench_checks_before_and_after_an_edge():
    text = bench_source(ports_of(DELAY, "d"), "clk", [{"x": 1}], "d")
    assert text.count("$display") == 2 and text.index("p_x = 1'h1") < text.index("p_clk = 1;")


@runs
def test_shares_of_checks_in_simulation():
    """a ^ b is a + b where no bit is set in both: 3^4 of 256 pairs."""
    assert score(ADD).score == 1
    assert score("assign s = {1'b0, a ^ b};").score == 81 / 256
    assert score("assign s = 5'd0;").score == 1 / 256
    found = score("assign s = a +")
    assert (found.score, found.status, found.parts["compiles"]) == (0, "failed", 0)
    assert VerilogDesign(mutants=0, partial=False)(block("assign s = {1'b0, a ^ b};"), ADD).score == 0


@runs
def test_a_clocked_design_in_simulation():
    """x is 1, 0, 1 with checks before and after each edge: y is x1, 10, 01, of which the first is open; 0
    always is right in 2 of the other 5. Then come 32 random steps, which this counts too.
    """
    bench = bench_of(DELAY, written="x=1\nx=0\nx=1", mutations=0)
    assert bench.clock == "clk" and bench.expected[:6] == ("x", "1", "1", "0", "0", "1")
    constant_zero = "module d(input clk, input x, output y); assign y = 0; endmodule"
    known = bench.expected[1:]
    assert score(constant_zero, DELAY, stimuli="x=1\nx=0\nx=1").score == known.count("0") / len(known)
    assert len(bench.expected) == 2 * 35
    same = "module d(input clk, x, output y); reg q; assign y = q; always @(posedge clk) q <= x; endmodule"
    assert score(same, DELAY).score == 1
    assert score(same.replace("posedge", "negedge"), DELAY).score < 1


@runs
def test_mutants_that_a_bench_tells_from_the_reference():
    """Of == to !=, 1234 to 1235 and the negation, random inputs miss the constant alone; one step shows it."""
    assert bench_of(SECRET).killed == pytest.approx(2 / 3)
    assert bench_of(SECRET, written="a=0x1234").killed == 1
    assert bench_of(SECRET, mutations=0).killed is None
    assert bench_of("module w(input a, output y); buf g(y, a); endmodule").killed is None  # nothing to change
    assert len(bench_of(SECRET).steps) == 512 and len(bench_of(SECRET, kills=0.5).steps) == 32


@runs
def test_a_design_that_does_not_end_has_failed():
    loop = "reg t; always @* begin t = 1; while (t) t = a[0] | 1'b1; end assign s = a + b;"
    found = VerilogDesign(mutants=0, seconds=0.5)(block(loop), ADD)
    assert (found.score, found.status) == (0, "timeout")


@runs
@every("reference", [
    "module m(input a, output y); assign y = ; endmodule",
    "module m(input a, output reg y); initial while (1) y = 0; endmodule",
    "module m(input a, output y); endmodule",
])  # fmt: skip
def test_a_reference_that_is_no_oracle_is_the_user_s_mistake(reference):
    with pytest.raises(UserError, match=r"cannot be simulated|never has a known output"):
        VerilogDesign(seconds=0.3)(block(ADD), reference)
    with pytest.raises(UserError, match="stimuli: q is no input"):
        VerilogDesign()(block(ADD), ADD, stimuli="q=1")


@runs
def test_a_sandbox_that_fails_is_a_fault(monkeypatch):
    from palaestra.services import sandbox

    broken = sandbox.Ran(status="error", stderr="gone")
    monkeypatch.setattr(sandbox, "run_program", lambda *args, **more: broken)
    with pytest.raises(Fault, match="gone"):
        simulation.simulate([(ADD, "")], "x", 1.0)


def test_without_a_simulator_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(programs, "icarus", lambda: None)
    with pytest.raises(UserError, match="apt install iverilog"):
        check_simulator()
    with pytest.raises(UserError, match="apt install iverilog"):
        VerilogDesign()(block("assign s = 3;"), ADD.replace("add", "other"))


def test_where_icarus_is(monkeypatch, tmp_path):
    for name in ("bin/iverilog", "bin/vvp", "lib/some/ivl/ivlpp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(shutil, "which", lambda name: str(tmp_path / "bin" / name))
    assert programs.icarus.__wrapped__() == (str(tmp_path / "bin/vvp"), str(tmp_path / "lib/some/ivl"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert programs.icarus.__wrapped__() is None


@pytest.mark.parametrize(
    ("name", "active"),
    [("rst", 1), ("reset", 1), ("arst", 1), ("rst_n", 0), ("resetn", 0), ("aresetn", 0), ("nrst", 0), ("nreset", 0)],
)
def test_a_design_begins_in_reset_whatever_the_polarity_of_its_name(name, active):
    ports = (Port("clk", "input", 1), Port(name, "input", 1), Port("y", "output", 1))
    steps = stimuli(ports, "clk", 32)
    assert steps[0][name] == active and sum(s[name] == active for s in steps[2:]) < 15
