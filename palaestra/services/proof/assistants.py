"""Proof kernels, and assistants that are programs of their own, opened by what a command says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.services.proof.base import ProofKernel
from palaestra.services.proof.coq import Coq
from palaestra.services.proof.lean import Lean


def open_kernel(
    own: Mapping[str, Callable[[], ProofKernel]], name: str, *words: Any, **named: Any
) -> ProofKernel:
    """The proof kernel of a name: one of a method's `own`, or an assistant, which takes the other words
    (`open_assistant`). Raises UserError.
    """
    assistant = open_assistant(name, *words, **named)
    if assistant is not None:
        return assistant
    if name not in own:
        known = [f"kernel={x}" for x in (*own, "coq")]
        raise UserError(f"there is no kernel {name!r}; choose {', '.join(known)} or kernel=lean")
    return own[name]()


def open_assistant(
    name: str, imports: str = "", axioms: tuple[str, ...] = (), server: str = "", preamble: str = ""
) -> Coq | Lean | None:
    """The proof assistant of a name; None where there is none of it.

    Args:
        imports: modules of its library, parted by commas.
        axioms: that a proof may rest on; Lean's own three always count.
        server: of a Kimina Lean Server, for lean.
        preamble: a file of Lean that stands before each theorem.

    Raises:
        UserError: what is given belongs to another kernel, or is missing.
    """
    if name == "coq" and not server and not preamble:
        return Coq(imports=imports, axioms=axioms)
    if name == "lean":
        if not server:
            raise UserError(
                "kernel=lean asks a Kimina Lean Server, which you start (https://github.com/project-numina/"
                "kimina-lean-server); add server=http://127.0.0.1:8000"
            )
        return Lean(server, imports, _text_of(preamble), axioms)
    if server or preamble:
        raise UserError("server and preamble are those of Lean; add kernel=lean")
    if imports or axioms:
        raise UserError(
            "imports and axioms are those of Coq's library or Lean's; add kernel=coq or kernel=lean"
        )
    return None


def _text_of(preamble: str) -> str:
    if not preamble:
        return ""
    try:
        return Path(preamble).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"preamble={preamble}: no text of Lean can be read there ({error})"
        ) from None
