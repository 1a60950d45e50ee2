"""The claim of tempo: TEMPO / Prefix-to-Tree credit assignment."""

import numpy as np

import palaestra as pl
from palaestra.claims.short import LOOKED, SHORT, THREE_POINTS, short
from palaestra.recipes.objectives.tempo import build


@pl.stage
class TermsElsewhere:
    """The terms of a prefix tree, dealt out anew among the tokens of their answer: as large, as many,
    with the same sum, and not where answers part.
    """

    tree: pl.credit.PrefixTree = pl.credit.PrefixTree(0.0)

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        td_N = self.tree(x, table).x_N.copy()
        for e in range(len(table.episodes)):
            mine = np.flatnonzero(table.tokens.episode_N == e)
            ids = [i for view in table.views[e] for i in view.ids_T.tolist()]
            td_N[mine] = td_N[pl.rng_of(("terms elsewhere", e, *ids)).permutation(mine)]
        return pl.Values(level="token", x_N=table.lift(x, "token").x_N + td_N)


def elsewhere() -> pl.Recipe:
    return pl.vary(
        build(), credit=pl.chain(pl.Center("group"), pl.Scale("group"), TermsElsewhere())
    )


def plain() -> pl.Recipe:
    """TEMPO's loss with GRPO's advantage."""
    return pl.vary(
        build(),
        credit=pl.chain(pl.Center("group"), pl.Scale("group")),
        objective=pl.Clipped(low=0.2, high=0.28, reduce="tokens"),
    )


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "grpo": short(plain()),
        "tempo": short(build()),
        "td-only": short(build(outcome=0.0)),
        "elsewhere": short(elsewhere()),
    },
    expect=pl.ledger.Greater("tempo", "grpo", by=0.03, why=THREE_POINTS),
    reasons=(pl.ledger.Needs("elsewhere", "credit where answers part"),),
    **SHORT,
    controls={
        "tokens at which answers part": pl.ledger.Logged("branching", last=0),
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
        "entropy": pl.ledger.Logged("entropy_sampled"),
        "length": pl.ledger.Logged("length"),
    },
    note="Answers have 10 to 50 tokens and share their beginnings, so this is where the correction has most to "
    "act on; its share of tokens is a control. `elsewhere` has the same terms at tokens drawn at random in "
    "the same answer, so that each answer's sum is the same. At the first token answers part into worked and "
    "guessed ones, whose values differ, so a gain may be one of that token alone. "
    f"{LOOKED} Cannot show: answers of thousands of tokens, whose beginnings are hardly ever shared.",
)
