"""The public names of `pl.services`, and where each lies."""

# ruff: noqa: I001

from .index import (
    BM25 as BM25,
    document_of as document_of,
)
from .triples import (
    TripleGraph as TripleGraph,
)
from .proof.base import (
    ProofKernel as ProofKernel,
    ProofState as ProofState,
    Rejected as Rejected,
)
from .proof.closure import (
    ClosureAlgebra as ClosureAlgebra,
    find_chain as find_chain,
    read_sets as read_sets,
    set_text as set_text,
    statement_text as statement_text,
)
from .proof.assistants import (
    open_kernel as open_kernel,
)
from .proof.coq import (
    Coq as Coq,
)
from .proof.formulas import (
    Formula as Formula,
    formula_text as formula_text,
    is_tautology as is_tautology,
    read_formula as read_formula,
)
from .proof.lean import (
    Lean as Lean,
    lean_script as lean_script,
)
from .proof.natural import (
    NaturalDeduction as NaturalDeduction,
    find_proof as find_proof,
    read_goal as read_goal,
)
from .proof.spaces import (
    refute_sets as refute_sets,
)
from .sandbox import (
    check_program as check_program,
    check_python as check_python,
    open_session as open_session,
    run_program as run_program,
)
from .chat.base import (
    question_messages as question_messages,
)
from .chat.named import (
    client_from_text as client_from_text,
)
from .chat.structured import (
    ask as ask,
)
from .chat.transcript import (
    ReplyTranscript as ReplyTranscript,
    TranscribedSource as TranscribedSource,
)
