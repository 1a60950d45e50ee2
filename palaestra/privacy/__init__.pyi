"""The public names of `pl.privacy`, and where each lies."""

# ruff: noqa: I001

from .accounting import (
    composed_noise as composed_noise,
    noise_for as noise_for,
    spent_epsilon as spent_epsilon,
)
from .lines import (
    EachLine as EachLine,
    Poisson as Poisson,
)
from .optimiser import (
    DPAdamW as DPAdamW,
)
from .update import (
    PrivateSteps as PrivateSteps,
)
