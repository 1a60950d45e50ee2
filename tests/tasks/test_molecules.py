"""Tables of molecules as tasks: what is read, what is left out, and that no scaffold is in both folds."""

import pytest
from palaestra.errors import UserError
from palaestra.tasks import molecules
from palaestra.tasks.files import FileTasks
from palaestra.toys.molecules import MoleculeTasks, nci_molecules
from palaestra.verifiers import DESCRIPTORS, descriptor_named

pytest.importorskip("rdkit", reason="pip install 'palaestra[molecules]'")
RINGS = ("c1ccccc1", "c1ccncc1", "C1CCCC1")
MANY = [(f"{'C' * i}{ring}", i) for n, ring in zip((8, 6, 5), RINGS, strict=True) for i in range(n)]


def table(tmp_path, *lines, name="molecules.csv"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def tasks_of(tasks, split):
    return [tasks.task(split, i) for i in range(tasks.size if split == "train" else tasks.test_size)]


def test_a_table_as_people_have_it(tmp_path):
    rows = ["name,smiles,p_np", "ethanol,CCO,1", "again,OCC,1", "bad,C1CC,0", "none,,1", "unknown,CCN,"]
    rows += ["salt,CC(=O)[O-].[Na+],0", "one,CCC,1", "other,CCC,0"]
    path = table(tmp_path, *rows, *(f"x,{s},{i % 2}" for s, i in MANY))
    tasks = FileTasks(path)
    first = tasks.task("train", 0)
    assert first.prompt[0].content == "What is p_np of this molecule, 0 or 1?\nCCO"
    assert (first.answer, first.id, first.meta["name"]) == ("1", "molecules.csv:1", "ethanol")
    known = [t.meta["smiles"] for split in ("train", "test") for t in tasks_of(tasks, split)]
    assert sorted(known) == sorted({*known}) and "CC(=O)[O-]" in known and "CCC" not in known and len(known) == 21
    (note,) = tasks.notes
    for said in ("row 3: 'C1CC'", "1 without smiles", "1 without p_np", "another value", "2 rows repeat", "1 salts"):
        assert said in note


def test_no_scaffold_is_in_both_folds(tmp_path):
    """Benzenes (8) and pyridines (6) are at most nine tenths of 19; the cyclopentanes (5) are held out."""
    tasks = FileTasks(table(tmp_path, "SMILES,Class", *(f"{s},{i % 2}" for s, i in MANY)))
    assert (tasks.size, tasks.test_size) == (14, 5)
    scaffolds = [{t.meta["murcko_scaffold"] for t in tasks_of(tasks, split)} for split in ("train", "test")]
    assert scaffolds == [{"c1ccccc1", "c1ccncc1"}, {"C1CCCC1"}]


def test_a_split_of_the_table_stays(tmp_path):
    rows = [f"{s},{i % 2},{'valid' if i == 3 else 'train'}" for s, i in MANY]
    tasks = FileTasks(table(tmp_path, "mol,Class,fold", *rows), columns="fold=split")
    assert (tasks.size, tasks.test_size) == (16, 3) and "scaffold" not in tasks.notes[0]
    half = table(tmp_path, "mol,Class,split", "CCO,1,train", "CCC,0,", name="half.csv")
    with pytest.raises(UserError, match="give all one"):
        FileTasks(half)
    with pytest.raises(UserError, match="write train, test or valid"):
        FileTasks(table(tmp_path, "mol,Class,split", "CCO,1,a", "CCC,0,b", name="odd.csv"))


def test_numbers_are_above_or_below_the_median_of_the_training_molecules(tmp_path):
    """Of benzenes and pyridines with values 0 to 7 and 10 to 15 the median is 6.5."""
    values = [*range(8), *range(10, 16), *range(100, 105)]
    lines = [f"{s},{v}.0" for (s, _), v in zip(MANY, values, strict=True)]
    tasks = FileTasks(table(tmp_path, "smiles,logS", *lines))
    assert tasks.task("train", 0).prompt[0].content.startswith("Is logS of this molecule high (above 6.5) or low?")
    assert [t.answer for t in tasks_of(tasks, "train")] == ["low"] * 7 + ["high"] * 7
    other = table(tmp_path, "smiles,logS", *lines[:12], name="other.csv")
    with pytest.raises(UserError, match="two files have two"):
        FileTasks(table(tmp_path, "smiles,logS", *lines), test=other).splits()


def test_which_column_is_asked_for(tmp_path):
    lines = [f"{s},{i % 2},{(i + 1) % 2}" for s, i in MANY]
    path = table(tmp_path, "smiles,FDA_APPROVED,CT_TOX", *lines)
    with pytest.raises(UserError, match="--columns FDA_APPROVED=answer"):
        FileTasks(path)
    assert FileTasks(path, columns="CT_TOX=answer").task("train", 0).meta["property"] == "CT_TOX"
    odd = table(tmp_path, "drug,CT_TOX", *(f"{s},{i % 2}" for s, i in MANY), name="odd.csv")
    assert FileTasks(odd, columns="drug=meta.smiles").size == 14


@pytest.mark.parametrize(
    ("lines", "remedy"),
    [
        (["smiles,y", "C1CC,0", "xyz,1"], "no molecule is left"),
        (["smiles,y", "c1ccccc1,0", "Cc1ccccc1,1"], "share one scaffold"),
        (["smiles,y", *(f"{s},1" for s, _ in MANY)], "1 different values"),
        (["smiles,y", *(f"{s},kind {i}" for i, (s, _) in enumerate(MANY))], "2 to 12 classes"),
    ],
)
def test_a_table_that_is_none_says_what_to_do(tmp_path, lines, remedy):
    with pytest.raises(UserError, match=remedy):
        FileTasks(table(tmp_path, *lines))


def test_questions_in_words_stay_as_they_are(tmp_path):
    path = table(tmp_path, "question,answer,smiles", *(f"Is {s} bitter?,{i % 2},{s}" for s, i in MANY))
    assert FileTasks(path).task("train", 0).prompt[0].content.startswith("Is ")


def test_scaffolds_and_parts():
    assert molecules.scaffold_of("CC(=O)Oc1ccccc1C(=O)O") == "c1ccccc1" and molecules.scaffold_of("CCO") == ""
    assert molecules.scaffold_of("C[C@H](O)Cc1ccc(C2CC2)cc1") == "c1ccc(C2CC2)cc1"
    salt = molecules.read_molecule("[Na+].CC(=O)[O-]")
    assert molecules.canonical_smiles(molecules.largest_part(salt)) == "CC(=O)[O-]"
    assert molecules.read_molecule("") is None and molecules.descriptor_value("C1CC", "TPSA") is None
    assert molecules.split_by_scaffold(["CCO", "CCN"]) == ["train", "test"]


def test_names_of_descriptors():
    from rdkit.Chem import Descriptors

    assert all(hasattr(Descriptors, name) for name in DESCRIPTORS)
    said = ["MW", "log P", "Molecular weight (Da)", "number of H-bond donors", "polar surface areas", "colour", ""]
    assert [descriptor_named(x) for x in said] == ["MolWt", "MolLogP", "MolWt", "NumHDonors", "TPSA", None, None]


def test_the_built_in_molecules():
    """As many of either class in each fold, and no scaffold in both."""
    parts = nci_molecules(24)
    for rows in parts.values():
        assert 2 * sum(label for _, label in rows) == len(rows)
    train, test = ({molecules.scaffold_of(s) or s for s, _ in rows} for rows in parts.values())
    assert not train & test
    tasks = MoleculeTasks()
    one = tasks.task("train", 0)
    assert one == tasks.task("train", 0) and tasks.test_size == len(parts["test"])
    right, wrong = str(one.answer), str(1 - int(one.answer))
    said = (f"= {right}", f"<answer>{right}</answer>", f"= {wrong}", f"<answer>{right}</answer> or {wrong}")
    assert [tasks.check(x, one) for x in said] == [1.0, 1.0, 0.0, 0.0]
