"""Think2SQL: GRPO on text-to-SQL. The query is run on the user's database, and the reward is how
like the reference's its result table is.

    r = 0.85 R_sql + 0.10 R_format + 0.05 R_tags        on <think></think><answer>SQL</answer>      (arXiv:2504.15077)

R_sql is 1 for equal tables ("ex"), or QATCH ("qatch"): the mean of cell precision, cell recall and
the ratio of row counts, each to three decimals; a query that fails is 0, two empty tables are 1,
one empty table is 0. R_tags is a quarter for each marker that stands there exactly once. Later
scripts have `weights=(0.95, 0.05, 0)`. GRPO on groups of 16.

As released (`variant="released"`) cells are sets, so that repeating a cell or a row is free, and
tags stand on lines of their own; the default counts cells and is lenient about lines. Neither is
blind to text behind the answer, as the first release was, nor takes a column `updated_at` for an
UPDATE. Cells have no order: a table that is not the reference's has at most 0.9.
"""

from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="Think2SQL: execution-accuracy RL for text-to-SQL",
    paper="arXiv:2504.15077",
    claim="RL on the likeness of result tables lets small models reason their way to better SQL "
    "than SFT or execution alone.",
    source="released code (spapicchio/Think2SQL at 740a74f and later, NL2SQLEvaluator, QATCH); "
    "counted cells are ours",
    size=pl.Size(
        setting="Qwen2.5-Coder 0.5B to 14B, 9,007 BIRD questions, 16 samples, one epoch, lr 1e-6, "
        "no KL, temperature 0.7; 4,096 tokens in a later configuration",
        model="qwen2.5-14b",
        samples=16,
        tokens=4096,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                (
                    "Tables: city(name, people). How many cities are there? Reason in "
                    "<think></think>, then write the query in <answer></answer>.",
                ),
                "the question with what it needs to know of the tables, and the form of the reply",
            ),
            pl.needs.NeededColumn(
                "answer", "text", ("SELECT COUNT(*) FROM city",), "the reference query"
            ),
            pl.needs.NeededColumn(
                "schema",
                "any",
                ("CREATE TABLE city(name, people); INSERT INTO city VALUES ('Ulm', 126);",),
                "a script that makes the database with its rows, or a list of scripts",
                otherwise="the column `database` has the path of a sqlite file",
            ),
        ),
        shows="part/table",
        off={"mode": "ex"},  # a table that is nearly right is worth nothing
        own={
            "taught_replies": ("<think>all</think><answer>SELECT 1, 2</answer>",),
            "schedule.prompts": 2,
            "n": 2,
            "max_tokens": 96,
        },
    ),
    use="It helps where the model writes queries that run but return other tables; where it writes "
    "no query that runs, or all are right, there is nothing to learn from.",
    lacks=(
        "Supervised fine-tuning on reasoning traces is a run of `sft` before; traces are not made here.",
        "BIRD and Spider are not evaluated.",
    ),
    grade="B",
)
ASK = "Reason in <think></think>, then write the query in <answer></answer>."


def build(
    mode: Literal["ex", "qatch"] = "qatch",
    weights: tuple[float, float, float] = (0.85, 0.10, 0.05),
    variant: Literal["paper", "released"] = "paper",
    n: int = 16,
    temperature: float = 0.7,
) -> pl.Recipe:
    released = variant == "released"
    name = f"sql-table(mode={mode!r}, bag={not released}, newlines={released}, weights={weights!r})"
    reward = pl.Rewritten(
        pl.Verified(name), unless="schema", write=pl.rewards.AsQuery(newlines=released)
    )
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=n, temperature=temperature), pl.Score(reward=reward)),
        instruction=ASK,
    )
