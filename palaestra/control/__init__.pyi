"""The public names of `pl.control`, and where each lies."""

# ruff: noqa: I001

from .actor_critic import (
    PPO as PPO,
)
from .arms import (
    ArmRun as ArmRun,
    arm_summary as arm_summary,
    compare_arms as compare_arms,
    ShowsTask as ShowsTask,
    acting_script as acting_script,
    measure_arm as measure_arm,
)
from .bandits import (
    ALGORITHMS as ALGORITHMS,
    ALPHA as ALPHA,
    BanditHistory as BanditHistory,
    bandit_algorithm as bandit_algorithm,
    fit_growth as fit_growth,
    least_share as least_share,
    suffix_failure as suffix_failure,
)
from .cells import (
    steps_between as steps_between,
    steps_from as steps_from,
)
from .coverage import (
    Coverage as Coverage,
)
from .description import (
    SimulatorDescription as SimulatorDescription,
    describe as describe,
    read_description as read_description,
    state_goal as state_goal,
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
from .goals import (
    GoalDraw as GoalDraw,
    GoalReached as GoalReached,
    GoalSimulator as GoalSimulator,
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
from .maze import (
    Maze as Maze,
)
from .named import (
    simulator_by_name as simulator_by_name,
    simulators_by_name as simulators_by_name,
    simulator_from as simulator_from,
)
from .networks import (
    ActorCritic as ActorCritic,
    DuelingValues as DuelingValues,
    SquashedGaussian as SquashedGaussian,
    draw_network as draw_network,
    join_heads as join_heads,
    load_policy as load_policy,
    save_policy as save_policy,
)
from .options import (
    CUT as CUT,
    ENDS as ENDS,
    INTERRUPTED as INTERRUPTED,
    REACHED as REACHED,
    REFUSED as REFUSED,
    STOP as STOP,
    TIMEOUT as TIMEOUT,
    Chooser as Chooser,
    Condition as Condition,
    Option as Option,
    OptionCall as OptionCall,
    OptionGames as OptionGames,
    OptionSpaces as OptionSpaces,
    available_options as available_options,
    choose_by as choose_by,
    decision_paths as decision_paths,
    option_paths as option_paths,
    play_options as play_options,
    primitive_option as primitive_option,
    with_goal as with_goal,
)
from .parallel import (
    ParallelSimulator as ParallelSimulator,
)
from .plans import (
    OptionPlan as OptionPlan,
    PlanFollower as PlanFollower,
    Replan as Replan,
    plan_form as plan_form,
)
from .q import (
    DoubleQ as DoubleQ,
    Prior as Prior,
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
    stay_rewards as stay_rewards,
)
from .simulators import (
    Acting as Acting,
    Box as Box,
    Paths as Paths,
    Simulator as Simulator,
    TellsFacts as TellsFacts,
    mean_return as mean_return,
    play_games as play_games,
    returns_of as returns_of,
)
from .soft import (
    SAC as SAC,
)
from .spread import (
    SimpleSpread as SimpleSpread,
)
from .vector import (
    VectorSimulator as VectorSimulator,
)
from .words import (
    NamedActions as NamedActions,
    SeenWhole as SeenWhole,
    SimulatorWords as SimulatorWords,
    SpelledView as SpelledView,
    ViewWords as ViewWords,
    action_words as action_words,
)
