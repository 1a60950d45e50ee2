"""FairMarket-RL: agents of a market learn to trade, and a language model scores how fair each day was.

    r_i = profit_i / deviation + lambda_B FTB + lambda_S FBS      of a seller, at the end of a day
    r_j = -cost_j / deviation + lambda_B FTB                      of a buyer (arXiv:2506.22708)
    lambda(e) = lambda_max clip((e - e0) / (e1 - e0), 0, 1)       e episodes so far: economics come first

FTB, fairness to buyers, and FBS, fairness between sellers, are two numbers from 0 to 1 that the model gives
after it read the table of a day's transactions: what each household had or needed, traded, at which price.
Every agent has a policy and a critic of its own and sees what it knows itself (independent PPO).

    palaestra train fairmarket-rl --llm "endpoint(url='...',model='...')"
    palaestra train fairmarket-rl --env FILE.py:make --llm DIR      # several agents: PettingZoo (parallel), arrays
    palaestra train fairmarket-rl --env FILE.py:make --llm transcript:RUN/transcript.jsonl
    palaestra train fairmarket-rl prosumers=8 line=4 --llm DIR

The model is asked between the games and their update, about days that are unlike those before in twelfths of
each number's range, at most `calls` in an arm, as many in every iteration; another day has the scores of the
nearest one. It sees neither rewards nor lambdas. A reply that cannot be read in three tries scores 0.5 and 0.5
(a fallback).

A simulator of your own may say who sells (`sells`, [A]) and what was traded (`table(paths)`, [n, A] by name);
else each agent counts as a seller, and the model reads what it earned and the means of its `facts`. With
`fairness(paths)` and `served(paths)` there are measures and an oracle. `about` is what the model is told of it.

arms.md in the run folder, all arms with equally many slots; policy/ has the guided agents:

    none      profits alone
    guide     the ramped scores
    constant  the same critic, lambdas largest from the first day
    shuffled  as guide, with the scores of other days
    oracle    FTB and FBS by formula: mean_b served_b / demand_b (p_grid - price_b) / (p_grid - p_feed),
              and 1 - Gini of the sellers' profits

With `prosumers` households of a distribution grid, most with a solar roof, sell in some slots and buy in others, so
everyone has both scores added; trades between its two areas are cut to what the line between them carries. There
FBS is of what a household earned for a kilowatt-hour of surplus, and `served` the share of what surpluses could meet.

`return` is what all agents together were paid, so it is the welfare: where it falls, agents look fair by trading
less. `profit` is that of sellers. `FTB_agreement` is the rank correlation of the critic with the formula.

`fairness_paid` is the deviation over games of what scores add to a reward: 0 for a critic that always says the
same. The ramp counts environment steps; where they are fewer than 10 updates the run says so.

`palaestra train fairmarket-rl`, seed 0, ends with FTB at 0.22 (none), 0.24 (guide), 0.24 (constant), 0.18
(shuffled) and 0.27 (oracle), FBS at 0.87 (none) and 0.88 to 0.89, demand met at 0.88, 0.86, 0.87, 0.87 and 0.88, and
profits at 7.4, 7.0, 7.1, 7.7 and 6.9: right scores move sellers a little towards buyers and wrong ones away from
them, and `return` falls from -7.3 to -7.6 (standard errors 0.16 and 0.17). One seed, no claim. The critic goes with
the formulas (FTB_agreement 0.61, FBS_agreement 0.90), and the oracle does little more, so it is not the critic
that keeps FTB far from the paper's 0.80, but how much scores weigh, and for how long: with lambdas of 20 and 64,000
slots the oracle's arm has FTB at 0.46 and FBS at 0.87, beside 0.22 and 0.87 (none), with 0.89 of demand met in both.

`palaestra train fairmarket-rl prosumers=8`, seed 0, shows nothing of the scores: in order none, guide, constant, shuffled,
oracle FTB is at 0.07, 0.07, 0.06, 0.07 and 0.06, FBS at 0.53, 0.52, 0.52, 0.49 and 0.53, and `served` at 0.67, 0.66,
0.65, 0.60 and 0.61. 32 updates are few for eight learners.

Deviations: market rules, table, formulas, the shape of the ramp and all numbers are ours, as the abstract names
none. All sellers have the same FBS, so nobody is blamed for what another one earned.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.fairmarket_rl.critic import written_scores_of_fairness
from palaestra.recipes.llm4rl.fairmarket_rl.feeder import Feeder
from palaestra.recipes.llm4rl.fairmarket_rl.microgrid import Microgrid
from palaestra.recipes.llm4rl.fairmarket_rl.program import Critic, TradeFairly

CARD = pl.Card(
    title="FairMarket-RL: LLM fairness critic, IPPO",
    paper="arXiv:2506.22708",
    claim="Scores of fairness by a language model, ramped into the rewards of independent learners, give a market in "
    "which over 90% of demand is met and fairness to buyers and between sellers is above 0.80.",
    source="abstract; secondary pages on it and on its follow-up arXiv:2508.18610 for the names of scores and the "
    "ramp; formulas, market rules and numbers inferred",
    size=pl.Size(
        setting="a large chat model as the critic of a simulated microgrid of several sellers and buyers, then of a "
        "distribution system with prosumers; IPPO"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "goal": "goal", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "scores how fair a game was",
                when={"critic": ("model",)},
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "of several agents: in arrays, as palaestra.control.Simulator says, or a parallel environment of "
                "PettingZoo",
                flag="--env FILE.py:NAME",
                otherwise="two sellers and two buyers of a microgrid",
            ),
        ),
        shows="fairness_paid",
        off={"critic": "none"},
        own={
            "endpoint": ('{"FTB": 0.6, "FBS": 0.9}', '{"FTB": 0.2, "FBS": 0.5}'),
            "learner.games": 8,
            "games": 8,
            "calls": 8,
        },
    ),
    use="It helps where fairness is easier to judge from a day's transactions than to write as a formula; look at "
    "`return` and `profit` beside the scores, for what is fair may be paid for by all, and a critic that reads "
    "totals blames nobody.",
    lacks=(
        "Of a distribution system there are prosumers, two areas and the limit of one line: no voltages, losses or "
        "power flow.",
        "By default scores are those of a rule that a large model wrote, who knew the simulator: it shows what such "
        "scores do, and not that a language model gives them.",
        "Days unlike those that were asked about have the scores of the nearest one, so the critic does not read "
        "every episode unless `calls` is large.",
        "The follow-up's hourly double auction and its three scores are not here.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    sim: str = "",
    goal: str = "",
    critic: Critic = "model",
    to_buyers: float = 5.0,
    between: float = 5.0,
    start: float = 1 / 15,
    full: float = 1 / 5,
    calls: int = 500,
    steps: int = 16_000,
    games: int = 256,
    prosumers: int = 0,
    line: float = 4.0,
) -> TradeFairly:
    """`asked` scores games; `sim` is FILE.py:NAME, with a `goal` in words, else there are `prosumers`, households of a
    grid between whose areas a `line` carries so many kilowatt-hours in a slot, or 0 = a microgrid of sellers and
    buyers; `to_buyers` and `between` are the largest lambdas, reached between `start` and `full`, shares of the training; see
    `TradeFairly`.
    """
    if sim and prosumers:
        raise pl.UserError("fairmarket-rl: give --env or prosumers=, not both")
    own = Feeder(households=prosumers, line=line) if prosumers else Microgrid()
    return TradeFairly(
        asked=asked,
        sim=pl.control.state_goal(pl.control.simulator_by_name(sim) if sim else own, goal),
        critic=critic,
        to_buyers=to_buyers,
        between=between,
        start=start,
        full=full,
        calls=calls,
        steps=steps,
        games=games,
    )


def embedded(
    asked: pl.Source | None = None,
    critic: Critic = "model",
    to_buyers: float = 5.0,
    between: float = 5.0,
    start: float = 1 / 15,
    full: float = 1 / 5,
    calls: int = 500,
    steps: int = 16_000,
    games: int = 256,
    prosumers: int = 0,
    line: float = 4.0,
) -> TradeFairly:
    """On a microgrid, or a grid of `prosumers`, with scores by the rule that a large model wrote unless a model is `asked`."""
    return build(
        asked or pl.Scripted(written_scores_of_fairness, name="written rule"),
        critic=critic,
        to_buyers=to_buyers,
        between=between,
        start=start,
        full=full,
        calls=calls,
        steps=steps,
        games=games,
        prosumers=prosumers,
        line=line,
    )
