"""The public names of `pl.ledger`, and where each lies."""

# ruff: noqa: I001

from .expectations import (
    Greater as Greater,
    Needs as Needs,
    Same as Same,
    Veto as Veto,
)
from .experiment import (
    TWENTY_SEEDS as TWENTY_SEEDS,
    Experiment as Experiment,
)
from .measures import (
    Area as Area,
    Balanced as Balanced,
    Cell as Cell,
    Final as Final,
    Less as Less,
    Logged as Logged,
    Measure as Measure,
    Moving as Moving,
    OverMatchedStart as OverMatchedStart,
    TokensTo as TokensTo,
)
from .untrained import (
    Untrained as Untrained,
)
