"""Lean 4 as a proof kernel, behind a Kimina Lean Server that the user runs.

Lean runs what a proof says while it reads it, so it runs where the server does: in a container of the
user's, not here. A state and a whole proof are one request each,

    theorem palaestra_theorem STATEMENT := by
      skip
      TACTICS
    #print axioms palaestra_theorem

A proof is accepted where Lean has no error and the theorem rests on no axiom beside Lean's own three and
those allowed. Where the only error is "unsolved goals" of the whole proof, these are what is left. A word
that would begin a command, leave a hole or change what Lean checks is not taken, in whatever place.

Sources: the server's requests and answers (https://github.com/project-numina/kimina-lean-server), and the
messages that Lean's REPL has on record (https://github.com/leanprover-community/repl, folder test).
"""

from __future__ import annotations

import json
import math
import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2

from palaestra.errors import Fault, UserError
from palaestra.services.proof.base import ProofState, Rejected
from palaestra.types import stage, value_class

NAME = "palaestra_theorem"
STANDARD = ("propext", "Classical.choice", "Quot.sound")  # axioms that every proof may rest on
KEY = "LEAN_SERVER_API_KEY"  # the environment variable with the server's key, as its own client has it
UNSOLVED = "unsolved goals\n"
HERE = ("localhost", "127.0.0.1", "::1")  # never asked through a proxy
MODULE = re.compile(r"[A-Za-z_][\w.]*")
# what begins a command (so that `#print axioms` is Lean's own, and no declaration escapes it), a hole, and what
# runs a program or turns a check off. A name of the library may contain them: `List.prefix_append`.
WORDS = (
    *("abbrev", "add_decl_doc", "alias", "attribute", "axiom", "binder_predicate", "builtin_initialize", "class"),
    *("compile_inductive", "coinductive", "declare_syntax_cat", "def", "deriving", "elab", "elab_rules", "end", "example"),
    *("export", "import", "include", "inductive", "infix", "infixl", "infixr", "initialize", "instance", "irreducible_def"),
    *("lemma", "local", "macro", "macro_rules", "mutual", "namespace", "noncomputable", "notation", "notation3", "omit"),
    *("opaque", "open", "partial", "postfix", "prefix", "private", "protected", "public", "scoped", "section", "seal"),
    *("set_option", "simproc", "structure", "syntax", "theorem", "universe", "unseal", "unsafe", "variable"),
    *("by_elab", "run_cmd", "run_elab", "run_meta", "run_tac", "implemented_by", "extern"),
    *("admit", "sorry", "sorryAx", "stop"),
)  # fmt: skip
FORBIDDEN = re.compile(rf"(?<![\w.'])(?:{'|'.join(WORDS)})(?![\w'])|#\w|/-|-/|@\[|«")
DECLARED = re.compile(r"(?:^|(?<=\s))(?:theorem|lemma|example)(?=\s)[ \t]*")
LOCAL = re.compile(r"\b(?:let|have)\b[^;\n]*$")  # its `:=` is no proof's
PAIRS = {"(": ")", "{": "}", "[": "]", "⦃": "⦄"}
BEGINS = re.compile(r":=\s*by\b[ \t]*")
FENCED = re.compile(r"```[\w]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
COMMENT = re.compile(r"/-.*?-/|--[^\n]*", re.DOTALL)
CONTINUES = ("|", "<;>", "_ ", ")", "}", "]", "⟩")  # begin a line that belongs to the tactic above
AXIOMS = re.compile(r"depends on axioms:\s*\[([^\]]*)\]")
FREE = "does not depend on any axioms"


def allowed(text: str) -> bool:
    """Whether a tactic, or a statement that a model wrote, has none of the words that are not taken."""
    return bool(text.strip()) and "\t" not in text and not FORBIDDEN.search(text)


def lean_script(reply: str) -> list[str]:
    """The tactics of a reply: of its last block of code, else of all that follows the thoughts; where it states
    the theorem again, what follows the first `:= by`. A tactic has the lines that are indented below it; comments
    are left out.
    """
    text = reply.rpartition("</think>")[2].partition("<think>")[0]
    blocks = FENCED.findall(text)
    text = COMMENT.sub("", blocks[-1] if blocks else text)
    if DECLARED.search(text) and (begin := BEGINS.search(text)):
        text = text[begin.end() :]
    first, _, rest = text.partition("\n")
    lines = [first.strip(), *textwrap.dedent(rest).splitlines()] if first.strip() else [rest]
    script = list[str]()
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        if script and (not line.strip() or line[0].isspace() or line.startswith(CONTINUES)):
            script[-1] += f"\n{line}"
        elif line.strip():
            script.append(line)
    return [tactic.rstrip() for tactic in script]


@value_class
class Stated:
    """A theorem as Lean reads it: lines that stand before it, and its binders and type."""

    before: tuple[str, ...]
    rest: str


def stated(theorem: str) -> Stated:
    """The parts of a theorem of a file: a statement, or `theorem NAME binders : statement`, with imports and
    commands before it and a proof behind it, or without; the proof is left out. Raises UserError.
    """
    text = theorem.strip()
    heads = list(DECLARED.finditer(text))
    before, rest = "", text
    if heads:
        before, rest = text[: heads[-1].start()], text[heads[-1].end() :]
        named = heads[-1].group().strip() != "example"
        rest = re.sub(r"^[^\s:({\[⦃]+\s*", "", rest) if named else rest
    elif not has_binders(rest):
        rest = f": {rest}"
    rest = without_proof(rest)
    if not rest.strip().strip(":").strip() or FORBIDDEN.search(rest):
        raise UserError(
            f"{theorem[:80]!r} is no single theorem of Lean; give one, without its proof, such as "
            "theorem swap (p q : Prop) : p ∧ q → q ∧ p"
        )
    return Stated(before=tuple(before.splitlines()), rest=rest.strip())


def without_proof(text: str) -> str:
    """What stands before the first `:=` outside of brackets."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign in PAIRS) - (sign in PAIRS.values())
        if depth == 0 and text[at : at + 2] == ":=" and not LOCAL.search(text[:at]):
            return text[:at]
    return text


def has_binders(text: str) -> bool:
    """Whether brackets come first and a colon after them, as in `(p : Prop) : p → p`."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign in PAIRS) - (sign in PAIRS.values())
        if depth == 0 and sign not in PAIRS.values() and not sign.isspace():
            return at > 0 and sign == ":" and text[at : at + 2] != ":="
    return False


@stage
class Lean:
    """Lean 4 behind a Kimina Lean Server; the server's key, where it wants one, stands in the environment variable
    LEAN_SERVER_API_KEY.

    Args:
        server: its address, such as http://127.0.0.1:8000.
        imports: modules that a theorem may use, parted by commas: "Mathlib,Aesop".
        preamble: Lean that stands before each theorem: definitions, open namespaces.
        axioms: that a proof may rest on beside Lean's own three, such as Lean.ofReduceBool.
        seconds: of the server's clock that a tactic may take; a whole proof takes ten times as long.
    """

    server: str
    imports: str = ""
    preamble: str = ""
    axioms: tuple[str, ...] = ()
    seconds: float = 10.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(
                f"Lean: {self.server!r} is no address of a Kimina Lean Server; write server=http://HOST:PORT"
            )
        for name in self._modules:
            if not MODULE.fullmatch(name):
                raise UserError(f"Lean: {name!r} is no module; write imports=Mathlib,Aesop")
        if not self.seconds > 0:
            raise UserError(f"Lean: seconds={self.seconds:g} must be above 0")

    @property
    def _modules(self) -> list[str]:
        return [x for part in self.imports.split(",") if (x := part.strip())]

    @property
    def name(self) -> str:
        return "lean"

    @property
    def rules(self) -> str:
        return "Answer with tactics of Lean 4 alone, such as intro h, exact h or simp; do not state the theorem again."

    @property
    def subgoal_rules(self) -> str:
        return "Statements are terms of type Prop in Lean 4, with the names of the hypotheses."

    def start(self, theorem: str) -> ProofState:
        """Raises Fault "proof-server" where the server does not answer, UserError where Lean reads no theorem."""
        (read,) = self._read(theorem, [()], 2 * self.seconds)
        if isinstance(read, Rejected):
            raise UserError(f"Lean does not take {theorem[:80]!r} as a theorem: {read.reason}")
        return read

    def step(self, state: ProofState, tactics: Sequence[str]) -> list[ProofState | Rejected]:
        if state.whole:
            return [Rejected(reason="nothing is left to prove") for _ in tactics]
        asked = [t for t in dict.fromkeys(tactics) if allowed(t)]
        scripts = [(*state.script, t) for t in asked]
        answers = self._read(state.theorem, scripts, self.seconds) if asked else []
        made = dict(zip(asked, answers, strict=True))
        no = Rejected(reason="it is no tactic, or has a word that is not taken")
        same = Rejected(reason="it changes nothing")
        return [same if made.get(t) == state else made.get(t, no) for t in tactics]

    def tactics(self, state: ProofState) -> tuple[str, ...]:
        return ()

    def assume(self, statement: str) -> str:
        return f"have : {statement} := ?_"

    def normal(self, statement: str) -> str | None:
        text = " ".join(without_proof(statement).split())
        return text if allowed(text) and ":=" not in text else None

    def accepts(self, theorem: str, script: Sequence[str]) -> bool:
        if not script or not all(allowed(t) for t in script):
            return False
        (read,) = self._read(theorem, [tuple(script)], 10 * self.seconds)
        return isinstance(read, ProofState) and read.whole

    # ---- requests

    def _read(
        self, theorem: str, scripts: Sequence[tuple[str, ...]], seconds: float
    ) -> list[ProofState | Rejected]:
        """What is left of a theorem after each script."""
        made = stated(theorem)
        codes = [self._code(made, script) for script in scripts]
        answers = self._ask(codes, seconds)
        return [
            self._state(theorem, script, answer)
            for script, answer in zip(scripts, answers, strict=True)
        ]

    def _code(self, made: Stated, script: Sequence[str]) -> str:
        """Imports, what stands before the theorem, the theorem, and the question for its axioms."""
        lines = [*self.preamble.splitlines(), *made.before]
        imports = [f"import {x}" for x in self._modules]
        imports += [x.strip() for x in lines if x.strip().startswith("import ")]
        rest = [x for x in lines if not x.strip().startswith("import ")]
        proof = f"theorem {NAME} {made.rest} := by\n{body_of(script)}\n#print axioms {NAME}"
        return "\n".join([*dict.fromkeys(imports), *rest, proof])

    def _ask(self, codes: Sequence[str], seconds: float) -> list[Any]:
        """The server's answers to snippets of Lean, in order. Raises Fault "proof-server", UserError."""
        limit = max(1, math.ceil(seconds))
        snippets = [{"id": str(i), "code": code} for i, code in enumerate(codes)]
        key = os.environ.get(KEY, "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        local = urlsplit(self.server).hostname in HERE
        try:
            with httpx2.Client(trust_env=not local, timeout=limit * len(codes) + 30.0) as client:
                answer = client.post(
                    f"{self.server.rstrip('/')}/api/check",
                    json={"snippets": snippets, "timeout": limit},
                    headers=headers,
                )
        except httpx2.HTTPError as error:
            raise Fault(
                "proof-server",
                f"no Kimina Lean Server answers at {self.server} ({type(error).__name__}); start one, "
                "or correct server=",
            ) from None
        if answer.status_code in (401, 403):
            raise UserError(
                f"the Lean server at {self.server} wants a key; put it into the environment variable {KEY}"
            )
        try:
            by_id = {str(x["id"]): x for x in json.loads(answer.text)["results"]}
            return [by_id[str(i)] for i in range(len(codes))]
        except (ValueError, KeyError, TypeError):
            raise Fault(
                "proof-server",
                f"the server at {self.server} answered {answer.status_code} and no results: {answer.text[:200]}",
            ) from None

    def _state(
        self, theorem: str, script: tuple[str, ...], answer: Mapping[str, Any]
    ) -> ProofState | Rejected:
        """What a server's answer to one snippet says. Raises Fault for an error that is the server's own."""
        why, response = answer.get("error"), answer.get("response") or {}
        if why and "timed out" in str(why):
            return Rejected(reason="it takes too long")
        if why or "message" in response:
            raise Fault("proof-server", str(why or response["message"])[:300])
        messages = response.get("messages") or []
        errors = [m for m in messages if m["severity"] == "error"]
        reason = " ".join(str(errors[0]["data"]).split())[:200] if errors else "Lean says nothing"
        last = max(messages, key=place, default=None)
        # what tactics print stands in columns of their own: column 0 of the last line is Lean's own answer
        if last is None or last["severity"] != "info" or place(last)[1] or axioms_of(last) is None:
            return Rejected(reason=reason)
        if not errors:
            named = (axioms_of(last) or frozenset()) - {*STANDARD, *self.axioms}
            if named:
                return Rejected(reason=f"it rests on {', '.join(sorted(named))}")
            return ProofState(theorem=theorem, goals=(), remains="", script=script)
        text = str(errors[0]["data"])
        begins = place(last)[0] - body_of(script).count("\n") - 2  # the line that ends with "by"
        if len(errors) > 1 or not text.startswith(UNSOLVED) or place(errors[0])[0] != begins:
            return Rejected(reason=reason)
        remains = text.removeprefix(UNSOLVED).strip()
        return ProofState(
            theorem=theorem, goals=tuple(remains.split("\n\n")), remains=remains, script=script
        )


def body_of(script: Sequence[str]) -> str:
    """The lines of a proof; `skip` does nothing, and stands for an empty one."""
    return textwrap.indent("\n".join(["skip", *script]), "  ")


def place(message: Mapping[str, Any]) -> tuple[int, int]:
    """Line, from 1, and column, from 0, of a message."""
    return int(message["pos"]["line"]), int(message["pos"]["column"])


def axioms_of(message: Mapping[str, Any]) -> frozenset[str] | None:
    """The axioms that a message says the theorem rests on; None where it says nothing of them."""
    text = str(message["data"])
    if not text.startswith(f"'{NAME}' "):
        return None
    if (listed := AXIOMS.search(text)) is None:
        return frozenset() if FREE in text else None
    return frozenset(x.strip() for x in listed[1].split(",") if x.strip())
