"""LeanConjecturer: what becomes of a proposal, what is written around statements, what is no proof, and the loop."""

import asyncio
import json

import numpy as np
import palaestra
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.domains import leanconjecturer
from palaestra.recipes.domains.leanconjecturer import checks, conjectures, exam
from palaestra.recipes.domains.leanconjecturer.examples import PROPOSALS, SEEDS
from palaestra.services.chat.scripted import Scripted
from palaestra.services.proof.closure import find_chain, read_sets, set_text
from palaestra.services.proof.spaces import refute_sets
from palaestra.toys.closures import ClosureTheorems
from palaestra.types import Episode, Group, Message, Row, Segment, Task

from tests.recipes.objectives.helpers import near

THREE = "A <= cl int A, A <= int cl A => A <= int cl int A"
CLOSURE = checks.open_kernel("closure")


def judge(**settings):
    return checks.ConjectureChecks(CLOSURE, **settings)


def verdict(text, **settings):
    own = judge(**settings)
    statement = own.normal(text)
    return "invalid" if statement is None else own.verdict(statement)


# ---- checks


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("cl A <=", "invalid"),
        ("A <= cl int A => A <= int cl A", "false"),
        ("A <= int cl A => A <= cl int A", "false"),
        ("A <= ~A, ~A <= A => cl B <= B", "vacuous"),
        ("A <= A", "already exists"),
        ("cl cl A <= cl A", "already exists"),
        ("A <= cl int A => A <= cl int A", "already exists"),
        ("int A <= cl A", "trivial"),
        ("A <= int cl int A => A <= cl int A", "trivial"),
        (THREE, "kept"),
        ("int A <= int cl int A", "trivial"),
        ("cl int cl int A <= cl int A", "trivial"),
        ("int cl A & int cl B <= cl (A & B)", "false"),
    ],
)
def test_what_becomes_of_a_statement(text, status):
    assert verdict(text) == status


def test_limits_of_the_checks():
    assert verdict(THREE, triviality=3) == "trivial" and verdict(THREE, novelty=3) == "already exists"
    assert verdict("int A <= cl A", triviality=0) == "kept"
    assert verdict("cl cl A <= cl A", novelty=0, triviality=0) == "kept"
    assert verdict("A <= cl int A => A <= int cl A", points=2) == "kept"  # the smallest space that refutes has 3
    assert verdict("A <= int cl A => A <= cl int A", points=0) == "kept"
    with pytest.raises(UserError, match="points"):
        judge(points=5)
    assert judge(points=2).record["points"] == 2 and judge().record["triviality"] == 2


def test_propositional_statements():
    own = checks.ConjectureChecks(checks.open_kernel("logic"), novelty=1, triviality=2)
    said = {"p -> q": "false", "p -> p": "trivial", "p & q -> q & p": "kept", "p ->": None}
    for text, status in said.items():
        statement = own.normal(text)
        assert (own.verdict(statement) if statement else None) == status


class Broken:
    """A kernel that cannot run."""

    name = "coq"

    def normal(self, statement):
        return statement

    def start(self, theorem):
        raise Fault("proof", "time is over")


def test_a_kernel_that_cannot_run_proves_nothing_hard():
    assert checks.ConjectureChecks(Broken()).verdict("True") == "error"


@pytest.mark.parametrize(
    ("line", "statement"),
    [
        ("1. A <= cl A", "A <= cl A"),
        ("- `A <= cl A`", "A <= cl A"),
        ("theorem foo : A <= cl A := by sorry", "A <= cl A"),
        ("@[simp] private lemma foo' : A <= cl A := sorry", "A <= cl A"),
        ("protected theorem A.b: A <= cl A", "A <= cl A"),
        ("A <= int A => A <= cl A", "A <= int A => A <= cl A"),
        ("(3) A <= cl A", "A <= cl A"),
        ("forall n, n + 0 = n. Proof. auto. Qed.", "forall n, n + 0 = n."),
    ],
)
def test_what_is_written_around_a_statement_is_cut_off(line, statement):
    assert checks.proposed_statements(f"<think>A <= B</think>\n```\n{line}\n```\n\n") == [statement]


@pytest.mark.parametrize(
    ("statement", "known", "instance"),
    [
        ("cl cl B <= cl cl B", "A <= A", True),
        ("A & int B <= A", "A & B <= A", True),
        ("A & B <= A", "A & A <= A", False),  # of one set only
        ("int A <= cl cl A", "A <= cl A", False),  # two lemmas
        ("cl A <= int cl A => cl A <= cl int cl A", "A <= int A => A <= cl int A", True),
        ("cl A <= int A => cl A <= cl int cl A", "A <= int A => A <= cl int A", False),  # another hypothesis
        ("A <= B => int A <= cl B", "A <= C, D <= C => int A <= cl C", True),  # a set that the conclusion has not
        ("int A <= cl B", "A <= B => int A <= cl B", False),  # nobody assumes it
        ("int A <= cl A", "A <= B => int A <= cl B", True),  # A <= A
        ("A <= cl B", "A <= B", True),
        ("cl A <= A", "A <= cl A", False),
    ],
)
def test_an_instance_of_what_is_known_exists(statement, known, instance):
    assert CLOSURE.is_instance(statement, known) == instance


def test_a_library_has_its_instances_and_says_nothing_where_novelty_is_off():
    statement = "cl int cl int B <= cl int B"
    assert judge(triviality=0).verdict(statement) == "kept"
    assert judge(triviality=0).verdict(statement, ["int A <= A", "cl int A <= cl A"]) == "kept"
    assert judge(triviality=0).verdict(statement, ["int A <= A", "cl int cl A <= cl A"]) == "already exists"
    assert judge(novelty=0, triviality=0).verdict(statement, ["cl int cl A <= cl A"]) == "kept"
    logic = checks.open_kernel("logic")
    assert logic.is_instance("p & q -> p & q", "a -> a") and not logic.is_instance("a -> b", "~a")  # false is no name


# ---- proofs


def proven(answer, theorem="int A <= cl A"):
    task = Task(id="t", prompt=(Message(role="user", content=f"{theorem}\n\nrules"),), meta={"theorem": theorem})
    return checks.ProofVerdict(CLOSURE).judge(answer, task).total


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("A\ncl A", 1.0),
        ("<think>cl</think>\n```\n1. A\n2. cl A\n```", 1.0),
        ("", 0.0),
        ("A", 0.0),
        ("cl A", 0.0),  # two steps at once
        ("sorry", 0.0),
        ("admit\ncl A", 0.0),
        ("axiom: int A <= cl A\ncl A", 0.0),
        ("A <= cl A => A <= cl A\nA\ncl A", 0.0),  # another goal
        ("A\ncl A\ncl cl A", 0.0),
        ("<think>A\ncl A</think>", 0.0),
    ],
)
def test_what_the_kernel_takes_as_a_proof(answer, right):
    assert proven(answer) == right


def test_a_false_theorem_has_no_proof():
    """All chains of up to three sets with up to two operators."""
    words = ["A", *(f"{a} A" for a in ("cl", "int")), *(f"{a} {b} A" for a in ("cl", "int") for b in ("cl", "int"))]
    tried = [proven("\n".join(x), "cl A <= int A") for x in ([a, b, "int A"] for a in words for b in words)]
    assert tried == [0.0] * 49


def test_groups_without_a_proof():
    def group(*rewards):
        segment = Segment(ids=(1,), trained=True, logp=(-1.0,), text="x")
        made = (Episode(rows=(Row(segments=(segment,)),), reward=palaestra.Reward(total=r)) for r in rewards)
        return Group(task=Task(id="t"), episodes=tuple(made))

    class Table:
        groups = (group(0, 0), group(0, 1), group(0, 0), group(1, 1))
        episodes = tuple(e for g in groups for e in g.episodes)

        def track(self, name, values):
            self.found = name, set(values.x_N)

    table = Table()
    assert exam.ZeroGroups()("x", table) == "x" and table.found == ("all_zero", {0.5})


# ---- the loop


class Seeds:
    """Two files of seeds, and a held-out theorem."""

    name, size, test_size = "seeds", 3, 1
    rows = (("cl A <= cl A", "a"), ("theorem one: int A <= A", "a"), ("A <= cl A", "b"))

    def task(self, split, index):
        text, file = self.rows[index] if split == "train" else ("cl int A <= cl cl cl A", "")
        meta = {"file": file, "context": f"about {file}"} if file else {}
        return Task(id=f"{split}{index}", prompt=(Message(role="user", content=text),), meta=meta)


class Program:
    """What a program asks of a run."""

    seed, sampled_tokens = 0, 0

    def __init__(self, folder, replies):
        self.folder, self.replies, self.asked, self.notes, self.logged = folder, list(replies), [], [], {}
        self.bench = type("Bench", (), {"tasks": Seeds(), "first_held_out": 0, "first_drawn": 0})()

    def key(self, *names):
        return names

    def say(self, text):
        self.notes.append(text)

    def log(self, numbers):
        self.logged |= numbers

    async def ask(self, source, question, *, seed=0):
        self.asked.append((question, seed))
        return self.replies.pop(0) if self.replies else ""

    async def once(self, name, work):
        return await work()


def made(folder, replies, **settings):
    run = Program(folder, replies)
    stage = conjectures.MakeConjectures(judge(), guide=Scripted(("",)), **settings)
    asyncio.run(stage.run(run))
    read = lambda name: [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return run, read("problems.jsonl"), read("conjectures.jsonl")


FIRST = f"{THREE}\nB <= cl B\ncl int A <= cl cl cl A\nint int A <= cl cl A\nnonsense"
SECOND = "int A <= cl cl A\nint int A <= cl cl A"


def test_a_loop_over_two_files(tmp_path):
    run, problems, judged = made(tmp_path, [FIRST, SECOND, "", "cl A <= int A"], rounds=3)
    assert [(r["file"], r["round"], r["status"]) for r in judged] == [
        ("a", 1, "kept"), ("a", 1, "duplicate"), ("a", 1, "held out"), ("a", 1, "kept"), ("a", 1, "invalid"),
        ("a", 2, "kept"), ("a", 2, "duplicate"), ("b", 1, "false"),
    ]  # fmt: skip
    assert [p["theorem"] for p in problems] == [
        THREE, "int int A <= cl cl A", "int A <= cl cl A", "cl int A <= cl cl cl A",
    ]  # fmt: skip
    assert [p["split"] for p in problems] == ["train"] * 3 + ["test"]
    first, second, third, fourth = (q for q, _ in run.asked)
    assert "about a" in first and "int A <= A" in first and THREE not in first and "theorem one" not in first
    assert THREE in second and "int A <= cl cl A" in third and "about b" in fourth and THREE not in fourth
    assert [seed for _, seed in run.asked] == [0, 1, 2, 0]  # a round that adds nothing is the last one
    numbers = run.logged
    assert numbers["yield"] == near(3 / 8) and numbers["filtered"] == near(1 / 4) and numbers["per_file"] == 1.5
    assert judged[0]["checks"] == judge().record and judged[0]["filters"] is True


def test_the_yield_of_the_paper():
    """3,776 of 12,289 kept: 0.307267; and 103.25 for each of 40 files."""
    numbers = conjectures.yield_numbers({"kept": 3776, "trivial": 12289 - 3776}, 40)
    assert numbers["yield"] == near(0.307267) and numbers["filtered"] == near(1 - 0.307267)
    assert conjectures.yield_numbers({"kept": 4130}, 40)["per_file"] == 103.25
    assert conjectures.yield_numbers({}, 0)["filtered"] == 0.0


def test_without_filters_all_that_can_be_read_is_kept(tmp_path):
    run, problems, _ = made(tmp_path, ["cl A <= int A\nint A <= cl A\nx"], filters=False)
    assert [p["theorem"] for p in problems[:2]] == ["cl A <= int A", "int A <= cl A"]
    assert run.logged["filtered"] == 0.0 and run.logged["status/invalid"] == 1.0


def test_without_rounds_the_seeds_are_trained_on(tmp_path):
    run, problems, judged = made(tmp_path, [], rounds=0)
    assert [p["theorem"] for p in problems] == ["cl A <= cl A", "int A <= A", "A <= cl A", "cl int A <= cl cl cl A"]
    assert not judged and not run.asked


def test_nothing_left_and_seeds_that_cannot_be_read(tmp_path, monkeypatch):
    _, problems, _ = made(tmp_path, ["x\ncl A <= int A"])
    assert len(problems) == 4  # the seeds of a built-in problem, and what is held out
    monkeypatch.setattr(conjectures, "from_file", lambda ctx: True)
    with pytest.raises(UserError, match=r"0 of 2 proposals are left .1 invalid, 1 false"):
        made(tmp_path, ["x\ncl A <= int A"])
    own = checks.ConjectureChecks(checks.open_kernel("logic"))
    stage = conjectures.MakeConjectures(own, guide=Scripted(("",)))
    with pytest.raises(UserError, match=r"task 'train0'.*kernel own reads"):
        asyncio.run(stage.run(Program(tmp_path, [])))


def test_arguments():
    with pytest.raises(UserError, match="add kernel=coq"):
        leanconjecturer.build(imports="Arith")
    with pytest.raises(UserError, match="no kernel"):
        leanconjecturer.build(kernel="isabelle")
    parts = leanconjecturer.build(kernel="coq", imports="Arith,Lia").parts
    assert (
        list(parts) == ["conjectures", "rl"] and parts["conjectures"].runnable.checks.record["novelty"][0] == "trivial."
    )
    assert list(leanconjecturer.build(proofs=True).parts) == ["conjectures", "imitation", "rl"]


# ---- examples


def test_seeds_are_theorems():
    for text in SEEDS:
        chain = find_chain(read_sets(text), 3)
        assert not refute_sets(text, 3) and chain and CLOSURE.accepts(text, list(map(set_text, chain)))
    assert len({CLOSURE.normal(x) for x in SEEDS}) == 30


def test_proposals_of_the_card_have_what_is_kept_and_what_is_not():
    found = [verdict(x) for x in checks.proposed_statements(PROPOSALS)]
    assert found.count("kept") >= 2 and {"false", "trivial"} <= {*found}


def test_the_stand_in_writes_statements_of_each_kind():
    write = conjectures.MutateStatements(lines=96)
    lines = write(SEEDS, np.random.default_rng(0)).splitlines()
    found = {verdict(x) for x in lines}
    assert lines == write(SEEDS, np.random.default_rng(0)).splitlines()
    assert {"false", "already exists", "trivial", "kept"} <= found


def test_theorems_of_the_built_in_task():
    tasks = ClosureTheorems()
    for split, low, high in (("train", 1, 4), ("test", 3, 5)):
        for i in range(6):
            task = tasks.task(split, i)
            steps = task.answer.splitlines()
            assert low <= len(steps) <= high and tasks.check(task.answer, task) == 1.0
            assert tasks.check("", task) == 0.0 and tasks.check("\n".join(steps[:-1]) or "~A", task) == 0.0
