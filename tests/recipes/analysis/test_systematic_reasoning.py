"""Systematic relational reasoning: tables by another way, problems, guesses, boundaries, and a file of a user."""

import itertools
import json

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.recipes.analysis import systematic_reasoning as study
from palaestra.recipes.analysis.systematic_reasoning.findings import best_guess, guesses
from palaestra.recipes.analysis.systematic_reasoning.relations import graph_of_row
from palaestra.toys import algebras, relations
from palaestra.types import Message, Task

INTERVAL, RCC8 = algebras.calculus_of("interval"), algebras.calculus_of("rcc8")


def composed(known, first, second):
    return set(known.spell(known.table[known.labels.index(first)][known.labels.index(second)]).split("|"))


# ---- tables


def ends_of(name):
    """How the ends of two intervals stand: signs of a - c, a - d, b - c, b - d."""
    (x, y) = {"b": ((0, 1), (2, 3)), "m": ((0, 1), (1, 2)), "o": ((0, 2), (1, 3)), "s": ((0, 1), (0, 2)),
              "d": ((1, 2), (0, 3)), "f": ((1, 2), (0, 2)), "eq": ((0, 1), (0, 1))}.get(name.rstrip("i"))  # fmt: skip
    x, y = (y, x) if name.endswith("i") else (x, y)
    return [(p > q) - (p < q) for p in x for q in y]


def follows(p, q):
    """The order of x and z from that of x, y and y, z, as a set: only opposite ones leave all open."""
    return {p or q} if p * q >= 0 else {-1, 0, 1}


def test_interval_table_by_the_order_of_ends():
    """Ends alone, without any interval: a composition allows what no chain through an end of y forbids."""
    for r, s in itertools.product(INTERVAL.labels, repeat=2):
        xy, yz = ends_of(r), ends_of(s)
        allowed = [
            set.intersection(*(follows(xy[2 * i + k], yz[2 * k + j]) for k in range(2)))
            for i in range(2)
            for j in range(2)
        ]
        expected = {
            t for t in INTERVAL.labels if all(sign in some for sign, some in zip(ends_of(t), allowed, strict=True))
        }
        assert composed(INTERVAL, r, s) == expected, (r, s)


def test_counts_of_the_catalogue():
    sizes = [len(algebras.members(x)) for row in INTERVAL.table for x in row]
    assert {n: sizes.count(n) for n in set(sizes)} == {1: 97, 3: 42, 5: 24, 9: 3, 13: 3} and sum(sizes) == 409
    assert composed(INTERVAL, "o", "o") == {"b", "m", "o"} and composed(INTERVAL, "o", "d") == {"o", "s", "d"}
    assert composed(INTERVAL, "m", "m") == {"b"}


def test_region_table_by_forks():
    """Renz's models: a point on the border between two open ones, which a region has or not. All that relations
    of three regions need is that some such fork exists, so what any set of forks shows is a union of facts."""
    facts = set()
    for forks in itertools.product(range(4), repeat=3):
        seen = []
        for a, b in ((0, 1), (1, 2), (0, 2)):
            x, y = forks[a], forks[b]
            seen += [x & y, x and y, x & ~y, y & ~x, x and y != 3, y and x != 3]
        facts.add(sum(bool(f) << i for i, f in enumerate([*seen, *forks])))
    reached, front = {0}, {0}
    while front:
        front = {s | f for s in front for f in facts} - reached
        reached |= front

    def relation(bits):
        overlap, touch, out, in_out, shallow, in_shallow = (bits >> i & 1 for i in range(6))
        if not overlap:
            return "EC" if touch else "DC"
        if out or in_out:
            if out and in_out:
                return "PO"
            return ("TPPi" if in_shallow else "NTPPi") if out else ("TPP" if shallow else "NTPP")
        return "EQ"

    table = {}
    for s in reached:
        if s >> 18 == 7:  # no region is empty
            r, t, u = (relation(s >> 6 * i & 63) for i in range(3))
            table.setdefault((r, t), set()).add(u)
    assert sum(map(len, table.values())) == 193
    assert all(composed(RCC8, r, s) == table[r, s] for r, s in itertools.product(RCC8.labels, repeat=2))


@pytest.mark.parametrize("known", [INTERVAL, RCC8], ids=["interval", "rcc8"])
def test_converse(known):
    """(r . s)~ = s~ . r~, and identity changes nothing."""
    back = known.converse
    for r, s in itertools.product(range(len(known.labels)), repeat=2):
        assert back(known.table[r][s]) == known.compose(back(1 << s), back(1 << r))
    assert all(known.table[-1][r] == known.table[r][-1] == 1 << r for r in range(len(known.labels)))


def test_path_consistency():
    """x b y b z: x b z follows, and x a-contradiction is noticed."""
    b, bi, m = (INTERVAL.labels.index(x) for x in ("b", "bi", "m"))
    left = algebras.closure(INTERVAL, [(0, b, 1), (1, b, 2)], 3)
    assert (left[0][2], left[2][0]) == (1 << b, 1 << bi)
    assert algebras.closure(INTERVAL, [(0, m, 1), (1, m, 2), (0, m, 2)], 3) is None


# ---- problems


@pytest.mark.parametrize("calculus", ["interval", "rcc8"])
@pytest.mark.parametrize("k, b", [(2, 1), (5, 1), (2, 2), (4, 2), (3, 3)])
def test_problems_have_one_answer(calculus, k, b):
    source, known = relations.Relations(calculus=calculus, k=k, b=b), algebras.calculus_of(calculus)
    for i in range(12):
        task = source.task("train", i)
        (start, end), edges = task.meta["query"], task.meta["edges"]
        paths = relations.paths_of(edges, (start, end))
        sets = [set(known.spell(known.along([known.labels.index(r) for r in p])).split("|")) for p in paths]
        assert len(paths) == b and {len(p) for p in paths} == {k} and known.labels[-1] not in itertools.chain(*paths)
        assert set.intersection(*sets) == {task.answer} and (b == 1) == (len(sets[0]) == 1)
        codes = [(x, known.labels.index(r), y) for x, r, y in edges]
        assert known.spell(algebras.closure(known, codes, end + 1)[start][end]) == task.answer
        worked = source.demonstration(task, None, "work")
        assert source.check(worked, task) == 1 and len(worked.splitlines()) == b * (k - 1) + 1


def test_answers_are_balanced():
    """With 12 answers that can be one, 360 problems have 30 of each."""
    source = relations.Relations(k=4)
    golds = [source.task("train", i).answer for i in range(360)]
    counts = {g: golds.count(g) for g in golds}
    assert len(counts) == 12 and max(counts.values()) < 50 and min(counts.values()) > 14


def test_each_path_has_the_same_chance():
    """Of two relations whose composition is "before", all are drawn: 12 x 12 pairs without identity."""
    import numpy as np

    b = INTERVAL.labels.index("b")
    pairs = {(r, s) for r, s in itertools.product(range(12), repeat=2) if INTERVAL.table[r][s] == 1 << b}
    rng = np.random.default_rng(0)
    drawn = {tuple(relations.draw_path("interval", 2, 1 << b, rng)) for _ in range(60 * len(pairs))}
    assert drawn == pairs and relations.counts_of("interval", 2)[-1][1 << b] == len(pairs)


def test_prompts():
    short = relations.Relations(letters=True, table="needed", k=2)
    task = short.task("test", 0)
    line, graph = task.prompt[0].content.splitlines()
    assert graph.endswith(": 0?2") and line.endswith(f"={task.answer}") and task.answer in "abcdefghijklm"
    whole = relations.Relations(calculus="rcc8", table="whole").task("test", 0).prompt[0].content
    assert whole.count("=") == 64 + 1 and "Which relation does 0 have to 2?" in whole
    assert "=" not in relations.Relations().task("test", 0).prompt[0].content


@pytest.mark.parametrize(
    "text", ["= NTPPi", "The answer is NTPPi.", "\\boxed{NTPPi}", "NTPPi", "**NTPPi**", "x\nAnswer: NTPPi"]
)
def test_an_answer_in_any_form(text):
    source = relations.Relations(calculus="rcc8")
    task = Task(id="t", prompt=(Message(role="user", content="?"),), answer="NTPPi")
    assert source.check(text, task) == 1
    assert not source.check(text.replace("NTPPi", "NTPP"), task) and not source.check(text.replace("NTPPi", "?"), task)


@pytest.mark.parametrize(
    "text, label",
    [
        ("TPP and EC give: PO", "PO"),
        ("TPP, then EC, so the answer is DC.", "DC"),
        ("<answer>EC</answer>", "EC"),
        ("It is EC or PO", None),
        ("EC\nPO", "PO"),
        ("= EC|PO", None),
        ("TPPish", None),
        ("", None),
    ],
)
def test_one_relation_is_said_or_none(text, label):
    assert relations.label_said(text, RCC8.labels) == label


# ---- what is said of answers


def asked(k, b, sets, gold, said, **right):
    items = {"problem": 0, "id": "", "prompt": "", "gold": gold}
    labels = {m: [s] for m, s in said.items()}
    return study.AskedRelation(
        items, k, b, sets, gold, 13, labels, labels, {m: float(s == gold) for m, s in said.items()}
    )


def test_guesses():
    """Sets of 2 and 4: a random one of them is right with chance (1/2 + 1/4) / 2; "b" is the answer of one in two."""
    some = [asked(2, 2, [["b", "m"]], "b", {}), asked(2, 2, [["b", "m", "o", "s"]], "m", {})]
    assert guesses(some) == {"chance": 1 / 13, "most frequent": 0.5, "shortest path": 0.375}
    one = [asked(2, 1, [["b"]], "b", {}), asked(2, 1, [["m"]], "m", {})]
    assert best_guess(1, one) == 0.5 and guesses(one)["shortest path"] == 1


GOLDS = ("b", "m", "o", "s", "d", "f")


def cell(k, b, good):
    """36 problems of six answers; `good` says which are right."""
    return [
        asked(k, b, [[g, "bi"]] * b if b > 1 else [[g]], g, {"policy": g if good(i) else "bi"})
        for i in range(36)
        for g in (GOLDS[i % 6],)
    ]


def test_the_boundary_is_where_guessing_is_as_good():
    """Along one path all at k = 2 and 3, none at 4; at 6 again, which does not count. Of two paths each allows the
    answer and one more: half is what a guess reaches."""
    whole = [*cell(2, 1, lambda i: True), *cell(3, 1, lambda i: True), *cell(4, 1, lambda i: False),
             *cell(6, 1, lambda i: True), *cell(2, 2, lambda i: i % 2)]  # fmt: skip
    found = study.report(whole, ["policy"])
    assert found.numbers["boundary_b1"] == 3 and found.numbers["boundary_b2"] == 0
    assert found.numbers["shallow"] == 1 and "Of 18 wrong answers" in found.findings[1]
    assert found.findings[0] == (
        "The model is above guessing along one path up to k = 3 (100% at k = 3, a guess 17%); along 2 paths at no "
        "length (50% at k = 2, a guess 50%)."
    )
    assert "gain" not in found.numbers and "moved" not in found.numbers


def test_answers_that_are_no_relation():
    found = study.report([asked(2, 2, [["b", "m"]], "b", {"policy": s}) for s in ("b", None, "m", "f")], ["policy"])
    assert found.numbers["unread"] == 0.25 and found.numbers["shallow"] == 0.5
    assert "25% of the answers name no relation" in found.findings[-1]


# ---- files


@pytest.mark.parametrize(
    "meta, why",
    [
        ({}, 'needs "edges"'),
        ({"edges": [[0, "b"]], "query": [0, 1]}, 'needs "edges"'),
        ({"edges": [[0, "before", 1]], "query": [0, 1]}, "'before' is no relation"),
    ],
)
def test_rows_that_have_no_graph(meta, why):
    with pytest.raises(UserError, match=why):
        graph_of_row(Task(id="r", prompt=(), meta=meta), INTERVAL.labels)


def test_a_file_of_a_user(tmp_path, capsys):
    """Three good rows, one of regions with names of things, one whose answer does not follow, and one whose edges
    lead from the second thing to the first: B contains A, C contains B, so A is in C."""
    rows = [
        {"prompt": "A in B in C?", "answer": "NTPP", "edges": [["A", "NTPP", "B"], ["B", "NTPP", "C"]], "query": ["A", "C"]},
        {"prompt": "A off B, C in B?", "answer": "DC", "edges": [["A", "DC", "B"], ["B", "NTPPi", "C"]], "query": ["A", "C"]},
        {"prompt": "two ways?", "answer": "EC",
         "edges": [[0, "TPP", 1], [1, "EC", 2], [0, "EC", 3], [3, "TPP", 2]], "query": [0, 2]},
        {"prompt": "wrong?", "answer": "DC", "edges": [[0, "NTPP", 1], [1, "NTPP", 2]], "query": [0, 2]},
        {"prompt": "turned?", "answer": "NTPP", "edges": [["B", "NTPPi", "A"], ["C", "NTPPi", "B"]], "query": ["A", "C"]},
    ]  # fmt: skip
    file, out = tmp_path / "own.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    ask = ["study", "systematic-reasoning", "--model", "tiny", "--data", str(file), "--out", str(out), "calculus=rcc8"]
    assert main([*ask, "--max-tokens", "8"]) == 0
    assert "1 of 5 problems contradict" in capsys.readouterr().err
    items = [json.loads(x) for x in (out / "items.jsonl").read_text().splitlines()]
    assert sorted((x["k"], x["b"]) for x in items) == [(2, 1), (2, 1), (2, 1), (2, 2)]
    assert pl.open(out).summary["findings"][0].startswith("The model is above guessing along one path")


def test_settings_that_say_nothing_are_refused():
    for given in ({"calculus": "rcc9"}, {"ks": ()}, {"problems": 0}):
        with pytest.raises(UserError):
            study.build(**given)
    with pytest.raises(UserError, match="b is at most"):
        relations.Relations(b=5)
