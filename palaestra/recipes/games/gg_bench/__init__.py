"""gg-bench: games that a language model writes, as a test of models that have never seen them. A study:
nothing is trained (arXiv:2505.07215).

    write      rules in words, a Gym class, and what the numbers of its moves mean
    check      random games raise no error and end within 100 moves; the same moves lead to the same boards;
               at most a fifth of random games are drawn; no first move wins at once, and who opens wins
               10% to 90% of random games; a small tree search wins 60% of games against random moves
    train      an agent on each game by self-play PPO against frozen copies of itself, `training` turns; a
               game on which it wins fewer than 60% of games against random moves is dropped
    play       the model replies to rules, board and legal moves with a number; the opponent searches
               with UCB1 = w/n + 1.4 sqrt(ln N / n), a draw being half a win, with the agent's play of both
               sides behind the tree, and takes the most visited move
    score      the mean over games of the share of plays that the model wins

    palaestra study gg-bench --model DIR writer="endpoint(url='http://HOST:PORT/v1',model='NAME')"
    palaestra study gg-bench --model DIR --task "written-games(file='games.jsonl')"
    palaestra play "written-games(file='games.jsonl')" --seats human,policy --model DIR

The games that pass are kept in `games.jsonl` of the run, each with its agent, so that other models can
play the same ones against the same opponents (rival='agent'). Where a game is small enough to be solved,
the report says how often the agent, the search and both make a move that perfect play would make.
Without a writer and a file a grammar writes games. Their code runs in the sandbox alone: what crashes or
hangs there is a verdict on the game, and a play that breaks is not won. `FILE` is lines with the
columns code, rules, moves, title, agent, or a folder as the authors released theirs (gg_bench/data).
"""

from dataclasses import replace
from typing import Any, Literal

import palaestra as pl
from palaestra.recipes.games.gg_bench.program import GameBench
from palaestra.recipes.games.gg_bench.toy import ShowMoves

SMALL = "written-games(brief=True,retries=1)"

CARD = pl.Card(
    title="gg-bench: generated games",
    paper="arXiv:2505.07215",
    claim="Games that a language model writes and implements are a test that can be made anew at will, and "
    "a hard one: language models win 7 to 9% of games against trained opponents, reasoning models 31 "
    "to 36%.",
    source="abstract; protocol, prompts' content and form of the class from the released code "
    "(vivek3141/gg-bench), of which nothing is copied; the check of the first move is ours",
    size=pl.Size(
        setting="1,000 games written by o1, of which 126 were kept; 30 plays of each by GPT-4o, Claude 3.7, "
        "o1, o3-mini, DeepSeek-R1 against agents of self-play PPO with tree search",
    ),
    task="written-games",
    needs=pl.needs.Requirements(
        columns=(),
        models=(
            pl.needs.chat_model(
                "writer",
                "writer",
                "writes the games",
                otherwise="games of the problem are played: those of a file, or of a grammar",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "game",
                "that is written as a class: the built-in ones of a grammar, or those of a file",
                built_in=("written-games", SMALL),
                flag="--task \"written-games(file='FILE')\"",
            ),
        ),
        shows="opponent_edge",
        off={"opponent": "search", "iterations": 0},
        own={"task": SMALL, "games": 3, "plays": 2, "iterations": 10, "training": 600},
    ),
    use="It shows whether a model can play games that are in no training set, and which of your models plays "
    "better; a writer who is the model under test may write what suits it, so take another one.",
    lacks=(
        "An agent is a small network on the fields of the game's object, trained for thousands of turns in seconds, "
        "where the paper's are trained for a million steps: in a large game it is weak, and how weak is said only "
        "where a game can be solved.",
        "Games with chance or hidden information are left out: a state is kept as the moves that led there.",
        "The built-in games are of five simple families that a grammar varies, and were not written by a model; "
        "a model small enough to come with the package cannot write any.",
        "In the default run (one seed) the built-in model, shown good moves of other games for 50 steps, wins 10% of "
        "its plays of 11 games and random moves 7%, so it plays no better than random. Of the opponent's moves 91% are "
        "those of perfect play, of the agent's alone 83%, of the search's alone 86%, of random ones 38%; the "
        "agent adds 5 points to the search over these games, of one seed.",
    ),
    grade="B",
)


def build(
    writer: pl.Source | None = None,
    games: int = 40,
    plays: int = 30,
    opponent: Literal["agent", "search", "exact"] = "agent",
    training: int = 8_000,
    iterations: int = 300,
    temperature: float = 1.0,
) -> GameBench:
    """`games` that are written or read, `plays` of each that passes; `iterations` of the opponent's search.
    The `opponent` is an "agent" that is trained by self-play for `training` turns of each game, with the
    search in front; the "search" alone; or it plays "exact" where a game is small enough to be solved.
    """
    return GameBench(writer, games, plays, opponent, training, iterations, temperature)


def embedded(
    games: int = 16,
    plays: int = 8,
    training: int = 4_000,
    iterations: int = 50,
    steps: int = 50,
    **options: Any,
) -> pl.Pipeline:
    """The built-in model, which is shown good moves of other games first, for `steps` steps."""
    sft = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowMoves()),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
        schedule=pl.Schedule(prompts=6, steps=steps),
    )
    study = build(games=games, plays=plays, training=training, iterations=iterations, **options)
    return pl.Pipeline(
        parts={
            "player": replace(pl.warm(sft), task=SMALL),
            "study": pl.Part(study, model=pl.Output("player"), task=SMALL),
        }
    )
