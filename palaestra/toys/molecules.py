"""Molecules of the NCI open database, as they lie in RDKit's package, and whether rules of three
descriptors hold of them.

    CC(=O)Oc1ccccc1C(=O)O   1 where MolLogP is 1 to 4, TPSA 0 to 70 and NumHDonors 0 to 2, else 0

The molecules are real, the property is computed: nothing was measured, so what is learned of it says
nothing about medicine. A scaffold belongs to one split by its hash, a molecule without one by its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from palaestra.abilities import Habit
from palaestra.tasks.molecules import (
    canonical_smiles,
    descriptor_value,
    largest_part,
    need_rdkit,
    read_molecule,
    scaffold_of,
)
from palaestra.tasks.procedural import final_answer, format_answer, question_task, split_of
from palaestra.types import Message, Task, rng_of, stage

RULES: Mapping[str, tuple[float, float]] = {
    "MolLogP": (1.0, 4.0),
    "TPSA": (0.0, 70.0),
    "NumHDonors": (0.0, 2.0),
}
LINES = 2000  # of the file that are read
TAGGED = re.compile(r"<answer>\s*([01])\s*</answer>\s*\Z")


@lru_cache(maxsize=4)
def nci_molecules(longest: int) -> Mapping[str, tuple[tuple[str, int], ...]]:
    """SMILES of up to so many characters and their property, by split: as many of either, in the order of
    their file. Raises UserError where RDKit is not installed.
    """
    need_rdkit()
    from rdkit import RDConfig

    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()[:LINES]
    known: dict[str, int] = {}
    for line in lines:
        molecule = read_molecule(line.split()[0]) if len(line.split()[0]) <= longest else None
        if molecule is not None and molecule.GetNumHeavyAtoms() > 3:
            smiles = canonical_smiles(largest_part(molecule))
            known[smiles] = int(keeps_rules(smiles))
    parts: dict[str, list[tuple[str, int]]] = {"train": [], "test": []}
    for smiles, label in known.items():
        parts[split_of(scaffold_of(smiles) or smiles)].append((smiles, label))
    return {split: _balance(rows) for split, rows in parts.items()}


def keeps_rules(smiles: str) -> bool:
    """Whether each descriptor of `RULES` lies in its interval."""
    values = {name: descriptor_value(smiles, name) for name in RULES}
    return all(v is not None and RULES[k][0] <= v <= RULES[k][1] for k, v in values.items())


def _balance(rows: list[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    by_label = [[r for r in rows if r[1] == label] for label in (0, 1)]
    return tuple(pair for both in zip(*by_label, strict=False) for pair in both)


@stage
class MoleculeTasks:
    """`CC(=O)Oc1ccccc1C(=O)O` asks for 0 or 1."""

    longest: int = 24  # characters of a SMILES
    name: str = "molecules"
    size: int | None = None
    max_tokens: int = 128  # of an answer that names attributes first

    @property
    def test_size(self) -> int:
        return len(nci_molecules(self.longest)["test"])

    def task(self, split: str, index: int) -> Task:
        rows = nci_molecules(self.longest)[split]
        rounds, at = divmod(index, len(rows))
        order = rng_of((self.name, split, rounds)).permutation(len(rows))
        smiles, label = rows[int(order[at])]
        meta = {"smiles": smiles, "murcko_scaffold": scaffold_of(smiles), "property": "rules"}
        task = question_task(self.name, smiles, str(label), meta)
        return Task(
            id=f"{self.name}/{split}/{index}",
            prompt=(Message(role="user", content=smiles),),
            answer=task.answer,
            meta=meta,
            domain=self.name,
        )

    def check(self, text: str, task: Task) -> float:
        """An answer is the line `= 1`, or stands in the tag <answer> at the end."""
        tagged = TAGGED.search(text)
        return float((tagged[1] if tagged else final_answer(text)) == task.answer)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        return format_answer([], task.answer)
