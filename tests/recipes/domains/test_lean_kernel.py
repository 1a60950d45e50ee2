"""Both methods that prove, with Lean behind a server: what is kept, a search, and runs on a user's file of Lean."""

import json

import palaestra
import pytest
from palaestra.errors import UserError
from palaestra.recipes.domains.leanconjecturer import checks
from palaestra.recipes.inference.bfs_prover_v2.search import TacticSearch, TriedTactic, open_kernel
from palaestra.types import Message, Task

from tests.chat_server import serving
from tests.recipes.inference.test_bfs_prover_v2 import search_from
from tests.services.proof.lean_server import STATEMENT, SWAP, lean_server

REPLY = "theorem a : 1 = 1 := by sorry\n2 = 2\n3 = 3\n- lemma b : 4 = 4 := by simp\n5 = 6\nnonsense\ntheorem c : 3 = 3"
RULES = "Answer with tactics of Lean 4 alone, such as intro h, exact h or simp; do not state the theorem again."


def rows(folder, *made):
    file = folder / "seeds.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in made))
    return str(file)


def test_what_exists_by_exact_what_is_trivial_by_aesop_and_what_is_kept():
    with lean_server() as (url, _):
        own = checks.ConjectureChecks(checks.open_kernel("lean", server=url))
        found = {s: own.verdict(s) for s in ("1 = 1", "2 = 2", "3 = 3", "5 = 6")}
        assert found == {"1 = 1": "already exists", "2 = 2": "trivial", "3 = 3": "kept", "5 = 6": "kept"}
        assert checks.ConjectureChecks(own.kernel, novelty=0, triviality=0).verdict("1 = 1") == "kept"
        assert own.normal("nonsense") is None and own.normal("3 = 3 axiom x : False") is None
        assert own.record["novelty"] == ["exact?"] and own.record["triviality"] == ["aesop"]


@pytest.mark.parametrize(
    ("answer", "paid"),
    [
        ("intro h\nconstructor\n· exact h.2\n· exact h.1", 1.0),
        (f"```lean4\ntheorem other {STATEMENT} := by\n  intro h\n  exact ⟨h.2, h.1⟩ -- done\n```", 1.0),
        ("intro h\nconstructor", 0.0),
        ("sorry", 0.0),
        ("exact foo", 0.0),  # an axiom that is not Lean's
        ("theorem x : 1 = 1 := by\n  rfl", 0.0),  # of another theorem
        ("", 0.0),
    ],
)
def test_a_whole_proof_is_paid(answer, paid):
    with lean_server() as (url, _):
        verdict = checks.ProofVerdict(checks.open_kernel("lean", server=url))
        task = Task(id="swap", prompt=(Message(role="user", content="Prove it."),), meta={"theorem": SWAP})
        assert verdict.judge(answer, task).total == paid


def test_a_search_closes_goals_in_lean(monkeypatch):
    said = {"intro h": -0.5, "constructor": -0.2, "· exact h.2": -0.3, "· exact h.1": -0.3, "sorry": 0.0}

    async def say(self, ctx, key, state):
        return [TriedTactic(prompt=(), tactic=t, logp=logp, tokens=2) for t, logp in said.items()]

    monkeypatch.setattr(TacticSearch, "_say", say)
    with lean_server() as (url, _):
        found = search_from(TacticSearch(open_kernel("lean", server=url)), SWAP, openings=6)
    assert found.script == ("intro h", "constructor", "· exact h.2", "· exact h.1")


def test_conjectures_and_grpo_on_a_file_of_lean(tmp_path):
    seeds = rows(tmp_path, {"prompt": SWAP, "split": "train"}, {"prompt": "theorem s : 1 = 1 := rfl", "split": "test"})
    (tmp_path / "defs.lean").write_text("open Nat\n")
    with lean_server() as (url, asked), serving(lambda body: REPLY) as (_, chat):
        run = palaestra.train(
            "leanconjecturer", data=seeds, out=tmp_path / "run", steps=1, evaluate=0, quiet=True, max_tokens=24,
            set={
                "kernel": "lean", "server": url, "imports": "Mathlib", "preamble": str(tmp_path / "defs.lean"), "exam": 0,
                "guide": f"endpoint(url='{chat}',model='m')", "rl.schedule.prompts": 2, "rl.collect.links.0.n": 2,
            },
        )  # fmt: skip
        code = asked[1]["snippets"][0]["code"]
    read = lambda name: [json.loads(x) for x in next(run.folder.rglob(name)).read_text().splitlines()]
    assert [(r["statement"], r["status"]) for r in read("conjectures.jsonl")] == [
        ("1 = 1", "held out"), ("2 = 2", "trivial"), ("3 = 3", "kept"), ("4 = 4", "kept"), ("5 = 6", "kept"), (None, "invalid"),
        ("3 = 3", "duplicate"),
    ]  # fmt: skip
    assert [p["theorem"] for p in read("problems.jsonl")] == ["3 = 3", "4 = 4", "5 = 6", "1 = 1"]
    assert read("problems.jsonl")[0]["prompt"] == f"3 = 3\n\n{RULES}"
    assert code.startswith(f"import Mathlib\nopen Nat\ntheorem palaestra_theorem {STATEMENT} := by\n  skip\n#print")


def test_a_prover_on_a_file_of_lean_with_proofs(tmp_path):
    proof = "intro h\nconstructor\n· exact h.2\n· exact h.1"
    data = rows(
        tmp_path,
        {"prompt": SWAP, "demonstration": proof, "split": "train"},
        {"prompt": "1 = 1", "demonstration": "rfl", "split": "train"},
        {"prompt": "3 = 3", "split": "test"},
    )
    words = {
        "proofs": True,
        "rounds": 1,
        "openings": 2,
        "tactics": 2,
        "tasks": 1,
        "theorems": 2,
        "provers": 1,
        "start.schedule.prompts": 2,
        "expert1.schedule.prompts": 2,
    }
    with lean_server() as (url, _):
        run = palaestra.train(
            "bfs-prover-v2", data=data, out=tmp_path / "run", steps=1, evaluate=0, quiet=True, max_tokens=8,
            set={**words, "kernel": "lean", "server": url, "rules": False},
        )  # fmt: skip
    tactics = [json.loads(x) for x in next(run.folder.rglob("tactics.jsonl")).read_text().splitlines()]
    assert {r["demonstration"] for r in tactics} == {*proof.split("\n"), "rfl"}


def test_the_words_of_a_command():
    for opened in (open_kernel, checks.open_kernel):
        with pytest.raises(UserError, match="add server="):
            opened("lean")
        assert opened("lean", "Mathlib", server="http://h:1").imports == "Mathlib"
