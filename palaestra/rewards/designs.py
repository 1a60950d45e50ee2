"""The answers of built-in problems as hardware designs, so that a verifier of Verilog judges them."""

from __future__ import annotations

from palaestra.errors import UserError
from palaestra.rewards.rewritten import VerifierInput
from palaestra.tasks.procedural import final_answer
from palaestra.types import Task, stage
from palaestra.verifiers.answers.short import stated_answer


def digits_design(answer: str) -> str:
    """The answer of a built-in problem as a design: a table of its hexadecimal digits by place, 16 behind
    the last; other places are open. Other characters are no Verilog there, so such a design does not compile.

    `42` is `case (i) 0: d = 5'h4; 1: d = 5'h2; 2: d = 5'h10; default: d = 5'hx; endcase`.
    """
    digits = (*"".join(answer.split())[:15], "10")
    rows = " ".join(f"{i}: d = 5'h{c};" for i, c in enumerate(digits))
    return (
        "module digits(input [3:0] i, output reg [4:0] d);\n"
        f"  always @* case (i) {rows} default: d = 5'hx; endcase\nendmodule\n"
    )


@stage
class AsDesign:
    """A reply to a built-in problem as a table in Verilog; one to a user's specification as it is."""

    def __call__(self, text: str, task: Task) -> VerifierInput:
        gold = str(task.answer)
        if "module" in gold:
            return text, gold, {}
        if not gold.replace(" ", "").isalnum():  # of no built-in problem
            raise UserError(
                f"task {task.id!r}: the answer {gold[:60]!r} is no design in Verilog; write the reference "
                "design there, `module NAME(...); ... endmodule`"
            )
        answer = final_answer(text)
        if answer is None:
            answer = stated_answer(text)
        return (
            "" if answer is None else f"```verilog\n{digits_design(answer)}```",
            digits_design(gold),
            {},
        )
