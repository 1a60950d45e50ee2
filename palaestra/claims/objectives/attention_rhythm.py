"""The claim of attention-rhythm: Attention illuminates reasoning: preplan-and-anchor credit
assignment.
"""

import palaestra as pl
from palaestra.claims.short import LOOKED, SHORT, THREE_POINTS, short
from palaestra.recipes.objectives.attention_rhythm import build

NEAR, FAR = 2, 10  # tokens; answers have 10 to 50

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "grpo": short(pl.recipe("grpo")),
        "coupled": short(build("coupled", NEAR, FAR)),
        "global": short(build("global", NEAR, FAR)),
        "random": short(build("random", NEAR, FAR)),
        "bottom": short(build("bottom", NEAR, FAR)),
    },
    expect=pl.ledger.Greater("coupled", "grpo", by=0.03, why=THREE_POINTS),
    reasons=(
        pl.ledger.Needs("random", "that attention picks the tokens"),
        pl.ledger.Needs("bottom", "that anchors are picked and not what is looked at least"),
        pl.ledger.Needs("global", "that planning tokens are coupled with anchors"),
    ),
    **SHORT,
    controls={
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
        "entropy": pl.ledger.Logged("entropy_sampled"),
        "length": pl.ledger.Logged("length"),
    },
    note="Anchors are looked back to from 2 to 10 tokens away, in answers of 10 to 50 tokens, where the "
    "paper has 10 to 50 in hundreds. `random` amplifies as many tokens as `global` and `bottom` do; "
    "`coupled` moves part of it to tokens before. Only right answers are amplified, so every such arm "
    "also weighs right answers more than GRPO does: what `random` gains as well is due to that. "
    f"{LOOKED} Cannot show: attention of a model that plans; this one has few layers and no text to plan.",
)
