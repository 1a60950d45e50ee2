"""The public names of `pl.planning`, and where each lies."""

# ruff: noqa: I001

from .dataflows import (
    DATAFLOWS as DATAFLOWS,
    Algorithm as Algorithm,
    calls_of as calls_of,
    calls_without as calls_without,
    check_room as check_room,
    with_options as with_options,
)
from .deploy import (
    Deployment as Deployment,
    best_deployment as best_deployment,
    deployments as deployments,
)
from .dimensions import (
    decoder_named as decoder_named,
)
from .estimate import (
    DECODERS as DECODERS,
    DecoderSize as DecoderSize,
    Device as Device,
    Workload as Workload,
    moves_of as moves_of,
)
from .plan import (
    CallOption as CallOption,
    Choice as Choice,
    ExecutionPlan as ExecutionPlan,
    ModelCall as ModelCall,
    Parallelism as Parallelism,
    Reallocation as Reallocation,
    best_plan as best_plan,
    colocated_choice as colocated_choice,
    every_choice as every_choice,
    fast_choice as fast_choice,
    megatron_choice as megatron_choice,
    metropolis as metropolis,
    on_largest as on_largest,
    placements as placements,
    plan_of as plan_of,
    random_plan as random_plan,
    symmetric_choice as symmetric_choice,
)
from .rehearsal import (
    CallSeconds as CallSeconds,
    measure_calls as measure_calls,
    rehearse as rehearse,
)
from .slots import (
    fewest_steps as fewest_steps,
    longest_first as longest_first,
    refill_steps as refill_steps,
    rounds_steps as rounds_steps,
    shortest_first as shortest_first,
)
from .resharding import (
    TensorLayout as TensorLayout,
    Way as Way,
    reshard as reshard,
)
from .reallocation import (
    generation_slots as generation_slots,
    passing_slots as passing_slots,
    reallocate as reallocate,
    transition as transition,
    transition_share as transition_share,
)
