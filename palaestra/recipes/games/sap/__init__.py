"""SAP, Strategy-Augmented Planning: strategies are numbers and words, a network learns from games between them
which one beats which, and an opponent is recognised and answered by search. Nothing of the model is
trained (arXiv:2505.08459).

    offline   the stored strategies play each other; payoff(i, j) = 10 won + 0.1 damage + 0.1 (spent -
              harvested), payoff(j, i) = -payoff(i, j), 0 on the diagonal; the network learns P(i beats j)
    online    begin with the meta strategy, argmax_i mean_j payoff(i, j); every 20 of 200 ticks, and after
              each game, the opponent's strategy t is recognised, in three tries, else the own one is kept; then
                  t is stored    argmax_i payoff(i, t)
                  else           argmax_s net(s, t) over the whole space, or where that is below 1/2 the meta strategy

    palaestra train sap --env game.py:Game --model DIR strategies=mine.jsonl
    palaestra train sap recogniser="endpoint(url='http://HOST:PORT/v1',model='NAME')" planner="endpoint(url=...)"

In a game of yours with two seats a model plays each side by the text of a strategy, and reads from the
replies of the other side which one that plays by. The built-in game is a small real-time strategy game
with MicroRTS's units: workers harvest, buildings train, armies attack or defend. Rules turn each of its
1,020 strategies into orders by what a side has; with a `planner` a model does, every 20 ticks, from the
strategy's words and what both sides have. Beside the method play a strategy that is drawn (`random`), the
meta strategy alone (`meta`), the stored strategy that beats the one nearest to what was recognised
(`nearest`), and the method that is told the opponent's strategy (`sap_known`); against stored opponents
(`seen`), others (`unseen`), and six that play by rules of their own (`rules`: four rushes, one that
defends until it has an army, and one that trains what beats the other side's units).

What the default run shows: in this game one strategy is nearly best against all, and where the meta
strategy wins nothing is left to exploit. The network tells who wins (87% of held-out pairs of stored
strategies, by which its epoch was chosen); at a game's start it promises 0.33 more wins than there are.
"""

from typing import Any

import palaestra as pl
from palaestra.recipes.games.sap.program import StrategyPlanning

CARD = pl.Card(
    title="Strategy-Augmented Planning (MicroRTS)",
    paper="arXiv:2505.08459",
    claim="A network that learns from games between strategies which one beats which, and is searched for a "
    "response to the strategy that an opponent is recognised by, exploits opponents that were never "
    "played as well as those that were.",
    source="abstract; space, network and rules of the online stage as the catalogue has them from the released "
    "code (hsushuai/SAP), of which nothing is copied",
    size=pl.Size(
        setting="Qwen2.5-72B-Instruct as planner and recogniser in MicroRTS on maps of 8 x 8 and 16 x 16, 50 "
        "strategies, 30 of them stored",
    ),
    needs=pl.needs.Requirements(
        columns=(),
        models=(
            pl.needs.chat_model(
                "proposer",
                "proposer",
                "proposes the strategies of the built-in game",
                otherwise="they are drawn from the space, or are those of the file",
            ),
            pl.needs.chat_model(
                "recogniser",
                "recogniser",
                "names the opponent's strategy from its games",
                otherwise="the most frequent features decide in the built-in game, and in another one the "
                "model that plays is asked",
            ),
            pl.needs.chat_model(
                "planner",
                "planner",
                "turns the strategy into orders in the built-in game",
                otherwise="rules do",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "game",
                "of two seats, with a file of strategies: strategies=FILE",
                built_in=("kuhn", "tictactoe"),
                otherwise="the built-in game over 1,020 strategies is played",
            ),
        ),
        shows="answered",
        off={"search": False},
        own={"count": 10, "plays": 1, "rounds": 1, "epochs": 30},
    ),
    use="It helps where strategies counter each other and an opponent keeps to one; where one strategy is best "
    "against all, the meta strategy does as well.",
    lacks=(
        "MicroRTS is not here, nor its bots: the built-in game has its units and costs on one map of 12 x 12, in ticks "
        "ten times as long, and its end counts what a side is worth; the rule-based opponents are written for it.",
        "Agents of reinforcement learning, with which the paper compares, are not here.",
        "In a game of yours an opponent is recognised after each game of a series and not within; the space is your file, "
        "and the network tells unseen strategies by your vectors alone.",
        "The claim does not show in the default run (one seed): against 20 unseen opponents the method wins 0.85, the "
        "meta strategy 0.88, the nearest stored strategy 0.88, a drawn strategy 0.40; against 30 stored ones 0.78, "
        "0.88, 0.90 and 0.28, and 0.93 where it is told the opponent's strategy. Of what it recognises within games "
        "22% is right in every feature.",
        "predicted_minus_won compares what was promised at a game's start with its end, though the strategy is exchanged within "
        "it and 78% of recognitions are wrong in some feature; of 56 series 6 are against rules, whose features are not known.",
    ),
    grade="B",
)


def build(
    strategies: str = "",
    proposer: pl.Source | None = None,
    recogniser: pl.Source | None = None,
    planner: pl.Source | None = None,
    count: int = 50,
    share: float = 0.6,
    plays: int = 2,
    rounds: int = 2,
    every: int = 20,
    noise: float = 0.1,
    search: bool = True,
    epochs: int = 400,
    **options: Any,
) -> StrategyPlanning:
    """`count` strategies, of which `share` are stored; `plays` games of each pair of these, `rounds` of a
    series against an opponent, which is recognised `every` so many ticks; `noise` of what is seen of it.
    """
    return StrategyPlanning(
        strategies=strategies,
        proposer=proposer,
        recogniser=recogniser,
        planner=planner,
        tasks=count,
        share=share,
        n=plays,
        rounds=rounds,
        every=every,
        noise=noise,
        search=search,
        epochs=epochs,
        **options,
    )
