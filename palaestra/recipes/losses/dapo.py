"""DAPO: GRPO with four repairs for long reasoning.

Clip-higher: ratios may rise to 1.28 and fall to 0.8. Dynamic sampling: groups that are all right or
all wrong are dropped and others drawn. Token-level loss: every token of the batch weighs the same.
Overlong shaping: an answer is punished from `length` * (1 - `cache`) tokens on, by up to 1 at `length`
tokens (arXiv:2503.14476, eq. 8 to 13; no KL).

`length` is the longest answer allowed, in tokens: the run's `--max-tokens` if it is not given.
`cache=0` leaves the punishment out. An answer that was cut counts as wrong; to leave it out of the
loss instead (overlong filtering), add `pl.rollout.MuteTruncated()` to the collection.
"""

import palaestra as pl

CARD = pl.Card(
    title="DAPO: Decoupled Clip and Dynamic Sampling Policy Optimization",
    paper="arXiv:2503.14476",
    claim="Clip-higher, dynamic sampling, a token-level loss and overlong shaping lift GRPO from 30 to "
    "50 points on AIME 2024.",
    source="paper",
    size=pl.Size(
        setting="Qwen2.5-32B base, 512 prompts x 16, minibatches of 512 answers, 20,480 tokens of "
        "which 4,096 are the cache, lr 1e-6",
        model="qwen2.5-32b",
        prompts=512,
        samples=16,
        tokens=20480,
        lr=1e-6,
        arguments={"length": 20480, "update.minibatches": 16},
    ),
    needs=pl.needs.Requirements(
        shows="overlong",
        off={"cache": 0.0},
        own={"schedule.prompts": 4, "pool.size": 2, "length": 16.0, "cache": 0.9},
    ),
    use="It helps with long answers and rewards that are rarely all equal in a group; with few tasks "
    "that are neither always nor never solved it draws many answers for nothing.",
    lacks=("The data set, and its answers as whole numbers, are not there.",),
    grade="A",
)


def build(length: float | None = None, cache: float = 0.2, high: float = 0.28) -> pl.Recipe:
    """`length` None is the run's longest answer. `cache` is the share of `length` in which the
    punishment rises, 0.2 in the paper.
    """
    pl.check_bounds("dapo: cache", cache, least=0, most=1)
    given = {"share": cache} if length is None else {"length": length, "cache": cache * length}
    overlong = (pl.credit.Overlong(**given),) if cache else ()
    return pl.vary(
        pl.recipe("grpo"),
        pool=pl.Mixed(16, solved=True),
        credit=pl.chain(*overlong, pl.Center("group"), pl.Scale("group")),
        objective=pl.Clipped(low=0.2, high=high, reduce="tokens"),
    )
