"""How the prior of each order of tokens is learned, and how it then learns from rewards."""

from typing import Any

import palaestra as pl
from palaestra.recipes.multimodal.selftok.tokens import DecodedPicture


def imitation(lr: float, updates: int) -> pl.Recipe:
    """The prior: tokens of pictures by maximum likelihood, `updates` of 32."""
    return pl.vary(
        pl.recipe("sft"),
        optimiser=pl.AdamW(lr=lr, warmup=5),
        schedule=pl.Schedule(prompts=32, steps=updates),
    )


def learner(
    kl: float, epochs: int, samples: int, tokens: int, lr: float, schedule: pl.Schedule
) -> pl.Recipe:
    """REINFORCE on decoded pictures, with `kl` times the term to the sampling policy."""
    loss: Any = pl.Reinforce(reduce="sequences")
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            pl.Sample(n=samples, max_tokens=tokens + 4), pl.Score(reward=DecodedPicture(""))
        ),
        credit=pl.chain(pl.Center("group"), pl.Scale("group", ddof=0)),
        objective=loss + kl * pl.KL("k3", model="behaviour") if kl else loss,
        update=pl.Plain(epochs=epochs),
        optimiser=pl.AdamW(lr=lr, warmup=5),
        schedule=schedule,
    )
