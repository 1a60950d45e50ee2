"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes

from palaestra.models.model import Model
from palaestra.models.precision import SMALL


def give_back(model: Model) -> None:
    """Between phases of a step: what the last phase freed, the next may take.

    The C library keeps freed blocks below 32 MB for itself, and what sampling leaves rarely fits
    what training asks for. Small models keep theirs: to ask anew takes longer. Nothing happens on
    a GPU, or where the C library cannot do it.
    """
    if model.device.type == "cpu" and model.n_parameters >= SMALL:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
