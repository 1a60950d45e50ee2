"""The public names of `pl.credit`, and where each lies."""

# ruff: noqa: I001

from .advantages import (
    group_std as group_std,
    leave_one_out as leave_one_out,
)
from .again import (
    Rehearse as Rehearse,
    Resampled as Resampled,
)
from .baselines import (
    CenterByLength as CenterByLength,
    CenterByToken as CenterByToken,
    PerInformative as PerInformative,
)
from .ema import (
    Ema as Ema,
)
from .gae import (
    kl_needs as kl_needs,
)
from .length import (
    AdaptiveLength as AdaptiveLength,
    LengthReward as LengthReward,
    Overlong as Overlong,
    Shortest as Shortest,
)
from .links import (
    AgainstGreedy as AgainstGreedy,
    Outcome as Outcome,
    Shift as Shift,
    TaskColumn as TaskColumn,
)
from .pass_at_k import (
    PassAtK as PassAtK,
)
from .penalty import (
    KLToGo as KLToGo,
    LessKL as LessKL,
)
from .preferences import (
    RatePrompts as RatePrompts,
)
from .rows import (
    Imitate as Imitate,
    Prefer as Prefer,
)
from .scopes import (
    SameState as SameState,
    number_keys as number_keys,
    scope_keys as scope_keys,
)
from .seats import (
    Own as Own,
    Reader as Reader,
    Seat as Seat,
)
from .soft import (
    SoftCenter as SoftCenter,
)
from .spans import (
    AddOnSpans as AddOnSpans,
)
from .steps import (
    StepNumbers as StepNumbers,
    StepPairs as StepPairs,
    StepPenalty as StepPenalty,
    StepProgress as StepProgress,
    Vote as Vote,
)
from .table import (
    fact_by_turn as fact_by_turn,
    table_signal as table_signal,
)
from .trie import (
    PrefixTree as PrefixTree,
)
from .turns import (
    Blend as Blend,
    Executed as Executed,
    Peers as Peers,
    TurnReturns as TurnReturns,
    discounted_turn_sums as discounted_turn_sums,
    turn_rewards as turn_rewards,
)
from .unpaired import (
    LabelAnswers as LabelAnswers,
)
