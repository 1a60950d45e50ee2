"""A table of molecules as questions about one of their properties.

    smiles,p_np          smiles,logS           mol,Class,split
    CCO,1                CCO,-0.2              CCO,0,train

A table is one where a column holds SMILES and none a prompt. The property is the column `answer`, or one
named as the usual data sets do, or the only one that is left; `--columns p_np=answer` names it. A
property of more than ten different numbers becomes the question whether it is above its median among
the molecules that are trained on.

RDKit reads the molecules. Rows without a value, and SMILES that it cannot read, are left out; of salts
and mixtures the largest part stays; a molecule that comes more than once is one, and is left out where its
values differ. What is held out is the column `split`, else molecules whose Bemis-Murcko scaffolds
(Bemis and Murcko, J. Med. Chem. 1996) are no scaffold of a training molecule: scaffolds from the most
frequent to the rarest are trained on until nine tenths of the molecules are. A molecule without a ring has no
scaffold, and stands for itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.tasks.records import Record, Records

SMILES = ("smiles", "canonical_smiles", "isomeric_smiles", "rdkit_smiles", "smile", "smi", "mol",
          "structure", "molecule")  # fmt: skip
PROPERTIES = ("answer", "p_np", "class", "label", "target", "y", "activity", "property")
ABOUT = frozenset([  # what says which molecule it is, and where it comes from
    "id", "num", "name", "index", "", "unnamed: 0", "inchi", "inchikey", "inchi_key", "cid", "cas", "mol_id",
    "title", "formula", "iupac", "iupac_name", "source", "split", "domain", "system", "scaffold", "compound id",
])  # fmt: skip
NUMBERS_FROM = 10  # different numbers, above which they are no classes
CLASSES_MOST = 12
TRAINED_SHARE = 0.9
SPLITS = {"train": "train", "training": "train", "test": "test", "valid": "test", "validation": "test",
          "val": "test"}  # fmt: skip


def need_rdkit() -> None:
    """Raises UserError where RDKit is not installed."""
    if find_spec("rdkit") is None:
        raise UserError(
            "molecules are read with RDKit, which is missing: pip install 'palaestra[molecules]'"
        )


@lru_cache(maxsize=65536)
def read_molecule(smiles: str) -> Any:
    """A molecule as RDKit has it; None where the text is no SMILES, or of no atom. Raises UserError
    where RDKit is not installed.
    """
    need_rdkit()
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        molecule: Any = Chem.MolFromSmiles(smiles.strip())
    return molecule if molecule is not None and molecule.GetNumAtoms() else None


def largest_part(molecule: Any) -> Any:
    """The part of most heavy atoms, of several such the first: a drug without its counter-ion."""
    from rdkit import Chem

    mols: Any = Chem.GetMolFrags(molecule, asMols=True)
    return max(mols, key=lambda m: m.GetNumHeavyAtoms())


def canonical_smiles(molecule: Any) -> str:
    """The one SMILES that RDKit writes for a molecule."""
    from rdkit import Chem

    return str(Chem.MolToSmiles(molecule))


@lru_cache(maxsize=262144)
def descriptor_value(smiles: str, name: str) -> float | None:
    """The value of a descriptor, by its name in rdkit.Chem.Descriptors; None where the text is no
    molecule.
    """
    molecule = read_molecule(smiles)
    if molecule is None:
        return None
    from rdkit.Chem import Descriptors

    functions: Any = Descriptors
    return float(getattr(functions, name)(molecule))


def scaffold_of(smiles: str) -> str:
    """The Bemis-Murcko scaffold, rings and what links them, without stereochemistry, as SMILES;
    "" of a molecule without a ring, and of what is no molecule.
    """
    from rdkit.Chem.Scaffolds import MurckoScaffold

    molecule = read_molecule(smiles)
    scaffold: Any = MurckoScaffold.MurckoScaffoldSmiles
    return "" if molecule is None else str(scaffold(mol=molecule, includeChirality=False))


def split_by_scaffold(smiles: Sequence[str], share: float = TRAINED_SHARE) -> list[str]:
    """ "train" or "test" for each molecule, such that no scaffold is in both. Scaffolds of most molecules
    are trained on, as long as no more than `share` are; of all that share one scaffold, all are.
    """
    groups: dict[str, list[int]] = {}
    for i, s in enumerate(smiles):
        groups.setdefault(scaffold_of(s) or f"no ring: {s}", []).append(i)
    splits, trained = ["test"] * len(smiles), 0
    for rows in sorted(groups.values(), key=lambda rows: (-len(rows), rows[0])):
        if trained and trained + len(rows) > share * len(smiles):
            continue
        trained += len(rows)
        for i in rows:
            splits[i] = "train"
    return splits


def column_of_molecules(names: Iterable[str], given: str = "") -> str:
    """The column that holds SMILES, in a table without prompts; "" = there is none. `given`: as the user
    says.
    """
    lower = {n.strip().casefold(): n for n in names}
    known = [lower[n] for n in SMILES if n in lower]
    return given or next(iter([*known, *(n for k, n in lower.items() if "smiles" in k)]), "")


def column_of_property(names: Sequence[str], smiles: str, where: str) -> str:
    """The column of the property that is asked for. Raises UserError where several could be."""
    free = [
        n
        for n in names
        if n != smiles and n.strip().casefold() not in ABOUT and "smiles" not in n.casefold()
    ]
    usual = [n for n in free if n.strip().casefold() in PROPERTIES]
    chosen = usual if len(usual) == 1 else free
    if len(chosen) == 1:
        return chosen[0]
    what = f"{', '.join(chosen[:12])} could each be" if chosen else "none is"
    raise UserError(
        f"{where}: a table of molecules ({smiles}), and {what} the property that is asked for; say which, "
        f"--columns {chosen[0] if chosen else 'COLUMN'}=answer"
    )


@dataclass(frozen=True)
class TableKey:
    """A table of molecules as it stands in its file, for reading it once."""

    path: str
    stamp: tuple[float, int]
    smiles: str
    asked: str
    split: str  # the column that says what is held out, if it is there
    records: Records = field(compare=False)


@declare(
    columns=(
        ("smiles", str, "a molecule, as SMILES"),
        ("murcko_scaffold", str, "its Bemis-Murcko scaffold; empty without a ring"),
        ("property", str, "the name of the property that is asked for"),
    )
)
@dataclass(frozen=True)
class MoleculeTable:
    """The rows of a table as records: prompt, answer, smiles, scaffold, property and split, and the table's
    other columns. `cut`: above which number a value is "high"; None = the property has classes.
    """

    source: Records
    rows: tuple[Record, ...]
    places: tuple[int, ...]  # of the rows in their table
    notes: str
    cut: float | None

    @property
    def path(self) -> str | Path:
        return self.source.path

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> Record:
        return self.rows[index]

    def label(self, index: int) -> str:
        return self.source.label(self.places[index])

    def where(self, index: int) -> str:
        return self.source.where(self.places[index])


def molecule_table(
    records: Records, smiles: str, asked: str, split: str = "split"
) -> MoleculeTable:
    """The molecules of a table, which is read once. The last three name its columns.

    Raises:
        UserError: nothing is left, or the property has one value, or too many that are no numbers.
    """
    path = Path(str(records.path))
    stat = path.stat() if path.is_file() else None
    stamp = (stat.st_mtime, stat.st_size) if stat else (0.0, len(records))
    return _read_table(TableKey(str(records.path), stamp, smiles, asked, split, records))


@lru_cache(maxsize=8)
def _read_table(key: TableKey) -> MoleculeTable:
    need_rdkit()
    valid_rows, n_salts, gone = _valid_rows(key)
    values, n_double = _one_each(valid_rows, gone)
    if not values:
        raise UserError(
            f"{key.path}: no molecule is left: {_describe(gone, n_double, n_salts)}; mend the table, or "
            f"say which column holds SMILES, --columns COLUMN=meta.smiles"
        )
    names = list(values)
    splits = _own_splits(key, [values[s][0] for s in names])
    made = "" if splits else _check_scaffolds(key, names)
    splits = splits or split_by_scaffold(names)
    answers, cut = _answers(key, [values[s][1] for s in names], splits)
    labels = sorted(set(answers))
    rows = tuple(
        _row(key, values[s][2], s, a, split, labels, cut)
        for s, a, split in zip(names, answers, splits, strict=True)
    )
    held = sum(s == "test" for s in splits)
    notes = (
        f"read {key.smiles} as molecules and {key.asked} as the property ({', '.join(labels)}); --columns "
        f"changes it; {len(rows)} molecules, {held} held out{made}"
        + (f"; {left_out}" if (left_out := _describe(gone, n_double, n_salts)) else "")
    )
    return MoleculeTable(key.records, rows, tuple(values[s][0] for s in names), notes, cut)


def _valid_rows(key: TableKey) -> tuple[list[tuple[int, str, Any, Record]], int, Counter[str]]:
    """Place, canonical SMILES, value and row of what can be read; how many lost a part; what is left
    out, by reason.
    """
    rows, n_salts, gone = list[tuple[int, str, Any, Record]](), 0, Counter[str]()
    for i, row in zip(count(), key.records):
        text, value = row.get(key.smiles), row.get(key.asked)
        if _is_blank(text) or _is_blank(value):
            gone[f"without {key.smiles if _is_blank(text) else key.asked}"] += 1
            continue
        molecule = read_molecule(str(text))
        if molecule is None:
            first = f" (the first is {key.records.where(i)}: {str(text)[:40]!r})"
            known = next((k for k in gone if k.startswith("whose SMILES")), "")
            gone[known or f"whose SMILES RDKit cannot read{first}"] += 1
            continue
        part = largest_part(molecule)
        n_salts += part.GetNumHeavyAtoms() < molecule.GetNumHeavyAtoms()
        rows.append((i, canonical_smiles(part), value, row))
    return rows, n_salts, gone


def _one_each(
    rows: Sequence[tuple[int, str, Any, Record]], gone: Counter[str]
) -> tuple[dict[str, tuple[int, Any, Record]], int]:
    """Place, value and row of each molecule, and how many rows repeat one. Whose values differ is left
    out.
    """
    first: dict[str, tuple[int, Any, Record]] = {}
    differ, n_double = set[str](), 0
    for i, smiles, value, row in rows:
        if smiles not in first:
            first[smiles] = (i, value, row)
            continue
        n_double += 1
        if _label(first[smiles][1]) != _label(value):
            differ.add(smiles)
    if differ:
        gone["that come again with another value"] += len(differ)
    return {s: x for s, x in first.items() if s not in differ}, n_double


def _describe(gone: Mapping[str, int], n_double: int, n_salts: int) -> str:
    reasons = [f"{n} {why}" for why, n in gone.items()]
    return "; ".join(
        [
            *([f"left out: {', '.join(reasons)}"] if reasons else []),
            *([f"{n_double} rows repeat a molecule"] if n_double else []),
            *([f"of {n_salts} salts and mixtures the largest part stays"] if n_salts else []),
        ]
    )


def _own_splits(key: TableKey, places: Sequence[int]) -> list[str]:
    """The splits that the table names; none where it names none. Raises UserError for another one, and
    where some molecules have none.
    """
    splits = list[str]()
    for i in places:
        value = key.records[i].get(key.split)
        if value is None:
            continue
        name = SPLITS.get(str(value).strip().casefold())
        if name is None:
            raise UserError(
                f"{key.records.where(i)}: {key.split} is {value!r}; write train, test or valid"
            )
        splits.append(name)
    if splits and len(splits) < len(places):
        raise UserError(f"{key.path}: some molecules have a split and others none; give all one")
    return splits


def _check_scaffolds(key: TableKey, names: Sequence[str]) -> str:
    """What is said of the split by scaffolds. Raises UserError where all molecules share one."""
    scaffolds = {scaffold_of(s) or s for s in names}
    if len(scaffolds) < 2:
        raise UserError(
            f"{key.path}: all {len(names)} molecules share one scaffold, so none can be held out by it; add "
            "others, or a column `split` of train and test"
        )
    return " by their scaffolds, none of which is trained on"


def _answers(
    key: TableKey, values: Sequence[Any], splits: Sequence[str]
) -> tuple[list[str], float | None]:
    """The answers, and above which number a value is high."""
    numbers = [_number(v) for v in values]
    known = [x for x in numbers if x is not None]
    if len(known) == len(values) and len(set(known)) > NUMBERS_FROM:
        trained = [x for x, split in zip(known, splits, strict=True) if split == "train"]
        cut = float(f"{median(trained or known):.4g}")
        return ["high" if x > cut else "low" for x in known], cut
    labels = [_label(v) for v in values]
    if not 2 <= len(set(labels)) <= CLASSES_MOST:
        raise UserError(
            f"{key.path}: {key.asked} has {len(set(labels))} different values, and a property has 2 to "
            f"{CLASSES_MOST} classes, or numbers; name another column, --columns COLUMN=answer"
        )
    return labels, None


def _row(
    key: TableKey, row: Record, smiles: str, answer: str, split: str, labels: Sequence[str],
    cut: float | None,
) -> Record:  # fmt: skip
    asked = (
        f"Is {key.asked} of this molecule high (above {cut:g}) or low?"
        if cut is not None
        else f"What is {key.asked} of this molecule, {' or '.join(labels)}?"
    )
    beside = {str(k): v for k, v in row.items() if k not in (key.smiles, key.asked, key.split)}
    own = {"prompt": f"{asked}\n{smiles}", "answer": answer, "smiles": smiles, "split": split}
    return {**beside, **own, "murcko_scaffold": scaffold_of(smiles), "property": key.asked}


def check_same_cut(trained: Any, held: Any) -> None:
    """Raises UserError where two files divide a number at different values, of which the second is no
    question that was trained on.
    """
    cuts = [x.records.cut for x in (trained, held) if isinstance(x.records, MoleculeTable)]
    if len(cuts) == 2 and cuts[0] != cuts[1]:
        raise UserError(
            f"{held.path}: a property of numbers is divided at the median of the training molecules, and "
            "two files have two; put both into one table with a column `split` of train and test"
        )


def _is_blank(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or not str(value).strip() or str(value).strip().casefold() == "nan"


def _number(value: Any) -> float | None:
    try:
        x = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        return None
    return x if math.isfinite(x) else None


def _label(value: Any) -> str:
    """A class as text: 1.0 as 1."""
    x = _number(value)
    return str(value).strip() if x is None or isinstance(value, bool) else f"{x:g}"
