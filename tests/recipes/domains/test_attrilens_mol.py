"""AttriLens-Mol: rewards of named attributes by hand, intervals, and what the attributes are worth to a tree."""

import asyncio
import json

import numpy as np
import palaestra
import pytest
from palaestra.errors import UserError
from palaestra.recipes.domains import attrilens_mol
from palaestra.recipes.domains.attrilens_mol import attributes, exam
from palaestra.services.chat.scripted import Scripted
from palaestra.stats import roc_auc
from palaestra.tasks.molecule_tasks import check_molecules, favourable_answer, molecule_of
from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task

from tests.recipes.objectives.helpers import near

pytest.importorskip("rdkit", reason="pip install 'palaestra[molecules]'")
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"  # MolWt 180.159, MolLogP 1.3101, TPSA 63.6, one donor: all inside the intervals
NAMED = "<name>MW: improve, LogP: improve, TPSA: not improve, HBD: improve</name> <answer>1</answer>"
TWO = "<name>MW: improve, LogP: improve</name> <answer>0</answer>"


def judged(text, right=0.0, **rewards):
    said = Segment(ids=(1,), trained=True, logp=(-1.0,), text=text)
    e = Episode(rows=(Row(segments=(said,)),), reward=Reward(total=right, solved=bool(right)), status="finished")
    task = Task(id="t", answer="1", meta={"smiles": ASPIRIN, "intervals": attributes.BBBP})
    link = attributes.AttributeRewards(**rewards)
    return asyncio.run(link(None, ("k",), Group(task=task, episodes=(e,)))).episodes[0]


def test_the_sum_of_four_rewards():
    """The catalogue's values: 1 + 2 + 0 + 0.75, then 1 + 0 - 1 + 1, then -2 + 0 - 1.5 + 0."""
    totals = [judged(NAMED, 1.0).total, judged(TWO).total, judged("It is 0.").total]
    assert totals == near([3.75, 1.0, -3.5])
    centred = np.array(totals) - np.mean(totals)
    assert list(centred / np.std(totals)) == near([1.115423, 0.195199, -1.310622])


def test_an_answer_is_right_in_any_form_and_stays_so():
    boxed = judged("\\boxed{1}", 1.0)
    assert boxed.is_right() and boxed.total == near(-2 + 2 - 1.5) and not judged(NAMED).is_right()


def test_not_improve_is_no_improve():
    """What the released test takes for "improve": here it disagrees with values inside the interval."""
    text = "<name>MW: not improve, LogP: Not improved, TPSA: does not improve</name> <answer>1</answer>"
    assert judged(text).reward.parts["rationality"] == 0.0
    outside = attributes.agreements(text, "C" * 40, {"MolWt": (100, 450)})  # 563 u
    assert outside == [True, None, None]


@pytest.mark.parametrize(
    ("text", "status"),
    [("improve", 1), ("not improve", -1), ("doesn\u2019t improve", -1), ("doesn't help", -1), ("worsens", -1),
     ("does not worsen", 1), ("never hurts", 1), ("no", -1), ("180", 0)],
)  # fmt: skip
def test_statuses(text, status):
    assert attributes.status_of(text) == status


def test_a_value_before_the_status_and_an_empty_answer():
    text = "<name>MolWt: 180, improve, TPSA: 63, not improve</name>"
    assert attributes.named_items(text) == [("MolWt", "180, improve"), ("TPSA", "63, not improve")]
    assert judged(f"{text}<answer> </answer>").reward.parts["format"] == -2.0


def test_counts_and_unknown_names():
    one = "<name>MW: improve, colour: improve, taste: improve</name><answer>1</answer>"
    assert judged(one).reward.parts == {"format": 1.0, "count": 0.0, "rationality": 1.0, "answer": 0.0}
    assert judged(one, whole=True).reward.parts["rationality"] == near(1 / 3)
    again = "<name>MW: improve, molecular weight: improve, MolWt: improve</name><answer>1</answer>"
    assert judged(again).reward.parts["count"] == -1.0 and judged(again).facts["named"] == ("MolWt",)
    lines = "<name>\nMW: improve\nLogP: improve\nTPSA: improve\n</name>\n<answer>1</answer>"
    assert judged(lines).reward.parts["count"] == 0.0
    many = ", ".join(f"x{i}: improve" for i in range(11))
    assert judged(f"<name>{many}</name><answer>1</answer>").reward.parts["count"] == -1.0
    assert judged("<name></name><answer>1</answer>").reward.parts["rationality"] == 0.0


def test_thinking_that_quotes_the_form_is_not_the_answer():
    quoted = f"<think>I should write {NAMED}</think> It is 1."
    assert judged(quoted).reward.parts["format"] == -2.0 and judged(quoted).reward.parts["count"] == -1.5


def test_a_reward_that_is_off_is_0():
    parts = judged("It is 0.", count=False, rationality=False).reward.parts
    assert (parts["count"], parts["rationality"]) == (0.0, 0.0)
    assert judged(NAMED, rationality=False).reward.parts["rationality"] == 0.0


def test_a_task_without_a_molecule_says_what_to_do():
    for smiles in (None, "C1CC"):
        with pytest.raises(UserError, match=r"meta\.smiles|mend it"):
            molecule_of(Task(id="t", meta={"smiles": smiles}))


def test_all_rows_are_read_at_the_start(tmp_path):
    """Rows of the unfavourable answer too, which no interval is drawn from."""
    bad = ("C1CC", "", "CN")
    rows = [{"prompt": f"p{i}", "answer": str(i % 2), "smiles": "C" * (i + 1)} for i in range(20)]
    rows += [{"prompt": f"q{i}", "answer": "0", "smiles": x} for i, x in enumerate(bad)]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(UserError, match=r"RDKit reads no molecule in 'C1CC'.*\(and 1 more rows\)"):
        palaestra.train(
            "attrilens-mol", data=str(tmp_path / "m.jsonl"), steps=1, out=tmp_path / "run", quiet=True, set={"exam": 0}
        )
    check_molecules(Molecules())


# ---- intervals


class Molecules:
    """Training molecules of 20 alkanes: favourable ones have 5 to 14 carbons."""

    name, size, test_size = "alkanes", 20, 4

    def task(self, split, index):
        label = str(int(5 <= index + 1 <= 14))
        smiles = "C" * (index + 1)
        said, meta = (Message(role="user", content=smiles),), {"smiles": smiles, "property": "size"}
        return Task(id=f"{split}{index}", answer=label, prompt=said, meta=meta)

    def __hash__(self):
        return 7

    def __eq__(self, other):
        return isinstance(other, Molecules)


def test_intervals_hold_nine_tenths_of_the_favourable_molecules():
    """5 to 14 heavy atoms: the quantiles 0.05 and 0.95 are 5.45 and 13.55."""
    drawn = attributes.drawn_intervals(Molecules(), "1")
    assert drawn["HeavyAtomCount"] == near([5.45, 13.55]) and drawn["TPSA"] == [0.0, 0.0]
    assert favourable_answer(("0", "1")) == "1" and favourable_answer(("low", "high")) == "high"
    assert favourable_answer(("b", "a", "c")) == "c"


class Run:
    """What a draw asks of a run."""

    seed, step = 0, 0

    def __init__(self, replies=()):
        self.replies, self.asked, self.notes = list(replies), [], []
        self.bench = type("Bench", (), {"tasks": Molecules()})()

    def say(self, text):
        self.notes.append(text)

    async def ask(self, source, question, *, seed=0):
        self.asked.append(question)
        return self.replies.pop(0)


def draw(run, state, **settings):
    def first(ctx, key, n, state):
        return [Molecules().task("train", i) for i in range(n)], {"at": n}

    stage = attributes.AttributeIntervals(source=first, **settings)
    return asyncio.run(stage(run, ("k",), 2, state))


def test_a_guide_is_asked_once_and_what_it_said_is_kept():
    run = Run(["I cannot say.", 'Sure: {"weight": [70, 200], "smell": [0, 1], "TPSA": [5, 1]}'])
    tasks, state = draw(run, {}, guide=Scripted(("",)))
    assert tasks[1].meta["intervals"] == {"MolWt": [70.0, 200.0]} and len(run.asked) == 2
    assert "likely to be 1" in run.asked[0]
    again, _ = draw(run, json.loads(json.dumps(state)), guide=Scripted(("",)))
    assert again[0].meta["intervals"] == {"MolWt": [70.0, 200.0]} and len(run.asked) == 2
    with pytest.raises(UserError, match="three replies"):
        draw(Run(["no"] * 3), {}, guide=Scripted(("",)))


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        ('{"MolWt": {"min": 70, "max": "200"}}', {"MolWt": [70.0, 200.0]}),
        ('{"intervals": {"MolWt": ["70", 200], "TPSA": "0 to 70"}}', {"MolWt": [70.0, 200.0], "TPSA": [0.0, 70.0]}),
        ('For {this} molecule {"TPSA": [1, 2]}: {"MolWt": [70, 200]} {see}', {"MolWt": [70.0, 200.0]}),
        ('{"MolLogP": "-1.5--0.5", "TPSA": "[0, 70]"}', {"MolLogP": [-1.5, -0.5], "TPSA": [0.0, 70.0]}),
        ('{"MolWt": [200, 70], "TPSA": [true, 2], "MolLogP": [0, NaN], "RingCount": "many"}', {}),
        ('<think>{"MolWt": [1, 2]}</think> No.', {}),
    ],
)
def test_intervals_of_a_reply(reply, read):
    assert attributes.read_intervals(reply) == read


def test_what_a_guide_said_is_told_and_it_is_asked_in_one_part():
    run = Run(['{"weight": [70, 200], "smell": [0, 1], "TPSA": [5, 1]}'])
    draw(run, {}, guide=Scripted(("",)))
    assert run.notes == ["favourable intervals of the guide: MolWt 70 to 200; not read: smell, TPSA"]
    parts = attrilens_mol.build(guide=Scripted(("",)), warm=2).parts
    assert parts["shown"].runnable.draw.guide is None and parts["rl"].runnable.draw.guide is not None


def test_own_intervals_of_a_row_stay():
    own = Task(id="t", answer="1", meta={"smiles": "CC", "intervals": {"TPSA": [0, 1]}})
    stage = attributes.AttributeIntervals(source=lambda c, k, n, s: ([own], {}))
    tasks, _ = asyncio.run(stage(Run(), ("k",), 1, {}))
    assert tasks[0].meta["intervals"] == {"TPSA": [0, 1]}


def test_intervals_by_file(tmp_path):
    file = tmp_path / "i.json"
    file.write_text('{"logp": [1, 4]}')
    assert attributes.intervals_named(str(file)) == (("MolLogP", 1.0, 4.0),)
    assert ("TPSA", 0, 70) in attributes.intervals_named("bbbp")
    file.write_text("nothing")
    with pytest.raises(UserError, match="names as RDKit has them"):
        attributes.intervals_named(str(file))
    with pytest.raises(UserError, match="leave out one"):
        attrilens_mol.build(intervals="bbbp", guide=Scripted(("",)))
    with pytest.raises(UserError, match="positive='yes'"):
        draw(Run(), {}, positive="yes")


# ---- the tree


def test_a_tree_splits_where_the_impurity_is_least():
    """Ten molecules of 0 below 5.5 and ten of 1 above, in the second column."""
    x = np.stack([np.tile([1.0, 2.0], 10), np.arange(20.0)], 1)
    y = (np.arange(20) >= 10).astype(float)
    tree = exam.grow_tree(x, y)
    assert (tree.column, tree.cut, tree.share) == (1, 9.5, 0.5)
    assert [exam.tree_share(tree, row) for row in x[[0, 9, 10, 19]]] == [0.0, 0.0, 1.0, 1.0]
    assert exam.grow_tree(x[:8], y[:8]).column == -1  # one class


def test_area_under_the_curve():
    """Pairs (1 against 0): 3 of 4 above; a tie counts a half."""
    assert roc_auc(np.array([0.9, 0.4, 0.6, 0.1]), np.array([1, 1, 0, 0])) == 0.75
    assert roc_auc(np.array([0.5, 0.5]), np.array([1, 0])) == 0.5
    assert roc_auc(np.array([0.5]), np.array([1])) is None


def test_the_exam_measures_names_and_what_is_confirmed():
    tasks = [Molecules().task("train", i) for i in range(20)]
    intervals = {"HeavyAtomCount": (5.0, 14.0), "MolWt": (70.0, 200.0)}
    texts = ["<name>heavy atoms: improve, MW: improve</name>", "nothing"]
    numbers = exam.exam_numbers(texts, [tasks[9], tasks[0]], tasks, intervals, "1", 1)
    assert numbers["named"] == 1.0 and numbers["confirmed"] == 1.0
    assert numbers["tree"] == 1.0  # one alkane of either class, told apart by its atoms
    assert exam.exam_numbers([], [], tasks, intervals, "1", 1) == {}


# ---- a user's table


def test_a_table_of_molecules_is_trained_on(tmp_path):
    rows = [f"{'C' * i}c1ccccc1,{i % 2}" for i in range(8)] + [f"{'C' * i}C1CCCCC1,{i % 2}" for i in range(3)]
    file = tmp_path / "molecules.csv"
    file.write_text("smiles,p_np\n" + "\n".join(rows) + "\n")
    words = {"exam": 3, "schedule.prompts": 2, "collect.links.0.n": 2}
    run = palaestra.train(
        "attrilens-mol", data=str(file), steps=1, max_tokens=8, out=tmp_path / "run", quiet=True, set=words
    )
    steps = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [s["part/count"] for s in steps if s.get("step") == 1 and "part/count" in s] == [-1.5]


def test_worked_examples_follow_the_form():
    """Each is a form that the rewards read, and names 1 to 4 attributes."""
    task = Task(id="t", answer="1", meta={"smiles": ASPIRIN, "intervals": attributes.BBBP})
    shares = []
    for seed in range(40):
        text = attributes.example_text(task, np.random.default_rng(seed), 0.6, 1, 4)
        parts = attributes.attribute_parts(text, ASPIRIN, attributes.BBBP, 1, 4)
        assert parts["format"] == 1.0 and parts["count"] == 0.0 and text.endswith("<answer>1</answer>")
        shares += attributes.agreements(text, ASPIRIN, attributes.BBBP)
    assert 0.45 < sum(shares) / len(shares) < 0.75
