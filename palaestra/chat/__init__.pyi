"""The public names of `pl.chat`, and where each lies."""

from .calls import (
    TagCalls as TagCalls,
)
