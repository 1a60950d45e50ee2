"""The public names of `pl.worlds`, and where each lies."""

# ruff: noqa: I001

from .adapters.agentgym import (
    AgentGymWorld as AgentGymWorld,
)
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
from .adapters.rubrics import (
    RubricWorld as RubricWorld,
    ToolRubricWorld as ToolRubricWorld,
)
from .adapters.scienceworld import (
    ScienceWorldTask as ScienceWorldTask,
)
from .adapters.stepped import (
    SteppedWorld as SteppedWorld,
)
from .adapters.textarena import (
    TextArenaWorld as TextArenaWorld,
)
from .adapters.textworld import (
    TextWorldGames as TextWorldGames,
)
from .adapters.verifiers import (
    VerifiersWorld as VerifiersWorld,
)
from .again import (
    ShownAgain as ShownAgain,
    ask_again as ask_again,
    previous_answer as previous_answer,
)
from .asked_user import (
    AskedUser as AskedUser,
)
from .asking import (
    AskingRoom as AskingRoom,
    read_record as read_record,
    room_instruction as room_instruction,
    resolution_score as resolution_score,
)
from .bandit import (
    BanditTasks as BanditTasks,
    DrawnBandit as DrawnBandit,
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
from .collab import (
    CollabGame as CollabGame,
    CollabState as CollabState,
    CollabTasks as CollabTasks,
)
from .collab_capture import (
    CapturePlace as CapturePlace,
    CollabCapture as CollabCapture,
)
from .collab_escape import (
    CollabEscape as CollabEscape,
    EscapePlace as EscapePlace,
)
from .competition import (
    CompetitionWorld as CompetitionWorld,
)
from .competition_files import (
    Competition as Competition,
    competition_named as competition_named,
)
from .competition_tasks import (
    CompetitionTasks as CompetitionTasks,
    DrawnCompetitionTasks as DrawnCompetitionTasks,
)
from .decrypto import (
    CODES as CODES,
    Decrypto as Decrypto,
    DecryptoState as DecryptoState,
    DecryptoTasks as DecryptoTasks,
    DecryptoTurn as DecryptoTurn,
    code_text as code_text,
    read_code as read_code,
    three_words as three_words,
)
from .dialogue import (
    Dialogue as Dialogue,
)
from .drafts import (
    DraftSearch as DraftSearch,
)
from .experts import (
    METRICS as METRICS,
    Expert as Expert,
    ExpertBox as ExpertBox,
)
from .eliminate import (
    Eliminate as Eliminate,
)
from .explore import (
    ExploreBandit as ExploreBandit,
    ExploreState as ExploreState,
    read_arm as read_arm,
)
from .findings import (
    AskFindings as AskFindings,
    FindingsState as FindingsState,
)
from .forced import (
    Forced as Forced,
)
from .gateway.agent import (
    AgentWorld as AgentWorld,
    JudgeAgents as JudgeAgents,
)
from .formal import (
    FormalAnswer as FormalAnswer,
    FormalPrompts as FormalPrompts,
    FormalRunner as FormalRunner,
    elect_answer as elect_answer,
)
from .joint_plans import (
    JointPlan as JointPlan,
    TeamOutcome as TeamOutcome,
    joint_plan as joint_plan,
)
from .judged import (
    JudgeSearch as JudgeSearch,
    is_pending as is_pending,
)
from .interpreter import (
    Interpreter as Interpreter,
)
from .graph import (
    GraphQuestions as GraphQuestions,
    GraphState as GraphState,
    GraphStep as GraphStep,
    call_text as call_text,
    lost_entities as lost_entities,
    read_action as read_action,
)
from .legal import (
    legal_replies as legal_replies,
)
from .listwise import (
    Listwise as Listwise,
)
from .logged_bandit import (
    LoggedBandit as LoggedBandit,
    LoggedBandits as LoggedBandits,
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
from .pages import (
    PageSearch as PageSearch,
)
from .pair import (
    Pair as Pair,
)
from .plans import (
    ExpertPlans as ExpertPlans,
    ExpertPlanState as ExpertPlanState,
)
from .play_log import (
    PlayLog as PlayLog,
)
from .pools import (
    grade_of as grade_of,
    grades_of as grades_of,
)
from .query import (
    WriteQuery as WriteQuery,
    read_json_query as read_json_query,
    write_query as write_query,
)
from .question import (
    Question as Question,
)
from .rerank import (
    Rerank as Rerank,
)
from .retrieval import (
    OwnSearch as OwnSearch,
    Retriever as Retriever,
)
from .rewrite import (
    RewriteQuery as RewriteQuery,
)
from .rules import (
    RulePlanner as RulePlanner,
    SolvedQuestions as SolvedQuestions,
)
from .search import (
    Search as Search,
    SearchRules as SearchRules,
    right_answers as right_answers,
)
from .summaries import (
    LEAD_IN as LEAD_IN,
    SUM_UP as SUM_UP,
    SummaryState as SummaryState,
    WithSummaries as WithSummaries,
)
from .service import (
    ScriptUser as ScriptUser,
    Service as Service,
    ServiceUser as ServiceUser,
    Talk as Talk,
    goal_of as goal_of,
)
from .candidates import (
    Candidates as Candidates,
)
from .mnk import (
    Mnk as Mnk,
    MnkTasks as MnkTasks,
    rule_move as rule_move,
    weak_move as weak_move,
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
    instance_of as instance_of,
)
from .unaided import Unaided as Unaided
from .world_server import (
    WorldServer as WorldServer,
)
from .written.files import read_games as read_games
from .written.game import (
    WrittenGame as WrittenGame,
    WrittenGameTasks as WrittenGameTasks,
    WrittenState as WrittenState,
    move_of as move_of,
)
from .written.grammar import (
    WrittenRules as WrittenRules,
    draw_rules as draw_rules,
)
from .written.sandboxed import (
    ExaminedGame as ExaminedGame,
    GameAgent as GameAgent,
    GameVerdict as GameVerdict,
    STATES as STATES,
    GameView as GameView,
    compare_players as compare_players,
    examine_game as examine_game,
    game_lessons as game_lessons,
    random_points as random_points,
    train_on_game as train_on_game,
)
from .together import (
    TogetherWorlds as TogetherWorlds,
    mix_benches as mix_benches,
)
