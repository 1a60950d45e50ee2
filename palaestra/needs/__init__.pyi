"""The public names of `pl.needs`, and where each lies."""

# ruff: noqa: I001

from .declared import (
    ANSWER as ANSWER,
    CANDIDATES as CANDIDATES,
    CHOSEN as CHOSEN,
    DEMONSTRATION as DEMONSTRATION,
    GOLD as GOLD,
    GOLD_ANSWER as GOLD_ANSWER,
    HINT as HINT,
    LABELLED as LABELLED,
    PAIRS as PAIRS,
    PROMPT as PROMPT,
    QUESTION as QUESTION,
    REJECTED as REJECTED,
    NeededColumn as NeededColumn,
    NeededModel as NeededModel,
    NeededPlace as NeededPlace,
    Requirements as Requirements,
    chat_model as chat_model,
    truth_of as truth_of,
)
from .rows import template as template
