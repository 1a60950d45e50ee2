"""What tasks about molecules share: the molecule, which answer is the favourable one, the training molecules
that are most alike, and a drawing.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from palaestra.abilities import HeldOutSize
from palaestra.errors import UserError
from palaestra.tasks.molecules import canonical_smiles, read_molecule
from palaestra.types import Task, Tasks

FAVOURABLE = ("1", "yes", "true", "high", "active", "positive", "good")
RADIUS, BITS = 2, 2048  # of Morgan fingerprints; a radius of 2 bonds is that of ECFP4


def molecule_of(task: Task) -> str:
    """The molecule that a task is about. Raises UserError where it has none, or one that RDKit cannot read."""
    smiles = task.meta.get("smiles")
    if not isinstance(smiles, str) or not smiles.strip():
        raise UserError(
            f"task {task.id!r} has no molecule; give a table with a column of SMILES, or name the column, "
            "--columns COLUMN=meta.smiles"
        )
    if read_molecule(smiles) is None:
        raise UserError(
            f"task {task.id!r}: RDKit reads no molecule in {smiles[:60]!r}; mend it or leave it out"
        )
    return smiles


@lru_cache(maxsize=4)
def check_molecules(tasks: Tasks) -> None:
    """Reads the molecules of all training and held-out tasks that there are. Raises UserError where some have
    none that RDKit reads, with how many and which is the first.
    """
    bad = list[str]()
    held = tasks.test_size if isinstance(tasks, HeldOutSize) else None
    for split, size in (("train", tasks.size), ("test", held)):
        for i in range(size or 0):
            try:
                molecule_of(tasks.task(split, i))
            except UserError as error:
                bad.append(str(error))
    if bad:
        more = f" (and {len(bad) - 1} more rows)" if bad[1:] else ""
        raise UserError(f"{bad[0]}{more}")


def favourable_answer(labels: Sequence[str]) -> str:
    """Which of some answers is the favourable one by its name, else the last in their order."""
    ranks = {word: i for i, word in enumerate(FAVOURABLE)}
    known = [x for x in set(labels) if x.casefold() in ranks]
    return min(known, key=lambda x: ranks[x.casefold()]) if known else max(labels)


@lru_cache(maxsize=65536)
def fingerprint(smiles: str) -> Any:
    """The Morgan fingerprint of a molecule: which atoms' neighbourhoods of up to two bonds it has, hashed to
    2,048 bits. Raises UserError where RDKit reads no molecule.
    """
    from rdkit.Chem import rdFingerprintGenerator

    molecule = read_molecule(smiles)
    if molecule is None:
        raise UserError(f"RDKit reads no molecule in {smiles[:60]!r}")
    maker: Any = rdFingerprintGenerator.GetMorganGenerator
    return maker(radius=RADIUS, fpSize=BITS).GetFingerprint(molecule)


class SimilarMolecules:
    """Some molecules, to be found by likeness.

    Args:
        smiles: the molecules; one that comes again, in whatever spelling, is there once.
    """

    def __init__(self, smiles: Sequence[str]):
        first = dict[str, int]()
        for i, text in enumerate(smiles):
            first.setdefault(canonical_smiles(read_molecule(text)), i)
        self.names, self.places = list(first), list(first.values())
        self.prints = [fingerprint(name) for name in self.names]

    def nearest(self, smiles: str, k: int) -> list[tuple[int, float]]:
        """The places of the `k` molecules that are most alike, with the Tanimoto similarity of their
        fingerprints, bits in both / bits in either, in [0, 1]; of equal ones the first come first. The molecule
        itself is none of them.
        """
        from rdkit import DataStructs

        if not self.prints or k < 1:
            return []
        itself = canonical_smiles(read_molecule(smiles))
        alike: Any = DataStructs.BulkTanimotoSimilarity
        score_N = np.array(alike(fingerprint(itself), self.prints))
        order = [i for i in np.argsort(-score_N, kind="stable") if self.names[i] != itself]
        return [(self.places[i], float(score_N[i])) for i in order[:k]]


def molecule_picture(smiles: str, side: int) -> str:
    """The drawing of a molecule in the plane, as a data: URL of a PNG of `side` by `side` pixels. Raises
    UserError where RDKit reads no molecule.
    """
    from rdkit.Chem.Draw import rdMolDraw2D

    molecule = read_molecule(smiles)
    if molecule is None:
        raise UserError(f"RDKit reads no molecule in {smiles[:60]!r}")
    draw: Any = rdMolDraw2D
    canvas = draw.MolDraw2DCairo(side, side)
    draw.PrepareAndDrawMolecule(canvas, molecule)
    canvas.FinishDrawing()
    data = base64.b64encode(canvas.GetDrawingText()).decode("ascii")
    return f"data:image/png;base64,{data}"
