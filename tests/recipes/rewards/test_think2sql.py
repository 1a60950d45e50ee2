"""Think2SQL: execution accuracy and the likeness of tables, by hand."""

import pytest
from palaestra.recipes.rewards import think2sql

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
