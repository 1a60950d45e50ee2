"""The public names of `pl.studies`, and where each lies."""

# ruff: noqa: I001

from .arms import (
    AnswerProblems as AnswerProblems,
    answers_of as answers_of,
    curve_of as curve_of,
    drawdown as drawdown,
)
from .items import (
    Item as Item,
    answers as answers,
    guessed as guessed,
    keep_rows as keep_rows,
    passed as passed,
    possible_answers as possible_answers,
    quality as quality,
    right_shares as right_shares,
)
from .diversity import (
    distinct_ngrams as distinct_ngrams,
    spread as spread,
)
from .models import (
    BASE as BASE,
    bring_models as bring_models,
    hold_template as hold_template,
    knows_base as knows_base,
    listed as listed,
    on_problem as on_problem,
    start_of as start_of,
)
from .ownership import (
    check_owned as check_owned,
    made_here as made_here,
    refuse_data as refuse_data,
)
from .power import (
    least_difference as least_difference,
    least_shift as least_shift,
    mean_power as mean_power,
    tell_mean_power as tell_mean_power,
    tell_power as tell_power,
)
from .page import (
    publish as publish,
)
from .report import (
    StudyChart as StudyChart,
    StudyLine as StudyLine,
    StudyReport as StudyReport,
    StudyTable as StudyTable,
    tell_interval as tell_interval,
)
from .training import (
    trained_prompts as trained_prompts,
)
