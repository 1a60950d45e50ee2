"""FinRL-DAPO: group-relative learning of stock trades without a critic, with scores of news by a language
model.

    group      in each state G actions are sampled, the first is executed, A = (r - mean) / std
    loss       -mean min(rho A, clip(rho, 0.8, 1.28) A); groups with std <= 1e-6 are dropped
    scores     sentiment and risk of a stock's headlines, 1 to 5, 3 where there is none: they are seen, they
               scale a trade (x 1.1 with strong news, x 0.9 against it), and they shape its reward
    reward     r' = r S^alpha / R^beta, weighted means over the stocks that are traded (arXiv:2505.06408)

    palaestra train finrl-dapo prices=FILE.csv --llm "endpoint(url='...',model='...')"
    palaestra train finrl-dapo prices=scored.csv                 # columns sentiment and risk; nobody is asked
    palaestra train finrl-dapo prices=FILE.csv scores=none       # prices alone

A file has rows of date,ticker,close, and headline, or sentiment and risk, or all three (a score of the file
comes first). FinRL's names tic, llm_sentiment and llm_risk are read too. Several rows of one day and ticker
are several headlines. A headline of a day must have been known before its close. The last third of the days
(held) is never trained on. Headlines are scored once before training, at most `calls`, as many of each day,
and none of a day and stock that the file has scored; replies are kept. `held_scored` is how many of the days
and stocks of the test have a score; the others count as 3.

arms.md in the run folder, every policy with as many traded days, on the held-out days by its likeliest
actions, with costs of 0.1%; policy/ is the guided one:

    none      every score is 3
    guide     the scores
    shuffled  the same scores, of other days and stocks
    oracle    of a made-up market its hidden state; of a file whether the price rises tomorrow, which nobody
              can know: how much scores could bring at most
    released  the scores, with rewards as in the released code, see below
    ppo       a critic instead of groups, the same observations and trades, rewards as paid
    hold      nobody learns: equal money in every stock

`return` is the profit in 10,000 of a capital of 1,000,000, `percent` of the capital, `information_ratio`
against hold. Of one path `error` is 0, as there is one test; look at `sharpe`.

`palaestra train finrl-dapo`, seed 0, gains 14.1% (none), 17.4% (guide), 15.6% (shuffled), 28.3% (oracle),
17.6% (released), 15.2% (ppo) and 1.5% (hold) on the 60 held-out days of 32 paths, with standard errors of 3 over
paths: one seed, no claim. Scores that are right pay; that the written ones do is within the error, and of the
two ways of paying a group neither is better there.

Deviations. In the released code the executed action is paid by the change of all assets times 1e-4, and the
others by sum_j a_j (p'_j / p_j - 1), another scale without costs and limits; weights have the sign of a trade,
so they may be beyond all bounds; a loss is made larger by good news; and scores are those of the day after.
Here all actions are paid alike, by what the trade alone changes, with costs; weights are of sizes; good news
never makes a loss worse; scores are of the day. Full trades of all stocks move 84% of the capital, as do 84
stocks times 100 shares of about 100. Networks are 64 wide, learning rate 1e-3 with 10 passes at most.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.finrl_dapo.program import Scores, TradeWithNews

CARD = pl.Card(
    title="DAPO for stock trading",
    paper="arXiv:2505.06408",
    claim="Group-relative learning with DAPO's clipping and dynamic sampling, and scores of news by a language "
    "model, trades better than a method with a critic, in less than a third of the time and with less memory.",
    source="abstract; the released code in a public copy (rewards, weights, scaling of trades, defaults): "
    "alan840618/HW5_DAPO_FinRL",
    size=pl.Size(
        setting="NASDAQ-100, 84 stocks with FNSPID news scored by DeepSeek-V3, trained 2013 to 2018 and traded 2019 "
        "to 2023; networks of 2 x 512, 100 epochs of 20,000 samples, 2.5 hours"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "scores headlines for sentiment and risk",
                otherwise="the scores of the file, columns sentiment and risk; a file with headlines alone is "
                "refused",
                when={"scores": ("news",)},
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "a file of closing prices, rows of date,ticker,close, with headline or sentiment,risk, of 60 days "
                "or more",
                flag="prices=FILE.csv",
                otherwise="a made-up market of five stocks, whose headlines are right in 70%",
            ),
        ),
        shows="news_effect",
        off={"scores": "none"},
        own={
            "endpoint": '{"sentiment": 5, "risk": 2}',
            "learner.games": 2,
            "learner.group": 3,
            "critic.games": 2,
            "paths": 2,
            "calls": 8,
        },
    ),
    use="It shows whether scores of news help on held-out days, beside the same scores of other days; do not "
    "take a file's result for what would be earned: a model may know how the past went on, one path is one "
    "test, and orders are filled at the close.",
    lacks=(
        "Not run on NASDAQ-100 with FNSPID, so neither 230.49% nor the information ratio 0.37 is shown.",
        "CPPO, the baseline with a penalty of tail risk, is not here: the arm with a critic is PPO; CVaR is "
        "measured.",
        "Neither hours nor memory are compared: arms have equally many traded days.",
        "Of technical indicators there are returns over 1, 5 and 20 days; neither MACD, RSI nor turbulence.",
        "A market is its prices: trades do not move them, nothing is sold short, and a simulator of your own is "
        "not taken: a group plays the same days of one table, which has to be the same for all of them.",
        "Without a model the made-up market's headlines have scores that a large model wrote once, who knew the "
        "list of headlines.",
    ),
    grade="B",
)


def build(
    prices: str = "",
    asked: pl.Source | None = None,
    scores: Scores = "news",
    held: float = 1 / 3,
    days: int = 60,
    steps: int = 40_000,
    calls: int = 1000,
    alpha: float = 1.0,
    beta: float = 1.0,
    paths: int = 32,
) -> TradeWithNews:
    """`prices` is a file, `asked` scores its headlines; those of the made-up market have scores that a
    large model wrote unless a model is `asked`. `steps` are traded days of an arm's training; see
    `TradeWithNews`.
    """
    return TradeWithNews(
        prices=prices,
        asked=asked,
        scores=scores,
        held=held,
        days=days,
        steps=steps,
        calls=calls,
        alpha=alpha,
        beta=beta,
        paths=paths,
    )
