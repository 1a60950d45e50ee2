"""Numbers that the papers and their code give, and laws of the compositions."""

import math
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palaestra.errors import UserError
from palaestra.rewards.verified import Verified
from palaestra.types import Task
from palaestra.verifiers.answers.judgement import Factuality, Selective
from palaestra.verifiers.code.patches import Patch, difflib_ratio
from palaestra.verifiers.code.programs import ApiMigration, strip_comments
from palaestra.verifiers.compose import (
    Clip,
    Delta,
    Gate,
    Min,
    Product,
    WeightedMean,
    clip_delta_steps,
    clip_steps,
    delta_steps,
    eta_of,
)
from palaestra.verifiers.logic.temporal import Temporal
from palaestra.verifiers.registry import VERIFIERS, get_verifier
from palaestra.verifiers.sql.queries import PartialSql, Sql, TableSql, names
from palaestra.verifiers.sql.tables import Database
from palaestra.verifiers.sql.worker import run
from palaestra.verifiers.text import constraints as mul
from palaestra.verifiers.text.formats import Tags, TheoremVariant, all_variants
from palaestra.verifiers.text.similarity import common_length, edit_distance, edit_similarity
from palaestra.verifiers.text.spelling import cluster_consensus, rescale_similarity
from palaestra.verifiers.text.translation import Translation

QS = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def test_clip_and_delta():
    q = [0.9, 0.4, 0.95, 0.8]
    assert clip_steps(q, 0.7) == pytest.approx([0, -0.3, 0, 0])
    assert delta_steps(q) == pytest.approx([0.5, -0.55, 0.95, 0])
    assert clip_delta_steps(q, 0.7) == pytest.approx([0.3, -0.3, 0, 0])
    assert delta_steps([0.5]) == [0.0] and delta_steps([]) == [] and eta_of([0.1, 0.5, 0.9, 1.0], 0.5) == 0.9


@given(q=QS, eta=st.floats(0, 1))
def test_no_number_of_steps_pays_more(q, eta):
    r = delta_steps(q)
    for k in range(len(q) - 1):
        assert sum(r[k:]) == pytest.approx(q[k])
    assert all(sum(clip_delta_steps(q, eta)[k:]) <= 1e-9 for k in range(len(q)))
    assert sum(clip_steps([*q, 1.0], eta)) <= sum(clip_steps(q, eta)) + 1e-9


def test_compositions():
    exact, tags, clean = get_verifier("exact"), get_verifier("tags"), get_verifier("clean")
    right, bare = "<think>x</think><answer>7</answer>", "7"
    both = (("a", exact), ("b", tags))
    assert Product(both)(right, "7").score == Min(both)(right, "7").score == 1.0
    assert Product(both)(bare, "7").score == Min(both)(bare, "7").score == 0.0
    gate = Gate(tags, exact, otherwise=0.05)
    assert gate(right, "7").score == 1.0 and gate(bare, "7").score == 0.05
    found = WeightedMean((("a", exact, 3.0), ("b", tags, 1.0)))(bare, "7")
    assert found.score == 0.75 and found.parts == {"a": 1.0, "b": 0.0, "b.tags": 0.0, "b.order": 0.0}
    assert Clip(exact, high=0.6)(bare, "7").score == 0.6 and Clip(clean, low=0.2)("a" * 100, None).score == 0.2
    entry = VERIFIERS["api-migration"]
    delta = Delta(get_verifier("api-migration"), copied="old", put=entry.put)
    given = {"old": "df.append(row)"}
    new = "pd.concat([df, row])"
    assert delta(entry.put.format(new), new, **given).score == 1.0
    assert delta(entry.put.format(given["old"]), new, **given).score == 0.0
    assert set(delta.fields) == {"old"}
    with pytest.raises(UserError, match="not all 0"):
        WeightedMean((("a", exact, float("nan")),))


@settings(max_examples=200)
@given(a=st.text("abc", max_size=12), b=st.text("abc", max_size=12))
def test_distances_by_the_textbook(a, b):
    row, common = list(range(len(b) + 1)), [0] * (len(b) + 1)
    for i, x in enumerate(a, 1):
        next_row, next_common = [i], [0]
        for j, y in enumerate(b, 1):
            next_row.append(min(row[j] + 1, next_row[-1] + 1, row[j - 1] + (x != y)))
            next_common.append(common[j - 1] + 1 if x == y else max(common[j], next_common[-1]))
        row, common = next_row, next_common
    assert edit_distance(a, b) == row[-1] and common_length(a, b) == common[-1]


def migration(code, form=True):
    text = f"```python\n{code}\n```"
    return ApiMigration()(f"<think>c</think><answer>\n{text}\n</answer>" if form else text, "np.sum(a)").parts["paper"]


def test_recode():
    assert migration("np.sum(x)") == pytest.approx(2.611111, abs=1e-6)
    assert migration("np.sum(a)") == 3.0 and migration("df = (") == -1.0 and migration("np.sum(a)", form=False) == 1.0
    assert ApiMigration()("np.sum(a)", "np.sum(a)").parts["paper"] == -3.0
    assert 3.5 * edit_similarity("df.append(row)", "pd.concat([df, row])") - 1.5 == pytest.approx(-0.45)
    assert strip_comments("# don't\nx = 'a # b'  # c\n\ny = \"don't\"\n") == "x = 'a # b'\ny = \"don't\""
    assert strip_comments("# only a comment") == "" and edit_similarity("", "") == 1.0
    assert (
        ApiMigration(exact=True)("<think>c</think><answer>```python\nnp.sum(x)\n```</answer>", "np.sum(a)").parts[
            "paper"
        ]
        == -0.5
    )


def edit(path, old, new):
    return f"```python\n### {path}\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```"


def solution(*edits):
    return "<think>x</think><solution>\n" + "\n".join(edits) + "\n</solution>"


def test_swe_rl():
    assert difflib_ratio("abcd", "bcde") == 0.75
    files = {"a.py": "def add(a, b):\n    return a + b"}
    gold = {"a.py": "def add(a: int, b: int) -> int:\n    return a + b"}
    found = Patch()(solution(edit("a.py", "def add(a, b):", "def add(a: int, b: int):")), gold, files=files)
    assert found.parts["paper"] == pytest.approx(0.955414, abs=1e-6) and found.score < 1
    three = {f: f"{f} = 1\n" for f in "abc"}
    found = Patch()(
        solution(edit("b", "b = 1", "b = 2"), edit("c", "c = 1", "c = 2")),
        {"a": "a = 2\n", "b": "b = 2\n"},
        files=three,
    )
    assert found.parts["paper"] == pytest.approx(1 / 3)
    assert Patch()(solution(edit("a.py", "nowhere", "x")), gold, files=files).parts["paper"] == -1.0
    large = {"a": "\n".join(f"line {i}" for i in range(20_000))}
    start = time.process_time()
    Patch()(solution(edit("a", "line 7", "line 8")), {"a": large["a"].replace("line", "lime")}, files=large)
    double = edit("a.py", "a", "a\nb\na")
    for hostile in (
        "###" + " " * 5000 + "x\ny",
        "### x\n<<<<<<< SEARCH\n" * 6000,
        "### x\n<<<<<<< SEARCH\na\n=======\n" * 5000,
        double * 60,
        edit("x", "", "a\n" * 40_000) + edit("x", "a", "b" * 80_000),
    ):
        assert Patch()(solution(hostile), {"a.py": "b\n"}, files={"a.py": "a\n"}).status == "unparsable"
    assert Patch()(solution(double), {"a.py": "a\nb\na\n"}, files={"a.py": "a\n"}).score == 1.0
    assert time.process_time() - start < 5


USERS = "CREATE TABLE users(name, age); INSERT INTO users VALUES ('a', 20), ('b', 30), ('c', 40), ('d', 50);"
GOLD = "SELECT name FROM users WHERE age > 30"


def reasoned(query):
    return f"<reasoning>x</reasoning><answer>{query}</answer>"


def test_reasoning_sql():
    judge = PartialSql(thin=False)
    paper = lambda q, feedback=0.0: judge(reasoned(q), GOLD, schema=USERS, feedback=feedback).parts["paper"]
    assert paper(GOLD.replace(">", ">=")) == pytest.approx(3.555556, abs=1e-6)
    broken = judge(reasoned(GOLD.replace("users", "user")), GOLD, schema=USERS)
    assert broken.parts["schema"] == 0.5 and broken.parts["syntax"] == 0.0 and broken.status == "failed"
    assert paper(GOLD, 1.0) == 9.0
    wrong, right = (
        paper(GOLD + " AND name <> 'c'", 1.0),
        PartialSql(thin=False)(
            reasoned("SELECT u.name FROM users AS u GROUP BY 1 HAVING max(u.age) > 30"),
            GOLD,
            schema=USERS,
            feedback=0.0,
        ),
    )
    assert wrong < 5.0 <= right.parts["paper"]
    assert names("SELECT u.name AS n, count(*) FROM users u JOIN \"Orders\" o ON u.id = o.uid WHERE o.city = 'select x'") == {
        "name", "users", "orders", "id", "uid", "city",
    }  # fmt: skip


def test_think2sql():
    schema = "CREATE TABLE t(a, b); INSERT INTO t VALUES (1, 'a'), (2, 'b');"
    wrap = lambda q: f"<think>\nx\n</think>\n<answer>\n{q}\n</answer>"
    judge = lambda q, gold="SELECT a, b FROM t", **more: TableSql(thin=False, **more)(wrap(q), gold, schema=schema)
    assert judge("VALUES (1, 'a'), (3, 'c'), (2, 'b')", bag=False).score == pytest.approx(0.8113)
    assert judge("VALUES (1, 'a'), (3, 'c'), (2, 'b')", bag=False, weights=(0.95, 0.05, 0.0)).score == pytest.approx(
        0.7891
    )
    assert judge("VALUES (1, 'a'), (3, 'c'), (2, 'b')", mode="ex").score == pytest.approx(0.15)
    assert judge("VALUES (1, 'a'), (1, 'a')", bag=False).parts["table"] == pytest.approx(0.8333, abs=1e-4)
    assert judge("VALUES (1, 'a'), (1, 'a')", bag=True).parts["table"] == pytest.approx(0.6667, abs=1e-4)
    none = "SELECT a FROM t WHERE a > 9"
    assert judge(none, none).score == 1.0 and judge(none, none).status == "weak"
    assert judge("SELECT 1", none).parts["table"] == 0.0
    assert judge("SELECT b, a FROM t").score == 1.0  # the order of columns is free
    lenient = TableSql(thin=False)(
        "<think>a</think><answer>SELECT a, b FROM t</answer>", "SELECT a, b FROM t", schema=schema
    )
    strict = TableSql(thin=False, newlines=True)(
        "<think>a</think><answer>SELECT a, b FROM t</answer>", "SELECT a, b FROM t", schema=schema
    )
    assert lenient.parts["tags"] == 1.0 and strict.parts["tags"] == 0.0


def test_think2sql_tags_stand_on_lines_of_their_own():
    """<think>, <answer> and what closes them: a marker has the newlines on both sides of it, where there is text."""
    for between, share in (("\n", 1.0), ("\n\n", 1.0), ("", 0.5), (" ", 0.5), (" \n", 0.75)):
        parts = Tags(newlines=True)(f"<think>\na\n</think>{between}<answer>\nb\n</answer>", None).parts
        assert parts["tags"] == share and parts["order"] == float(share == 1)


def test_sql_reads_only_and_in_time(tmp_path):
    import sqlite3

    file = tmp_path / "d.sqlite"
    with sqlite3.connect(file) as made:
        made.executescript(USERS)
    before = file.read_bytes()
    for query in (
        "DELETE FROM users",
        "PRAGMA writable_schema = 1",
        f"ATTACH '{tmp_path}/x' AS x",
        "CREATE TABLE z(a)",
        "VACUUM",
    ):
        assert Sql()(query, GOLD, database=str(file)).score == 0.0
    assert file.read_bytes() == before and not (tmp_path / "x").exists()
    assert Sql()(GOLD, GOLD, database=str(file)).score == 1.0
    assert Sql()("SELECT 4", "SELECT count(*) FROM users", database=str(file)).score == 0.0  # a constant
    of_ages = ("SELECT count(age) FROM users", "SELECT count(*) FROM users")  # differ where an age is NULL
    assert Sql()(*of_ages, database=str(file)).score == 0.0
    assert Sql(nulls=False)(*of_ages, database=str(file)).score == 1.0
    start = time.perf_counter()
    endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r"
    assert Sql(seconds=0.3)(endless, GOLD, database=str(file)).status == "timeout"
    assert time.perf_counter() - start < 2
    constant = "SELECT 'c' UNION ALL SELECT 'd'"
    assert (
        Sql()(constant, GOLD, schema=USERS).score == 0.0 and Sql(thin=False)(constant, GOLD, schema=USERS).score == 1.0
    )
    assert Sql(thin=False)(constant, GOLD, schema=[USERS, USERS.replace("'c'", "'x'")]).score == 0.0


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_a_result_is_read_until_it_is_too_long(engine):
    if engine == "duckdb":
        pytest.importorskip("duckdb")
    count = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < {}) SELECT {} FROM c"
    rows = lambda n, column: run(count.format(n, column), Database(engine=engine), 5.0)
    long = f"replace('{'x' * 1000}', 'x', '{'y' * 400}')"  # 400,000 bytes
    assert len(rows(20, long).rows) == 20 and "bytes" in rows(100, long).error
    assert len(rows(10_000, "x").rows) == 10_000 and "rows" in rows(10_001, "x").error
    if engine == "sqlite":
        assert rows(1, "zeroblob(9999999)").error and rows(1, ", ".join(["1"] * 501)).error


def test_duckdb_reads_only(tmp_path):
    pytest.importorskip("duckdb")
    schema = "CREATE TABLE users(name TEXT, age INT); INSERT INTO users VALUES ('a', 20), ('c', 40), ('d', 50);"
    secret = tmp_path / "s.csv"
    secret.write_text("a\n1\n")
    judge = Sql(engine="duckdb", seconds=1.0)
    assert judge(GOLD, GOLD, schema=schema).score == 1.0
    for query in (
        f"SELECT * FROM '{secret}'",
        f"COPY users TO '{tmp_path}/o.csv'",
        "SET memory_limit = '9GB'",
        "SELECT 1; SELECT 2",
    ):
        assert judge(query, GOLD, schema=schema).status == "failed"
    assert not (tmp_path / "o.csv").exists()
    file = tmp_path / "d.duckdb"
    with __import__("duckdb").connect(str(file)) as made:
        made.execute(schema)
    for query, score in (("SELECT 3", 0.0), ("SELECT count(1) FROM users", 1.0), ("SELECT count(age) FROM users", 0.0)):
        assert judge(query, "SELECT count(*) FROM users", database=str(file)).score == score
    numbered = Database(schema=f"CREATE SEQUENCE s; {schema}", engine="duckdb")
    for _ in range(2):  # nothing of a query is left for the next one
        assert "read-only" in run("SELECT nextval('s')", numbered, 1.0).error
        assert run("SELECT count(*) FROM range(99999999) a, range(9999) b", numbered, 0.2).error == "timeout"
        assert run("SELECT count(*) FROM users", numbered, 1.0).rows == ((3,),)
    broken = tmp_path / "x.duckdb"
    broken.write_text("not a database")
    with pytest.raises(UserError, match="cannot be opened"):
        judge(GOLD, GOLD, database=str(broken))


def test_muldimif():
    judge = mul.Constraints()
    four = [
        ["content", "keyword", "rain"],
        ["length", "words", "at most", 5],
        ["language", "lowercase"],
        ["content", "end", "!"],
    ]
    found = judge("rain is Here", None, constraints=[*four, ["format", "json"]])
    assert found.parts["paper"] == 2.0 and found.parts["share"] == 0.4 and found.score == 0.0
    assert judge("rain is here!", None, constraints=four).score == 1.0
    assert mul.constraint_level(four) == 4 and mul.constraint_level(four[:1] * 3) == 1
    assert mul.has_conflict([["language", "lowercase"], ["language", "uppercase"]])
    assert mul.has_conflict(
        [["length", "words", "at most", 3], ["length", "words", "at least", 4]]
    ) and not mul.has_conflict(four)
    assert mul.has_conflict([["content", "keyword", "Rain"], ["content", "forbidden", "rain"]])
    assert (
        mul.strip_end_tokens("please send<|im_end|>\n") == "please send"
        and mul.strip_end_tokens("ends</s></s>") == "ends"
    )
    assert (
        "rain" in mul.constraint_wording(four)
        and mul.constraint_wording(four).count("\n") == 3
        and "\n" not in mul.constraint_wording(four, "prose")
    )
    r = np.array([3.0, 5, 1, 3])
    assert np.allclose((r - r.mean()) / r.std(), [0, 1.414214, -1.414214, 0], atol=1e-6)


@settings(max_examples=100)
@given(kind=st.sampled_from(list(mul.CHECKERS)), text=st.text(max_size=80))
def test_a_constraint_is_a_truth_value(kind, text):
    more = {"content": ["a"], "length": ["at most", 3]}.get(kind[0], [])
    more = ["LATIN"] if kind == ("language", "script") else more
    assert mul.keeps_constraint(text, [*kind, *more]) in (True, False)


FORMULA = "G[0,21](velocity > 40 -> F[1,4](RPM < 2500))"


def test_restl():
    found = Temporal()(FORMULA.replace("21", "20"), FORMULA)
    assert found.score == 0.0 and found.parts["length"] == found.parts["atoms"] == 1.0
    assert found.parts["tokens"] == pytest.approx(0.956522, abs=1e-6)
    half = Temporal()("G[0,21](velocity > 40)", FORMULA).parts
    assert (half["length"], half["atoms"]) == (0.5, 0.5) and half["tokens"] == pytest.approx(0.647059, abs=1e-6)
    assert Temporal()(" and ".join([FORMULA] * 3), FORMULA).parts["length"] == 0.0


def test_cec_zero():
    e = [(1.0, 0.0), (0.96, 0.28), (0.98, math.sqrt(1 - 0.98**2)), (0.0, 1.0)]
    assert [rescale_similarity(e[0][0] * v[0]) for v in e] == pytest.approx([1, 0.8, 0.9, 0])
    assert cluster_consensus(e, 0.5) == pytest.approx([0.934931, 0.962661, 0.996231, 0], abs=1e-4)
    assert cluster_consensus([(1, 0), (0, 1)], 0.1) == [0.0, 0.0]
    assert [rescale_similarity(c) for c in (0.9, 0.95, 0.8, 0.79)] == pytest.approx([0.5, 0.75, 0, 0])


def test_mt_r1_zero():
    pytest.importorskip("sacrebleu")
    paper = lambda text, answer="the cat sat on the mat", **more: Translation(**more)(text, answer).parts["paper"]
    wrap = lambda t: f"<think>x</think><translate>{t}</translate>"
    assert paper(wrap("the cat is on the mat")) == pytest.approx(1.3799, abs=1e-4)
    assert paper(wrap("the cat sat on the mat")) == pytest.approx(2.0)
    assert paper("the cat sat on the mat") == -3.0 and paper(wrap("")) == -1.0
    assert paper(wrap("他们住在这里"), "他们住在这里。", language="zh") == pytest.approx(1.8465, abs=0.1)


def test_a_semantic_metric_of_ones_own(tmp_path):
    pytest.importorskip("sacrebleu")
    file = tmp_path / "metric.py"
    file.write_text("def near(source, hypothesis, reference):\n    return 0.8\n")
    found = Translation(metric="mix", semantic=f"{file}:near")(
        "<think>x</think><translate>the cat is on the mat</translate>", "the cat sat on the mat"
    )
    assert found.parts["paper"] == pytest.approx(2.1799, abs=1e-4)


def test_knowrl():
    judge = lambda text: Factuality()(text, "Paris", facts=["a", "b", "c"]).parts
    found = judge("<think>a. b. c. d. e. f.</think><answer>Lyon</answer>")
    assert found["facts"] == pytest.approx(0.256709, abs=1e-6) and found["paper"] == pytest.approx(0.256709, abs=1e-6)
    assert judge("<think>x</think><answer>Paris</answer>")["paper"] == 3.0
    assert judge("<think>x</think><answer>I don't know.</answer>")["paper"] == 2.0
    assert judge("<think>a. a. a.</think><answer>Lyon</answer>")["facts"] == pytest.approx(math.exp(-9))


def test_salu_and_j1_and_theorems():
    assert Selective()("Lyon", "Paris", confidence=0.848528).parts["paper"] == pytest.approx(-1.848528)
    assert Selective()("I don't know.", "Paris").parts["paper"] == -0.5
    assert Selective()("I don't know.", None).parts["paper"] == 1.0
    assert all_variants({"a": [1, 1, 0], "b": [1, 1, 1], "c": []}) == {"a": 0.0, "b": 1.0, "c": 0.0}
    few, many = (("".join(random.Random(0).choices(c, k=6100))) for c in ("ab ", "abcdefghijklmnopqrstuvwxy  "))
    assert TheoremVariant()(few + "<answer>\\boxed{proved}</answer>", "proved").score == 0.0
    assert TheoremVariant()(many + "<answer>\\boxed{proved}</answer>", "proved").score == 1.0


def test_mathematics_is_killed_in_time():
    pytest.importorskip("math_verify")
    math_judge = get_verifier("math(seconds=1.0)")
    math_judge("\\boxed{x+1}", "1+x")  # the child is there
    start = time.perf_counter()
    found = math_judge("\\boxed{9^{9^{9^{9^9}}}}", "\\sqrt{2}")
    assert found.status == "timeout" and found.score == 0.0 and time.perf_counter() - start < 3
    assert math_judge("\\boxed{x+1}", "1+x").score == 1.0  # a fresh child


@pytest.mark.parametrize(
    ("name", "answer", "fields"),
    [
        ("translation", "the cat", {"source": "le chat"}),
        ("factuality", "Paris", {}),
        ("selective", "4", {}),
        ("api-migration", "x = 1", {}),
        ("patch", {"a.py": "x = 2\n"}, {"files": {"a.py": "x = 1\n"}}),
    ],
)
def test_silence_is_not_paid_on_a_scale_on_which_bad_form_costs(name, answer, fields):
    task = Task(id="t", prompt=(), answer=answer, meta=fields)
    reward = Verified(name, paper=True)
    blank, endless, wrong = (reward.judge(text, task).total for text in (" \n", "x" * 300_000, "nonsense"))
    assert blank == endless <= wrong <= 0
