"""The public names of `pl.worlds`, and where each lies."""

# ruff: noqa: I001

from .adapters.base import (
    AdaptedTasks as AdaptedTasks,
    AdaptedWorld as AdaptedWorld,
    Illegal as Illegal,
    Live as Live,
    Scene as Scene,
)
from .adapters.gymnasium import (
    GymnasiumWorld as GymnasiumWorld,
)
from .adapters.methods import (
    MethodsWorld as MethodsWorld,
)
from .adapters.openenv import (
    OpenEnvWorld as OpenEnvWorld,
)
from .adapters.pettingzoo import (
    PettingZooWorld as PettingZooWorld,
)
from .adapters.spiel import (
    SpielWorld as SpielWorld,
)
from .adapters.textarena import (
    TextArenaWorld as TextArenaWorld,
)
from .adapters.verifiers import (
    VerifiersWorld as VerifiersWorld,
)
from .again import (
    ShownAgain as ShownAgain,
    ask_again as ask_again,
    previous_answer as previous_answer,
)
from .blocks import (
    BLOCKS as BLOCKS,
    GRADED as GRADED,
    BlockPrompts as BlockPrompts,
    BlockRunner as BlockRunner,
    BlockSpaces as BlockSpaces,
    PartialSolution as PartialSolution,
    choose_block as choose_block,
    load_navigator as load_navigator,
    read_grades as read_grades,
    state_of_grades as state_of_grades,
)
from .blind import (
    Blind as Blind,
)
from .dialogue import (
    Dialogue as Dialogue,
)
from .forced import (
    Forced as Forced,
)
from .gateway.agent import (
    AgentWorld as AgentWorld,
    JudgeAgents as JudgeAgents,
)
from .lookup import (
    Lookup as Lookup,
)
from .notebook import (
    Notebook as Notebook,
)
from .notebook_questions import (
    NotebookQuestions as NotebookQuestions,
)
from .pair import (
    Pair as Pair,
)
from .question import (
    Question as Question,
)
from .search import (
    Search as Search,
    SearchRules as SearchRules,
)
from .service import (
    ScriptUser as ScriptUser,
    Service as Service,
    ServiceUser as ServiceUser,
    Talk as Talk,
    goal_of as goal_of,
)
from .tictactoe import (
    TicTacToe as TicTacToe,
    TicTacToeTasks as TicTacToeTasks,
)
from .tools import (
    WithTools as WithTools,
)
from .user import (
    UserTasks as UserTasks,
    UserWorld as UserWorld,
)
