"""Adaptive interactive navigation: where no free path leads to the goal, a language model plans calls of
primitives that change the world, as a tree that others of its roles watch over and edit (arXiv:2503.22942).

    node     one call of a primitive, with a rough cost and the view that it should lead to
    follow   the path with the least sum of costs that are left; its first call is done
    events   a call failed, names were seen first, or a call cost more than twice what it should
    advisor  {"advice": continue | repair | replan, "node": ...}
    arborist {"edits": [prune NODE | add CALL under NODE | recost NODE]}

The world itself, not the model, checks each call where it would be done: an unknown name, an argument of another
type, a call that cannot be done there or leads back, and an item of a reply that does not fit are refused and
counted; so is a call that failed before, in all arms, where the world is `certain`: in others a failure may be
chance, and the call is told as one that failed. Two invalid edits, one after another, are a new tree. Where no plan
reaches the goal, the world's `explore` is done. A path has at most 6 calls, a node 3 children, a game 20 calls of
language models, repairs counted, and 30 of primitives. `tasks` starts are played in each arm, four for each of
`--steps`.

    palaestra train interactive-navigation --env FILE.py:make --llm "endpoint(url='...',model='...')"
    palaestra train interactive-navigation --env FILE.py:make --llm DIR advisor=DIR arborist=DIR
    palaestra train interactive-navigation --llm transcript:RUN/transcript.jsonl

`FILE.py:make` is a class, or a function that makes a world, with `about`, in words; `primitives`, by name the types
of their arguments, {"push": ["box", "way"]}; `values(view)`, by type the names that an argument may have;
`refuse(view, name, arguments)`, why a call cannot be done, "" = it can; `predict(...)`, the view that it should lead
to; `execute(state, name, arguments, rng)`, the state, the cost and whether it succeeded; `reset(rng)`,
`view(state)`, `spell(view)` and `reached(view)`. Views are compared with ==. Names are texts that differ by more
than case, spaces and "_". It may have `explore`, the name of a primitive, `certain = True` where `execute` draws
nothing (states have a hash then, for an oracle), and `surprising(state)`.

In the run folder are arms.md, transcript.jsonl and games/, every game of an arm with its calls and events. `return`
is the share of games that reach the goal; numbers that end in _surprise are of starts that hide something.

    none      one call that reaches the goal by itself: the shortest free path, where there is one
    flat      a plan, written anew at every failure
    advisor   a tree and the advisor; where it says repair, the tree is written anew
    guide     with the arborist too
    shuffled  what advisor and arborist said in another game, charged as there
    oracle    the cheapest plan of the world itself, with all that is hidden

`rescued` is the share of games that reach the goal after edits put another plan in the place of the one followed.

`palaestra train interactive-navigation`, seed 0, 40 starts of which 16 hide something, calls of the script and words for
tokens: the goal is reached in 0.48 of games (none) and in all of the other arms; their cost is 13.2 (flat), 13.2
(advisor), 13.3 (guide), 14.9 (shuffled) and 11.7 (oracle). Of starts with a surprise, flat takes 1.5 calls and 441
words, guide 2.0 and 816: the tree saves nothing here. A new plan is one short question of these small rooms, a tree
and two more roles are longer ones. Advice of other games costs 1,197 words and more of the way. `rescued` is 0.15.
The rooms and the script were written together, and seeds 0 to 2 were looked at. One script, no claim.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.interactive_navigation.games import NavigationLimits
from palaestra.recipes.llm4rl.interactive_navigation.guide import scripted_navigator
from palaestra.recipes.llm4rl.interactive_navigation.program import EditTrees, world_by_name
from palaestra.recipes.llm4rl.interactive_navigation.rooms import BlockedRooms, MapKind

CARD = pl.Card(
    title="Adaptive interactive navigation (primitive tree, advisor, arborist)",
    paper="arXiv:2503.22942",
    claim="A tree of primitives that a language model plans, with an advisor that says when to plan again and an "
    "arborist that edits the tree, reaches goals without a free path, and adapts to what was not known.",
    source="abstract, and secondary summaries of what the modules do; costs, limits and the grammar of edits inferred",
    size=pl.Size(
        setting="a chat model plans for a quadruped with a library of skills learned by reinforcement learning, "
        "in simulation and in rooms"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "plans a tree of calls, as JSON, and advises and edits unless others do",
            ),
            pl.needs.chat_model(
                "advisor",
                "advisor",
                "says at an event whether to continue, repair or replan",
                otherwise="the one that is asked for plans",
            ),
            pl.needs.chat_model(
                "arborist",
                "arborist",
                "edits the tree",
                otherwise="the one that is asked for plans",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "with primitives: their arguments, preconditions, expected effects, and what carries them out",
                flag="--env FILE.py:NAME",
                otherwise="two rooms whose passages are blocked by a box, a door or a ledge",
            ),
        ),
        shows="rescued",
        off={"edits": False},
        own={
            "endpoint": '{"advice": "repair", "node": "1", "edits": [{"edit": "recost", "node": "1", "cost": 50}], '
            '"nodes": [{"name": "a", "under": "0", "do": "push", "arguments": ["box 1", "east"], "cost": 2}, '
            '{"name": "b", "under": "a", "do": "walk", "arguments": ["goal"], "cost": 2}, '
            '{"name": "c", "under": "0", "do": "take", "arguments": ["key 1"], "cost": 9}, '
            '{"name": "d", "under": "c", "do": "open", "arguments": ["door 1"], "cost": 9}, '
            '{"name": "e", "under": "d", "do": "walk", "arguments": ["goal"], "cost": 9}], '
            '"plan": [{"do": "take", "arguments": ["key 1"], "cost": 9}]}',
            "kind": "stuck",
            "tasks": 3,
        },
    ),
    use="It helps where plans are long and only part of one fails, so that most of a tree can be kept; where a new "
    "plan is one short call of a model, writing it anew is cheaper.",
    lacks=(
        "Primitives are exact scripts of the world, no skills that were learned, and there is no legged motion, "
        "perception or map building.",
        "The paper's simulations and rooms were not run.",
        "By default no language model is asked but a script that knows the rules of the rooms, and nothing of what "
        "they hide; it is right about every rule, so its numbers show what the parts cost, not that a model plans "
        "well.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    advisor: pl.Source | None = None,
    arborist: pl.Source | None = None,
    sim: str = "",
    kind: MapKind = "mixed",
    edits: bool = True,
    tasks: int = 40,
    calls: int = 20,
    acts: int = 30,
    cost: float = 150.0,
) -> EditTrees:
    """`asked` plans in the world `sim`, FILE.py:NAME, or in rooms of a `kind`; `calls` of models, `acts` and
    `cost` are limits of a game; see `EditTrees`.
    """
    if sim and kind != "mixed":
        raise pl.UserError(
            f"interactive-navigation: kind={kind!r} is of the built-in rooms; with --env {sim} leave it out"
        )
    return EditTrees(
        asked=asked,
        advisor=advisor,
        arborist=arborist,
        world=world_by_name(sim) if sim else BlockedRooms(kind=kind),
        edits=edits,
        tasks=tasks,
        limits=NavigationLimits(acts=acts, cost=cost, calls=calls),
    )


def embedded(
    asked: pl.Source | None = None,
    advisor: pl.Source | None = None,
    arborist: pl.Source | None = None,
    kind: MapKind = "mixed",
    edits: bool = True,
    tasks: int = 40,
    calls: int = 20,
    acts: int = 30,
    cost: float = 150.0,
) -> EditTrees:
    """In the rooms, with the script in the place of a model unless one is `asked`."""
    return build(
        asked or pl.Scripted(scripted_navigator, name="script"),
        advisor,
        arborist,
        kind=kind,
        edits=edits,
        tasks=tasks,
        calls=calls,
        acts=acts,
        cost=cost,
    )
