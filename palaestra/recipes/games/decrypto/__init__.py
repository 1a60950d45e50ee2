"""Decrypto: a game of hints as a test of whether a model knows what others know and believe. A study:
nothing is trained (arXiv:2506.20664).

Who encodes, decodes and intercepts is every combination of the model, the players made of word vectors
(`palaestra.worlds.decrypto`) and, if one is given, a partner. All combinations play the same deals. Then
the model is asked at turns that were played:

    perspective     the encoder predicts the interceptor's guess; against how often the interceptor names the
                    true code, which is what predicting the true code would score
    change          the interceptor names keywords g; they are revealed as k; what did it believe before? b.
                    Over turns with g != k: weak b != k, strong b = g
    false belief    what will a second interceptor, who was not told, name? o. Weak o != k, strong o = g
    consistency     b = o

    palaestra study decrypto --model DIR --task decrypto
    palaestra study decrypto --model DIR --task "decrypto(words='mine.txt',vectors='glove.txt')"
    palaestra study decrypto --model DIR --task decrypto partner="endpoint(url='http://HOST:PORT/v1',model='NAME')"
    palaestra play decrypto --model DIR --seats human,policy,policy

`mine.txt` has a keyword in each line, and after a colon words that go with it ("fire: flame heat smoke").
A game is lost by two miscommunications or two interceptions; its number of turns, of 8, is the score.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.games.decrypto.program import DecryptoStudy
from palaestra.recipes.games.decrypto.toy import ShowDecrypto

SMALL = "decrypto(keywords=8,brief=True,illegal='never')"

CARD = pl.Card(
    title="Decrypto: theory-of-mind benchmark",
    paper="arXiv:2506.20664",
    claim="In a game of hints that is easy in all but the reasoning about other minds, language models play "
    "worse than people and than simple players made of word vectors, and reasoning models answer questions "
    "about beliefs worse than older models.",
    source="abstract; rules, baselines and probes as the catalogue has them from the released code "
    "(facebookresearch/decrypto), of which nothing is copied: its licence is non-commercial",
    size=pl.Size(
        setting="GPT-4o, Claude 3.7, o1, Llama-3.1 8B and 70B, DeepSeek-R1-32B; 32 games and 3 seeds a "
        "cell, 680 keywords",
    ),
    task="decrypto",
    needs=pl.needs.Requirements(
        columns=(),
        models=(
            pl.needs.chat_model(
                "partner",
                "partner",
                "plays every role beside the model, in all combinations",
                otherwise="the model and the players made of word vectors play",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "game",
                "of Decrypto: the built-in one, with keywords of yours, or a class that extends it",
                built_in=("decrypto", SMALL),
                flag="--task \"decrypto(words='FILE')\"",
            ),
        ),
        shows="told_apart",
        off={"rivals": False},
        own={"task": SMALL, "games": 2, "probes": 2, "retries": 0},
    ),
    use="It shows whether a model can hint at what one listener knows and another does not; a model that does "
    "not follow the form of a reply loses by that alone, so look at the unread replies first.",
    lacks=(
        "No person's games are compared: the ten released ones may not be used here; play yourself with "
        "palaestra play decrypto --seats human,policy,policy.",
        "The built-in 36 keywords are our own, with vectors made of lists of words; the paper's 680 keywords "
        "and its embeddings are not here. Give words= and vectors= for others.",
        "The robustness studies of the paper, other prompts and other keywords, are not programmed: vary "
        "words, turns and temperature yourself.",
        "The built-in model was shown the form of the probes with the beliefs of the vector player, so what "
        "it scores in them says nothing about minds. In the default run its games have 2.2 turns against "
        "3.3 of the vector players (24 deals, one seed), and no role is told apart.",
    ),
    grade="A",
)


def build(
    partner: pl.Source | None = None,
    rivals: bool = True,
    games: int = 32,
    probes: int = 64,
    retries: int = 2,
    temperature: float = 1.0,
) -> DecryptoStudy:
    """`games` of each combination of players; `probes` turns at which each probe is put, 0 = none."""
    return DecryptoStudy(partner, rivals, games, probes, retries, temperature)


def embedded(games: int = 24, probes: int = 48, steps: int = 80, **options: Any) -> pl.Pipeline:
    """The built-in model, which is shown the game with eight keywords first, for `steps` steps."""
    sft = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowDecrypto()),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
        schedule=pl.Schedule(prompts=8, steps=steps),
    )
    study = build(games=games, probes=probes, **options)
    return pl.Pipeline(
        parts={
            "player": replace(pl.warm(sft), task=SMALL),
            "study": pl.Part(study, model=pl.Output("player"), task=SMALL),
        }
    )
