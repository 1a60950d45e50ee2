"""Seeds of the theory of closure: what its first pages prove."""

SEEDS = (
    "int A <= A",
    "A <= cl A",
    "int A <= cl A",
    "cl cl A <= cl A",
    "int A <= int int A",
    "int int A <= A",
    "A <= cl cl A",
    "~cl A <= int ~A",
    "int ~A <= ~cl A",
    "~int A <= cl ~A",
    "cl ~A <= ~int A",
    "A <= ~~A",
    "~~A <= A",
    "int cl A <= cl A",
    "int A <= cl int A",
    "int A <= int cl A",
    "cl int A <= cl A",
    "int cl int A <= cl int A",
    "int cl A <= cl int cl A",
    "~cl A <= ~A",
    "~A <= ~int A",
    "int (A & B) <= int A & int B",
    "int A & int B <= int (A & B)",
    "cl (A | B) <= cl A | cl B",
    "cl A | cl B <= cl (A | B)",
    "A & B <= A",
    "A <= A | B",
    "A <= int A => A <= cl int A",
    "A <= int cl int A => A <= cl int A",
    "A <= int cl int A => A <= int cl A",
)
CONTEXT = (
    "Sets in a topological space: cl is the closure, int the interior, ~ the complement. A is semi-open if A <= cl "
    "int A, pre-open if A <= int cl A, and alpha-open if A <= int cl int A."
)
PROPOSALS = """1. cl int cl int A <= cl int A
2. int cl int cl A <= int cl A
3. A <= int cl A, A <= cl int A => A <= int cl int A
4. A <= cl int A => A <= int cl A
5. theorem t: int A <= cl cl A := by sorry
6. cl int cl int cl A <= cl A"""
