"""Coq as a kernel: real proofs, commands that would escape, and the built-in kernel against Coq's own `tauto`."""

import shutil

import pytest
from palaestra.errors import Fault, UserError
from palaestra.services import sandbox
from palaestra.services.proof.base import ProofState, Rejected
from palaestra.services.proof.coq import Coq, sentence
from palaestra.services.proof.formulas import formula_text, read_formula
from palaestra.services.sandbox.values import Limits, Ran

from tests.services.proof.statements import OTHERS, THEOREMS

needs_coq = pytest.mark.skipif(
    shutil.which("coqtop") is None or bool(sandbox.sandbox_kind().refusal()),
    reason="Debian's package coq is not installed, or nothing can be isolated here",
)
SWAP = "forall p q : Prop, p /\\ q -> q /\\ p"
PROOF = ["intros p q H", "destruct H.", "split.", "assumption.", "assumption"]

ESCAPES = (
    "Admitted", "Admitted.", "admit", "admit.", "give_up.", "shelve.", "Abort.", "Qed.", "Defined.", "Axiom bad : False.",
    "Parameter bad : False", 'Load "x".', "Load x.", 'Redirect "f" Print nat.', 'Extraction "f" nat.', "Add LoadPath x.",
    'Declare ML Module "x".', "Require Import Classical.", "Unset Guard Checking.",
    "Set Bypass Check.", "#[bypass_check] exact I.",
    "exact I. Admitted.", "intros. Axiom bad : False. exact bad.", "intros.\nAdmitted.", "intros... Admitted.", "(* *) admit.",
    "exact (ltac:(admit)).", "intros; admit.", "all: give_up.", "abstract exact I.", "unshelve eauto.",
    'idtac "x".', "- exact I.", "{ exact I. }",
    "", ".", "Drop.", "Cd x.", "Fail exact I.",
)  # fmt: skip


def test_one_tactic_is_one_sentence():
    assert sentence("  intros   p\n q ") == "intros p q." and sentence("[> idtac].") == "[> idtac]."
    assert sentence("apply (Nat.add_comm n m).") == "apply (Nat.add_comm n m)."
    assert [sentence(t) for t in ESCAPES] == [None] * len(ESCAPES)


@pytest.mark.parametrize("text", ["", "True. Axiom bad : False", "True (* *)", 'True "x"'])
def test_a_theorem_is_one_statement(text):
    with pytest.raises(UserError, match="no single statement of Coq"):
        Coq()._statement(text)
    assert Coq()._statement("Lemma a n : n = n.") == "Theorem palaestra_theorem n : n = n."
    assert Coq()._statement("Goal True.") == "Theorem palaestra_theorem : True."


def test_without_coq_a_user_reads_the_remedy(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="apt install coq"):
        Coq().start(SWAP)
    with pytest.raises(UserError, match="no module of a library"):
        Coq(imports="Arith,../x")


def test_what_cannot_be_isolated_is_a_fault(monkeypatch):
    monkeypatch.setattr(sandbox, "run_program", lambda *a: Ran(status="refused", stderr="no bubblewrap"))
    with pytest.raises(Fault, match="isolation"):
        Coq().accepts(SWAP, PROOF)


def test_printed_text_makes_no_proof(monkeypatch):
    """What a tactic prints stands before Coq's own word on axioms, which is the last."""
    said = "Closed under the global context\nAxioms:\nbad : False\n"
    monkeypatch.setattr(sandbox, "run_program", lambda *a: Ran(status="ok", stdout=said))
    assert not Coq().accepts(SWAP, PROOF) and not Coq(axioms=("worse",)).accepts(SWAP, PROOF)
    assert Coq(axioms=("bad",)).accepts(SWAP, PROOF)
    monkeypatch.setattr(sandbox, "run_program", lambda *a: Ran(status="ok", stdout=""))
    assert not Coq().accepts(SWAP, PROOF), "silence is no proof"


@needs_coq
def test_a_proof_step_by_step():
    kernel = Coq()
    start = kernel.start(SWAP)
    first, second, wrong, hole = kernel.step(start, ["intros a b H", "intros p q H.", "reflexivity.", "admit."])
    assert isinstance(first, ProofState) and isinstance(second, ProofState) and first != second
    assert second.goals == ("p, q : Prop\nH : p /\\ q\n============================\nq /\\ p",)
    assert isinstance(wrong, Rejected) and isinstance(hole, Rejected)
    (split,) = kernel.step(second, ["destruct H; split."])
    assert len(split.goals) == 2 and split.goals[0].endswith("\nq") and split.goals[1].endswith("p")
    (other,) = kernel.step(second, ["split; destruct H."])
    assert other == split, "the same remains, by whatever way"
    (assumed,) = kernel.step(second, [kernel.assume("q")])
    assert len(assumed.goals) == 2 and assumed.script[-1] == "assert (q)."
    (whole,) = kernel.step(split, ["all: assumption."])
    assert whole.whole and kernel.accepts(SWAP, whole.script)


@needs_coq
def test_what_coq_accepts():
    kernel = Coq()
    assert kernel.accepts(SWAP, PROOF)
    assert not kernel.accepts(SWAP, PROOF[:-1]) and not kernel.accepts("forall p : Prop, p", ["intros", "assumption"])
    assert not any(kernel.accepts("False", [text]) for text in ("exact bad", "fix f 0; exact f", "exact_no_check I"))
    classical = ("forall p : Prop, p \\/ ~ p", ["apply classic"])
    assert not Coq(imports="Classical").accepts(*classical)
    assert Coq(imports="Classical", axioms=("classic",)).accepts(*classical)
    with pytest.raises(UserError, match="does not take"):
        kernel.start("forall p : Prop, r")


def classical_goal(text, holds):
    """Whether Coq's `tauto` decides a formula over p, q, r, where each is true or not."""
    spelled = formula_text(read_formula(text)).replace("&", "/\\").replace("|", "\\/").replace("false", "False")
    cases = "destruct P, Q, R; tauto." if holds else "destruct P, Q, R; solve [tauto]."
    goal = f"Goal forall p q r : Prop, (p \\/ ~p) -> (q \\/ ~q) -> (r \\/ ~r) -> ({spelled})."
    return f"{goal} intros p q r P Q R. {'' if holds else 'Fail '}{cases} Abort.\n"


@needs_coq
def test_coq_agrees_on_60_theorems_and_60_others():
    code = [classical_goal(t, t in THEOREMS) for t in (*THEOREMS, *OTHERS)]
    limits = Limits(seconds=60, memory_mb=2048)
    ran = Coq()._run("coqc", ["-q", "all.v"], "", limits.seconds, {"all.v": "".join(code)})
    assert ran.status == "ok", ran.stderr
    swapped = Coq()._run("coqc", ["-q", "one.v"], "", limits.seconds, {"one.v": classical_goal(OTHERS[0], True)})
    assert swapped.status != "ok", "the check can fail"
