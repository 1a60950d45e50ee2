"""Coq as a proof kernel: `coqtop` steps and `coqc` accepts, both inside the sandbox.

A process runs the script of a state again for each tactic and shows what is left. A tactic is one
sentence of Ltac: what could end the proof, leave a hole or be a command of its own is not taken. A
proof is accepted where `coqc` compiles it from the statement and its theorem rests on no axiom beside
`axioms`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence

from palaestra.errors import Fault, UserError
from palaestra.services import sandbox
from palaestra.services.proof.base import ProofState, Rejected
from palaestra.services.sandbox.values import Limits, Ran
from palaestra.types import need_at_least, stage

NAME = "palaestra_theorem"
MARK = "@@palaestra"
HEAD = re.compile(r"^(?:Theorem|Lemma|Example|Fact|Corollary|Proposition)\s+[\w']+\s*|^Goal\s+")
SEVERAL = re.compile(r"\.(?:\s|$)|\(\*|\"")  # a second sentence, a comment, or text that is printed
HOLES = re.compile(r"\b(?:admit|give_up|shelve|unshelve|abstract|Admitted|Abort|Qed|Defined)\b")
EXISTENTIAL = re.compile(r"\?Goal\d*|^Existential \d+ =", re.MULTILINE)
GOALS = re.compile(r"(\d+) goals?\b")
CLOSED = "Closed under the global context"
LIBRARY = re.compile(r"[A-Za-z_][\w.]*")
# Debian's Coq reads where OCaml's packages lie from a file in /etc, which the sandbox does not have
LAUNCH = """import os
with open("/tmp/findlib.conf", "w") as file:
    file.write('destdir="/tmp"\\npath="/usr/lib/ocaml"\\n')
os.environ["OCAMLFIND_CONF"] = "/tmp/findlib.conf"
os.execvp({program!r}, {words!r})
"""


def sentence(tactic: str) -> str | None:
    """A tactic as one sentence of Ltac, with its full stop; None where it is anything else."""
    text = " ".join(tactic.split()).removesuffix(".").strip()
    if not text or SEVERAL.search(text) or HOLES.search(text):
        return None
    return f"{text}." if re.match(r"[a-z(\[]", text) else None


@stage
class Coq:
    """Coq in the sandbox; needs Debian's package `coq`.

    Args:
        imports: modules of Coq's library that a theorem may use, parted by commas: "Arith,Lia".
        axioms: that a proof may rest on, such as classic, by the names that `Print Assumptions` gives.
        seconds: of the wall clock that a tactic may take; a whole proof takes ten times as long.
        memory_mb: of a process.
    """

    imports: str = ""
    axioms: tuple[str, ...] = ()
    seconds: float = 5.0
    memory_mb: int = 2048

    def __post_init__(self) -> None:
        need_at_least(self, memory_mb=128)
        for name in self._modules:
            if not LIBRARY.fullmatch(name):
                raise UserError(f"Coq: {name!r} is no module of a library; write imports=Arith,Lia")

    @property
    def _modules(self) -> list[str]:
        return [x for part in self.imports.split(",") if (x := part.strip())]

    @property
    def name(self) -> str:
        return "coq"

    @property
    def rules(self) -> str:
        return "Answer with one tactic of Coq, such as intros., destruct H. or apply H."

    @property
    def subgoal_rules(self) -> str:
        return "Statements are terms of type Prop in Coq, with the names of the hypotheses."

    def start(self, theorem: str) -> ProofState:
        if shutil.which("coqtop") is None or shutil.which("coqc") is None:
            raise UserError(
                "kernel=coq needs Coq, which is not installed; `apt install coq` brings it, or choose "
                "kernel=own for propositional formulas"
            )
        ran = self._run("coqtop", ["-q"], self._script(theorem, (), None, 0), 2 * self.seconds)
        state = self._read(theorem, (), ran.stdout.partition(MARK)[0])
        if state is None:
            why = " ".join(ran.stderr.split())[-200:]
            raise UserError(f"Coq does not take {theorem[:80]!r} as a theorem: {why}")
        return state

    def step(self, state: ProofState, tactics: Sequence[str]) -> list[ProofState | Rejected]:
        if state.whole:
            return [Rejected(reason="nothing is left to prove") for _ in tactics]
        sentences = [sentence(t) for t in tactics]
        asked = [s for s in dict.fromkeys(sentences) if s]
        if not asked:
            return [Rejected(reason="it is no single tactic") for _ in tactics]
        script = "".join(
            self._script(state.theorem, state.script, s, i) for i, s in enumerate(asked)
        )
        ran = self._run("coqtop", ["-q"], script, self.seconds * (1 + len(asked)))
        outputs = re.split(rf"{MARK} \d+", ran.stdout)
        made: dict[str, ProofState | Rejected] = {}
        for i, s in enumerate(asked):
            after = None
            if i + 1 < len(outputs):  # its mark was printed
                after = self._read(state.theorem, (*state.script, s), outputs[i])
            moved = after is not None and after != state
            made[s] = after if after and moved else Rejected(reason="Coq does not take it here")
        no = Rejected(reason="it is no single tactic")
        return [made[s] if s else no for s in sentences]

    def tactics(self, state: ProofState) -> tuple[str, ...]:
        return ()

    def assume(self, statement: str) -> str:
        return f"assert ({statement})."

    def normal(self, statement: str) -> str | None:
        text = " ".join(statement.split()).removesuffix(".")
        balanced = text.count("(") == text.count(")")
        return text if balanced and text and sentence(self.assume(text)) else None

    def accepts(self, theorem: str, script: Sequence[str]) -> bool:
        lines = [sentence(t) for t in script]
        if not all(lines):
            return False
        body = "\n".join([self._statement(theorem), "Proof.", *(s for s in lines if s), "Qed."])
        text = f"{self._preamble}{body}\nPrint Assumptions {NAME}.\n"
        ran = self._run("coqc", ["-q", "theorem.v"], "", 10 * self.seconds, {"theorem.v": text})
        if ran.status != "ok":
            return False
        if ran.stdout.strip().endswith(CLOSED):  # what tactics print stands before
            return True
        _, _, axioms = ran.stdout.rpartition("Axioms:")
        named = re.findall(r"^([\w.']+)\s*:", axioms, re.MULTILINE)
        return bool(named) and set(named) <= set(self.axioms)

    @property
    def _preamble(self) -> str:
        return "".join(f"Require Import {x}.\n" for x in self._modules)

    def _statement(self, theorem: str) -> str:
        text = " ".join(theorem.split()).removesuffix(".").strip()
        if not text or SEVERAL.search(text):
            raise UserError(
                f"{theorem[:80]!r} is no single statement of Coq; give one, without its proof"
            )
        rest = HEAD.sub("", text)
        named = rest != text and not text.startswith("Goal")
        return f"Theorem {NAME} {rest}." if named else f"Theorem {NAME} : {rest}."

    def _script(self, theorem: str, script: Sequence[str], tactic: str | None, i: int) -> str:
        """What coqtop reads to show a state, or what one more tactic makes of it, before its mark."""
        imports = self._preamble if not i else ""
        last = [f"Timeout {max(1, round(self.seconds))} {tactic}"] if tactic else []
        shows = ["Show.", "Show Existentials.", "Abort.", f'Goal True. idtac "{MARK} {i}". Abort.']
        quiet = ["Set Silent.", self._statement(theorem), *script, *last, "Unset Silent."]
        return "\n".join([imports, *quiet, *shows, ""])

    def _read(self, theorem: str, script: tuple[str, ...], output: str) -> ProofState | None:
        """The state that `Show` printed; None where there is none, or a hole in it."""
        if "No more goals." in output:
            return ProofState(theorem=theorem, goals=(), remains="", script=script)
        match = GOALS.search(output)
        if match is None or "Existential 1" not in output:
            return None
        text, _, left = output[match.end() :].partition("Existential 1")
        first, *others = re.split(r"^goal \d+ is:$", text, flags=re.MULTILINE)
        goals = tuple(x.strip().replace("\n  ", "\n") for x in (first, *others))
        if len(goals) != int(match[1]):
            return None
        remains = EXISTENTIAL.sub("?", f"Existential 1{left}").partition("1 goal")[0]
        return ProofState(theorem=theorem, goals=goals, remains=remains.strip(), script=script)

    def _run(
        self,
        program: str,
        words: Sequence[str],
        stdin: str,
        seconds: float,
        files: dict[str, str] | None = None,
    ) -> Ran:
        code = LAUNCH.format(program=program, words=[program, *words])
        limits = Limits(seconds=seconds, memory_mb=self.memory_mb)
        ran = sandbox.run_program(code, stdin, files, limits)
        if ran.status == "refused":
            raise Fault(
                "sandbox",
                "this machine cannot run Coq in isolation; `palaestra doctor` says what is missing",
            )
        return ran
