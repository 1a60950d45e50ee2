"""Lean behind a server: steps and proofs by the messages that Lean has on record, and words that would escape."""

import json

import pytest
from palaestra.errors import Fault, UserError
from palaestra.services.proof import lean
from palaestra.services.proof.assistants import open_assistant
from palaestra.services.proof.base import ProofState, Rejected
from palaestra.services.proof.lean import KEY, Lean, allowed, axioms_of, lean_script, stated

from tests.services.proof.lean_server import GOAL, HALVES, STATEMENT, SWAP, lean_server, message

PROOF = ["intro h", "constructor", "· exact h.2", "· exact h.1"]
ESCAPES = (
    "sorry", "admit", "exact sorry", "exact sorryAx _", "simp; stop", "run_tac foo", "exact by_elab foo",
    "trivial\ntheorem x : False := y", "trivial theorem x : 1 = 1", "trivial\naxiom cheat : False", "rfl\n#print axioms a",
    'rfl\nmacro "#print" : command => `(end)', "rfl\nsyntax x", "rfl\nnotation x", "rfl\nnotation3 x", "rfl\nelab x",
    "set_option debug.skipKernelTC true in rfl", "open Lean in rfl", "rfl\nattribute [simp] x", "rfl\n@[simp] x",
    "rfl /- ", "-/ rfl", "rfl\nend", "rfl\nnamespace x", "rfl\nunsafe x", "rfl\ninstance : x", "«rfl»", "", "  ", "\trfl",
    "rfl\nlocal x", "rfl\nopaque x", "rfl\ninitialize x", "rfl\nmutual", "rfl\nsimproc x", "rfl\ndeclare_syntax_cat x",
)  # fmt: skip


# Lean parts a text where Python's \w does not: a keyword behind a sign, a number or a literal begins a command
TOUCHING = (
    "x⁻¹axiom cheat : False", "exact f 1axiom cheat : False", "exact f ..axiom a : False", "exact Aᵀmacro x", "exact sᶜelab x",
    "exact f 'a'axiom a : False", "exact 0x1'a'axiom a : False", "exact f '\"'", "exact f.1.axiom", "λaxiom", "x²syntax y",
)  # fmt: skip
RUN = (
    "exact (eval% unsafeIO x)", "exact unsafeIO x", 'exact include_str "x"', "rfl\ndsimproc x", "rfl\nregister_option x",
    "rfl\ndeclare_simp_like_tactic x", "rfl\nbuiltin_initialize x", "run_elab x", "open Lean Elab in rfl",
    "rfl\u2028axiom x : False", "open private x in y in rfl", "set_option maxHeartbeats 1 in",
    "open Nat in\nset_option debug.skipKernelTC true in rfl",
)  # fmt: skip
FINE = (
    "exact List.prefix_append x y", "exact h.end", "rw [open_iff]", "exact ⟨h.2, h.1⟩", "native_decide", 'trace "x"', "rw [eval]",
    "exact Polynomial.eval x", "have h' : p := h.1", "∑' n, f n", "f '' s ⊆ g ⁻¹' t", "simp [simprocs]", "norm_num [10!]",
    "set_option maxHeartbeats 400000 in nlinarith [sq_nonneg (a - b)]", "open Real in\n  simp", "exact h.1.mp", "2 * x₁ + 1.5e-3",
    "open scoped BigOperators Nat in norm_num", "exact sorry_free h", "have h₁' : x ^ 2 = 0x1F := by simp_all", "exact x⁻¹",
)  # fmt: skip


def test_words_that_would_escape_are_not_taken_and_names_that_have_them_are():
    assert [t for t in (*ESCAPES, *TOUCHING, *RUN) if allowed(t)] == []
    assert [t for t in FINE if not allowed(t)] == []


@pytest.mark.parametrize(
    ("theorem", "before", "rest"),
    [
        (SWAP, (), STATEMENT),
        (STATEMENT, (), STATEMENT),
        ("p → p", (), ": p → p"),
        ("(a + b) * c = d", (), ": (a + b) * c = d"),
        ("lemma aa: 1=1 := sorry", (), ": 1=1"),
        ("theorem t : let n := 1; n = 1 := by\n  intro n\n  rfl", (), ": let n := 1; n = 1"),
        ("example {n : Nat} : n = n :=", (), "{n : Nat} : n = n"),
        ("theorem u.{v} (α : Type v) : α = α := rfl", (), ".{v} (α : Type v) : α = α"),
        ("open Nat\n/-- Prove the theorem of a lemma. -/theorem m' : 1 = 1 := by -- a theorem x : 2 = 2\n  sorry", ("open Nat",),
         ": 1 = 1"),
        ("import Mathlib\nopen Real\n\ntheorem m_1\n  (x : ℝ) :\n  x = x := by\n  sorry", ("import Mathlib", "open Real", ""),
         "(x : ℝ) :\n  x = x"),
    ],
)  # fmt: skip
def test_a_theorem_of_a_file(theorem, before, rest):
    read = stated(theorem)
    assert (read.before, read.rest) == (before, rest)


@pytest.mark.parametrize("text", ["", "theorem x", "theorem x :", "1 = 1\naxiom a : False", "sorry"])
def test_what_is_no_theorem(text):
    with pytest.raises(UserError, match="no single theorem of Lean"):
        stated(text)


@pytest.mark.parametrize(
    ("reply", "script"),
    [
        ("intro h\nexact h", ["intro h", "exact h"]),
        ("<think>rfl</think>\n```lean4\ntheorem x (p : Prop) : p → p := by\n  intro h\n  exact h\n```", ["intro h", "exact h"]),
        ("First\n```lean\nsimp\n```\nor\n```\nrfl\n```", ["rfl"]),
        ("theorem x : 1 = 1 := by rfl", ["rfl"]),
        ("```lean\n  constructor\n  · simp\n    ring\n  · rfl\n```", ["constructor", "· simp\n  ring", "· rfl"]),
        ("cases n with\n| zero => simp\n| succ n =>\n  simp", ["cases n with\n| zero => simp\n| succ n =>\n  simp"]),
        ("simp [h] -- at the end of it\n/- open it:\nsorry -/\nrfl", ["simp [h]", "rfl"]),
        ("  intro h\n  exact h\n```", ["intro h", "exact h"]),
        ("  rfl\n```\nThis closes it.", ["rfl"]),
        ("```lean4\ntheorem x : 1 = 1 :=\n  by\n  rfl\n```", ["rfl"]),
        ("```lean4\r\ntheorem x (h : 1 = 1 := by rfl) : 1 = 1 := by\r\n  exact h\r\n```", ["exact h"]),
        ("theorem x : 1 = 1 := rfl", ["exact rfl"]),
        (
            "```lean\nimport Mathlib\nset_option maxHeartbeats 400000 in\nlemma aux (n : ℕ) : n ≤ n := by\n  simp\n\n"
            "open Nat in\nlemma b : 1 = 1 := rfl\n\n/-- x -/\ntheorem x : 0 ≤ 0 := by\n  exact aux 0\n```",
            ["have aux (n : ℕ) : n ≤ n := by\n  simp", "have b : 1 = 1 := rfl", "exact aux 0"],
        ),
        ("lemma a : False := by\n  sorry\ntheorem x : 1 = 2 := by\n  exact a.elim",
         ["have a : False := by\n  sorry", "exact a.elim"]),
        ("theorem x : 1 = 1", []),
        ("<think>rfl", []),
        ("", []),
    ],
)  # fmt: skip
def test_the_tactics_of_a_reply(reply, script):
    assert lean_script(reply) == script


def test_a_proof_step_by_step():
    with lean_server() as (url, asked):
        kernel = Lean(url, imports="Mathlib, Aesop", preamble="import Extra\nopen Nat")
        start = kernel.start(SWAP)
        assert start.goals == (GOAL,) and not start.whole
        first, wrong, hole, same = kernel.step(start, ["intro h", "ring", "sorry", "intro h"])
        assert isinstance(first, ProofState) and first == same and first.goals[0].endswith("⊢ q ∧ p")
        assert isinstance(wrong, Rejected) and wrong.reason == "unknown tactic" and isinstance(hole, Rejected)
        assert len(asked[-1]["snippets"]) == 2, "neither the hole nor the second of two equal ones is asked"
        (both,) = kernel.step(first, ["constructor"])
        assert both.goals == HALVES
        (half,) = kernel.step(both, ["· exact h.2"])
        (whole,) = kernel.step(half, ["· exact h.1"])
        assert whole.whole and kernel.accepts(SWAP, whole.script)
        assert [r.reason for r in kernel.step(whole, ["rfl"])] == ["nothing is left to prove"]
        code = asked[1]["snippets"][0]["code"]
        assert code.startswith("import Mathlib\nimport Aesop\nimport Extra\nopen Nat\ntheorem palaestra_theorem")


def test_what_lean_accepts():
    with lean_server() as (url, _):
        kernel = Lean(url)
        assert kernel.accepts(SWAP, PROOF) and kernel.accepts(SWAP, ["aesop"]), "propext is Lean's own"
        assert (
            not kernel.accepts(SWAP, PROOF[:3]) and not kernel.accepts(SWAP, []) and not kernel.accepts(SWAP, ["rfl"])
        )
        assert not kernel.accepts(SWAP, ["exact foo"]), "it rests on an axiom that was made for it"
        assert not kernel.accepts("1 = 1", ["native_decide"])
        assert Lean(url, axioms=("Lean.ofReduceBool",)).accepts("1 = 1", ["native_decide"])
        with pytest.raises(UserError, match="Lean does not take 'nonsense' as a theorem: Unknown identifier"):
            kernel.start("nonsense")


def test_spellings_of_statements_that_a_model_writes():
    kernel = Lean("http://127.0.0.1:1")
    assert kernel.normal("p := by trivial\naxiom x : False") == "p", "what follows the statement is its proof"
    assert kernel.normal("(p : Prop) :\n p → p := by sorry") == "(p : Prop) : p → p"
    assert [kernel.normal(t) for t in ("", "p axiom x : False", "open Nat", "let x := 1; x = 1")] == [None] * 4


def forged(results):
    """Lean's last word is missing, and a tactic printed what it says."""
    for x in results["results"]:
        x["response"]["messages"] = [message("info", 3, 2, "'palaestra_theorem' does not depend on any axioms")]
    return results


def inner(results):
    """The goals that are left are those of a step inside, two lines below the `by`."""
    for x in results["results"]:
        for m in x["response"]["messages"]:
            m["pos"]["line"] += 2 * m["data"].startswith("unsolved")
    return results


def silent(results):
    for x in results["results"]:
        x["response"]["messages"] = []
    return results


@pytest.mark.parametrize("change", [forged, silent])
def test_printed_text_and_silence_are_no_proof(change):
    with lean_server(change) as (url, _):
        assert not Lean(url).accepts(SWAP, PROOF)


def test_goals_of_a_step_inside_are_no_state():
    with lean_server(inner) as (url, _), pytest.raises(UserError, match="unsolved goals"):
        Lean(url).start(SWAP)


@pytest.mark.parametrize(
    ("said", "axioms"),
    [
        ("'palaestra_theorem' does not depend on any axioms", set()),
        ("'A.b.palaestra_theorem' depends on axioms: [propext,\n Classical.choice,\n Quot.sound]",
         {"propext", "Classical.choice", "Quot.sound"}),
        ("'palaestra_theorem' depends on axioms: []", set()),
        ("'my_palaestra_theorem' does not depend on any axioms", None),
        ("'palaestra_theorem' does not depend on any axioms, and so on", None),
        ("Try this: exact rfl", None),
    ],
)  # fmt: skip
def test_what_print_axioms_says(said, axioms):
    assert axioms_of({"data": said}) == axioms


def rests_on(*axioms):
    def change(results):
        for x in results["results"]:
            last = x["response"]["messages"][-1]
            last["data"] = f"'palaestra_theorem' depends on axioms: [{', '.join(axioms)}]"
            x["response"]["messages"].append({**last, "severity": "warning", "data": "a linter of commands"})
        return results

    return change


def test_axioms_of_native_computations_are_granted_by_name_alone():
    old = ("propext", "Lean.ofReduceBool", "Lean.trustCompiler")
    new = ("palaestra_theorem._native.native_decide.ax_1_1",)
    for named in (old, new):
        with lean_server(rests_on(*named)) as (url, _):
            assert not Lean(url).accepts(SWAP, PROOF) and not Lean(url, axioms=("other",)).accepts(SWAP, PROOF)
            assert Lean(url, axioms=("Lean.ofReduceBool",)).accepts(SWAP, PROOF)
    with lean_server(rests_on("sorryAx")) as (url, _):
        assert not Lean(url, axioms=("Lean.ofReduceBool",)).accepts(SWAP, PROOF), "as after apply? without an error"


@pytest.mark.parametrize("change", [forged, silent, inner, rests_on("cheat"), rests_on("propext")])
def test_a_server_that_tells_a_proof_and_a_hole_not_apart_is_a_fault(change):
    with lean_server(change, first=True) as (url, asked):
        with pytest.raises(Fault, match="does not prove True by trivial"):
            Lean(url, imports="Mathlib").accepts(SWAP, PROOF)
        assert len(asked) == 1


def test_a_server_is_tried_once():
    with lean_server() as (url, asked):
        assert [Lean(url).accepts(SWAP, PROOF) for _ in range(2)] == [True, True]
        assert [len(a["snippets"]) for a in asked] == [3, 1, 1] and asked[0]["timeout"] == 300


def test_a_server_without_room_is_asked_again(monkeypatch):
    slept = list[float]()
    monkeypatch.setattr(lean.time, "sleep", slept.append)
    answers = iter([429, 429, 200])
    with lean_server(status=lambda body: next(answers)) as (url, _):
        assert Lean(url).accepts(SWAP, PROOF) and slept == [1.0, 2.0]


def test_a_proof_that_breaks_lean_down_is_none_and_the_others_count():
    def broken_by(word):
        return lambda body: 500 if any(word in x["code"] for x in body["snippets"]) else 200

    with lean_server(status=broken_by("decide")) as (url, _):
        start = Lean(url).start("1 = 1")
        fine, broke = Lean(url).step(start, ["rfl", "native_decide"])
        assert fine.whole and broke == Rejected(reason="Lean breaks down on it")
        assert not Lean(url).accepts("1 = 1", ["native_decide"])
    with lean_server(status=500, first=True) as (url, _), pytest.raises(Fault, match="answered 500"):
        Lean(url).accepts(SWAP, PROOF)


def test_imports_that_come_too_late_get_time_to_load():
    def loading(results):
        slow = "Lean REPL header command timed out in 100.0 seconds"
        return {"results": [{"id": x["id"], "error": slow} for x in results["results"]]} if times.pop() else results

    times = [False, True]
    with lean_server(loading) as (url, asked):
        assert Lean(url).accepts(SWAP, PROOF) and [a["timeout"] for a in asked] == [300, 100, 300]
    times = [True, True]
    with lean_server(loading) as (url, _), pytest.raises(Fault, match="header command timed out"):
        Lean(url).accepts(SWAP, PROOF)


def late(results):
    return {
        "results": [{"id": x["id"], "error": "Lean REPL command timed out in 10 seconds"} for x in results["results"]]
    }


def broken(results):
    return {"results": [{"id": x["id"], "response": {"message": "unknown environment"}} for x in results["results"]]}


def test_a_slow_proof_is_none_and_a_broken_server_a_fault(monkeypatch):
    monkeypatch.setattr(lean, "WAITS", ())
    with lean_server(late) as (url, _):
        assert not Lean(url).accepts(SWAP, PROOF)
    with lean_server(broken) as (url, _), pytest.raises(Fault, match="unknown environment"):
        Lean(url).accepts(SWAP, PROOF)
    for change, status in (
        (lambda _: "no JSON", 200),
        (lambda _: {"results": []}, 200),
        (lambda _: {"detail": "No REPL"}, 429),
    ):
        with lean_server(change, status) as (url, _), pytest.raises(Fault, match=f"answered {status} and no results"):
            Lean(url).accepts(SWAP, PROOF)
    with pytest.raises(Fault, match=r"no Kimina Lean Server answers at http://127.0.0.1:9"):
        Lean("http://127.0.0.1:9").start(SWAP)


def test_a_key_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv(KEY, raising=False)
    with lean_server(key="secret") as (url, asked):
        with pytest.raises(UserError, match=KEY):
            Lean(url).accepts(SWAP, PROOF)
        monkeypatch.setenv(KEY, "secret")
        assert Lean(url).accepts(SWAP, PROOF) and "secret" not in json.dumps(asked)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"name": "lean"}, "add server="),
        ({"name": "lean", "server": "localhost:8000"}, "no address"),
        ({"name": "lean", "server": "http://h:1", "imports": "../x"}, "no module"),
        ({"name": "lean", "server": "http://h:1", "preamble": "no/such.lean"}, "no text of Lean"),
        ({"name": "coq", "server": "http://h:1"}, "add kernel=lean"),
        ({"name": "own", "imports": "Arith"}, "add kernel=coq or kernel=lean"),
    ],
)
def test_words_of_a_command_that_are_refused(words, message):
    with pytest.raises(UserError, match=message):
        open_assistant(**words)
    assert open_assistant("own") is None
