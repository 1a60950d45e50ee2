"""Problems by name: ours and other packages', reasoning-gym, mixtures, the user's files and
environments.

Another package adds, as `palaestra.tasks`, what makes `Tasks` of one question from settings that
stand in brackets, or, as `palaestra.worlds`, what makes a `Bench` or (tasks, world).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from palaestra.abilities import Casts, LimitsTurns, Mixes
from palaestra.context import Bench, RewardFn, Runnable
from palaestra.errors import UserError
from palaestra.plugins import Extended, Plugin, find
from palaestra.rewards.verify import Verify, check_for
from palaestra.rewards.where import Where
from palaestra.rollout.player import Script
from palaestra.run.built_in import GUESSABLE, QUESTIONS, WORLDS, planner_of
from palaestra.run.game_worlds import GAMES, OPPONENTS
from palaestra.run.own_verifier import own_verifier
from palaestra.run.world_settings import check_world_settings
from palaestra.services.index import BM25
from palaestra.services.tools.names import SANDBOX
from palaestra.services.triples import TripleGraph
from palaestra.settings.fields import INTERPRETER
from palaestra.tasks.documents import SeedDocuments, read_documents
from palaestra.tasks.files import FileTasks, first_tasks
from palaestra.tasks.mixture import parse_tasks
from palaestra.tasks.spec import parse_alone
from palaestra.tasks.triples import read_triples
from palaestra.types import Player, Task, Tasks, World
from palaestra.values import walk
from palaestra.worlds.adapters.base import AdaptedTasks
from palaestra.worlds.adapters.named import is_adapted, world_by_name
from palaestra.worlds.dialogue import Dialogue
from palaestra.worlds.drafts import DraftSearch
from palaestra.worlds.graph import GraphQuestions
from palaestra.worlds.interpreter import Interpreter
from palaestra.worlds.judged import JudgeSearch
from palaestra.worlds.notebook_questions import NotebookQuestions
from palaestra.worlds.pages import PageSearch
from palaestra.worlds.question import Question
from palaestra.worlds.rerank import CHOOSE_PASSAGES, Rerank
from palaestra.worlds.retrieval import OwnSearch, Retriever
from palaestra.worlds.rewrite import REWRITE_IT, RewriteQuery
from palaestra.worlds.search import Search
from palaestra.worlds.toolbox import toolbox
from palaestra.worlds.tools import WithTools

if TYPE_CHECKING:
    from palaestra.settings.fields import Settings

NOTEBOOK = "notebook"  # as --env names it
DIALOGUE = "dialogue"  # likewise
SEARCH = "search"  # likewise; --docs alone means it
SEARCHES: Mapping[str, type[Search]] = {
    SEARCH: Search,
    "draft-search": DraftSearch,
    "judge-search": JudgeSearch,
    "page-search": PageSearch,
}
REWRITE = "rewrite"  # likewise
RERANK = "rerank"  # likewise
ELIMINATE = "eliminate"  # likewise
LISTWISE = "listwise"  # likewise
QUERY = "query"  # likewise, as those that follow a ranking: `palaestra.run.ranking_rooms`
GRAPH = "graph"  # likewise; --graph means it
RETRIEVES = (*SEARCHES, REWRITE, RERANK, QUERY, ELIMINATE, LISTWISE, GRAPH)  # what --docs goes with
# for which --tools are not tools of a model that asks questions
TAKES_TOOLS = (*SEARCHES, NOTEBOOK, REWRITE, RERANK, QUERY, ELIMINATE, LISTWISE)
WORD = re.compile(r"[A-Za-z_][\w-]*")  # a name alone, without settings or a weight


def bench_by_name(spec: str) -> tuple[Bench, Mapping[str, Player]]:
    """A bench by name; `a*2+b` mixes question tasks, `rg:NAME` is a reasoning-gym generator,
    `gym:NAME` and its like are other libraries' environments.
    """
    if is_adapted(spec):
        world = world_by_name(spec)
        tasks, turns, tokens = AdaptedTasks(world, spec), world.max_turns, turn_limit(world)
        return Bench(name=spec, tasks=tasks, world=world, max_turns=turns, max_tokens=tokens), {}
    name, settings, _ = spec.partition("(")
    if settings and name in GAMES:
        tasks, board = GAMES[name](spec)
        return Bench(name=spec, tasks=tasks, world=board, max_turns=board.most_turns), {}
    if spec in WORLDS:
        tasks, world = WORLDS[spec]
        return Bench(name=spec, tasks=tasks(), world=world()), OPPONENTS.get(spec, {})
    ours = {**QUESTIONS, **GUESSABLE}
    if spec not in ours and WORD.fullmatch(spec) and (plugin := find("worlds", spec)) is not None:
        return added(plugin)
    sources = Extended(ours, "tasks", lambda p: p.factory(Tasks, "a source of tasks"))
    tasks = parse_tasks(spec, sources, known=Extended(WORLDS, "worlds"))
    return Bench(
        name=spec,
        tasks=tasks,
        world=world_of_questions(tasks),
        reward=Verify(check_for(tasks)),
        max_tokens=max_tokens(spec, tasks),
    ), {}


def world_of_questions(tasks: object) -> World:
    """Where questions of a source are answered: with its own tools, if it brings some."""
    asked: Any = WithTools(tasks.tools) if isinstance(tasks, BringsTools) else Question()
    return asked


@runtime_checkable
class BringsTools(Protocol):
    """A source of questions that are answered with tools of its own, by their names."""

    @property
    def tools(self) -> tuple[str, ...]: ...


def added(plugin: Plugin) -> tuple[Bench, Mapping[str, Player]]:
    """The bench that another package makes, and the world's own players."""
    made = plugin.factory(Bench | tuple, "a Bench or (tasks, world)")()
    pair = (made.tasks, made.world) if isinstance(made, Bench) else made
    if len(pair) != 2 or not isinstance(pair[0], Tasks) or not isinstance(pair[1], World):
        kinds = ", ".join(type(x).__name__ for x in pair)
        raise plugin.refusal(f"{plugin.entry.value} made ({kinds}); it should make (tasks, world)")
    if not isinstance(made, Bench):
        tasks, world = pair
        made = Bench(name=plugin.name, tasks=tasks, world=world, max_tokens=turn_limit(world))
    return made, scripts(made.world.players) if isinstance(made.world, Casts) else {}


def scripts(moves: Mapping[str, Callable[..., str]]) -> Mapping[str, Player]:
    """Functions that play seats, as players."""
    return {seat: Script(fn=move, name=f"{seat}'s player") for seat, move in moves.items()}


def max_tokens(spec: str, tasks: Tasks) -> int:
    """Of an answer: what the sources of questions say, the most of a mixture."""
    sources = [part for part, _ in tasks.parts] if isinstance(tasks, Mixes) else [tasks]
    own = [turn_limit(source) for source in sources]
    return max(own) if "rg:" not in spec else max(256, *own)


def turn_limit(asks: World | Tasks) -> int:
    """What a world or a source of questions says, else what other benches have."""
    return (asks.max_tokens if isinstance(asks, LimitsTurns) else 0) or Bench.max_tokens


def from_data(
    data: str,
    test_data: str,
    reward: str,
    columns: str = "",
    *,
    timeout: float = 60.0,
    judged: bool = False,
    skip: str = "",
    longest: int = 0,
    overlong: str = "",
    pixels: int = 0,
    frames: int = 0,
    duration: float = 0.0,
    instruction: str = "",
    recipe: Runnable | None = None,
) -> Bench:
    """The user's own problems, with their own reward, a verifier by name, or exact answers, of
    `options` the right one.

    Args:
        columns: how the rows are read, see `palaestra.tasks.files`.
        timeout: seconds of one call of a reward function.
        judged: the recipe has a reward of its own, so that data without answers will do, or with
            answers that are objects, which it reads; then held-out problems are judged by its
            verifier, or not at all.
        skip: how many records may be left out, see `palaestra.tasks.omissions`.
        longest: tokens of the prompts that a run uses; 0 = any.
        overlong: what becomes of records that are too long, see `FileTasks`.
        pixels: of a picture, at most; 0 = a million.
        frames: of a video, at most; 0 = 16.
        duration: seconds of a sound, whose end is cut off; 0 = one of more than a minute is refused.
        instruction: what stands behind the prompts, see `Recipe`; "" = nothing.
        recipe: whose own verifier judges answers where no reward is named, and whose draw may ask
            that each line alone decides whether it is held out; None = any.
    """
    from palaestra.settings.rewards import reward_by_name

    bare = judged and not reward and no_exact_answer(first_tasks(data, 1, columns, skip)[0])
    tasks = FileTasks(
        data,
        test=test_data,
        answers=not reward and not bare,
        columns=columns,
        skip=skip,
        longest=longest,
        overlong=overlong,
        max_pixels=pixels,
        max_frames=frames,
        max_duration=duration,
        instruction=instruction,
        by_line=splits_by_line(recipe),
        by_picture=splits_by_picture(recipe),
    )
    judge = _judge(tasks, reward_by_name(reward, timeout) if reward else None, recipe, bare=bare)
    return Bench(name=data, tasks=tasks, world=Question(), reward=judge, max_tokens=256)


def _judge(
    tasks: FileTasks, named: RewardFn | None, recipe: Runnable | None, *, bare: bool
) -> RewardFn | None:
    """The reward that was named, else the recipe's own verifier, else exact answers, of `options` the
    right one; None where a record has none, `bare`.
    """
    if named or (named := own_verifier(recipe, without_answers=bare)) or bare:
        return named
    from palaestra.rewards.verified import Verified

    judge = Verify(check_for(tasks))
    return Where("options", Verified("choice"), judge) if tasks.choices else judge


def splits_by_line(recipe: Runnable | None) -> bool:
    """Whether some draw of the recipe, or of a pipeline's parts, asks for that."""
    return any(isinstance(part, SplitsByLine) and part.splits_by_line for _, part in walk(recipe))


def splits_by_picture(recipe: Runnable | None) -> bool:
    """Whether some part of the recipe, or of a pipeline, asks for that."""
    return any(
        isinstance(part, SplitsByPicture) and part.splits_by_picture for _, part in walk(recipe)
    )


@runtime_checkable
class SplitsByPicture(Protocol):
    """What measures pictures that no record of training shows: of a file without a split of its own,
    all records with the same pictures are held out together.
    """

    @property
    def splits_by_picture(self) -> bool: ...


@runtime_checkable
class SplitsByLine(Protocol):
    """A draw for which each record of a file decides alone whether it is held out. Without it the
    prompts with the smallest hashes are, so that a record more can move another one.
    """

    @property
    def splits_by_line(self) -> bool: ...


def no_exact_answer(task: Task) -> bool:
    """Whether a task has no answer, or one that no reply is compared with as a whole."""
    return task.answer is None or isinstance(task.answer, Mapping)


def rows_of(
    settings: Settings,
    instruction: str = "",
    *,
    answers: bool = True,
    shown: tuple[str, ...] = (),
) -> FileTasks:
    """The rows of the user's data as problems.

    Args:
        answers: each needs one answer that can be compared; else none will do, or several.
        shown: columns in which rows of different problems may differ alone.
    """
    return FileTasks(
        settings.data,
        test=settings.test_data,
        answers=answers,
        columns=settings.columns,
        skip=settings.skip_bad,
        longest=settings.max_prompt_tokens,
        overlong=settings.overlong,
        max_pixels=settings.max_pixels,
        max_frames=settings.max_frames,
        max_duration=settings.max_duration,
        instruction=instruction,
        shown=shown,
    )


def from_env(spec: str, records: FileTasks | None = None) -> tuple[Bench, Mapping[str, Player]]:
    """The user's own world, and its players that are functions.

    Args:
        records: what is played in place of the tasks that the world makes.
    """
    from palaestra.worlds.adapters.methods import is_object_of_tools, object_world
    from palaestra.worlds.adapters.stepped import is_stepped, stepped_world
    from palaestra.worlds.user import check_takes_records, load_environment, players_of

    if is_adapted(spec):
        if records is not None:
            raise UserError(
                f"--env {spec} brings its own rows, and --data gives others; drop --data"
            )
        return bench_by_name(spec)
    if is_object_of_tools(spec):
        adapted = object_world(spec, records)
        tasks = AdaptedTasks(adapted, spec) if records is None else records
        return Bench(name=spec, tasks=tasks, world=adapted, max_turns=adapted.max_turns), {}
    if is_stepped(spec):
        if records is not None:
            raise UserError(
                f"--env {spec} makes its own episodes, by reset(seed=...), and --data gives others; drop "
                "one of the two, or write it as a class whose reset takes a row (docs/environments.md)"
            )
        steps = stepped_world(spec)
        tasks, turns = AdaptedTasks(steps, spec), steps.max_turns
        limit = turn_limit(steps)
        return Bench(name=spec, tasks=tasks, world=steps, max_turns=turns, max_tokens=limit), {}
    world, own = load_environment(spec)
    if records is not None:
        check_takes_records(spec)
    bench = Bench(
        name=spec,
        tasks=own if records is None else records,
        world=world,
        max_tokens=world.max_tokens,
        dialect=world.dialect,
    )
    return bench, scripts(players_of(spec))


def rows_alone(settings: Settings) -> Bench:
    """The user's data without a reward: an agent says what its episode was worth."""
    rows = rows_of(settings, answers=False)
    return Bench(name=settings.data, tasks=rows, world=Question(), max_tokens=256)


def add_agent(bench: Bench, settings: Settings) -> Bench:
    """The same questions, answered by the user's own agent; UserError in a world of its own."""
    from palaestra.worlds.gateway.agent import MOST_TURNS, AgentWorld, JudgeAgents

    if settings.tools:
        raise UserError("--agent and --tools exclude each other: an agent brings its own tools")
    if not isinstance(bench.world, Question):
        raise UserError(
            f"--agent: {bench.name} is a world of its own; an agent goes with questions, from --data "
            "or a --task that asks a single one"
        )
    world = AgentWorld(
        settings.agent,
        seconds=settings.agent_seconds,
        processes=settings.agent_processes,
        most_tokens=settings.max_tokens,
        last_line="answer" if bench.reward else "reward",
        keep=settings.agent_keep,
    )
    judge = JudgeAgents(bench.reward) if bench.reward else None
    return replace(bench, world=world, reward=judge, max_turns=MOST_TURNS)


def in_notebook(settings: Settings, instruction: str) -> Bench:
    """The user's own questions, answered in the notebook, whose cells may call the user's tools."""
    if not settings.data:
        raise UserError(
            f"--env {NOTEBOOK} asks questions of yours; give them with --data FILE.jsonl"
        )
    given: dict[str, Any] = {
        "tools": settings.tools,
        "turns": settings.tool_turns,
        "seconds": settings.tool_seconds,
        "chars": settings.tool_chars,
        **parse_alone(settings.env, f"{NOTEBOOK}(context=N,...)").settings,
    }
    check_world_settings(settings.env, NotebookQuestions, given)
    world = NotebookQuestions(**given)
    return several_turns(settings, world, rows_of(settings, instruction))


def in_dialogue(settings: Settings, instruction: str) -> Bench:
    """The user's own questions, answered by two agents with a context each."""
    if not settings.data:
        raise UserError(
            f"--env {DIALOGUE} asks questions of yours; give them with --data FILE.jsonl, with the "
            "columns context_a and context_b"
        )
    given = parse_alone(settings.env, f"{DIALOGUE}(turns=N,...)").settings
    check_world_settings(settings.env, Dialogue, given)
    world = Dialogue(**given)
    return several_turns(
        settings, world, rows_of(settings, instruction, shown=("context_a", "context_b"))
    )


def in_documents(settings: Settings, instruction: str) -> Bench:
    """The user's own questions, answered by searching the user's own documents, or with a search of
    theirs.
    """
    room = (settings.env or SEARCH).partition("(")[0]
    world = search_world(settings, retriever_of(settings, room))
    return several_turns(settings, world, rows_of(settings, instruction, answers=False))


def search_world(settings: Settings, retriever: Retriever) -> Search:
    """The search that `--env` names. Raises UserError where documents are opened that are not here."""
    env = settings.env or SEARCH
    named = parse_alone(env, f"{SEARCH}(k=N,...)")
    given: dict[str, Any] = {"told": True, **named.settings}
    shuffle = given.pop("shuffle", None)
    if shuffle is not None:
        if type(shuffle) is not int or not isinstance(retriever, BM25):
            raise UserError(
                f"--env {env}: shuffle is a number that seeds which document takes whose place, and "
                "needs documents, --docs FOLDER"
            )
        retriever = replace(retriever, shuffle=shuffle)
    check_world_settings(env, SEARCHES[named.name], given)
    if SEARCHES[named.name] is PageSearch and not isinstance(retriever, BM25):
        raise UserError(
            f"--env {env} opens documents, which a search does not give; give --docs FOLDER"
        )
    return SEARCHES[named.name](retriever, **given)


def documents_alone(settings: Settings) -> Bench:
    """The user's documents without a question, which are written about them first."""
    index = BM25(read_documents(settings.docs))
    world = search_world(settings, index)
    return Bench(
        name=settings.docs, tasks=SeedDocuments(tuple(index.pages)), world=world, max_tokens=256
    )


def in_rewrites(settings: Settings, instruction: str) -> Bench:
    """The user's own queries, rewritten for an index of the user's documents or a search of theirs."""
    given: dict[str, Any] = {"usage": f"{REWRITE_IT} {instruction}".strip()}
    if settings.env:
        given |= parse_alone(settings.env, f"{REWRITE}(k=N,...)").settings
    check_world_settings(settings.env or REWRITE, RewriteQuery, given)
    world = RewriteQuery(retriever_of(settings, REWRITE), **given)
    return several_turns(settings, world, rows_of(settings, answers=False))


def in_reranking(settings: Settings, instruction: str) -> Bench:
    """The user's own questions, for which passages are chosen that an index of the user's documents,
    or a search of theirs, finds.
    """
    given: dict[str, Any] = {"usage": f"{CHOOSE_PASSAGES} {instruction}".strip()}
    if settings.env:
        given |= parse_alone(settings.env, f"{RERANK}(k=N,...)").settings
    check_world_settings(settings.env or RERANK, Rerank, given)
    world = Rerank(retriever_of(settings, RERANK), **given)
    return several_turns(settings, world, rows_of(settings, answers=False))


def retriever_of(settings: Settings, room: str) -> Retriever:
    """The index of the user's documents, or the user's own search. Raises UserError without data, or
    without one of both.
    """
    if not settings.data or bool(settings.docs) == bool(settings.tools) or len(settings.tools) > 1:
        raise UserError(
            f"--env {room} needs rows of yours, --data FILE.jsonl, and documents, --docs FOLDER, or "
            "a search of yours, --tools FILE.py:search, not both"
        )
    return OwnSearch(settings.tools[0]) if settings.tools else BM25(read_documents(settings.docs))


def in_graph(settings: Settings, instruction: str) -> Bench:
    """The user's own questions, answered by following the user's own facts."""
    if not settings.graph or not settings.data:
        raise UserError(
            "a model that follows facts needs a graph and questions of yours: --graph FILE.tsv --data "
            "FILE.jsonl"
        )
    rows, given = rows_of(settings, instruction, answers=False), dict[str, Any](told=True)
    if settings.env:
        given |= parse_alone(settings.env, f"{GRAPH}(turns=N,...)").settings
    check_world_settings(settings.env or GRAPH, GraphQuestions, given)
    documents = BM25(read_documents(settings.docs)) if settings.docs else None
    graph = TripleGraph(read_triples(settings.graph))
    solved = [rows.task("train", i) for i in range(rows.size)]
    world = GraphQuestions(planner_of(graph, solved), documents, **given)
    return several_turns(settings, world, rows)


ROOMS: Mapping[str, Callable[[Settings, str], Bench]] = {
    NOTEBOOK: in_notebook,
    DIALOGUE: in_dialogue,
    **dict.fromkeys(SEARCHES, in_documents),
    REWRITE: in_rewrites,
    RERANK: in_reranking,
    GRAPH: in_graph,
}


def several_turns(
    settings: Settings,
    world: NotebookQuestions | Dialogue | Search | RewriteQuery | Rerank | GraphQuestions,
    tasks: FileTasks,
) -> Bench:
    """The user's questions in a world of several turns."""
    asked = world.asks if isinstance(world, GraphQuestions) else world.turns
    turns = max(Bench.max_turns, asked)
    return Bench(name=settings.data, tasks=tasks, world=world, max_tokens=256, max_turns=turns)


def add_interpreter(bench: Bench, settings: Settings) -> Bench:
    """The same questions, answered with Python inside the reply. Raises UserError where the bench
    asks in a world of its own, or names other tools.
    """
    if settings.tools not in ((), (SANDBOX,)):
        raise UserError(
            f"--env {INTERPRETER} runs Python alone; for other tools leave it out, and calls are then "
            "written in the way of the model's family"
        )
    given: dict[str, Any] = {"told": True, "seconds": settings.tool_seconds}
    given |= parse_alone(settings.env, f"{INTERPRETER}(calls=N,...)").settings
    check_world_settings(settings.env, Interpreter, given)
    world = Interpreter(**given)
    if not isinstance(bench.world, Question):
        raise UserError(
            f"--env {INTERPRETER}: {bench.name} is a world of its own; it goes with questions, from "
            "--data or a --task that asks a single one"
        )
    return replace(bench, world=world, max_turns=max(bench.max_turns, world.turns))


def add_tools(bench: Bench, world: WithTools, *, judged: bool = False) -> Bench:
    """The same questions, answered with tools. Raises UserError where the bench asks in a world of
    its own. A method that is `judged` by itself judges alone where tools work on a database.
    """
    if not isinstance(bench.world, Question):
        raise UserError(
            f"--tools: {bench.name} is a world of its own; tools go with questions, from --data or "
            "a --task that asks a single one"
        )
    alone = judged and toolbox(world.tools).takes_database
    reward = None if alone else bench.reward
    turns = max(bench.max_turns, world.turns + 1)
    return replace(bench, world=world, reward=reward, max_turns=turns)
