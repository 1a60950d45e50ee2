"""The public names of `pl.engines`, and where each lies."""

# ruff: noqa: I001

from .endpoint import (
    Chatter as Chatter,
    EndpointPlayer as EndpointPlayer,
)
from .own import (
    OwnEngine as OwnEngine,
)
