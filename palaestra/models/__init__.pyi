"""The public names of `pl.models`, and where each lies."""

# ruff: noqa: I001

from .arithmetic import (
    Average as Average,
    Dare as Dare,
    LowRank as LowRank,
    PermuteUnits as PermuteUnits,
    Relaxed as Relaxed,
    Slerp as Slerp,
    TaskArithmetic as TaskArithmetic,
    Ties as Ties,
    add_to_rows as add_to_rows,
    common_weights as common_weights,
    linear_barrier as linear_barrier,
    low_rank as low_rank,
    relaxation as relaxation,
    weights_of as weights_of,
    write_weights as write_weights,
)
from .eyes import (
    FIRST_PLACE as FIRST_PLACE,
)
from .load import (
    save as save,
    trainable_copy as trainable_copy,
)
from .lora import (
    LoRA as LoRA,
)
from .replies import (
    fit_pairs as fit_pairs,
    greedy_replies as greedy_replies,
    pairs_loss as pairs_loss,
)
from .score import (
    output_gradients as output_gradients,
    score_pairs as score_pairs,
)
from .vocabulary import (
    add_tokens as add_tokens,
)
from .inside.activation import (
    activations as activations,
    input_magnitudes as input_magnitudes,
    steered as steered,
    token_states as token_states,
)
from .inside.encoder import (
    encoder_distance as encoder_distance,
    encoder_weights as encoder_weights,
    patch_grid as patch_grid,
    picture_gradients as picture_gradients,
    picture_states as picture_states,
    put_encoder as put_encoder,
)
from .inside.prefix import (
    PrefixStates as PrefixStates,
    embeddings_of as embeddings_of,
)
from .inside.probe import (
    Probe as Probe,
    fit_probe as fit_probe,
)
