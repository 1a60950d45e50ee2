"""The public names of `pl.judges`, and where each lies."""

# ruff: noqa: I001

from .audit import (
    attack_reward as attack_reward,
    judge_agreement as judge_agreement,
    order_bias as order_bias,
)
from .listwise import (
    rank_once as rank_once,
    rank_windows as rank_windows,
    window_spans as window_spans,
)
from .principles import (
    PRINCIPLE_QUESTIONS as PRINCIPLE_QUESTIONS,
    Entailed as Entailed,
    PrincipleQuestion as PrincipleQuestion,
    Principled as Principled,
    label_verdict as label_verdict,
)
from .prompt import (
    CAUTION as CAUTION,
    GRADE_PROMPT as GRADE_PROMPT,
    defuse as defuse,
    last_line as last_line,
    reference_of as reference_of,
    reply_after_thinking as reply_after_thinking,
)
from .reading import (
    Json as Json,
    MarkedLabel as MarkedLabel,
    Odds as Odds,
    Rating as Rating,
    Text as Text,
)
from .standin import (
    Grader as Grader,
    matches_last_digit as matches_last_digit,
)
from .train import (
    ENTAILMENT_PROMPT as ENTAILMENT_PROMPT,
    Verdicts as Verdicts,
)
