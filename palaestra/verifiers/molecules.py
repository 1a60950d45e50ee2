"""The descriptors that RDKit computes of a molecule, by the names that people and models give them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache

# names of rdkit.Chem.Descriptors, and other names of each
DESCRIPTORS: Mapping[str, tuple[str, ...]] = {
    "MolWt": ("mw", "molecular weight", "weight", "mol weight", "molar mass", "molecular mass"),
    "MolLogP": ("logp", "clogp", "alogp", "xlogp", "lipophilicity", "hydrophobicity", "log p",
                "partition coefficient", "octanol water partition coefficient"),
    "TPSA": ("topological polar surface area", "polar surface area", "psa", "polar area"),
    "NumHDonors": ("hbd", "h bond donors", "hydrogen bond donors", "h donors", "hydrogen donors",
                   "number of hydrogen bond donors"),
    "NumHAcceptors": ("hba", "h bond acceptors", "hydrogen bond acceptors", "h acceptors",
                      "hydrogen acceptors", "number of hydrogen bond acceptors"),
    "NumRotatableBonds": ("rotb", "rotatable bonds", "rotors", "flexibility", "number of rotatable bonds"),
    "RingCount": ("rings", "ring count", "number of rings", "num rings"),
    "NumAromaticRings": ("aromatic rings", "arom", "aromaticity", "number of aromatic rings"),
    "NumAliphaticRings": ("aliphatic rings", "number of aliphatic rings"),
    "FractionCSP3": ("fsp3", "csp3", "fraction csp3", "fraction sp3", "sp3 fraction", "sp3 carbons"),
    "HeavyAtomCount": ("heavy atoms", "heavy atom count", "number of heavy atoms", "size"),
    "NumHeteroatoms": ("heteroatoms", "number of heteroatoms", "hetero atoms"),
    "MolMR": ("molar refractivity", "refractivity", "mr"),
    "LabuteASA": ("accessible surface area", "labute asa", "surface area"),
    "qed": ("drug likeness", "druglikeness", "quantitative estimate of drug likeness"),
}  # fmt: skip
CLOSE = 0.85  # how alike a name must be to another one that is not spelled so


def plain_name(text: str) -> str:
    """Letters and digits alone: `H-bond donors` as hbonddonors."""
    return re.sub(r"[\W_]+", "", text.casefold())


NAMES: Mapping[str, str] = {
    plain_name(name): own for own, more in DESCRIPTORS.items() for name in (own, *more)
}


@lru_cache(maxsize=4096)
def descriptor_named(text: str) -> str | None:
    """Which descriptor an attribute's name means: as it is spelled, without a "number of" or a unit in
    brackets, or nearly so; None = none that is known.
    """
    name = plain_name(re.sub(r"\([^()]*\)", "", text))
    for known in (name, name.removeprefix("numberof"), plain_name(text)):
        if known in NAMES:
            return NAMES[known]
    near = get_close_matches(name, NAMES, n=1, cutoff=CLOSE) if len(name) > 4 else []
    return NAMES[near[0]] if near else None
