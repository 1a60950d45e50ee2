"""The public names of `pl.rewards`, and where each lies."""

# ruff: noqa: I001

from .answer_f1 import (
    AnswerF1 as AnswerF1,
    THINK_FIRST as THINK_FIRST,
    begins_with_thoughts as begins_with_thoughts,
)
from .bridging import (
    Bridged as Bridged,
    Fit as Fit,
    fit_note as fit_note,
    fit_twice as fit_twice,
)
from .critic import (
    Critique as Critique,
    Critic as Critic,
    ModelCritic as ModelCritic,
    Oracle as Oracle,
)
from .critique import (
    CritiqueThenScore as CritiqueThenScore,
    Critiqued as Critiqued,
)
from .designs import (
    AsDesign as AsDesign,
    digits_design as digits_design,
)
from .intrinsic import (
    AnswerProbability as AnswerProbability,
    Endogenous as Endogenous,
    InformationGain as InformationGain,
    Majority as Majority,
    Reducer as Reducer,
    last_policy_row as last_policy_row,
    last_turn_prompt as last_turn_prompt,
    majority_answer as majority_answer,
    read_answer as read_answer,
    reasoning_prefix as reasoning_prefix,
    reference_logp as reference_logp,
    row_tokens as row_tokens,
    sequence_confidence as sequence_confidence,
    surprise_shares as surprise_shares,
)
from .labels import (
    QUALITY_LABELS as QUALITY_LABELS,
    Also as Also,
    Noisy as Noisy,
    RecordedRatings as RecordedRatings,
    text_properties as text_properties,
)
from .learned import (
    Below as Below,
    Ensemble as Ensemble,
    RewardModel as RewardModel,
    Robust as Robust,
    mean_over_heads as mean_over_heads,
)
from .prevented import (
    TellPrevented as TellPrevented,
)
from .probe import (
    RankingProbe as RankingProbe,
)
from .rewritten import (
    AsQuery as AsQuery,
    VerifierInput as VerifierInput,
    Weighed as Weighed,
    write_blocks as write_blocks,
)
from .rules import (
    MOST_RULES as MOST_RULES,
    Refine as Refine,
    RuleList as RuleList,
    RuleVerdict as RuleVerdict,
)
from .tool_use import (
    ToolUse as ToolUse,
    last_call_failed as last_call_failed,
    successful_calls as successful_calls,
)
from .together import (
    judge_together as judge_together,
)
from .user import (
    UserReward as UserReward,
)
from .verify import (
    ByDomain as ByDomain,
    Exact as Exact,
)
from .verified import (
    judge_each as judge_each,
)
from .votes import (
    vote_of as vote_of,
)
from .weighted import (
    AccuracyAndFormat as AccuracyAndFormat,
    Weighted as Weighted,
)
