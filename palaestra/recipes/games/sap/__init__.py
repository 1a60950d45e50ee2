"""SAP, Strategy-Augmented Planning: strategies are numbers and words, a network learns from games between them
which one beats which, and an opponent is recognised and answered by search. Nothing of the model is
trained (arXiv:2505.08459).

    offline   the stored strategies play each other; payoff(i, j) = 10 won + 0.1 damage + 0.1 (spent -
              harvested), payoff(j, i) = -payoff(i, j), 0 on the diagonal; the network learns P(i beats j)
    online    begin with the meta strategy, argmax_i mean_j payoff(i, j); after each game the opponent's
              strategy t is recognised, in three tries, else the strategy is kept; then
                  t is stored    argmax_i payoff(i, t)
                  else           argmax_s net(s, t) over the whole space, or where that is below 1/2 the meta strategy

    palaestra train sap
    palaestra train sap recogniser="endpoint(url='http://HOST:PORT/v1',model='NAME')"
    palaestra train sap --env game.py:Game --model DIR strategies=mine.jsonl

In a game of yours with two seats a model plays each side by the text of a strategy, and reads from the
replies of the other side which one that plays by. The built-in game is a hidden payoff over 1,020
strategies of a small real-time strategy game. Beside the method play the meta strategy alone (`meta`),
the stored strategy nearest to what was recognised (`nearest`), and the method that is told the
opponent's strategy (`sap_known`), against stored opponents (`seen`) and others (`unseen`).
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
        "MicroRTS is not here: the built-in game is a matrix of chances to win that is drawn, with damage but without "
        "resources and ticks, so the planner that turns a strategy into actions acts in a game of yours alone.",
        "An opponent is recognised after each game of a series, not every 200 ticks inside of one.",
        "Rule-based opponents and agents of reinforcement learning, with which the paper compares, are not here.",
        "In a game of yours the space is your file, and the network tells unseen strategies by your vectors alone.",
        "In the default run (one seed, 20 unseen opponents) the method wins 0.73, the nearest stored strategy 0.68 and "
        "the meta strategy 0.47; the lead over the nearest, 0.05 (-0.10 to 0.19), is within chance. Told the opponent's "
        "strategy it wins 0.81: half of what it recognises is wrong in some feature.",
        "A response that the network promises most is also the one that it errs about most: look at "
        "predicted_minus_won.",
    ),
    grade="C",
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
