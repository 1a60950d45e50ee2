"""The public names of `pl.models`, and where each lies."""

# ruff: noqa: I001

from .arithmetic import (
    Average as Average,
    Dare as Dare,
    PermuteUnits as PermuteUnits,
    TaskArithmetic as TaskArithmetic,
    Ties as Ties,
    common_weights as common_weights,
    linear_barrier as linear_barrier,
    weights_of as weights_of,
    write_weights as write_weights,
)
from .lora import (
    LoRA as LoRA,
)
from .score import (
    output_gradients as output_gradients,
    score_pairs as score_pairs,
)
from .inside.activation import (
    activations as activations,
    steered as steered,
)
from .inside.probe import (
    Probe as Probe,
    fit_probe as fit_probe,
)
