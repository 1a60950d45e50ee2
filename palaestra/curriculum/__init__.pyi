"""The public names of `pl.curriculum`, and where each lies."""

# ruff: noqa: I001

from .arms import (
    Bandit as Bandit,
    Learnability as Learnability,
    arms_of as arms_of,
    draw_from_arms as draw_from_arms,
    count_tasks as count_tasks,
    first_number as first_number,
)
from .columns import (
    WrittenColumn as WrittenColumn,
    dialogue_text as dialogue_text,
    fill_template as fill_template,
    first_value as first_value,
    frozen_starts as frozen_starts,
    record_of as record_of,
    reply_text as reply_text,
)
from .deduplicate import (
    Deduplicate as Deduplicate,
    Deduplicated as Deduplicated,
    prompt_text as prompt_text,
)
from .difficulty import (
    EasyToHard as EasyToHard,
    ProbedArms as ProbedArms,
)
from .knowledge import (
    KnowledgeBoundary as KnowledgeBoundary,
)
from .memory import (
    Memorise as Memorise,
    Note as Note,
    Recalled as Recalled,
    notes_of as notes_of,
)
from .partial import (
    Whole as Whole,
)
from .pool import (
    Everything as Everything,
    Series as Series,
    draw_in_epochs as draw_in_epochs,
    is_mixed as is_mixed,
)
from .prioritised import (
    Prioritised as Prioritised,
    Successes as Successes,
)
from .respelled import (
    Respelled as Respelled,
)
from .select import (
    NearValue as NearValue,
    Select as Select,
)
from .written import (
    ProblemOrder as ProblemOrder,
    ProblemsByModel as ProblemsByModel,
    ProblemsFromSource as ProblemsFromSource,
    ProblemWriter as ProblemWriter,
    agreed_answer as agreed_answer,
)
