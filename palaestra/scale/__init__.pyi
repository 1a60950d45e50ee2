"""The public names of `pl.scale`, and where each lies."""

from .local_ranks import (
    run_ranks as run_ranks,
)
from .placement import (
    OnCluster as OnCluster,
)
