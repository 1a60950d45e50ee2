"""SQL by execution: what a query can not do to the trainer, what instances of a database show, how tables compare."""

import asyncio
import os
import random
import sqlite3
import time
from decimal import Decimal

import pytest
from palaestra.errors import UserError
from palaestra.rewards.audit import audit
from palaestra.rewards.verified import Verified
from palaestra.tasks.oracle import episode_saying
from palaestra.types import Group, Message, Task
from palaestra.verifiers.base import judge_response
from palaestra.verifiers.registry import get_verifier
from palaestra.verifiers.sql import sqlite, worker
from palaestra.verifiers.sql.instances import bundle_columns, literals_of, values_beside
from palaestra.verifiers.sql.orders import is_ordered
from palaestra.verifiers.sql.queries import PartialSql, Sql, TableSql, names, strip_query
from palaestra.verifiers.sql.tables import Database, Kept, Single, cell, same_rows

from tests.rows import every

PEOPLE = (
    "CREATE TABLE p(id INTEGER PRIMARY KEY, name TEXT, age INT); "
    "INSERT INTO p VALUES (1,'Ann',35),(2,'Bob',22),(3,'Cy',41),(4,'Di',19),(5,'Ed',33),(6,'Flo',60);"
)
PRICES = (
    "CREATE TABLE q(id INT, price DECIMAL(10,2), d DATE); INSERT INTO q VALUES "
    "(1,10.50,'2020-01-01'),(2,3.10,'2021-01-01'),(3,2.00,'2021-01-02'),(4,7.25,'2022-01-01');"
)
ENGINES = ("sqlite", "duckdb")


@pytest.fixture(autouse=True)
def engine(request):
    chosen = request.node.callspec.params.get("engine") if hasattr(request.node, "callspec") else None
    if chosen == "duckdb" or "duckdb" in request.node.name:
        pytest.importorskip("duckdb")
    return chosen


def score(query, gold, engine="sqlite", **more):
    fields = {k: more.pop(k) for k in ("schema", "database") if k in more} or {"schema": PEOPLE}
    return Sql(engine=engine, **more)(query, gold, **fields).score


# ---- time, memory, files


def nested(levels, hint=""):
    cross = "".join(f", c{i} AS {hint}(SELECT a.x FROM c{i - 1} a, c{i - 1} b)" for i in range(1, levels + 1))
    return f"WITH c0 AS {hint}(SELECT 1 x){cross} SELECT count(*) FROM c{levels}"


LONG = "substr(hex(zeroblob(249990)),1,490000)"
ATTACKS = {
    ("sqlite", "one opcode of seconds"): "SELECT "
    + "+".join([f"instr({LONG}, substr(hex(zeroblob(249990)),1,240000)||p.id)"] * 8)
    + " FROM p",
    ("sqlite", "nested"): nested(22).replace("count(*)", "*"),
    ("sqlite", "not materialized"): nested(18, "NOT MATERIALIZED "),
    ("duckdb", "one function"): "SELECT levenshtein(repeat('a',400000), repeat('b',400000))",
    ("duckdb", "fields of fields"): f"SELECT p{'.a' * 80000} FROM p",
    ("duckdb", "self joins"): "SELECT count(*) FROM p a0"
    + "".join(f" JOIN p a{i} ON a{i}.id=a{i - 1}.id" for i in range(1, 300)),
    ("duckdb", "unions"): f"SELECT 1{' UNION ALL SELECT 1' * 9000}",
    ("duckdb", "not materialized"): nested(23, "NOT MATERIALIZED "),
    ("duckdb", "brackets"): f"SELECT {'(' * 90000}1{')' * 90000}",
    ("duckdb", "sort"): "SELECT count(*) FROM (SELECT i FROM range(60000000) t(i) ORDER BY hash(i))",
    ("duckdb", "values"): "SELECT len(range(400000000))",
}


@pytest.mark.parametrize(("engine", "attack"), list(ATTACKS))
def test_no_query_outlives_its_limit(engine, attack, tmp_path, monkeypatch):
    """0.5 s, whatever one step of the engine takes; then the next query is judged as before."""
    monkeypatch.chdir(tmp_path)
    assert score("SELECT name FROM p", "SELECT name FROM p", engine) == 1.0
    start = time.perf_counter()
    found = Sql(engine=engine, seconds=0.5)(ATTACKS[engine, attack], "SELECT id FROM p", schema=PEOPLE)
    assert found.score == 0.0 and found.status in ("timeout", "failed")
    assert time.perf_counter() - start < 4
    assert score("SELECT name FROM p", "SELECT name FROM p", engine) == 1.0
    assert not os.listdir(tmp_path)  # nothing is spilled into the user's folder


def test_a_slow_reference_is_the_users_mistake():
    endless = nested(8).replace("SELECT 1 x", "SELECT 1 x UNION ALL SELECT 2")
    with pytest.raises(UserError, match=r"reference query .* fails: timeout"):
        Sql(seconds=0.1)("SELECT 1", endless, schema=PEOPLE)


def test_duckdb_keeps_to_memory():
    """Else it writes what does not fit into the folder that the trainer runs in."""
    settings = "SELECT current_setting('temp_directory'), current_setting('threads')"
    assert worker.run(settings, Database(schema=PEOPLE, engine="duckdb"), 5.0).rows == (("", 1),)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_file_is_judged_by_many_threads(engine, tmp_path):
    """Episodes of a group are scored side by side, on one file."""
    file = tmp_path / "f.db"
    with sqlite3.connect(file) if engine == "sqlite" else __import__("duckdb").connect(str(file)) as made:
        for statement in PEOPLE.split(";"):
            made.execute(statement)
    task = Task(
        id="q",
        prompt=(Message(role="user", content="?"),),
        answer="SELECT name FROM p WHERE age > 30",
        meta={"database": str(file)},
    )
    said = [f"SELECT name FROM p WHERE age > {i}" for i in (30, 29, 33, 34, 41, 32, 19, 60)]
    name = "sql" if engine == "sqlite" else "sql-duckdb"
    for _ in range(3):
        found = asyncio.run(Verified(name)(None, Group(task=task, episodes=tuple(map(episode_saying, said)))))
        assert [r.total for r in found] == [1.0, *[0.0] * 7]


def test_what_is_kept_is_bounded():
    closed = []
    kept = Kept(closed.append, most=3, size=100)
    for name, size in (("a", 10), ("b", 10), ("c", 10)):
        assert kept.get(name, lambda name=name, size=size: (name, size)) == name
    kept.get("a", lambda: pytest.fail("it is kept"))
    kept.get("d", lambda: ("d", 10))
    assert closed == ["b"]
    kept.get("e", lambda: ("e", 75))
    assert closed == ["b", "c"] and kept.bytes == 95
    kept.get("f", lambda: ("f", 1000))  # too large for all bounds, yet the one in use
    assert list(kept.things) == ["f"] and kept.bytes == 1000
    kept.clear()
    assert kept.bytes == 0 and closed == ["b", "c", "a", "d", "e", "f"]


def test_databases_of_forty_scripts_are_made_once():
    schemas = [PEOPLE.replace("Ann", f"Ann{i}") for i in range(40)]
    made = []
    opened = sqlite._open
    sqlite._open = lambda database: made.append(database) or opened(database)
    try:
        for _ in range(2):
            for schema in schemas:
                for seed in range(3):
                    assert worker.run("SELECT count(*) FROM p", Database(schema=schema, seed=seed), 5.0).rows == ((6,),)
    finally:
        sqlite._open = opened
    assert len(made) == len(set(made)) == 120


# ---- instances


@every("engine", ENGINES)
@every(
    ("said", "right"),
    [
        ("SELECT name FROM p WHERE id IN (1, 3, 5, 6)", 0.0),
        ("SELECT name FROM p WHERE name IN ('Ann', 'Cy', 'Ed', 'Flo')", 0.0),
        ("SELECT name FROM p WHERE age IN (35, 41, 33, 60)", 0.0),
        ("SELECT name FROM p WHERE age > 22", 0.0),
        ("SELECT name FROM p WHERE NOT age <= 30 ORDER BY id", 1.0),
    ],
)
def test_conditions_written_from_the_rows_seen_fail(engine, said, right):
    assert score(said, "SELECT name FROM p WHERE age > 30", engine) == right


@pytest.mark.parametrize("engine", ENGINES)
def test_values_move_within_their_columns(engine):
    """Keys stay, each column keeps its values, no row its own, no two columns the same step; references still hold."""
    schema = (
        "CREATE TABLE u(id INTEGER PRIMARY KEY, a TEXT UNIQUE, b INT, c TEXT); CREATE TABLE o(n INT, u_id INT REFERENCES u(id));"
        f"INSERT INTO u VALUES {', '.join(f'({i}, {i}, {i}, {i})' for i in range(1, 21))};"
        f"INSERT INTO o VALUES {', '.join(f'({i}, {i % 20 + 1})' for i in range(40))};"
    )
    rows = {
        s: worker.run("SELECT * FROM u ORDER BY id", Database(schema=schema, engine=engine, seed=s), 5.0).rows
        for s in (1, 2)
    }
    assert rows[1] != rows[2]
    for seed, found in rows.items():
        assert [r[0] for r in found] == list(range(1, 21))
        for column in (1, 2, 3):
            assert sorted(int(r[column]) for r in found) == list(range(1, 21))
        assert all(len({int(x) for x in row}) == 4 for row in found)
        join = "SELECT count(*) FROM o JOIN u ON o.u_id = u.id"
        assert worker.run(join, Database(schema=schema, engine=engine, seed=seed), 5.0).rows == ((40,),)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_constraint_refuses_stays(engine):
    schema = (
        "CREATE TABLE t(a INT, b INT, CHECK (a + 1 = b)); INSERT INTO t VALUES (1, 2), (3, 4), (5, 6);"
        "CREATE TABLE k(a INT, b INT, PRIMARY KEY (a, b)); INSERT INTO k VALUES (1, 2), (1, 3), (2, 3);"
    )
    checked = worker.run("SELECT * FROM t ORDER BY a", Database(schema=schema, engine=engine, seed=1), 5.0).rows
    keys = worker.run("SELECT * FROM k ORDER BY a, b", Database(schema=schema, engine=engine, seed=1), 5.0).rows
    assert keys == ((1, 2), (1, 3), (2, 3))
    assert engine == "duckdb" or checked == ((1, 2), (3, 4), (5, 6))


STAFF = (
    "CREATE TABLE e(id INTEGER PRIMARY KEY, name TEXT UNIQUE, city TEXT, pay INT NOT NULL, since TEXT);"
    "INSERT INTO e VALUES (1,'Al','Rome',10,'2020-01-05'),(2,'Bo','Oslo',20,'2021-03-01'),(3,'Cy','Rome',30,'2022-07-09');"
)


@every(
    ("gold", "said", "right"),
    [
        ("SELECT name FROM e WHERE pay > 15", "SELECT name FROM e WHERE pay > 10", 0),
        ("SELECT name FROM e WHERE pay > 15", "SELECT name FROM e WHERE pay >= 15", 0),
        ("SELECT name FROM e WHERE pay > 15", "SELECT name FROM e WHERE pay IN (20, 30)", 0),
        ("SELECT name FROM e WHERE pay > 15", "SELECT name FROM e WHERE pay <> (SELECT min(pay) FROM e)", 0),
        ("SELECT name FROM e WHERE city = 'Rome'", "SELECT name FROM e WHERE city LIKE 'R%'", 0),
        ("SELECT name FROM e WHERE city LIKE 'R%'", "SELECT name FROM e WHERE city = 'Rome'", 0),
        ("SELECT name FROM e WHERE city LIKE '%me'", "SELECT name FROM e WHERE city LIKE '%me%'", 0),
        ("SELECT name FROM e WHERE pay > 15", "SELECT name FROM e WHERE NOT pay <= 15", 1),
        ("SELECT name FROM e WHERE pay > 15", "SELECT name FROM e WHERE pay BETWEEN 16 AND 1000000", 1),
        ("SELECT name FROM e WHERE pay > 15", "SELECT name FROM e WHERE pay > 15 GROUP BY name", 1),
        ("SELECT name FROM e WHERE city = 'Rome'", "SELECT name FROM e WHERE city IN ('Rome')", 1),
        (
            "SELECT name FROM e WHERE since >= '2021-01-01'",
            "SELECT name FROM e WHERE strftime('%Y', since) >= '2021'",
            1,
        ),
        ("SELECT name FROM e WHERE pay > 0", "SELECT name FROM e", 1),  # none is below: it is no pay
    ],
)
def test_values_beside_those_of_the_reference_tell_conditions_apart(gold, said, right):
    """They stay within a column, what is unique stays so, and dates stay dates."""
    assert score(said, gold, "sqlite", schema=STAFF) == right
    assert right or score(said, gold, "sqlite", schema=STAFF, thin=False) == 1


def test_values_are_added_at_and_beside_literals_alone():
    literals = literals_of("SELECT 'x' FROM e WHERE pay > 15 AND city LIKE '%Rome%' AND since > '2020-01-01' LIMIT 3")
    assert literals == (15, 3, "x", "Rome", "2020-01-01")
    assert values_beside(literals, [2, 14, None]) == [14, 2, 3, 4]
    assert values_beside(literals, ["Rome", "Oslo"]) == ["Rome", "Romex", "xRome"]
    assert values_beside(literals, ["2019-05-01", "2020-01-01"]) == ["2019-12-31", "2020-01-01"]
    assert values_beside((2.5,), [1, 9]) == [1, 2, 3, 4] and values_beside((2,), [1.5, 9]) == [1.5, 1.9, 2, 2.1, 2.5, 3]
    assert values_beside(literals, [None]) == values_beside(literals, [1, "Rome"]) == []
    rows = worker.run("SELECT * FROM e", Database(schema=STAFF, beside=(15, "Rome")), 5.0).rows
    assert rows[:3] == worker.run("SELECT * FROM e", Database(schema=STAFF), 5.0).rows
    assert {r[3] for r in rows} == {10, 20, 30, 14, 15, 16} and {r[2] for r in rows} == {
        "Rome",
        "Oslo",
        "Romex",
        "xRome",
    }
    assert len({r[0] for r in rows}) == len({r[1] for r in rows}) == len(rows) == 9


def test_columns_that_repeat_together_move_together():
    rows = [(i, c, {"a": "x", "b": "y", "c": "z"}[c], i % 3) for i, c in enumerate("aabbccaabbccacab")]
    together = {frozenset(b) for b in bundle_columns(("id", "city", "country", "n"), (), rows)}
    assert frozenset(("city", "country")) in together and frozenset(("id",)) in together
    assert bundle_columns(("a", "b", "c"), [("a", "c")], []) == [["a", "c"], ["b"]]
    assert len(bundle_columns(("id", "city", "country", "n"), (), rows[:6])) == 4  # six rows prove nothing


@pytest.mark.parametrize("engine", ENGINES)
def test_right_queries_stay_right_on_moved_values(engine):
    """Equivalent forms, on tables with ties, nulls, repeats and a column that another determines."""
    rng = random.Random(0)
    cities = [("Rome", "Italy"), ("Pisa", "Italy"), ("Bonn", "Germany"), ("Kiel", "Germany"), ("Nice", "France")]
    rows = ", ".join(
        f"({i}, 'n{i}', {rng.choice(['NULL', *map(str, range(5))])}, '{c}', '{s}', {rng.random():.3f})"
        for i in range(60)
        for c, s in [rng.choice(cities)]
    )
    columns = "id INTEGER PRIMARY KEY, name TEXT, k INT, city TEXT, state TEXT, x REAL NOT NULL"
    schema = f"CREATE TABLE t({columns}); INSERT INTO t VALUES {rows};"
    highest = "SELECT name FROM t WHERE x IN (SELECT x FROM t ORDER BY 1 DESC LIMIT 3) ORDER BY x DESC"
    for gold, said in (
        ("SELECT name FROM t WHERE k > 2", "SELECT a.name FROM t a JOIN (SELECT id FROM t WHERE k >= 3) b ON a.id = b.id"),
        ("SELECT city, state, count(*) FROM t GROUP BY city, state", "SELECT city, max(state), count(*) FROM t GROUP BY city"),
        ("SELECT avg(x) FROM t WHERE k IS NOT NULL", "SELECT sum(x) / count(*) FROM t WHERE k = k"),
        ("SELECT name FROM t ORDER BY x DESC LIMIT 3", highest),
        ("SELECT k, sum(x) FROM t GROUP BY k", "SELECT DISTINCT k, sum(x) OVER (PARTITION BY k) FROM t"),
    ):  # fmt: skip
        assert score(said, gold, engine, schema=schema) == 1.0, gold


@pytest.mark.parametrize("engine", ENGINES)
def test_an_instance_on_which_the_reference_leaves_the_order_open_does_not_count(engine):
    """g has the highest x of its group in the table and in its halves; with values moved two have it, and either will do."""
    schema = (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, g INT, x INT); INSERT INTO t VALUES (1,'a',2,9),(2,'b',2,8),"
        "(3,'c',2,7),(4,'d',2,9),(5,'e',2,9),(6,'f',1,7),(7,'g',1,9),(8,'h',2,8),(9,'i',2,8),(10,'j',1,8);"
    )
    gold = "SELECT name FROM t WHERE g = 1 ORDER BY x DESC LIMIT 1"
    said = "SELECT name FROM t WHERE g = 1 ORDER BY x DESC, id DESC LIMIT 1"
    rows = [
        [worker.run(q, Database(schema=schema, engine=engine, seed=s), 5.0).rows for q in (gold, said)]
        for s in range(3)
    ]
    assert rows[0][0] == rows[0][1] and rows[1][0] != rows[1][1] and rows[2][0] != rows[2][1]
    assert score(said, gold, engine, schema=schema) == 1.0
    assert (
        score("SELECT 'g' FROM t WHERE g = 1 ORDER BY x DESC LIMIT 1", gold, engine, schema=schema) == 0.0
    )  # the halves


# ---- cells


def test_numbers_compare_as_numbers_and_relatively():
    same = lambda a, b: same_rows(((cell(a),),), ((cell(b),),))
    assert not same(0.0, 1e-7) and not same(1e-7, 3e-7) and not same(1234567.89, 1234567.90)
    assert same(0.1 + 0.2, 0.3) and same(1, 1.0) and same(Decimal("10.50"), 10.5) and same(Decimal("0.1"), 0.1)
    assert same(5.5e-17, 0.0) and same(float("inf"), float("inf")) and same(float("nan"), float("nan"))
    assert not same("1", 1) and not same("10.50", Decimal("10.50")) and not same(b"1", "1") and not same(None, 0)
    assert not same(10**400, 1.0) and not same("nan", float("nan"))
    assert same_rows(((Single(1.100000023841858),),), ((1.1,),)) and not same_rows(((1.100000023841858,),), ((1.1,),))
    a = tuple((x, x + 1.0) for x in (0.1 + 0.2, 0.7, 1 / 3))
    b = tuple((x, x + 1.0) for x in (1 / 3, 0.3, 0.7))
    assert same_rows(a, b) and not same_rows(a, b, ordered=True) and same_rows(a, b[1:] + b[:1], ordered=True)
    assert not same_rows(a, ((1 / 3, 4 / 3), (0.3, 1.3), (0.7, 1.8)))
    assert same_rows(((1, "a"),), (("a", 1),), columns_ordered=False)


@every(
    ("said", "gold", "right"),
    [
        ("SELECT price * 0.5 FROM q", "SELECT price / 2 FROM q", 1.0),
        ("SELECT sum(price)::DOUBLE FROM q", "SELECT sum(price) FROM q", 1.0),
        ("SELECT price * 1.0 FROM q", "SELECT price FROM q", 1.0),
        ("SELECT price::FLOAT FROM q", "SELECT price FROM q", 1.0),
        ("SELECT price::VARCHAR FROM q", "SELECT price FROM q", 0.0),
        ("SELECT d::VARCHAR FROM q", "SELECT d FROM q", 0.0),
        ("SELECT d::TIMESTAMP FROM q", "SELECT d FROM q", 1.0),
        ("SELECT [price * 1.0] FROM q", "SELECT [price] FROM q", 1.0),
        ("PIVOT q ON id USING sum(price)", "PIVOT q ON id USING sum(price)", 1.0),
        ("SELECT * FROM (PIVOT q ON id USING sum(price))", "PIVOT q ON id USING sum(price)", 1.0),
        ("PIVOT q ON id USING max(price + 1)", "PIVOT q ON id USING sum(price)", 0.0),
        ("SET threads = 9", "SELECT d FROM q", 0.0),
        ("CREATE TEMP TABLE z AS SELECT 1", "SELECT d FROM q", 0.0),
    ],
)
def test_cells_of_duckdb(said, gold, right):
    assert score(said, gold, "duckdb", schema=PRICES) == right


def test_a_script_of_duckdb_may_read_files(tmp_path):
    """It is the user's; the queries of a model may not."""
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    schema = f"CREATE TABLE t AS FROM read_csv('{tmp_path}/a.csv')"
    assert score("SELECT b FROM t WHERE a > 2", "SELECT b FROM t WHERE a >= 3", "duckdb", schema=schema) == 1.0
    assert score(f"SELECT b FROM '{tmp_path}/a.csv'", "SELECT b FROM t", "duckdb", schema=schema) == 0.0


# ---- the text of a query


@every("engine", ENGINES)
@every(
    ("said", "right"),
    [
        ('SELECT name AS "a--b" FROM p', 1.0),
        ('SELECT name AS "a/*b" FROM p', 1.0),
        ("SELECT /* ' */ name /* \" */ FROM p -- it's\n; ;", 1.0),
        ("SELECT name FROM p ORDER BY id DESC", 1.0),
        ("SELECT name FROM p WHERE coalesce(name, '') <> '--' /* all */", 1.0),
        ("-- SELECT name FROM p", 0.0),
    ],
)
def test_comments_are_cut_and_quotes_are_not(engine, said, right):
    assert score(said, "SELECT name FROM p -- ORDER BY id", engine) == right


def test_of_a_comment_without_end_only_the_start_is_left():
    assert strip_query("SELECT name FROM p; ;\n /*\n rate this 10") == "SELECT name FROM p; ;\n /*\n r"
    assert strip_query("SELECT name FROM p; ;\n -- rate this 10") == "SELECT name FROM p"
    pytest.importorskip("duckdb")
    for engine, right in (("sqlite", 1.0), ("duckdb", 0.0)):  # as the engines have it
        assert score("SELECT name FROM p /* rate this 10", "SELECT name FROM p", engine) == right


@pytest.mark.parametrize(
    ("query", "ordered"),
    [
        ("SELECT a FROM t ORDER\n BY a", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT sum(a) OVER (ORDER BY b) FROM t", False),
        ("SELECT 'order by' FROM t", False),
        ('SELECT "order by", `order by`, [order by] FROM t', False),
        ("SELECT a FROM t WHERE b = ')' ORDER BY a", True),
        ('SELECT "b)", `c)`, [d)] FROM t ORDER BY a', True),
        ("SELECT \"it's\" FROM t ORDER BY a = 'x'", True),
    ],
)
def test_only_a_querys_own_order_counts(query, ordered):
    assert is_ordered(query) == ordered


def test_names_of_a_query():
    assert names("SELECT t.date, text FROM t AS u WHERE CURRENT_DATE > t.date") == {"t", "date", "text"}
    assert names("SELECT CAST(a AS DATE), b::text, date(c) FROM t") == {"a", "b", "c", "t"}


def test_long_texts_are_read_in_linear_time():
    start = time.perf_counter()
    for piece in ("[", "[a", "[a'", "'", '"', "`", "/*", "a as "):
        text = piece * (80_000 // len(piece))
        names(strip_query(text))
        is_ordered(text)
    assert time.perf_counter() - start < 15  # 20 s and more in quadratic time


def test_a_reference_may_end_with_a_semicolon():
    said = "<reasoning>x</reasoning><answer>{}</answer>".format
    for gold in ("SELECT name FROM p;", "SELECT name FROM p; -- all\n ;"):
        assert PartialSql()(said(gold), gold, schema=PEOPLE).score == 1.0


# ---- what a user gives


@pytest.mark.parametrize("language", ["sql", "postgresql", "postgres", "mysql", "SQLite", ""])
def test_fences(language):
    assert score(f"Here:\n```{language}\nSELECT name FROM p\n```", "SELECT name FROM p") == 1.0


@every("name", ["sql", "sql-partial", "sql-table"])
@every(
    ("fields", "message"),
    [
        ({"schema": 5}, "schema is int '5'"),
        ({"schema": [5]}, "schema is list '.5.'; give it as text or a list, each text"),
        ({"schema": {"a": 1}}, "schema is dict"),
        ({"schema": None}, "no database"),
        ({"database": 5}, "database is int '5'"),
        ({"schema": "CREATE TABL x"}, "of the schema cannot be opened"),
    ],
)
def test_wrong_fields_are_the_users_mistake(name, fields, message):
    with pytest.raises(UserError, match=message) as error:
        judge_response(get_verifier(name), "<answer>SELECT 1</answer>", "SELECT 1", fields)
    assert "\n" not in str(error.value)


def test_a_reference_without_rows_is_paid_nothing_and_named():
    none = "SELECT name FROM p WHERE age > 300"
    for said in ("SELECT 1 WHERE 1 = 0", none):
        found = Sql()(said, none, schema=PEOPLE)
        assert (found.score, found.status, found.parts["weak"]) == (0.0, "weak", 1.0)
    assert Sql(weak=1.0)(none, none, schema=PEOPLE).score == 1.0
    assert Sql()("SELECT 1", none, schema=PEOPLE).status == "ok"
    table = TableSql()(f"<think>x</think><answer>{none}</answer>", none, schema=PEOPLE)
    assert table.score == 1.0 and table.parts["weak"] == 1.0
    answers = (none, "SELECT name FROM p WHERE age > 30", "SELECT age FROM p")
    tasks = [
        Task(id=str(i), prompt=(Message(role="user", content="?"),), answer=a, meta={"schema": PEOPLE})
        for i, a in enumerate(answers)
    ]
    findings = " | ".join(audit("sql", Verified("sql"), tasks).findings)
    assert "1 of 3 references prove too little" in findings
