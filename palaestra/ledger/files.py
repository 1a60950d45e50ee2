"""Where published results and declarations lie: `ledger/results/<id>.json` and
`ledger/declared/<id>-<digest>.json` at the root of a checkout. An installed package has neither; it
has the verdicts alone (`ledger.listed`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import palaestra
from palaestra.errors import UserError

PACKAGE = Path(palaestra.__file__).parent
# claims on a real model: the name of the experiment in its module, by tier. Its result and its
# declaration are called `ID@small`
TIERS = {"small": "SMALL"}


def parted(name: str) -> tuple[str, str]:
    """A method and a tier of an experiment's name. Raises UserError for a tier that is none."""
    method, at, tier = name.partition("@")
    if at and tier not in TIERS:
        raise UserError(f"{name}: no tier {tier!r}; there is {', '.join(TIERS)}")
    return method, tier


def checkout() -> Path:
    """The checkout that this package is of, else the one in which the command was called; where there
    is neither, the folder of the package, which has no ledger.
    """
    here = Path.cwd()
    beside = (PACKAGE.parent / "ledger").is_dir()
    if not beside and (here / "ledger").is_dir() and (here / PACKAGE.name / "ledger").is_dir():
        return here
    return PACKAGE.parent


def folder() -> Path:
    """Where the published results lie, which a checkout alone has."""
    return checkout() / "ledger" / "results"


def declarations() -> Path:
    """Where the declarations lie that published results name; a checkout alone has them."""
    return checkout() / "ledger" / "declared"


def canaries() -> Path:
    """Where the canaries lie, which a checkout alone has."""
    return checkout() / "ledger" / "canaries"


def result_path(method: str, where: Path | None = None) -> Path:
    """Of a published result, whether there is one or not."""
    return (where or folder()) / f"{method}.json"


def read_result(method: str, where: Path | None = None) -> dict[str, Any] | None:
    """A published result; None where there is none."""
    path = result_path(method, where)
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(
            f"{path} is not JSON ({error}); write it anew with `palaestra reproduce {method}`"
        ) from None
