"""The public names of `pl.services`, and where each lies."""

# ruff: noqa: I001

from .index import (
    BM25 as BM25,
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
