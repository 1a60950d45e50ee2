"""The public names of `pl.scale`, and where each lies."""

from .local_ranks import (
    run_ranks as run_ranks,
)
from .placement import (
    OnCluster as OnCluster,
)
from .streaming import (
    Arrivals as Arrivals,
)
from .streaming import (
    Streamed as Streamed,
)
from .streaming import (
    TransferQueue as TransferQueue,
)
