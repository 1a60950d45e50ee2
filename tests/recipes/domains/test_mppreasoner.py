"""MPPReasoner: the gated reward by hand, what claims say and what the released checks take for claims, neighbours
from training molecules alone, and the probability of True.
"""

import asyncio
import base64
import json
import math

import numpy as np
import palaestra
import pytest
from palaestra.errors import UserError
from palaestra.recipes.domains import mppreasoner
from palaestra.recipes.domains.mppreasoner import claims, exam, questions, released, rewards
from palaestra.services.chat.scripted import Scripted
from palaestra.tasks.molecule_tasks import SimilarMolecules, molecule_picture
from palaestra.types import Episode, Group, Message, Row, Segment, Task

from tests.recipes.objectives.helpers import advantages, near

pytest.importorskip("rdkit", reason="pip install 'palaestra[molecules]'")
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"  # weight 180.2, logP 1.31, TPSA 63.6, 1 donor, 13 heavy atoms, 1 ester, no amide
THOUGHT = "It is aromatic, small, and has an ester. Overall it is likely true."
TASK = Task(id="t", answer="True", meta={"smiles": ASPIRIN, "neighbours": ["CCO", "c1ccccc1"]})


def reply(thought, answer="True"):
    return f"<think>{thought}</think><answer>{answer}</answer>"


def judged(text, task=TASK, **settings):
    return rewards.PrincipleReward(**settings).judge(text, task)


def principle(text, smiles=ASPIRIN, others=()):
    return claims.is_sound(claims.principle_claims(text, smiles, others))


def structure(text, smiles=ASPIRIN, others=()):
    return claims.is_sound(claims.structure_claims(text, smiles, others), positive=True)


# ---- the reward


@pytest.mark.parametrize("checks", ["sound", "released"])
def test_the_layers_behind_the_gate(checks):
    """The catalogue's values: 2 + 0.25 + 0.5, the maximum of 3, -1 and -1.5."""
    most = f"Like CCO in part.\n{THOUGHT}"
    texts = [reply(most), reply(THOUGHT), reply(most, "False"), "It is true.", reply(THOUGHT, "maybe"), ""]
    found = [judged(x, checks=checks) for x in texts]
    assert [r.total for r in found] == near([3.0, 2.75, -1.0, -1.5, -1.5, -1.5])
    assert [r.solved for r in found] == [True, True, False, False, False, False]
    assert found[2].parts["principle"] == found[2].parts["chemistry"] == 0.0
    assert found[1].parts["chemistry"] == 0.5 and found[1].parts["compared"] == 0.0


def test_advantages_of_the_catalogue_group():
    """Rewards 3, 2.75, -1 and -1.5: mean 0.8125, and 2.392480 with ddof 1."""
    learned = mppreasoner.build().parts["rl"].runnable
    made = advantages(learned, *({"reward": r} for r in (3, 2.75, -1, -1.5)))
    wanted = [(r - 0.8125) / 2.392480 for r in (3, 2.75, -1, -1.5)]
    assert made == near(wanted, 1e-3)


def test_without_the_gate_a_wrong_answer_is_paid_its_claims():
    wrong = judged(reply(THOUGHT.replace("true", "false"), "False"), gated=False)
    assert wrong.total == near(0 + 1 + 0.25 + 0.5) and not wrong.solved
    assert judged("nothing", gated=False).total == 0.0


def test_a_layer_that_is_off_pays_nothing():
    assert judged(reply(THOUGHT), chemistry=0.0).total == near(2.25)
    assert judged(reply(THOUGHT), reasoning=0.0).total == near(2.5)
    assert judged(reply(THOUGHT), chemistry=0.0).parts["chemistry"] == 0.0
    assert rewards.PrincipleReward().bounds == (-1.5, 3.0)
    with pytest.raises(UserError, match="chemistry"):
        rewards.PrincipleReward(chemistry=-1.0)


@pytest.mark.parametrize(
    "text",
    [
        f"{reply(THOUGHT)}<answer>False</answer>",
        f"<answer>True</answer><think>{THOUGHT}</think>",
        f"{reply(THOUGHT)} and more",
        reply(""),
        f"<think>{THOUGHT}<answer>True</answer>",
        f"<think>I write {reply('x', 'False')}</think><answer>True</answer>",
    ],
)
def test_forms_that_cannot_be_read(text):
    """The released code takes the first <think> and the first <answer>, wherever they stand."""
    assert judged(text).total == -1.5


def test_a_prompt_may_have_opened_the_thoughts():
    assert judged(f"{THOUGHT}</think>\n<answer> true </answer>\n").total == near(2.75)


# ---- claims


@pytest.mark.parametrize(
    ("text", "smiles", "right"),
    [
        ("It is lipophilic.", "CCCCCCCC", True),  # logP 3.4
        ("It is lipophilic.", ASPIRIN, False),
        ("It is not lipophilic.", ASPIRIN, True),
        ("It isn\u2019t hydrophilic.", ASPIRIN, True),
        ("It has a moderate logP.", ASPIRIN, True),
        ("It is small.", ASPIRIN, True),
        ("It is large.", ASPIRIN, False),
        ("It is aromatic.", "CCO", False),
        ("It is non-aromatic.", "CCO", True),
        ("It has no hydrogen bond donors.", "c1ccccc1", True),
        ("It has hydrogen bond donors.", "c1ccccc1", False),
        ("It satisfies Lipinski's rule of five.", ASPIRIN, True),
        ("It violates the rule of five.", ASPIRIN, False),
        ("It violates the rule of five.", "C" * 60, True),  # 843 u, logP 23.7
        ("It does not comply with Lipinski.", "C" * 60, True),
        ("It is within reach.", ASPIRIN, False),  # no principle is named
        ("It is rigid.", "c1ccccc1", True),
        ("It is flexible.", "c1ccccc1", False),
        ("It is inflexible.", "c1ccccc1", True),
        ("It is nonpolar.", "c1ccccc1", True),
        ("It is sterically hindered.", "CCO", False),
        ("Nothing.", ASPIRIN, False),
        ("", ASPIRIN, False),
    ],
)
def test_claims_of_principles(text, smiles, right):
    assert principle(text, smiles) is right


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("It has an ester.", True),
        ("It has an amide.", False),
        ("It has no amide.", False),  # true, and named by nobody who looks for a reason
        ("It has an ester, but no amide.", True),
        ("It lacks an ester.", False),
        ("It has an ester and an amide.", False),
        ("It has a carboxylic acid, an ester and an amide.", True),
        ("A polyester is examined.", False),
        ("", False),
    ],
)
def test_claims_of_structure(text, right):
    assert structure(text) is right


@pytest.mark.parametrize("name", list(claims.GROUPS))
def test_each_group_is_found_in_a_molecule_that_has_it(name):
    has = {
        "hydroxyl": "CCO", "carboxyl": "CC(=O)O", "amino": "CCN", "nitro": "C[N+](=O)[O-]", "ester": "COC(C)=O",
        "amide": "CC(N)=O", "ether": "COC", "ketone": "CC(C)=O", "carbonyl": "CC(C)=O", "aldehyde": "CC=O",
        "cyano": "CC#N", "benzene": "c1ccccc1", "aromatic ring": "c1ccoc1", "pyridine": "c1ccncc1",
        "indole": "c1ccc2[nH]ccc2c1", "quinoline": "c1ccc2ncccc2c1", "naphthalene": "c1ccc2ccccc2c1",
        "cyclohexane": "C1CCCCC1", "cyclopentane": "C1CCCC1", "six-membered ring": "C1CCCCC1",
        "five-membered ring": "c1ccoc1", "heterocycle": "c1ccoc1", "fluorine": "CF", "chlorine": "CCl",
        "bromine": "CBr", "chiral": "C[C@H](N)C(=O)O", "branched": "CC(C)(C)C", "linear": "CCCCCC",
    }[name]  # fmt: skip
    lacks = "CC(C)(C)C" if name == "linear" else "CS"
    assert structure(f"It has a {name}.", has) and not structure(f"It has a {name}.", lacks)


def test_what_is_said_of_another_molecule_is_no_claim():
    text = "Unlike CCO , which is aromatic and has an amide.\nIt has an ester."
    assert not claims.principle_claims(text, ASPIRIN, ["CCO"]) and structure(text, ASPIRIN, ["CCO"])
    assert len(claims.principle_claims(text, ASPIRIN)) == 1


@pytest.mark.parametrize(
    ("thought", "answer", "right"),
    [
        ("Overall it is likely true.", "True", 1.0),
        ("Overall it is likely true.", "False", 0.0),
        ("Overall it is not likely true.", "False", 1.0),
        ("It may be judged as false, but overall it is likely true.", "True", 1.0),
        ("It is likely true.", "True", 0.0),  # nothing is weighed
        ("Overall, who knows.", "True", 0.0),
    ],
)
def test_the_verdict_of_a_thought_is_the_answer(thought, answer, right):
    assert judged(reply(thought, answer), gated=False).parts["consistent"] == right


# ---- loopholes of the released checks, which the sound ones close

LISTED = ", ".join(claims.GROUPS)
OPPOSITES = "lipophilic hydrophilic, large small, rigid flexible, aromatic and not aromatic"


@pytest.mark.parametrize(
    ("term", "text", "task"),
    [
        ("principle", "It is polar or not.", TASK),  # 63.6 lies between 60 and 140, of which nothing is asked
        ("principle", "It is nonpolar.", TASK),
        ("principle", OPPOSITES, TASK),
        ("structure", "It is linear.", Task(id="l", answer="True", meta={"smiles": "CC(C)(C)C"})),
        ("structure", "This is a fine molecule.", Task(id="f", answer="True", meta={"smiles": "CF"})),
        ("structure", "Whether it is so.", Task(id="e", answer="True", meta={"smiles": "COC"})),
        ("structure", "It has no ester.", TASK),
        ("structure", LISTED, TASK),
        ("compared", "It is no C1CCCCC1.", Task(id="b", answer="True",
                                                meta={"smiles": "CCO", "neighbours": ["c1ccccc1"]})),
        ("compared", "It has CCCCC.", Task(id="c", answer="True", meta={"smiles": "CCO", "neighbours": ["CC"]})),
        ("consistent", "Overall it is likely true, and likely false.", TASK),
    ],
)  # fmt: skip
def test_what_passes_as_released_and_is_no_reason(term, text, task):
    assert judged(reply(text), task, checks="released").parts[term] == 1.0
    assert judged(reply(text), task).parts[term] == 0.0


def test_what_makes_up_for_a_wrong_claim_unless_checks_are_strict():
    """Aspirin has an ester and a benzene ring, no amide; its logP is 1.31, so it is not hydrophobic."""
    padded = "It is hydrophobic, aromatic, with hydrogen bonding. It has an ester, benzene and an amide."
    right = "It is aromatic. It has an ester and no amide."
    parts = lambda text, checks: [judged(reply(text), checks=checks).parts[k] for k in ("principle", "structure")]
    assert parts(padded, "sound") == [1.0, 1.0] and parts(padded, "strict") == [0.0, 0.0]
    assert parts(right, "sound") == parts(right, "strict") == [1.0, 1.0]
    assert parts("It is a molecule.", "strict") == [0.0, 0.0]


def test_a_released_verdict_that_denies_counts_as_affirmed():
    text = "Overall it consequently is not permeable."
    assert released.is_consistent(text, answer=True) and rewards.verdict(text) is None


# ---- prompts


def test_neighbours_by_tanimoto():
    """Common bits over all bits: of ethanol against propanol counted from the fingerprints' own bit sets."""
    names = ["CCCO", "c1ccccc1", "OCC", "CCO", "CCCCO"]
    found = SimilarMolecules(names).nearest("OCC", 2)
    assert [names[i] for i, _ in found] == ["CCCO", "CCCCO"]  # itself, in either spelling, is none
    from rdkit import Chem
    from rdkit.Chem import rdFingerprintGenerator

    maker = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    one, other = ({*maker.GetFingerprint(Chem.MolFromSmiles(s)).GetOnBits()} for s in ("CCO", "CCCO"))
    assert found[0][1] == near(len(one & other) / len(one | other))
    assert SimilarMolecules([]).nearest("C", 3) == [] and SimilarMolecules(["CC"]).nearest("C", 0) == []


class Table:
    """Alkanes and, held out, alcohols, whose answers are all 1."""

    name, size, test_size = "table", 6, 4

    def task(self, split, index):
        smiles = "C" * (index + 1) + ("O" if split == "test" else "")
        meta = {"smiles": smiles, "property": "x", **({"demonstration": "own"} if index == 2 else {})}
        answer = "1" if split == "test" else str(index % 2)
        return Task(id=f"{split}{index}", answer=answer, prompt=(Message(role="user", content=smiles),), meta=meta)


class Program:
    """What a program asks of a run."""

    def __init__(self, folder, tasks=None):
        self.folder, self.notes = folder, []
        self.bench = type("Bench", (), {"tasks": tasks or Table(), "first_held_out": 0})()

    def key(self, *names):
        return names

    def say(self, text):
        self.notes.append(text)


def written(folder, tasks=None, name="questions", **settings):
    stage = questions.WriteMoleculeQuestions(**settings)
    made = asyncio.run(stage.run(Program(folder, tasks)))
    return [json.loads(line) for line in open(made.artifacts[name])]


def test_prompts_show_training_molecules_alone(tmp_path):
    rows = written(tmp_path, neighbours=3)
    train = {"C" * (i + 1): str(i % 2 == 1) for i in range(6)}
    assert [r["split"] for r in rows] == ["train"] * 6 + ["test"] * 4
    for row in rows:
        shown = [line.split() for line in row["prompt"].splitlines() if line.startswith("C") and " " in line]
        assert [s for s, _ in shown] == row["neighbours"] and len(shown) == 3
        assert row["smiles"] not in row["neighbours"] and all(train[s] == label for s, label in shown)
    assert [r.get("demonstration") for r in rows] == [None, None, "own"] + [None] * 5 + ["own", None]
    assert {r["answer"] for r in rows[6:]} == {"True"}
    assert "image" not in rows[0] and all("Similar" not in r["prompt"] for r in written(tmp_path, neighbours=0))


def test_the_drawing_is_a_picture_of_its_own(tmp_path):
    rows = written(tmp_path, picture=64)
    heads, data = zip(*(r["image"].split(",") for r in rows), strict=True)
    assert {*heads} == {"data:image/png;base64"} and len({*data}) == len(rows)
    png = base64.b64decode(data[0])
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and [int.from_bytes(png[i : i + 4], "big") for i in (16, 20)] == [64, 64]
    with pytest.raises(UserError, match="no molecule"):
        molecule_picture("C1CC", 64)


def test_answers_that_are_not_two_are_refused(tmp_path):
    class Three(Table):
        def task(self, split, index):
            return Task(id="t", answer=str(index % 3), prompt=super().task(split, index).prompt, meta={"smiles": "CC"})

    with pytest.raises(UserError, match="3 different answers"):
        written(tmp_path, Three())
    with pytest.raises(UserError, match="positive='yes'"):
        written(tmp_path, positive="yes")
    assert {r["answer"] for r in written(tmp_path, positive="0")[6:]} == {"False"}


def test_rows_with_a_chain_of_thought_are_imitated(tmp_path, monkeypatch):
    monkeypatch.setattr(questions, "from_file", lambda ctx: True)
    rows = written(tmp_path, name="trajectories", demonstrated=True)
    assert [(r["split"], r.get("demonstration")) for r in rows if r["split"] == "train"] == [("train", "own")]
    assert len(rows) == 5 and len(written(tmp_path, name="trajectories")) == 10

    class Bare(Table):
        def task(self, split, index):
            task = super().task(split, index)
            return Task(id=task.id, answer=task.answer, prompt=task.prompt, meta={"smiles": task.meta["smiles"]})

    with pytest.raises(UserError, match="imitate=False"):
        written(tmp_path, Bare(), demonstrated=True)


def test_thoughts_of_the_stand_in_are_read_and_right_at_the_share(tmp_path):
    rights = []
    for seed in range(60):
        text = questions.WriteThoughts(0.6)(ASPIRIN, ["CCO"], True, np.random.default_rng(seed))
        parts = judged(text).parts
        assert parts["format"] == parts["consistent"] == 1.0 and parts["compared"] == 0.0
        true, every = rewards.confirmed(text, ASPIRIN, ["CCO"])
        assert every == 3
        rights.append(true / every)
    assert 0.45 < np.mean(rights) < 0.75
    quoted = questions.WriteThoughts(0.6, quote=True)(ASPIRIN, ["CCO"], True, np.random.default_rng(0))
    assert judged(quoted).parts["compared"] == 1.0


# ---- stages


def trajectory(text, task=TASK):
    said = Segment(ids=(1,), trained=True, logp=(-1.0,), text=text)
    return Episode(rows=(Row(segments=(said,)),), status="finished")


def test_wrong_and_unreadable_trajectories_are_not_imitated():
    texts = [reply(THOUGHT), reply(THOUGHT, "False"), "nothing"]
    group = Group(task=TASK, episodes=tuple(map(trajectory, texts)))
    made = asyncio.run(rewards.CheckTrajectories(rewards.PrincipleReward())(None, ("k",), group))
    assert [e.muted for e in made.episodes] == [False, True, True]


def test_the_numbers_of_the_exam():
    """Two right of three; one of the two claims of each text is true; two kinds of claims: 0.918 bits."""
    tasks = [Task(id=str(i), answer=a, meta={"smiles": ASPIRIN}) for i, a in enumerate(("True", "False", "True"))]
    texts = [reply("An ester, but large."), reply("An ester, but large.", "False"), reply("It is large.", "False")]
    numbers = exam.exam_numbers(tasks, texts, [0.9, 0.2, 0.1])
    assert numbers == near({"auc": 0.5, "right": 2 / 3, "claims": 5 / 3, "confirmed": 2 / 5,
                            "information": -(2 / 3 * math.log2(2 / 3) + 1 / 3 * math.log2(1 / 3))})  # fmt: skip
    assert "confirmed" not in exam.exam_numbers(tasks, ["x"] * 3, [0.5] * 3)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("<think>a</think><answer>True</answer>", "<think>a</think><answer>"),
        ("<think>a</think>", "<think>a</think><answer>"),
        ("<think>a", "<think>a</think><answer>"),
        ("", "<answer>"),
    ],
)
def test_where_an_answer_is_asked_for(text, start):
    assert exam.before_answer(text) == start


def test_arguments_that_contradict_each_other(tmp_path):
    with pytest.raises(UserError, match="name one"):
        mppreasoner.build(notes="x.md")
    with pytest.raises(UserError, match="no file"):
        mppreasoner.build(notes=str(tmp_path / "x.md"), teacher=Scripted(("",)))
    (tmp_path / "n.md").write_text("Weight {below} 500.")
    shown = mppreasoner.build(notes=str(tmp_path / "n.md"), teacher=Scripted(("",))).parts["imitation"].runnable
    assert "{{below}}" in shown.draw.ask and "imitation" not in mppreasoner.build(imitate=False).parts
    assert mppreasoner.build(picture=64).parts["imitation"].runnable.learners["policy"].rates == {"tower": 0.0}


def test_a_table_of_molecules_is_trained_on(tmp_path):
    rows = [f"{'C' * i}c1ccccc1,{i % 2}" for i in range(8)] + [f"{'C' * i}C1CCCCC1,{i % 2}" for i in range(3)]
    file = tmp_path / "molecules.csv"
    file.write_text("smiles,p_np\n" + "\n".join(rows) + "\n")
    words = {"imitate": False, "neighbours": 1, "exam": 3, "rl.schedule.prompts": 2, "samples": 2}
    run = palaestra.train(
        "mppreasoner", data=str(file), steps=1, max_tokens=8, out=tmp_path / "run", quiet=True, set=words
    )
    steps = [json.loads(line) for line in (run.folder / "rl" / "metrics.jsonl").read_text().splitlines()]
    assert [s["part/format"] for s in steps if s.get("step") == 1 and "part/format" in s] == [0.0]
    asked = (run.folder / "prompts" / "questions.jsonl").read_text()
    assert "True means 1, False 0" in asked
