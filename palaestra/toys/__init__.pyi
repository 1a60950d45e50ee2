"""The public names of `pl.toys`, and where each lies."""

# ruff: noqa: I001

from .chain import (
    ArithmeticChain as ArithmeticChain,
)
from .closures import (
    ClosureTheorems as ClosureTheorems,
    random_word as random_word,
)
from .constraints import (
    ConstraintTasks as ConstraintTasks,
)
from .craftgoal import (
    CraftGoal as CraftGoal,
    CraftGoalTasks as CraftGoalTasks,
)
from .craftmini import (
    CraftMini as CraftMini,
    CraftMiniTasks as CraftMiniTasks,
)
from .experts import (
    EXPERT_NAMES as EXPERT_NAMES,
    ExpertTasks as ExpertTasks,
    Photo as Photo,
)
from .devices import (
    DeviceTasks as DeviceTasks,
)
from .facts import (
    CommonFacts as CommonFacts,
)
from .count import (
    Count as Count,
)
from .graph import (
    GraphTasks as GraphTasks,
)
from .grid import (
    Grid as Grid,
    GridState as GridState,
    GridTasks as GridTasks,
)
from .grids import (
    Grids as Grids,
)
from .halves import (
    Halves as Halves,
)
from .hop import (
    Hop as Hop,
    HopTasks as HopTasks,
)
from .histories import (
    HistoryTasks as HistoryTasks,
    TasteRanker as TasteRanker,
)
from .house import (
    AFFORDANCES as AFFORDANCES,
    APPLIANCES as APPLIANCES,
    House as House,
    HouseState as HouseState,
    HouseTasks as HouseTasks,
    apply_house_action as apply_house_action,
)
from .judging import (
    CompareAnswers as CompareAnswers,
    Grade as Grade,
    Pairs as Pairs,
)
from .kitchen import (
    Kitchens as Kitchens,
)
from .knights import (
    Knights as Knights,
)
from .ladder import (
    Add as Add,
    Bool as Bool,
    Sort as Sort,
)
from .lake import (
    Lake as Lake,
    LakeTasks as LakeTasks,
    square_name as square_name,
    way_to as way_to,
)
from .lane import (
    LANE_ACTIONS as LANE_ACTIONS,
    LaneState as LaneState,
    LaneTasks as LaneTasks,
    expert_action as expert_action,
    play_lane as play_lane,
)
from .lookup import (
    LookupTasks as LookupTasks,
)
from .lookalikes import (
    LookalikeTasks as LookalikeTasks,
)
from .mistakes import (
    wrong_answer as wrong_answer,
)
from .molecules import (
    MoleculeTasks as MoleculeTasks,
)
from .opinions import (
    Opinions as Opinions,
)
from .plans import (
    Plans as Plans,
)
from .preferences import (
    Preferences as Preferences,
)
from .queries import (
    QueryTasks as QueryTasks,
)
from .reading import (
    ReadingTasks as ReadingTasks,
    read_facts as read_facts,
)
from .rec import (
    Rec as Rec,
)
from .relations import (
    Relations as Relations,
    label_said as label_said,
    paths_of as paths_of,
)
from .algebras import (
    calculus_of as calculus_of,
    closure as closure,
    members as members,
)
from .rubrics import (
    Rubrics as Rubrics,
)
from .scenes import (
    Scenes as Scenes,
)
from .clips import (
    Clips as Clips,
)
from .intents import (
    Intents as Intents,
    recall_of_scene as recall_of_scene,
)
from .screen import (
    Screen as Screen,
    action_parts as action_parts,
)
from .shop import (
    ShopTasks as ShopTasks,
    ShopUser as ShopUser,
)
from .statements import (
    Statements as Statements,
)
from .store import (
    StoreTasks as StoreTasks,
)
from .tastes import (
    TasteTalks as TasteTalks,
    TasteUser as TasteUser,
)
from .taxonomy import (
    Taxonomy as Taxonomy,
    path_said as path_said,
    path_score as path_score,
)
from .theorems import (
    Theorems as Theorems,
    random_formula as random_formula,
)
from .unanswerable import (
    Unanswerable as Unanswerable,
)
from .variants import (
    Variants as Variants,
)
from .wiki import (
    WikiTasks as WikiTasks,
)
from .words import (
    Words as Words,
)
from .patients import (
    PatientTasks as PatientTasks,
)
