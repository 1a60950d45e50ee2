"""Think2SQL: execution accuracy and the likeness of tables, by hand."""

import sqlite3
from contextlib import closing

import pytest
from palaestra.errors import UserError
from palaestra.recipes.rewards import reasoning_sql, think2sql

from tests.recipes.rewards.helpers import reward_of
from tests.rewards.texts import task, totals

PAIRS = "CREATE TABLE t(a, b); INSERT INTO t VALUES (1, 'a'), (2, 'b');"


def test_think2sql_by_hand():
    pairs, gold = task("SELECT a, b FROM t", schema=PAIRS), "SELECT a, b FROM t"
    extra, twice = "VALUES (1, 'a'), (3, 'c'), (2, 'b')", "VALUES (1, 'a'), (1, 'a')"
    released = "<think>\nx\n</think>\n<answer>\n{}\n</answer>"
    qatch = lambda q, **more: totals(reward_of(think2sql.build(**more)), pairs, released.format(q))[0]
    # on the whole table: precision 4/6, recall 1, rows 2/3; on either half of it: 2/6, 1, 1/3
    three = ((0.667 + 1 + 0.667) / 3 + 2 * (0.333 + 1 + 0.333) / 3) / 3
    assert qatch(gold) == pytest.approx(1.0)
    assert qatch(extra, mode="ex") == pytest.approx(0.15)
    assert qatch(extra) == pytest.approx(0.85 * three + 0.15)
    assert qatch(extra, weights=(0.95, 0.05, 0.0)) == pytest.approx(0.95 * three + 0.05)
    assert qatch(twice) < qatch(twice, variant="released"), "as released, repeated cells are free"


@pytest.mark.parametrize("recipe", [think2sql.build(), reasoning_sql.build()], ids=["think2sql", "reasoning-sql"])
def test_a_user_s_own_sqlite_file_is_what_queries_run_on(recipe, tmp_path):
    """Tasks with a `database` and no `schema` were judged as those of the built-in problem."""
    file = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(file)) as made:
        made.executescript("CREATE TABLE item(name); INSERT INTO item VALUES ('tea'), ('salt');")
    gold, tag = "SELECT COUNT(*) FROM item", "think" if recipe.collect.links[0].n == 16 else "reasoning"
    reply = f"<{tag}>x</{tag}><answer>{{}}</answer>"
    right, wrong, broken = totals(
        reward_of(recipe), task(gold, database=str(file)),
        *map(reply.format, (gold, "SELECT 7", "SELECT nothing FROM nowhere")),
    )  # fmt: skip
    assert right == pytest.approx(1.0 if tag == "think" else 7.0) and right > wrong > broken


@pytest.mark.parametrize("recipe", [think2sql.build(), reasoning_sql.build()], ids=["think2sql", "reasoning-sql"])
def test_a_query_without_a_database_is_refused(recipe):
    with pytest.raises(UserError, match=r"no database to run it on; add the column `schema`.*or `database`"):
        totals(reward_of(recipe), task("SELECT 1"), "<think>x</think><answer>SELECT 1</answer>")
