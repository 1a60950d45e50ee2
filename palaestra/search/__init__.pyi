"""The public names of `pl.search`, and where each lies."""

# ruff: noqa: I001

from .answers import run as run
from .blocks import NavigatedBlocks as NavigatedBlocks
from .curve import accuracy_curve as accuracy_curve
from .hybrid import HybridReasoning as HybridReasoning
from .infused import (
    InfusedDecoding as InfusedDecoding,
)
from .lines import (
    LineWriter as LineWriter,
    PartialAnswer as PartialAnswer,
)
from .mixture import (
    MixtureDecoding as MixtureDecoding,
)
from .named import (
    STRATEGIES as STRATEGIES,
    strategy_by_name as strategy_by_name,
)
from .problem import (
    SearchProblem as SearchProblem,
    SearchResult as SearchResult,
    Strategy as Strategy,
    vote_of as vote_of,
)
from .rounds import AnswerRounds as AnswerRounds
from .sampling import (
    BestAnswer as BestAnswer,
    MajorityVote as MajorityVote,
    WeightedVote as WeightedVote,
)
from .tokens import (
    MeteredEngine as MeteredEngine,
    TokenBudget as TokenBudget,
)
from .trees import (
    BeamSearch as BeamSearch,
    MonteCarloSearch as MonteCarloSearch,
)
