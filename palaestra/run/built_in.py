"""Problems of this package by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palaestra.run.game_worlds import GAME_WORLDS
from palaestra.services.index import BM25
from palaestra.services.triples import TripleGraph
from palaestra.tasks.phrasing import question_text
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.clips import Clips
from palaestra.toys.closures import ClosureTheorems
from palaestra.toys.constraints import ConstraintTasks
from palaestra.toys.count import Count
from palaestra.toys.craftgoal import CraftGoal, CraftGoalTasks
from palaestra.toys.craftmini import CraftMini, CraftMiniTasks
from palaestra.toys.devices import DeviceTasks
from palaestra.toys.experts import EXPERT_NAMES, ExpertTasks
from palaestra.toys.facts import CommonFacts
from palaestra.toys.graph import GraphTasks
from palaestra.toys.grid import Grid, GridTasks
from palaestra.toys.grids import Grids
from palaestra.toys.halves import Halves
from palaestra.toys.histories import HistoryTasks
from palaestra.toys.hop import Hop, HopTasks
from palaestra.toys.house import House, HouseTasks
from palaestra.toys.intents import Intents
from palaestra.toys.judging import CompareAnswers, Grade, Pairs
from palaestra.toys.kitchen import Kitchens
from palaestra.toys.knights import Knights
from palaestra.toys.ladder import Add, Bool, Sort
from palaestra.toys.lake import Lake, LakeTasks
from palaestra.toys.lane import LaneTasks
from palaestra.toys.lookalikes import LookalikeTasks
from palaestra.toys.lookup import LookupTasks
from palaestra.toys.molecules import MoleculeTasks
from palaestra.toys.opinions import Opinions
from palaestra.toys.patients import PatientTasks
from palaestra.toys.plans import Plans
from palaestra.toys.preferences import Preferences
from palaestra.toys.queries import QueryTasks
from palaestra.toys.reading import ReadingTasks
from palaestra.toys.rec import Rec
from palaestra.toys.relations import Relations
from palaestra.toys.rubrics import Rubrics
from palaestra.toys.scenes import Scenes
from palaestra.toys.screen import Screen
from palaestra.toys.shop import ShopTasks, ShopUser, order, stock
from palaestra.toys.statements import Statements
from palaestra.toys.store import StoreTasks
from palaestra.toys.tastes import TasteTalks, TasteUser
from palaestra.toys.taxonomy import Taxonomy
from palaestra.toys.theorems import Theorems
from palaestra.toys.unanswerable import Unanswerable
from palaestra.toys.variants import Variants
from palaestra.toys.wiki import WikiTasks
from palaestra.types import Task
from palaestra.worlds.asking import AskingRoom
from palaestra.worlds.competition import CompetitionWorld
from palaestra.worlds.competition_tasks import DrawnCompetitionTasks
from palaestra.worlds.dialogue import Dialogue
from palaestra.worlds.drafts import DraftSearch
from palaestra.worlds.eliminate import Eliminate
from palaestra.worlds.findings import AskFindings
from palaestra.worlds.graph import GraphQuestions, entities_of, golds_of
from palaestra.worlds.judged import JudgeSearch
from palaestra.worlds.listwise import Listwise
from palaestra.worlds.lookup import Lookup
from palaestra.worlds.pair import Pair
from palaestra.worlds.plans import ExpertPlans
from palaestra.worlds.query import WriteQuery
from palaestra.worlds.rerank import Rerank
from palaestra.worlds.rewrite import RewriteQuery
from palaestra.worlds.rules import RulePlanner, SolvedQuestions
from palaestra.worlds.search import Search
from palaestra.worlds.service import Service
from palaestra.worlds.toolbox import tool_names

QUESTIONS: Mapping[str, Callable[[], Any]] = {
    "chain": ArithmeticChain, "count": Count, "rec": Rec, "add": Add, "bool": Bool, "sort": Sort,
    "knights": Knights, "theorems": Theorems, "closures": ClosureTheorems, "constraints": ConstraintTasks, "facts": CommonFacts,
    "unanswerable": Unanswerable, "store": StoreTasks, "devices": DeviceTasks, "plans": Plans,
}  # fmt: skip
GUESSABLE: Mapping[str, Callable[[], Any]] = {  # few answers, or pay for a part: above 0 by chance
    "variants": Variants, "compare": CompareAnswers, "preferences": Preferences,
    "screen": Screen, "scenes": Scenes, "grids": Grids, "kitchens": Kitchens, "rubrics": Rubrics, "opinions": Opinions,
    "statements": Statements,
    "relations": Relations, "lane": LaneTasks, "taxonomy": Taxonomy, "molecules": MoleculeTasks,
    "clips": Clips, "intents": Intents,
}  # fmt: skip
WORLDS: Mapping[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "hop": (HopTasks, Hop),
    "hop-noisy": (lambda: HopTasks(hops=(1, 2), name="hop-noisy"), lambda: Hop(noise=0.5)),
    "grid": (GridTasks, Grid),
    "grid-legal": (lambda: GridTasks(name="grid-legal"), lambda: Grid(legal=True)),
    "grid-4": (lambda: GridTasks(side=4, steps=8, name="grid-4"), Grid),
    "lake": (LakeTasks, Lake),
    "lookalikes": (LookalikeTasks, AskingRoom),
    "craftmini": (CraftMiniTasks, CraftMini),
    "craftgoal": (CraftGoalTasks, CraftGoal),
    "house": (HouseTasks, House),
    "lookup": (LookupTasks, lambda: Lookup(turns=5, sessions=32, beside=False)),
    "wiki": (WikiTasks, lambda: Search(BM25(WikiTasks().documents()))),
    "wiki-2": (
        lambda: WikiTasks(hops=(2, 2), held_out=(3, 3), name="wiki-2"),
        lambda: Search(BM25(WikiTasks().documents())),
    ),
    "wiki-few": (
        lambda: WikiTasks(hops=(1, 1), pages=256, name="wiki-few"),
        lambda: Search(BM25(WikiTasks(pages=256).documents()), k=1, turns=4),
    ),
    "wiki-draft": (
        lambda: WikiTasks(hops=(1, 1), pages=256, name="wiki-draft"),
        lambda: DraftSearch(BM25(WikiTasks(pages=256).documents()), k=1, turns=4),
    ),
    "wiki-judge": (
        lambda: WikiTasks(hops=(1, 2), pages=256, name="wiki-judge"),
        lambda: JudgeSearch(BM25(WikiTasks(pages=256).documents()), k=1, noise=0.4),
    ),
    "graph": (GraphTasks, lambda: toy_graph(GraphTasks())),
    "competitions": (DrawnCompetitionTasks, lambda: CompetitionWorld(steps=2, worked="first")),
    "experts": (ExpertTasks, lambda: ExpertPlans(EXPERT_NAMES, turns=8, worked=True)),
    "wiki-far": (
        lambda: WikiTasks(hops=(1, 6), name="wiki-far"),
        lambda: Search(BM25(WikiTasks().documents()), k=1, turns=16, seconds=0.3),
    ),
    "queries": (QueryTasks, lambda: RewriteQuery(BM25(QueryTasks().documents()), k=3, told=False)),
    "json-queries": (
        lambda: QueryTasks(name="json-queries", json=True),
        lambda: WriteQuery(BM25(QueryTasks().documents()), k=3, told=False),
    ),
    "histories": (HistoryTasks, lambda: Eliminate(None, k=6, told=False)),
    "listed-histories": (
        lambda: HistoryTasks(candidates=8, name="listed-histories", liked=2),
        lambda: Listwise(None, k=4, told=False),
    ),
    "reading": (ReadingTasks, lambda: Rerank(BM25(ReadingTasks().documents()), k=6, told=False)),
    "shop": (
        ShopTasks,
        lambda: Service(tools=tool_names([order, stock]), user=ShopUser(), turns=12),
    ),
    "patients": (
        PatientTasks,
        lambda: AskFindings(PatientTasks.tests, PatientTasks.classes, turns=4, told=False),
    ),
    "halves": (Halves, lambda: Dialogue(turns=4, least=2, plain=True)),
    "tastes": (TasteTalks, TasteUser),
    **GAME_WORLDS,
    "compare-pairs": (Pairs, Pair),
    "judge-pairs": (lambda: Pairs(Grade()), lambda: Pair(apart=True)),
}


def planner_of(graph: TripleGraph, solved: Sequence[Task], **more: Any) -> RulePlanner:
    """A planner whose examples are solved tasks."""
    bare = RulePlanner(graph)
    texts = [(question_text(t), t) for t in solved]
    rows = [(q, entities_of(t) or bare.entities_in(q), golds_of(t)) for q, t in texts]
    return RulePlanner(graph, SolvedQuestions(tuple(rows)), **more)


def toy_graph(tasks: GraphTasks, examples: int = 256) -> GraphQuestions:
    """The world of the built-in questions over a graph."""
    solved = [tasks.task("train", i) for i in range(examples)]
    planner = planner_of(TripleGraph(tasks.triples()), solved, hops=2, most=3)
    return GraphQuestions(planner, BM25(tasks.documents()), plan="graph", extract="use", turns=5)
