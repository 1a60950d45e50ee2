"""gg-bench: games that a language model writes, as a test of models that have never seen them. A study:
nothing is trained (arXiv:2505.07215).

    write      rules in words, a Gym class, and what the numbers of its moves mean
    check      random games raise no error and end within 100 moves; the same moves lead to the same boards;
               at most a fifth of random games are drawn; no first move wins at once, and who opens wins
               10% to 90% of random games; a small tree search wins 60% of games against random moves
    play       the model replies to rules, board and legal moves with a number; the opponent searches
               with UCB1 = w/n + 1.4 sqrt(ln N / n), a draw being half a win, and takes the most visited move
    score      the mean over games of the share of plays that the model wins

    palaestra study gg-bench --model DIR writer="endpoint(url='http://HOST:PORT/v1',model='NAME')"
    palaestra study gg-bench --model DIR --task "written-games(file='games.jsonl')"
    palaestra play "written-games(file='games.jsonl')" --seats human,policy --model DIR

The games that pass are kept in `games.jsonl` of the run, so that other models can play the same ones.
Without a writer and a file a grammar writes games. Their code runs in the sandbox alone: what crashes or
hangs there is a verdict on the game, and a play that breaks is not won. `FILE` is lines with the
columns code, rules, moves, title, or a folder as the authors released theirs (gg_bench/data).
"""

from dataclasses import replace
from typing import Any

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
        off={"iterations": 0},
        own={"task": SMALL, "games": 3, "plays": 2, "iterations": 20},
    ),
    use="It shows whether a model can play games that are in no training set, and which of your models plays "
    "better; a writer who is the model under test may write what suits it, so take another one.",
    lacks=(
        "No agent is trained by self-play PPO on a game: the opponent is a tree search with random play behind "
        "the tree, or the exact solver of small games (exact=True).",
        "Whether an agent can be trained is not tried; in its place a game must reward a small search over "
        "random moves.",
        "Games with chance or hidden information are left out: a state is kept as the moves that led there.",
        "Each turn is asked alone, with rules, board and legal moves, without the turns before it.",
        "The built-in games are of five simple families that a grammar varies, and were not written by a model; "
        "a model small enough to come with the package cannot write any.",
        "In the default run the built-in model, shown good moves of other games for 50 steps, wins 10.2% of its "
        "plays of 11 games and random moves 9.5%, so it plays no better than random (one seed).",
    ),
    grade="C",
)


def build(
    writer: pl.Source | None = None,
    games: int = 40,
    plays: int = 30,
    iterations: int = 300,
    exact: bool = False,
    temperature: float = 1.0,
) -> GameBench:
    """`games` that are written or read, `plays` of each that passes; `iterations` of the opponent's search;
    `exact` lets it play perfectly where a game is small enough to be solved.
    """
    return GameBench(writer, games, plays, iterations, exact, temperature)


def embedded(
    games: int = 16, plays: int = 8, iterations: int = 50, steps: int = 50, **options: Any
) -> pl.Pipeline:
    """The built-in model, which is shown good moves of other games first, for `steps` steps."""
    shown = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowMoves()),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
        schedule=pl.Schedule(prompts=6, steps=steps),
    )
    study = build(games=games, plays=plays, iterations=iterations, **options)
    return pl.Pipeline(
        parts={
            "player": replace(pl.warm(shown), task=SMALL),
            "study": pl.Part(study, model=pl.Output("player"), task=SMALL),
        }
    )
