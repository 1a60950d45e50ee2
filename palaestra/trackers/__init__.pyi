"""The public names of `pl.trackers`, and where each lies."""

from .base import (
    Tracker as Tracker,
)
