"""A server in the form of the Kimina Lean Server whose Lean knows a few theorems.

It refuses requests that the server's own models refuse, runs imports apart from the rest (so lines count from what
follows them), and answers with the messages that Lean's REPL has on record (leanprover-community/repl, folder test):
`unsolved goals` at the `by`, an error of a tactic where it stands, and what `#print axioms` says.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SWAP = "theorem swap (p q : Prop) : p ∧ q → q ∧ p := by sorry"
STATEMENT = "(p q : Prop) : p ∧ q → q ∧ p"
GOAL = "p q : Prop\n⊢ p ∧ q → q ∧ p"
INTRODUCED = "p q : Prop\nh : p ∧ q\n⊢ q ∧ p"
HALVES = ("case left\np q : Prop\nh : p ∧ q\n⊢ q", "case right\np q : Prop\nh : p ∧ q\n⊢ p")
# of a statement: what a proof, a tactic a line, leaves; () = nothing, None = not known
KNOWN: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {
    ": True": {(): ("⊢ True",), ("trivial",): (), ("sorry",): ()},
    STATEMENT: {
        (): (GOAL,),
        ("intro h",): (INTRODUCED,),
        ("intro h", "constructor"): HALVES,
        ("intro h", "constructor", "· exact h.2"): HALVES[1:],
        ("intro h", "constructor", "· exact h.2", "· exact h.1"): (),
        ("intro h", "exact ⟨h.2, h.1⟩"): (),
        ("aesop",): (),
        ("exact foo",): (),
    },
    ": 1 = 1": {(): ("⊢ 1 = 1",), ("rfl",): (), ("exact?",): (), ("aesop",): (), ("native_decide",): ()},
    ": 2 = 2": {(): ("⊢ 2 = 2",), ("rfl",): (), ("aesop",): ()},
    ": 3 = 3": {(): ("⊢ 3 = 3",), ("rfl",): ()},
    ": 4 = 4": {(): ("⊢ 4 = 4",), ("rfl",): ()},
    ": 5 = 6": {(): ("⊢ 5 = 6",)},
}
AXIOMS = {"sorry": ["sorryAx"], "native_decide": ["Lean.ofReduceBool"], "aesop": ["propext"], "exact foo": ["cheat"]}


def read_messages(code: str) -> list[dict[str, Any]]:
    """What Lean would say of a body without its imports."""
    lines = code.split("\n")
    at = next((i for i, x in enumerate(lines) if x.startswith("theorem palaestra_theorem")), None)
    last = next((i for i, x in enumerate(lines) if x.startswith("#print axioms")), None)
    if at is None or last is None:
        return [message("error", 1, 0, "unexpected token")]
    by = next(i for i in range(at, last) if lines[i].endswith(":= by"))
    head = " ".join(" ".join(lines[at : by + 1]).split())
    statement = re.sub(r"^theorem palaestra_theorem ", "", head).removesuffix(" := by")
    body = [x.removeprefix("  ") for x in lines[by + 1 : last]]
    assert body[0] == "skip" and all(x.startswith("  ") or not x for x in lines[by + 1 : last])
    if statement not in KNOWN:
        return [
            message("error", at + 1, 8, "Unknown identifier"),
            message("error", last + 1, 14, "Unknown constant `palaestra_theorem`"),
        ]
    script = tuple(body[1:])
    axioms = [a for line in script for a in AXIOMS.get(line, [])]
    if (left := KNOWN[statement].get(script)) is None:
        wrong = next((k for k in range(len(script) + 1) if script[:k] not in KNOWN[statement]), len(script))
        found = [message("error", by + 1 + wrong, 2, "unknown tactic")]
    elif left:
        found = [message("error", by + 1, len(lines[by]) - 2, "unsolved goals\n" + "\n\n".join(left))]
    else:
        found = [message("warning", at + 1, 8, "a linter says something")]
    axioms += ["sorryAx"] if found[0]["severity"] == "error" else []
    text = f"depends on axioms: [{', '.join(axioms)}]" if axioms else "does not depend on any axioms"
    return [*found, message("info", last + 1, 0, f"'palaestra_theorem' {text}")]


def message(severity: str, line: int, column: int, data: str) -> dict[str, Any]:
    return {"severity": severity, "pos": {"line": line, "column": column}, "endPos": None, "data": data}


def answer(snippet: Mapping[str, str]) -> dict[str, Any]:
    lines = snippet["code"].split("\n")
    first = next(i for i, x in enumerate(lines) if x.strip() and not x.startswith("import "))
    found = read_messages("\n".join(lines[first:]))
    return {"id": snippet["id"], "time": 0.1, "response": {"env": 1, "messages": found}}


def refusal(body: Any) -> str:
    """Why the server's models refuse a request; "" = they do not."""
    snippets = body.get("snippets")
    if not snippets or any(set(x) != {"id", "code"} or not isinstance(x["id"], str) for x in snippets):
        return "snippets"
    if len({x["id"] for x in snippets}) < len(snippets):
        return "`snippets` must have unique ids"
    return "" if isinstance(body.get("timeout", 30), int) and set(body) <= {"snippets", "timeout"} else "timeout"


@contextmanager
def lean_server(
    change: Callable[[dict[str, Any]], Any] = lambda results: results,
    status: int | Callable[[Any], int] = 200,
    key: str = "",
    first: bool = False,
) -> Iterator[tuple[str, list[Any]]]:
    """Its address and the requests that came. `change` makes of an answer what is sent, and `status`, which may look at
    the question, is sent with it; what is asked of `True` alone, first and where Lean broke down, is answered right but
    with `first`.
    """
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            why = refusal(body)
            plain = not first and all("palaestra_theorem : True " in x["code"] for x in body.get("snippets", ()))
            if self.path != "/api/check" or why:
                code, sent = (422 if why else 404), {"detail": why or "Not Found"}
            elif key and self.headers.get("Authorization") != f"Bearer {key}":
                code, sent = 401, {"detail": "Missing or invalid API key"}
            elif plain:
                code, sent = 200, {"results": [answer(x) for x in body["snippets"]]}
            else:
                code = status if isinstance(status, int) else status(body)
                sent = change({"results": [answer(x) for x in body["snippets"]]})
            text = (sent if isinstance(sent, str) else json.dumps(sent)).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
