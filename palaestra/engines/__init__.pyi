"""The public names of `pl.engines`, and where each lies."""

# ruff: noqa: I001

from .endpoint import (
    Chatter as Chatter,
    EndpointPlayer as EndpointPlayer,
)
from .infused import (
    InfusedAnswer as InfusedAnswer,
    InfusedWriter as InfusedWriter,
    Infusion as Infusion,
    least_surprising as least_surprising,
)
from .knowledge import KnowledgeTrie as KnowledgeTrie
from .mixture import (
    SignedAnswer as SignedAnswer,
    TokenSearch as TokenSearch,
)
from .own import (
    OwnEngine as OwnEngine,
)
