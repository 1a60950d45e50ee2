"""What ties, NULLs, childless parents and reversed scans show of a query, and what they must not hold against one."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from palaestra.verifiers.sql import worker
from palaestra.verifiers.sql.copies import TableShape, make_copies
from palaestra.verifiers.sql.orders import break_ties, same_up_to_ties
from palaestra.verifiers.sql.queries import Sql
from palaestra.verifiers.sql.tables import Database

from tests.rows import every

ENGINES = ("sqlite", "duckdb")
FIRM = (
    "CREATE TABLE dept(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT);"
    "CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT NOT NULL, pay INT, dept_id INT NOT NULL REFERENCES dept(id),"
    " mentor INT REFERENCES dept(id), hired TEXT, bonus REAL);"
    "INSERT INTO dept VALUES (1,'Sales','Rome'),(2,'Tech','Oslo'),(3,'Legal','Bern');"
    "INSERT INTO emp VALUES (1,'Ann',31,1,1,'2015-03-01',1.5),(2,'Bob',39,2,2,'2016-07-15',2.5),"
    "(3,'Cid',42,2,3,'2017-01-10',3.5),(4,'Dee',78,1,1,'2018-02-02',4.5),(5,'Eve',51,3,2,'2019-11-30',5.5);"
)


@pytest.fixture(autouse=True)
def engine(request):
    chosen = request.node.callspec.params.get("engine") if hasattr(request.node, "callspec") else None
    if chosen == "duckdb":
        pytest.importorskip("duckdb")
    return chosen


def score(said, gold, engine="sqlite", schema=FIRM, **more):
    return Sql(engine=engine, **more)(said, gold, schema=schema).score


def rows(query, engine="sqlite", schema=FIRM, **instance):
    found = worker.run(query, Database(schema=schema, engine=engine, **instance), 5.0)
    assert not found.error, found.error
    return found.rows


JOINED = "FROM dept d {} JOIN emp e ON e.dept_id = d.id"
WRONG = {
    "ties, the greatest": ("SELECT name FROM emp ORDER BY pay DESC LIMIT 1",
                           "SELECT name FROM emp WHERE pay = (SELECT max(pay) FROM emp)"),
    "ties, distinct": ("SELECT pay FROM emp", "SELECT DISTINCT pay FROM emp"),
    "ties, count distinct": ("SELECT count(name) FROM emp", "SELECT count(DISTINCT name) FROM emp"),
    "ties, sum distinct": ("SELECT sum(pay) FROM emp", "SELECT sum(DISTINCT pay) FROM emp"),
    "ties, group": ("SELECT name, 1 FROM emp", "SELECT name, count(*) FROM emp GROUP BY name"),
    "ties, group of parents": (f"SELECT min(d.city), count(*) {JOINED.format('')} GROUP BY d.id",
                               f"SELECT d.city, count(*) {JOINED.format('')} GROUP BY d.city"),
    "ties, union": ("SELECT city FROM dept UNION ALL SELECT name FROM emp",
                    "SELECT city FROM dept UNION SELECT name FROM emp"),
    "ties, join": ("SELECT d.name FROM dept d JOIN emp e ON e.dept_id = d.id WHERE e.pay > 50",
                   "SELECT name FROM dept WHERE id IN (SELECT dept_id FROM emp WHERE pay > 50)"),
    "ties, second key of order": ("SELECT name FROM emp ORDER BY pay", "SELECT name FROM emp ORDER BY pay, name"),
    "nulls, count": ("SELECT count(*) FROM emp", "SELECT count(pay) FROM emp"),
    "nulls, unequal": ("SELECT name FROM dept WHERE city <> 'Rome'",
                       "SELECT name FROM dept WHERE city IS DISTINCT FROM 'Rome'"),
    "nulls, mean": ("SELECT sum(pay) * 1.0 / count(*) FROM emp", "SELECT avg(pay) FROM emp"),
    "nulls, filter": ("SELECT name FROM emp", "SELECT name FROM emp WHERE hired IS NOT NULL"),
    "nulls, not in": ("SELECT name FROM dept d WHERE NOT EXISTS (SELECT 1 FROM emp WHERE mentor = d.id)",
                      "SELECT name FROM dept WHERE id NOT IN (SELECT mentor FROM emp)"),
    "nulls, reference": ("SELECT e.name, d.name FROM emp e JOIN dept d ON e.mentor = d.id",
                         "SELECT e.name, d.name FROM emp e LEFT JOIN dept d ON e.mentor = d.id"),
    "childless, outer join": (f"SELECT d.name, count(e.id) {JOINED.format('')} GROUP BY d.name",
                              f"SELECT d.name, count(e.id) {JOINED.format('LEFT')} GROUP BY d.name"),
    "childless, count": (f"SELECT d.name, count(*) {JOINED.format('LEFT')} GROUP BY d.name",
                         f"SELECT d.name, count(e.id) {JOINED.format('LEFT')} GROUP BY d.name"),
    "order, none": ("SELECT name FROM emp", "SELECT name FROM emp ORDER BY id"),
    "order, another column": ("SELECT name FROM emp ORDER BY name", "SELECT name FROM emp ORDER BY hired"),
    "chance, key": ("SELECT max(id) FROM emp", "SELECT count(*) FROM emp"),
    "chance, pattern": ("SELECT name FROM dept WHERE city LIKE 'R%'", "SELECT name FROM dept WHERE city = 'Rome'"),
    "chance, bound": ("SELECT name FROM emp WHERE pay > 31", "SELECT name FROM emp WHERE pay > 35"),
    "chance, bound of days": ("SELECT name FROM emp WHERE hired >= '2017-01-02'",
                              "SELECT name FROM emp WHERE hired > '2016-12-31'"),
    "chance, bound with a fraction": ("SELECT name FROM emp WHERE bonus >= 4", "SELECT name FROM emp WHERE bonus > 3.7"),
}  # fmt: skip


@every("engine", ENGINES)
@every("kind", WRONG)
def test_a_query_that_agrees_by_chance_on_the_given_rows_fails(engine, kind):
    said, gold = WRONG[kind]
    if not (engine == "duckdb" and kind == "chance, key"):  # of the halves, which have gaps
        assert sorted(map(repr, rows(said, engine))) == sorted(map(repr, rows(gold, engine)))
    assert score(said, gold, engine) == 0.0
    assert score(gold, gold, engine) == 1.0


RIGHT = {
    "greatest by rank": ("SELECT name FROM (SELECT name, pay, rank() OVER (ORDER BY pay DESC NULLS LAST) r FROM emp) x"
                         " WHERE r = 1 AND pay IS NOT NULL",
                         "SELECT name FROM emp WHERE pay = (SELECT max(pay) FROM emp)"),
    "a key is distinct": ("SELECT DISTINCT id, name FROM emp", "SELECT id, name FROM emp"),
    "a unique name is distinct": ("SELECT DISTINCT name FROM dept", "SELECT name FROM dept"),
    "a column without NULL": ("SELECT count(name) FROM emp", "SELECT count(*) FROM emp"),
    "a reference that holds": ("SELECT count(*) FROM emp e JOIN dept d ON d.id = e.dept_id", "SELECT count(*) FROM emp"),
    "a reference with NULL": ("SELECT count(*) FROM emp e JOIN dept d ON d.id = e.mentor", "SELECT count(mentor) FROM emp"),
    "a mean": ("SELECT sum(pay) * 1.0 / count(pay) FROM emp", "SELECT avg(pay) FROM emp"),
    "ties of order, last first": ("SELECT name FROM emp ORDER BY dept_id, hired DESC", "SELECT name FROM emp ORDER BY dept_id"),
    "ties of order, by name": ("SELECT name FROM emp ORDER BY dept_id, name DESC", "SELECT name FROM emp ORDER BY dept_id"),
    "ties of a limit": ("SELECT name FROM emp ORDER BY pay DESC NULLS LAST, id DESC LIMIT 1",
                        "SELECT name FROM emp ORDER BY pay DESC NULLS LAST LIMIT 1"),
    "ties of groups": ("SELECT dept_id, count(*) FROM emp GROUP BY dept_id ORDER BY count(*) DESC, dept_id DESC",
                       "SELECT dept_id, count(*) FROM emp GROUP BY dept_id ORDER BY 2 DESC"),
    "ties of groups, limited": ("SELECT dept_id FROM emp GROUP BY dept_id ORDER BY count(*) DESC, dept_id DESC LIMIT 1",
                                "SELECT dept_id FROM emp GROUP BY dept_id ORDER BY count(*) DESC LIMIT 1"),
    "childless parents": ("SELECT name FROM dept WHERE id NOT IN (SELECT dept_id FROM emp)",
                          f"SELECT d.name {JOINED.format('LEFT')} WHERE e.id IS NULL"),
    "days": ("SELECT name FROM emp WHERE substr(hired, 1, 4) >= '2017'", "SELECT name FROM emp WHERE hired >= '2017-01-01'"),
}  # fmt: skip


@every("engine", ENGINES)
@every("kind", RIGHT)
def test_a_right_query_is_paid_whatever_order_ties_take(engine, kind):
    said, gold = RIGHT[kind]
    assert score(said, gold, engine) == 1.0


def test_where_the_reference_leaves_the_row_open_only_those_that_tie_are_right():
    gold = "SELECT name FROM emp ORDER BY dept_id LIMIT 1"
    assert score("SELECT name FROM emp ORDER BY dept_id, hired DESC LIMIT 1", gold) == 1.0
    for said in ("SELECT name FROM emp ORDER BY dept_id DESC LIMIT 1", "SELECT 'Zed'"):
        assert score(said, gold) == score(said, gold, thin=False) == 0.0


def test_an_order_that_breaks_no_ties_is_still_an_order():
    gold = "SELECT name FROM emp ORDER BY dept_id"
    assert score("SELECT name FROM emp ORDER BY dept_id DESC", gold) == 0.0
    assert score("SELECT name FROM emp ORDER BY name", gold) == 0.0


def test_labelled_queries_are_judged_by_their_labels():
    """Queries over eight schemas whose rows do not tell the wrong ones apart. The checks were written with the first
    set; the second was set aside.
    """
    lines = [json.loads(line) for line in (Path(__file__).parent / "sql_labelled.jsonl").read_text().splitlines()]
    schemas = {line["name"]: line["schema"] for line in lines if "name" in line}
    queries = [line for line in lines if "set" in line]
    assert len(queries) == 109 and sum(not q["right"] for q in queries) == 64
    judged = [score(q["response"], q["answer"], schema=schemas[q["schema"]]) for q in queries]
    assert [q for q, x in zip(queries, judged, strict=True) if x != q["right"]] == []


# ---- instances


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("instance", [{"half": "odd"}, {"half": "even"}, {"added": "ties"}, {"added": "nulls"}])
def test_instances_keep_references_and_what_is_required(engine, instance):
    orphans = "SELECT count(*) FROM emp WHERE dept_id NOT IN (SELECT id FROM dept)"
    orphans += " OR mentor NOT IN (SELECT id FROM dept) OR name IS NULL OR dept_id IS NULL"
    assert rows(orphans, engine, **instance) == ((0,),)
    assert rows("SELECT count(*) - count(DISTINCT name) FROM dept", engine, **instance) == ((0,),)
    assert rows("SELECT count(*) > 0 FROM emp", engine, **instance) == ((1,),)


@pytest.mark.parametrize("engine", ENGINES)
def test_added_rows_have_what_the_given_ones_lack(engine):
    per_dept = f"SELECT count(*) {JOINED.format('LEFT')} WHERE e.id IS NULL"
    assert rows(per_dept, engine) == ((0,),) and rows(per_dept, engine, added="ties") > ((0,),)
    for column in ("pay", "mentor", "hired", "bonus"):
        missing = f"SELECT count(*) - count({column}) FROM emp"
        assert rows(missing, engine) == ((0,),) and rows(missing, engine, added="nulls") > ((1,),)
        repeated = f"SELECT count(*) FROM emp WHERE {column} IN (SELECT max({column}) FROM emp)"
        assert rows(repeated, engine, added="ties") > ((1,),)
    given = set(rows("SELECT * FROM emp", engine))
    for added in ("ties", "nulls"):
        assert given < set(rows("SELECT * FROM emp", engine, added=added))


@every("engine", ENGINES)
@every("instance", [{}, {"half": "odd"}, {"added": "ties"}, {"added": "nulls"}, {"seed": 1}])
def test_rows_stored_backwards_are_the_same_rows(engine, instance):
    for table in ("dept", "emp"):
        forward, backward = (rows(f"SELECT * FROM {table}", engine, backward=b, **instance) for b in (False, True))
        assert sorted(map(repr, forward)) == sorted(map(repr, backward))


def test_dirty_references_stay_as_they_are():
    """A foreign key that the given rows break is no rule of theirs."""
    schema = (
        "CREATE TABLE a(id INTEGER PRIMARY KEY); CREATE TABLE b(x INT REFERENCES a(id), y INT REFERENCES a(id));"
        "INSERT INTO a VALUES (1),(2); INSERT INTO b VALUES (9,1),(1,2),(8,1),(2,1);"
    )
    assert rows("SELECT x FROM b", schema=schema, half="odd") == ((9,), (8,))
    assert rows("SELECT y FROM b", schema=schema, half="even") == ((2,), (None,))


def test_a_trigger_keeps_a_table_from_added_rows():
    guard = "CREATE TRIGGER g BEFORE INSERT ON emp BEGIN SELECT RAISE(ABORT, 'no'); END;"
    assert rows("SELECT count(*) FROM emp", schema=FIRM + guard, added="ties") == ((5,),)
    assert rows("SELECT count(*) > 3 FROM dept", schema=FIRM + guard, added="ties") == ((1,),)


def test_checks_and_joint_keys_hold_for_added_rows():
    schema = (
        "CREATE TABLE k(a INT NOT NULL, b TEXT NOT NULL, n INT CHECK (n < 4), PRIMARY KEY(a, b)) WITHOUT ROWID;"
        "INSERT INTO k VALUES (1,'x',1),(2,'y',2),(3,'z',3);"
    )
    for added in ("ties", "nulls"):
        found = rows("SELECT a, b, n FROM k", schema=schema, added=added)
        assert len(found) > 3 and len({row[:2] for row in found}) == len(found)
        assert {n for *_, n in found} <= {None, 1, 2, 3}


def test_a_large_file_is_scanned_in_reverse_too(tmp_path):
    """Of it no instance is made, and reversed scans need none."""
    file = tmp_path / "f.db"
    with sqlite3.connect(file) as made:
        made.executescript(FIRM)
    judge = Sql(thin=False)
    gold = "SELECT name FROM emp ORDER BY id"
    assert judge("SELECT name FROM emp", gold, database=str(file)).score == 0.0
    assert judge("SELECT name FROM emp ORDER BY hired", gold, database=str(file)).score == 1.0


def test_a_null_among_numbers_of_32_bits():
    pytest.importorskip("duckdb")
    schema = "CREATE TABLE t(x FLOAT); INSERT INTO t VALUES (1.5), (NULL), (2.5);"
    assert score("SELECT x FROM t", "SELECT x FROM t", "duckdb", schema) == 1.0


def test_a_reference_that_fails_on_an_instance_leaves_it_out():
    pytest.importorskip("duckdb")
    schema = "CREATE TABLE t(c TEXT UNIQUE, n INT); INSERT INTO t VALUES ('1e1', 1), ('2e1', 2), ('30', 3);"
    gold = "SELECT n FROM t WHERE CAST(c AS DOUBLE) > 15"
    assert score("SELECT n FROM t WHERE NOT CAST(c AS DOUBLE) <= 15", gold, "duckdb", schema) == 1.0


def test_copies_of_a_table():
    shape = TableShape(
        columns=("id", "code", "x"), rows=((1, "a", 5), (2, "b", 6)), required=frozenset({"id"}),
        unique=(("id",), ("code",)), refers=frozenset(), targets={}, bundles=(("code",), ("x",)),
    )  # fmt: skip
    assert make_copies(shape, "ties") == [(3, "a 1", 6), (4, "b 2", 5)]
    assert make_copies(shape, "nulls") == [(3, "a 1", None), (4, "b 2", None)]
    assert make_copies(replace(shape, required=frozenset({"id", "x"})), "nulls") == []
    assert make_copies(shape, "", (5,)) == [(3, "b 1", 5), (4, "a 2", 6)]


# ---- what a reference leaves open


@pytest.mark.parametrize(
    ("query", "least_first"),
    [
        ("SELECT a, b FROM t ORDER BY a", "SELECT a, b FROM t ORDER BY a, 1, 2 "),
        ("SELECT a, b FROM t ORDER BY a LIMIT 2 OFFSET 1", "SELECT a, b FROM t ORDER BY a, 1, 2 LIMIT 2 OFFSET 1"),
        ("SELECT a, b FROM t LIMIT 2", "SELECT a, b FROM t ORDER BY 1, 2 LIMIT 2"),
        (
            "SELECT a, b FROM t WHERE a = (SELECT a FROM u ORDER BY c LIMIT 1)",
            "SELECT a, b FROM t WHERE a = (SELECT a FROM u ORDER BY c, 1 LIMIT 1)",
        ),
        ("SELECT a, rank() OVER (ORDER BY b) FROM t", None),
        ("SELECT a, ' ORDER BY ', \"limit\" FROM t", None),
    ],
)
def test_ties_are_broken_by_the_columns_shown(query, least_first):
    forms = break_ties(query, 2)
    assert forms[:1] == (() if least_first is None else (least_first,))
    assert len(forms) == (0 if least_first is None else 2)


@pytest.mark.parametrize(
    ("said", "right"),
    [("abcd", True), ("acbd", True), ("bacd", False), ("abdc", False), ("abc", False), ("abbd", False)],
)
def test_rows_that_tie_have_no_order_and_all_others_have(said, right):
    orders = [tuple((c,) for c in order) for order in ("abcd", "acbd")]
    assert same_up_to_ties(orders, tuple((c,) for c in said)) == right


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_without_nulls_a_column_that_never_lacks_a_value_is_relied_on(engine):
    schema = (
        "CREATE TABLE p(id INTEGER PRIMARY KEY, name TEXT); INSERT INTO p VALUES (1,'Ann'),(2,'Bob'),(3,'Cy'),(4,'Di');"
    )
    scores = [
        Sql(engine=engine, nulls=nulls)("SELECT count(name) FROM p", "SELECT count(*) FROM p", schema=schema).score
        for nulls in (True, False)
    ]
    assert scores == [0.0, 1.0]
