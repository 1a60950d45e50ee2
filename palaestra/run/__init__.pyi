"""The public names of `pl.run`, and where each lies."""

# ruff: noqa: I001

from .evaluators import (
    Exam as Exam,
    MemoryExam as MemoryExam,
)
from .exploitability import (
    Exploitability as Exploitability,
)
from .evaluation import (
    attempt_tasks as attempt_tasks,
    bounds_of_pay as bounds_of_pay,
    chosen_tasks as chosen_tasks,
    greedy_held_out as greedy_held_out,
    judge_held_out as judge_held_out,
    vote_key as vote_key,
)
from .media_exam import (
    MediaExam as MediaExam,
)
from .merging import (
    Merged as Merged,
)
from .model_merge import (
    merge as merge,
)
from .pair_exam import (
    PairExam as PairExam,
)
from .ranking_exam import (
    RankingExam as RankingExam,
)
from .study import (
    Study as Study,
)
from .texts import (
    WrittenText as WrittenText,
    mean_loss as mean_loss,
    read_texts as read_texts,
    spell_texts as spell_texts,
)
