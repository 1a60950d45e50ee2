"""Lean 4 as a proof kernel, behind a Kimina Lean Server that the user runs.

Lean runs what a proof says while it reads it, so it runs where the server does: in a container of the
user's, not here. A state and a whole proof are one request each,

    theorem palaestra_theorem STATEMENT := by
      skip
      TACTICS
    #print axioms palaestra_theorem

A proof is accepted where Lean has no error and the theorem rests on no axiom beside Lean's own three and
those allowed. Where the only error is "unsolved goals" of the whole proof, these are what is left. A word
that would begin a command, leave a hole or change what Lean checks is not taken, in whatever place. Before its
first answer a server is asked for a proof, a hole and a goal of `True`: one that tells them not apart is a fault.

Sources: the server's requests and answers (https://github.com/project-numina/kimina-lean-server), the
messages that Lean's REPL has on record (https://github.com/leanprover-community/repl, folder test), what
`#print axioms` says (lean4, src/Lean/Elab/Print.lean), and the letters of names (src/Init/Meta/Defs.lean).
"""

from __future__ import annotations

import json
import math
import os
import re
import textwrap
import threading
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

import httpx2

from palaestra.errors import Fault, UserError
from palaestra.services.chat.wire import HERE
from palaestra.services.proof.base import ProofState, Rejected
from palaestra.types import stage, value_class

NAME = "palaestra_theorem"
STANDARD = ("propext", "Classical.choice", "Quot.sound")  # axioms that every proof may rest on
KEY = "LEAN_SERVER_API_KEY"  # the environment variable with the server's key, as its own client has it
UNSOLVED = "unsolved goals\n"
MODULE = re.compile(r"[A-Za-z_][\w.]*")
# either of them stands for both, and for those that newer versions name for each computation
NATIVE = ("Lean.ofReduceBool", "Lean.trustCompiler")
LOADING = 300.0  # seconds that Mathlib may take to load
WAITS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # seconds before a server that is full is asked again
OPENING = threading.Lock()  # a server is tried once, whoever asks first
CRASHED = "Lean breaks down on it"
# what begins a command (so that `#print axioms` is Lean's own, and no declaration escapes it), a hole, and what
# runs a program or turns a check off. A name of the library may contain them: `List.prefix_append`.
WORDS = re.compile(
    r"abbrev|add_decl_doc|alias|attribute|axiom|binder_predicate|builtin_\w+|class|coinductive|compile_\w+|declare_\w+|"
    r"def|deriving|d?simproc(?:_decl)?|simproc_pattern|elab\w*|end|example|export|import|include|include_(?:str|bytes)|inductive|"
    r"infix[lr]?|initialize\w*|instance|irreducible_def|lemma|local|macro\w*|meta|mutual|namespace|noncomputable|"
    r"notation\w*|omit|opaque|open|partial|postfix|prefix|private|protected|public|register_\w+|scoped|section|seal|"
    r"set_option|structure|sudo|syntax|theorem|universe|unseal|unsafe\w*|variable|by_elab|run_\w+|implemented_by|extern|"
    r"with_weak_namespace|admit|sorry|sorryAx|stop"
)
START = "A-Za-z_\u03b1-\u03ba\u03bc-\u03c9\u0391-\u039f\u03a1\u03a2\u03a4-\u03a9\u1f00-\u1ffe\u2100-\u214f\U0001d49c-\U0001d59f"
REST = f"{START}0-9'\u2080-\u2089\u2090-\u209c\u1d62-\u1d6a"
# how Lean parts a text, never coarser: `1axiom`, `x⁻¹axiom` and `f ..axiom` have the word, `axiom'` and `h.end` not
TOKENS = re.compile(
    rf"(?P<name>[{START}][{REST}]*(?:\.[{START}][{REST}]*)*)|"
    rf"(?P<number>(?:0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![{REST}]))|"
    r"(?P<primed>(?:[∑∏⋃⋂]|⁻¹|')'(?=[\s(\[{⟨]))|(?P<other>[0-9'])"
)
SIGNS = re.compile(r"eval%|#[A-Za-z_]|/-|-/|@\[|«|[\t\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# forms that act on the tactic behind them alone, and change no check
HARMLESS = re.compile(
    r"\bset_option[ ]+max(?:Heartbeats|RecDepth)[ ]+\d+[ ]+in(?=\s+\S)|"
    r"\bopen(?:[ ]+scoped)?(?:[ ]+(?!Lean\b|Mathlib\b|Batteries\b|Qq\b)[A-Z][A-Za-z_.]*)+[ ]+in(?=\s+\S)"
)
DECLARED = re.compile(r"(?:^|(?<=\s))(?:theorem|lemma|example)(?=\s)[ \t]*")
LOCAL = re.compile(r"\b(?:let|have)\b[^;\n]*$")  # its `:=` is no proof's
PAIRS = {"(": ")", "{": "}", "[": "]", "⦃": "⦄"}
BY = re.compile(r"\s*by\b[ \t]*")
COMMAND = re.compile(
    r"^(?:open|set_option|import|section|noncomputable section)\b[^\n]*$", re.MULTILINE
)
UNIVERSES = re.compile(r"\.\{[^}]*\}")
FENCED = re.compile(r"```[\w]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
CLOSING = re.compile(r"^```[ \t]*$", re.MULTILINE)
COMMENT = re.compile(r"/-.*?-/|--[^\n]*", re.DOTALL)
CONTINUES = ("|", "<;>", "_ ", ")", "}", "]", "⟩")  # begin a line that belongs to the tactic above
# the name with the namespace that a preamble opens; a long list is broken into lines
AXIOMS = re.compile(
    rf"'(?:\S+\.)?{NAME}' (?:does not depend on any axioms|depends on axioms:\s*\[([^\]]*)\])"
)


def allowed(text: str) -> bool:
    """Whether a tactic, or a statement that a model wrote, has none of the words that are not taken. Literals of
    characters are not taken either, nor a number that touches a word.
    """
    text = HARMLESS.sub(" ", text)
    return (
        bool(text.strip())
        and not escapes(text)
        and not any(m["other"] for m in TOKENS.finditer(text))
    )


def escapes(text: str) -> bool:
    """Whether a word or sign of a command, a hole or a program stands in a text."""
    names = (m["name"].partition(".")[0] for m in TOKENS.finditer(text) if m["name"])
    return bool(SIGNS.search(text)) or any(WORDS.fullmatch(name) for name in names)


def lean_script(reply: str) -> list[str]:
    """The tactics of a reply: of its last block of code, else of all that follows the thoughts. Where it states the
    theorem again, the proof of the last statement counts; lemmas before it become steps, `have NAME ...`. A tactic
    has the lines that are indented below it; comments are left out.
    """
    text = "\n".join(reply.rpartition("</think>")[2].partition("<think>")[0].split("\r\n"))
    blocks = FENCED.findall(text)
    if (
        text.count("```") == 1
        and (closing := CLOSING.search(text))
        and text[: closing.start()].strip()
    ):
        blocks = [text[: closing.start()]]  # the question began the block
    text = COMMENT.sub("", blocks[-1] if blocks else text)
    heads = [m.span() for m in DECLARED.finditer(text)]
    if not heads:
        return tactics_of(text)
    ends = [*(begin for begin, _ in heads[1:]), len(text)]
    *lemmas, last = [text[end:until] for (_, end), until in zip(heads, ends, strict=True)]
    steps = [f"have {COMMAND.sub('', x).strip()}" for x in lemmas]
    stands = without_proof(last)
    proof = last[len(stands) :].removeprefix(":=")
    if begin := BY.match(proof):
        return [*steps, *tactics_of(proof[begin.end() :])]
    return [*steps, f"exact {proof.strip()}"] if proof.strip() else []


def tactics_of(text: str) -> list[str]:
    """The tactics of a block: a line, and the lines that are indented below it."""
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
    text = COMMENT.sub("", theorem).strip()
    heads = list(DECLARED.finditer(text))
    before, rest = "", text
    if heads:
        before, rest = text[: heads[-1].start()], text[heads[-1].end() :]
        named = heads[-1].group().strip() != "example"
        rest = re.sub(r"^(?:(?!\.\{)[^\s:({\[⦃])+\s*", "", rest) if named else rest
    elif not has_binders(rest):
        rest = f": {rest}"
    rest = without_proof(rest)
    if not rest.strip().strip(":").strip() or escapes(rest):
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

    def check(self) -> None:
        """Has the server tell a proof, a hole and a goal of `True` apart, and load the imports; done before its first
        answer. Raises Fault "proof-server", UserError.
        """
        made, scripts = Stated(before=(), rest=": True"), [("trivial",), ("sorry",), ()]
        try:
            proof, hole, goal = self._after("True", made, scripts, LOADING)
        except Fault as fault:
            raise Fault(
                fault.cause,
                f"{str(fault).removeprefix('proof-server: ')}; are imports={self.imports!r} modules of its project?",
            ) from None
        begun = isinstance(goal, ProofState) and goal.remains.endswith("⊢ True")
        if isinstance(proof, ProofState) and proof.whole and begun and isinstance(hole, Rejected):
            return
        why = (
            proof.reason if isinstance(proof, Rejected) else f"sorry gives {hole}, and skip {goal}"
        )
        raise Fault(
            "proof-server",
            f"the Lean of {self.server} does not prove True by trivial, and by nothing less: {why}; correct "
            f"imports={self.imports!r} or the preamble, or see whether it is the Lean 4 of a Kimina Lean Server",
        )

    # ---- requests

    def _read(
        self, theorem: str, scripts: Sequence[tuple[str, ...]], seconds: float
    ) -> list[ProofState | Rejected]:
        """What is left of a theorem after each script."""
        made = stated(theorem)
        with OPENING:
            check_once(self)
        return self._after(theorem, made, scripts, seconds)

    def _after(
        self, theorem: str, made: Stated, scripts: Sequence[tuple[str, ...]], seconds: float
    ) -> list[ProofState | Rejected]:
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
        rest_of = made.rest if UNIVERSES.match(made.rest) else f" {made.rest}"
        proof = f"theorem {NAME}{rest_of} := by\n{body_of(script)}\n#print axioms {NAME}"
        return "\n".join([*dict.fromkeys(imports), *rest, proof])

    def _ask(self, codes: Sequence[str], seconds: float) -> list[Any]:
        """The server's answers to snippets of Lean, in order; one whose imports came too late is asked again with
        time to load, and one on which Lean breaks down is found by asking for each alone. Raises Fault
        "proof-server", UserError.
        """
        answer = self._post(codes, seconds)
        if answer.status_code == 500 and len(codes) > 1:
            return [x for code in codes for x in self._ask([code], seconds)]
        if answer.status_code == 500:
            plain = self._post([self._code(Stated(before=(), rest=": True"), ["trivial"])], LOADING)
            if plain.status_code == 200:
                return [{"error": CRASHED}]
        try:
            results = json.loads(answer.text)["results"] if answer.status_code == 200 else []
            by_id = {str(x["id"]): x for x in results}
            answers = [by_id[str(i)] for i in range(len(codes))]
        except (ValueError, KeyError, TypeError):
            raise Fault(
                "proof-server",
                f"the server at {self.server} answered {answer.status_code} and no results: {answer.text[:200]}",
            ) from None
        if seconds < LOADING:
            for i in [i for i, x in enumerate(answers) if "header" in str(x.get("error") or "")]:
                (answers[i],) = self._ask([codes[i]], LOADING)
        return answers

    def _post(self, codes: Sequence[str], seconds: float) -> httpx2.Response:
        """The server's answer as it came; one that has no room is asked again, in a while."""
        limit = max(1, math.ceil(seconds))
        snippets = [{"id": str(i), "code": code} for i, code in enumerate(codes)]
        key = os.environ.get(KEY, "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        local = urlsplit(self.server).hostname in HERE
        try:
            with httpx2.Client(trust_env=not local, timeout=limit * len(codes) + LOADING) as client:
                send = partial(
                    client.post,
                    f"{self.server.rstrip('/')}/api/check",
                    json={"snippets": snippets, "timeout": limit},
                    headers=headers,
                )
                answer = send()
                for wait in WAITS:
                    if answer.status_code != 429:
                        break
                    time.sleep(wait)
                    answer = send()
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
        return answer

    def _state(
        self, theorem: str, script: tuple[str, ...], answer: Mapping[str, Any]
    ) -> ProofState | Rejected:
        """What a server's answer to one snippet says. Raises Fault for an error that is the server's own."""
        why, response = answer.get("error"), answer.get("response") or {}
        if why == CRASHED:
            return Rejected(reason=CRASHED)
        if why and "timed out" in str(why) and "header" not in str(why):
            return Rejected(reason="it takes too long")
        if why or "message" in response:
            raise Fault("proof-server", str(why or response["message"])[:300])
        messages = response.get("messages") or []
        errors = [m for m in messages if m["severity"] == "error"]
        reason = " ".join(str(errors[0]["data"]).split())[:200] if errors else "Lean says nothing"
        last = max(map(place, messages), default=(0, 1))
        # what tactics print stands in columns of their own: column 0 of the last line is Lean's own answer
        answers = [axioms_of(m) for m in messages if m["severity"] == "info" and place(m) == last]
        named = next((x for x in answers if x is not None), None)
        if last[1] or named is None:
            return Rejected(reason=reason)
        if not errors:
            if named := {x for x in named if not self._granted(x)}:
                return Rejected(reason=f"it rests on {', '.join(sorted(named))}")
            return ProofState(theorem=theorem, goals=(), remains="", script=script)
        text = str(errors[0]["data"])
        begins = last[0] - body_of(script).count("\n") - 2  # the line that ends with "by"
        if len(errors) > 1 or not text.startswith(UNSOLVED) or place(errors[0])[0] != begins:
            return Rejected(reason=reason)
        remains = text.removeprefix(UNSOLVED).strip()
        return ProofState(
            theorem=theorem, goals=tuple(remains.split("\n\n")), remains=remains, script=script
        )

    def _granted(self, axiom: str) -> bool:
        """Whether a proof may rest on an axiom. Newer versions of Lean name one for each native computation."""
        native = axiom in NATIVE or "._native." in axiom
        return axiom in (*STANDARD, *self.axioms) or (
            native and any(x in NATIVE for x in self.axioms)
        )


@lru_cache(maxsize=64)
def check_once(lean: Lean) -> None:
    """Lean.check, once for each kernel."""
    lean.check()


def body_of(script: Sequence[str]) -> str:
    """The lines of a proof; `skip` does nothing, and stands for an empty one."""
    return textwrap.indent("\n".join(["skip", *script]), "  ")


def place(message: Mapping[str, Any]) -> tuple[int, int]:
    """Line, from 1, and column, from 0, of a message."""
    return int(message["pos"]["line"]), int(message["pos"]["column"])


def axioms_of(message: Mapping[str, Any]) -> frozenset[str] | None:
    """The axioms that a message says the theorem rests on; None where it says nothing of them."""
    if (line := AXIOMS.fullmatch(str(message["data"]).strip())) is None:
        return None
    return frozenset(x.strip() for x in (line[1] or "").split(",") if x.strip())
