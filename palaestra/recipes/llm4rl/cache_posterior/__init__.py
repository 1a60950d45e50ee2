"""Cache-efficient posterior sampling: a language model's prior over actions, asked seldom and kept in a cache.

    pi(a | s)  ~  p(a | s) exp(Q(s, a) / alpha)                             (arXiv:2505.07274)
    p(a | s)   =  0.9 w(a) / sum w + 0.1 / K        weights w that the model gives to actions by name
    alpha      =  cold + (hot - cold) (1 - h)       h = the hit rate of the cache

The key of a state is the numbers in its text, which have to be equal, and a vector of the text, hashed n-grams
of words weighed by how rare they are. The nearest entry counts if its cosine is delta or more. With the
probability r a state that has another one's prior is asked about anyway and takes that entry's place; of K
entries the one used longest ago goes first. After each round of games

    g = (e_other - e_own) / (e_other + e_own) + min(1, KL) - 0.5 (1 - h),   delta += 0.1 g,   r += 0.1 g

with the TD errors e of states that have another one's prior, and of those with their own, and the KL of
the posterior by a state's own prior from that by the other one's, where r had it asked; K grows by the
share of questions that had been asked before and were evicted. Q is learned by double Q learning whose
next action is the best one by Q + alpha log p.

    palaestra train cache-posterior --env gymnasium:CartPole-v1 --llm "endpoint(url='...',model='...')"
    palaestra train cache-posterior --env FILE.py:make --llm DIR calls=500 compare=false
    palaestra train cache-posterior --env FILE.py:make --llm DIR offline=games.npz

A simulator in arrays may say what it is `about`, name its actions (`action_names`), and say in words what
an agent sees (`spell_view`); else the model reads numbers, rounded to a twelfth of their range, and
"action 0"; instead of a cosine, two states then have the product over numbers of max(0, cos(pi (share - other
share))), each a share of its range as it is told. Of continuous actions each dimension has `levels`, and their
combinations are the symbols that the model weighs. The model is asked between rounds, never in the loop that
plays, so a state that is met for the first time has an even prior in that round.

Offline, double Q learning with the pessimistic term learns from recorded games and plays none: `none` is
CQL, and the other arms are CQL-Prior, log sum_a p(a | s) exp Q(s, a) - Q(s, a_data). offline=random records
random games (in the built-in one 30% of the actions are best ones); FILE.npz has obs, next_obs [N, O], act,
reward, over [N], of which all rows are used, with an update for each 20 of them.

arms.md in the run folder, all arms with equal environment steps:

    none      Q alone, the temperature falling in a line
    guide     the adaptive cache
    static    a cache with the settings of the start
    uncached  every state that is told in other words is asked about, up to `calls`, and `left_out` are those
              beyond; `lookups` are the questions of a learner without a cache
    shuffled  as guide, each state with the weights of another one
    oracle    the best actions, of a simulator with `best_actions`

`fewer_queries` is the lookups of uncached over the questions of guide, `fewer_states` its different states
over them; `kl` and `kl_bound` are measured on up to 64 states that have another one's prior, where
KL(pi || pi_cached) <= 2 max_a |log p / p_c|. In test games nobody is asked;
`known` is the share of their states that have a prior. In the run folder is policy/, the values with the cached
priors; `load_posterior` plays them without a model.

`palaestra train cache-posterior`, seed 1, ends at -0.40 (none), 0.65 (guide), -0.26 (static), 0.77 (uncached),
-0.40 (shuffled) and 0.71 (oracle), with standard errors of 0.03 over test games; guide asked 1,207 questions
and a learner without a cache 8,179, 6.8 times as many. One seed, no claim: the retained share, 89% of what
uncached gains over none, is below the paper's 96%. The settings of the cache were chosen on seed 0.

Deviations: the surrogate gradient is ours, for the abstract only names one; in it, KL stands because TD
errors say nothing as long as nothing is paid. A state with its own prior is not asked about again: the
same question has the same reply. Temperatures are in units of what a game of the start pays.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.cache_posterior.grid import PhraseGrid
from palaestra.recipes.llm4rl.cache_posterior.program import Advice, CachePosterior
from palaestra.recipes.llm4rl.cache_posterior.program import load_posterior as load_posterior
from palaestra.recipes.llm4rl.cache_posterior.written import written_prior

CARD = pl.Card(
    title="Cache-efficient posterior sampling with LLM priors",
    paper="arXiv:2505.07274",
    claim="A learner that acts by the posterior of a language model's prior and its own values keeps nearly "
    "all of its return where the priors come from an adaptive cache, with several times fewer questions.",
    source="abstract; secondary notes for the settings of the cache, the temperature and the form of the "
    "posterior; the surrogate gradient and the vectors of texts inferred",
    size=pl.Size(
        setting="a chat model without training gives priors in text games and continuous control; success "
        "and questions beside the same learner without a cache"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "goal": "goal", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "weighs the actions of a state",
                when={"advice": ("model",)},
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "in arrays, as palaestra.control.Simulator says, of Gymnasium, or a parallel environment "
                "of PettingZoo",
                flag="--env FILE.py:NAME or --env gymnasium:ID",
                otherwise="a text game with a key, a door and forty phrases",
            ),
        ),
        shows="moved",
        off={"advice": "none"},
        own={
            "endpoint": '{"weights": {"take the key": 2, "go north": 1}}',
            "learner.games": 2,
            "learner.updates": 2,
            "games": 4,
            "calls": 8,
        },
    ),
    use="It helps where a model can say which of many actions are worth trying, and a question is dear; "
    "a text that differs by little must mean little, else the cache gives wrong priors: look at `kl`.",
    lacks=(
        "The paper's environments (TextWorld, ALFWorld, BabyAI, WebShop, Meta-World, MuJoCo) were not run.",
        "Priors are weights that the model writes; log-probabilities of action strings are not read.",
        "Continuous actions are a few levels of each dimension, not a SAC that is told a symbol.",
        "Latency is not measured: the model is asked between rounds of games.",
        "The model is not tuned on five examples.",
        "Without a model the default's priors are a rule that a large model wrote, who knew the game: it shows "
        "what the cache does, and not that a language model gives good priors.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    sim: str = "",
    goal: str = "",
    advice: Advice = "model",
    offline: str = "",
    draws: int = 0,
    levels: int = 3,
    calls: int = 2_000,
    compare: bool = True,
    steps: int = 8_000,
    games: int = 256,
) -> CachePosterior:
    """`asked` weighs actions; `sim` is FILE.py:NAME or gymnasium:ID, and `goal` says in words what
    is wanted there; `steps` are environment steps of an arm, and `games`
    those of its test; see `CachePosterior`.
    """
    cql, per_step = (0.1, 0.05) if offline else (0.0, 0.0)
    return CachePosterior(
        asked=asked,
        sim=pl.control.state_goal(pl.control.simulator_by_name(sim) if sim else PhraseGrid(), goal),
        advice=advice,
        offline=offline,
        draws=draws,
        levels=levels,
        calls=calls,
        compare=compare,
        steps=steps,
        games=games,
        learner=pl.control.DoubleQ(
            updates=32, per_step=per_step, cql=cql, cql_by_prior=bool(offline)
        ),
    )


def embedded(
    asked: pl.Source | None = None,
    advice: Advice = "model",
    offline: str = "",
    draws: int = 0,
    calls: int = 0,
    compare: bool = True,
    steps: int = 8_000,
    games: int = 256,
) -> CachePosterior:
    """On the text game, with the rule that a large model wrote unless a model is `asked`."""
    return build(
        asked or pl.Scripted(written_prior, name="written rule"),
        advice=advice,
        offline=offline,
        draws=draws,
        calls=calls,
        compare=compare,
        steps=steps,
        games=games,
    )
