"""The public names of `pl.control`, and where each lies."""

# ruff: noqa: I001

from .actor_critic import (
    PPO as PPO,
)
from .arms import (
    ArmRun as ArmRun,
    arm_summary as arm_summary,
    compare_arms as compare_arms,
    measure_arm as measure_arm,
)
from .bandits import (
    ALGORITHMS as ALGORITHMS,
    ALPHA as ALPHA,
    bandit_algorithm as bandit_algorithm,
    fit_growth as fit_growth,
    least_share as least_share,
    suffix_failure as suffix_failure,
)
from .coverage import (
    Coverage as Coverage,
)
from .driving import (
    CarFollowing as CarFollowing,
)
from .guides import (
    Advisor as Advisor,
    Asking as Asking,
    ChatGuide as ChatGuide,
    ComputedGuide as ComputedGuide,
    Guidance as Guidance,
    Guide as Guide,
    ShuffledGuide as ShuffledGuide,
    shuffle_rows as shuffle_rows,
)
from .gym import (
    GymSimulator as GymSimulator,
)
from .language import (
    Expression as Expression,
    Quantities as Quantities,
    Quantity as Quantity,
    RewardProgram as RewardProgram,
    checked_list as checked_list,
    checked_program as checked_program,
    columns_of as columns_of,
    lint_expression as lint_expression,
    spell_quantities as spell_quantities,
)
from .named import (
    simulator_by_name as simulator_by_name,
)
from .networks import (
    ActorCritic as ActorCritic,
    DuelingValues as DuelingValues,
    draw_network as draw_network,
    join_heads as join_heads,
    load_policy as load_policy,
    save_policy as save_policy,
)
from .parallel import (
    ParallelSimulator as ParallelSimulator,
)
from .q import (
    DoubleQ as DoubleQ,
    QLearner as QLearner,
    follow_network as follow_network,
    q_targets as q_targets,
)
from .rooms import (
    Rooms as Rooms,
)
from .shaping import (
    Decomposer as Decomposer,
    Decomposition as Decomposition,
    Potential as Potential,
    Shaping as Shaping,
    as_paid as as_paid,
    at_the_end as at_the_end,
)
from .simulators import (
    Box as Box,
    Paths as Paths,
    Simulator as Simulator,
    TellsFacts as TellsFacts,
    mean_return as mean_return,
    play_games as play_games,
    returns_of as returns_of,
)
from .spread import (
    SimpleSpread as SimpleSpread,
)
from .words import (
    SeenWhole as SeenWhole,
    SimulatorWords as SimulatorWords,
    ViewWords as ViewWords,
)
