"""Self-checking test benches: what they print, which are refused, and what a design may not do to them."""

import pytest
from palaestra.errors import UserError
from palaestra.verifiers.verilog.designs import VerilogDesign
from palaestra.verifiers.verilog.simulate import Simulated
from palaestra.verifiers.verilog.testbench import bench_texts, instances, says_passed

from tests.rows import every

runs = pytest.mark.iverilog
ADD = "module add #(parameter W = 2) (input [1:0] a, input [1:0] b, output [2:0] s); assign s = a + b; endmodule"
BENCH = """
module tb;
  reg [1:0] a, b; wire [2:0] s; integer errors = 0; integer i; // errors are counted
  task check(input [2:0] want); if (s !== want) errors = errors + 1; endtask
  add #(.W(2)) dut (.a(a), .b(b), .s(s));
  initial begin
    for (i = 0; i < 16; i = i + 1) begin {a, b} = i; #1 check(a + b); end
    if (errors == 0) $display("All tests passed"); else $display("%0d errors", errors);
    $finish;
  end
endmodule
"""
CARRY = BENCH.replace("i < 16", "i < 4")  # a = 0: there is no carry


@every("case", [
    (("All tests passed",), True), (("PASS",), True), (("Mismatches: 0 in 20 samples",), True), (("0 errors",), True),
    (("no errors",), True), (("test 1 passed", "3/3 tests passed"), True), (("errors = 0", "Success"), True),
    (("test 1 passed", "test 2 failed"), False), (("Mismatches: 3 in 20 samples",), False), (("2 errors", "passed"), False),
    (("2/3 tests passed",), False), (("ERROR: tb.v:7: s",), False), (("done",), False), ((), False), (("failed: 1",), False),
])  # fmt: skip
def test_what_a_bench_prints(case):
    lines, passed = case
    assert says_passed(Simulated("ran", lines)) is passed


def test_a_run_that_did_not_end_passes_nothing():
    assert not says_passed(Simulated("timeout", ("passed",))) and not says_passed(Simulated("compile"))


def test_the_design_is_the_module_that_is_not_defined():
    assert instances(BENCH) == {"add": "module add #(parameter W = 1) (input a, input b, input s);\nendmodule\n"}
    positional = (
        "module tb; half u1(x, (y + 1), z), u2(x, y, z); initial repeat (3) $display(1); and g(x, y); endmodule"
    )
    assert list(instances(positional)) == ["half"]
    assert instances(positional)["half"].startswith("module half (input port0, input port1, input port2);")
    assert instances(BENCH + ADD) == {}


def test_benches_are_texts():
    assert bench_texts("") == bench_texts([" "]) == ()
    assert bench_texts(["a", ""]) == bench_texts("a") == ("a",)
    with pytest.raises(UserError, match="no text"):
        bench_texts([1])


def judged(design, bench=BENCH, answer=None):
    return VerilogDesign()(f"```verilog\n{design}\n```", answer, testbench=bench)


@runs
def test_the_score_is_the_share_of_benches():
    narrow = ADD.replace("a + b", "(a + b) & 3")
    assert judged(ADD).score == judged(ADD, [BENCH, CARRY]).score == 1
    assert judged(narrow, [BENCH, CARRY]).score == 0.5
    assert judged(narrow, [BENCH, CARRY]).parts == {"compiles": 1.0, "passed": 0.5, "all": 0.0}
    assert VerilogDesign(partial=False)(f"```verilog\n{narrow}\n```", None, testbench=[BENCH, CARRY]).score == 0
    assert judged(ADD.replace("a + b", "a +")).parts["compiles"] == 0
    assert VerilogDesign()("words", None, testbench=BENCH).score == 0


@runs
@every("bench", [
    BENCH.replace("s !== want", "s != want"),  # x and z are not different
    BENCH.replace("errors == 0", "1"),
    "module tb; wire [2:0] s; add dut(.s(s)); initial $display(\"passed\"); endmodule",
])  # fmt: skip
def test_a_bench_that_an_empty_design_passes_is_refused(bench):
    with pytest.raises(UserError, match="passes an empty module add"):
        judged(ADD, bench)


@runs
def test_other_benches_that_judge_nothing_are_refused():
    for bench, why in (
        (BENCH.replace("$finish;", "$finish"), "does not compile"),
        ("module tb; initial $display(1); endmodule", "instantiates no design"),
        ("initial $display(1);", "whole bench"),
    ):
        with pytest.raises(UserError, match=why):
            judged(ADD, bench)
    with pytest.raises(UserError, match="the reference design does not pass"):
        judged(ADD, BENCH, ADD.replace("a + b", "a"))


@runs
@every("more", [
    "initial tb.errors = 0;", "always @* check(a);", 'initial $display("All tests passed");', "initial $finish;",
])  # fmt: skip
def test_a_design_has_no_hold_on_its_bench(more):
    wrong = ADD.replace("assign s = a + b;", f"assign s = a; {more}")
    assert judged(wrong).score == 0


@runs
def test_what_is_said_of_a_design():
    def said(design, answer=None, **fields):
        return VerilogDesign(mutants=0).feedback(f"```verilog\n{design}\n```", answer, **fields)

    wrong = ADD.replace("a + b", "a")
    assert said(ADD, testbench=BENCH) == said(ADD, ADD) == ""
    assert said(wrong, testbench=BENCH).endswith("fails in simulation:\n12 errors")
    assert said(wrong, ADD).endswith("inputs a=0 b=1: s is 000, expected 001")
    assert "syntax error" in said(ADD.replace(";", ""), testbench=BENCH)
    assert "$display is not allowed" in said(ADD.replace("assign", "initial $display; assign"), ADD)
    assert VerilogDesign().feedback("words", ADD).startswith("There is no design")
