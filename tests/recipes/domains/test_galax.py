"""GALAX: the graph process reward and its loss by hand, the generator's masks, and a user's files."""

import asyncio
import json
import math

import numpy as np
import palaestra
import pytest
import torch
from palaestra.errors import UserError
from palaestra.recipes.domains import galax
from palaestra.recipes.domains.galax import graphs, networks, program, rollouts

from tests.recipes.objectives.helpers import near


def search(**settings):
    """Around two seeds of a path of four nodes 0-1-2-3."""
    linked = torch.zeros(4, 4, dtype=torch.bool)
    for i in range(3):
        linked[i, i + 1] = linked[i + 1, i] = True
    around = networks.Surroundings(
        node_M=torch.arange(4), x_M=torch.zeros(4), linked_MM=linked, seed_M=torch.tensor([True, True, False, False]), label=0
    )  # fmt: skip
    torch.manual_seed(0)
    f = networks.SubgraphClassifier(4, 2).requires_grad_(False)
    reward = settings.pop("reward", rollouts.GraphReward())
    return rollouts.SubgraphSearch(around, f, reward, ("test",), **settings)


def test_the_process_reward():
    """q = 0.7 - 1/2; edges ahead (0.8, 0.6, 0.7, 0.9, 0.5) - 1/2 have the mean 0.2."""
    ahead = [p - 0.5 for p in (0.8, 0.6, 0.7, 0.9, 0.5)]
    reward = rollouts.GraphReward()
    assert rollouts.process_reward(0.2, ahead, True, reward) == near(0.4)
    assert rollouts.process_reward(0.2, ahead, False, reward) == near(-0.6)
    assert rollouts.process_reward(0.2, [], False, rollouts.GraphReward(valid=0.0)) == near(0.2)


def test_the_loss_of_a_step():
    """Two starts and three ends, all alike: -log pi is ln 2 + ln 3."""
    logp = torch.tensor(-math.log(2) - math.log(3))
    assert float(rollouts.step_loss(0.4, logp)) == near(0.716704)
    assert float(rollouts.step_loss(-0.6, logp)) == near(-1.075056)
    assert float(rollouts.step_loss(0.4, logp, sign=-1.0)) == near(-0.716704)


def test_starts_are_in_the_subgraph_and_ends_are_new():
    made = search()
    for p in made.policy.parameters():
        torch.nn.init.zeros_(p)
    (edge, logp), *_ = made.propose([made.begin])
    assert float(logp.detach()) == near(-math.log(2) - math.log(3)) and edge[0] in (0, 1) and edge[1] != edge[0]
    first = made.first_edges()
    assert first.sum() == near(1.0) and [float(x) for x in first[0]] == near([0.0, 1 / 6, 1 / 6, 1 / 6])
    linked = rollouts.Subgraph(frozenset({0, 1})).with_edge((0, 1))
    assert rollouts.ends_of([linked], [0], 4).tolist() == [[False, False, True, True]]
    full = linked.with_edge((0, 2)).with_edge((3, 0))
    assert rollouts.ends_of([full], [0], 4).tolist() == [[False, True, True, True]]


@pytest.mark.parametrize(("sign", "rises"), [(1.0, True), (-1.0, False)])
def test_a_rewarded_edge_becomes_likelier_and_with_the_released_sign_less_likely(sign, rises):
    made = search(sign=sign)
    optimiser = torch.optim.SGD(made.policy.parameters(), lr=0.1)
    ((edge, logp),) = made.propose([made.begin])
    before = float(made.first_edges()[edge[0], edge[1]])
    made._update(optimiser, rollouts.step_loss(1.0, logp, made.sign))
    assert (float(made.first_edges()[edge[0], edge[1]]) > before) == rises


def test_an_edge_stays_only_where_its_reward_is_above_0(monkeypatch):
    made = search()
    monkeypatch.setattr(made, "reward_of", lambda s: 1.0 if all(map(made.interacts, s.edges)) else -1.0)
    made.train(epochs=3, edges=6, lr=0.01)
    assert made.meter.proposed == 18 and made.meter.accepted == made.meter.interacting


def test_untrained_generators_are_not_moved():
    made = search()
    before = made.first_edges()
    made.train(epochs=0, edges=6, lr=0.01)
    assert torch.equal(before, made.first_edges())


def test_invalid_edges_cost_the_reward():
    made = search(reward=rollouts.GraphReward(ahead=0.0))
    valid, invalid = made.begin.with_edge((0, 1)), made.begin.with_edge((0, 3))
    assert made.reward_of(valid) == near(float(made.belief([valid])[0]) - 0.5)
    assert made.reward_of(invalid) == near(float(made.belief([invalid])[0]) - 1.5)


def test_drawn_and_walked_subgraphs_keep_to_the_graph():
    made = search()
    for s in (*made.draw(4, 6), *made.walk(4, 6)):
        assert all(map(made.interacts, s.edges)) and s.nodes >= {0, 1}
    assert made.close(rollouts.Subgraph(frozenset({0, 1, 3}))).edges == {(0, 1)}


def test_the_classifier_reads_nodes_and_edges():
    made = search()
    for p in made.f.parameters():
        torch.nn.init.constant_(p, 0.1)
    made.f.last.weight[0] = 0.2
    alone, pair = rollouts.Subgraph(frozenset({0, 1})), rollouts.Subgraph(frozenset({0, 1})).with_edge((0, 1))
    a, b = made.belief([alone, pair])
    assert float(b) > float(a)  # neighbours add to each of the two
    assert float(made.belief([alone], closed=True)[0]) == near(float(b))


def test_rates_of_targets():
    assert program.rates([1, 2, 3, 4], frozenset({3, 4, 9})) == {"precision": 0.5, "recall": near(2 / 3)}
    assert (
        program.rates([], frozenset({1})) == {"precision": 0.0, "recall": 0.0} and program.rates([1], frozenset()) == {}
    )


def test_invented_names_of_a_list_are_wrong_ones():
    """One target of two among four names: 1/4 and 1/2."""
    assert program.rates([1], frozenset({1, 2}), 4) == {"precision": 0.25, "recall": 0.5}


# ---- files


def files(tmp_path, samples=24, edges="source,target,type\na,b,binds\nb,c,binds\nc,d,\nd,d,x\nb,a,binds\n"):
    graph = tmp_path / "edges.csv"
    graph.write_text(edges)
    rows = ["label,a,b,c,d,zz,targets"]
    rng = np.random.default_rng(0)
    for k in range(samples):
        x = rng.normal(size=4) + (3 * np.array([1, 1, 0, 0]) if k % 2 else 3 * np.array([0, 0, 1, 1]))
        rows.append(f"{'sick' if k % 2 else 'well'},{','.join(f'{v:.3f}' for v in x)},1,{'a;b' if k % 2 else 'c;d'}")
    table = tmp_path / "samples.csv"
    table.write_text("\n".join(rows) + "\n")
    return str(graph), str(table)


def test_edges_and_samples_are_read(tmp_path):
    graph, notes = graphs.read_graph(files(tmp_path)[0])
    assert graph.names == ("a", "b", "c", "d") and graph.linked_NN.sum() == 6
    assert graph.relations == {
        (0, 1): ((0, "binds", 1), (1, "binds", 0)),
        (1, 2): ((1, "binds", 2),),
        (2, 3): ((2, "interacts with", 3),),
    }
    assert "4 nodes, 3 edges" in notes[0] and "1 edges from a node to itself" in notes[2]
    assert notes[1].startswith("1 rows name a pair")
    file = graphs.read_cases(files(tmp_path)[1], graph)
    assert file.classes == ("well", "sick") and file.cases[1].targets == {0, 1} and file.notes == ()
    known = np.stack([c.signal_N for c in file.part(False)])
    assert known.mean(0) == near([0.0] * 4) and known.std(0) == near([1.0] * 4)
    assert 0 < len(file.part(True)) < 8 and graphs.read_graph(files(tmp_path)[0])[0].names == graph.names


def test_relations_are_told_in_their_direction(tmp_path):
    edges = "source,target,type\na,b,binds\nd,a,activates\na,d,inhibits\nb,c,binds\n"
    made, file = _read(*files(tmp_path, edges=edges))
    setting = program.SubgraphSetting(galax.build(updates=1), Run(), made, file)
    around = networks.surroundings(made, file.cases[0], 1, 4)
    at = {made.names[int(n)]: i for i, n in enumerate(around.node_M)}
    edge = (min(at["a"], at["d"]), max(at["a"], at["d"]))
    lines = setting._edges(around, rollouts.Subgraph(frozenset(edge), frozenset({edge})))
    assert lines == ["d activates a", "a inhibits d"]


def test_samples_as_records_and_a_split(tmp_path):
    graph, _ = graphs.read_graph(files(tmp_path)[0])
    path = tmp_path / "s.jsonl"
    kinds = [("u", "train"), ("v", "train"), ("u", "test")]
    common = {"seeds": ["b", "a"]}
    rows = [{"class": x, "signal": {"a": i, "q": 1}, "split": s, **common} for i, (x, s) in enumerate(kinds)]
    path.write_text("\n".join(map(json.dumps, rows)))
    file = graphs.read_cases(str(path), graph)
    assert [c.held_out for c in file.cases] == [False, False, True] and file.cases[0].seeds == (1, 0)
    assert "1 names of samples are no node: q" in file.notes[0]


def test_values_that_are_not_there_are_the_mean(tmp_path):
    """Node a has 1, blank, 3 in training: the mean 2 and the deviation 1 are of two values."""
    graph, _ = graphs.read_graph(files(tmp_path)[0])
    path = tmp_path / "s.csv"
    path.write_text(
        "label,a,b,C,d,split\nu,1,5,1,1,train\nv,,nan,1,2,Training\nu,3,6,1,1,\nv,NA,7,1,1,dev\nu,4,7,1,1,val\n"
    )
    file = graphs.read_cases(str(path), graph)
    assert [c.signal_N[0] for c in file.cases] == near([-1, 0, 1, 0, 2]) and file.cases[1].signal_N[1] == 0
    assert [c.held_out for c in file.cases] == [False, False, False, True, True]
    assert file.notes == (
        "1 nodes of the graph have no value in any sample and count as average: c; columns that are no node: C",
    )


def test_searched_samples_are_in_an_order_of_the_seed(tmp_path):
    made, file = _read(*files(tmp_path, samples=60))
    orders = [[c.name for c in graphs.shuffle(file, seed).cases] for seed in (0, 1, 1)]
    assert orders[0] != orders[1] == orders[2] and sorted(orders[0]) == sorted(c.name for c in file.cases)
    run = Run()
    setting = program.SubgraphSetting(galax.build(tasks=2, updates=1), run, made, file)
    held = len(file.part(True))
    assert len(setting.cases) == 2 and f"2 of {held} held-out samples are searched; tasks={held}" in run.notes[0]


@pytest.mark.parametrize(
    ("line", "remedy"),
    [("x,y,1", "no edge"), (None, "each in training"), ({"signal": {"a": "high"}, "label": "u"}, "write a number"),
     ({"signal": {"a": "inf"}, "label": "u"}, "finite number"), ({"a": 1, "label": "u", "split": "x"}, "train or test"),
     ({"signal": {"a": 1}}, "column `label`"), ({"label": "u", "q": 1}, "no value of a node")],
)  # fmt: skip
def test_files_that_are_none_say_what_to_do(tmp_path, line, remedy):
    edges, _ = files(tmp_path)
    if isinstance(line, str):
        (tmp_path / "bad.csv").write_text(f"one,two,three\n{line}\n")
        with pytest.raises(UserError, match=remedy):
            graphs.read_graph(str(tmp_path / "bad.csv"))
        return
    rows = [line] if line else [{"label": "u", "a": 1}, {"label": "u", "a": 2}]
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=remedy):
        graphs.read_cases(str(tmp_path / "s.jsonl"), graphs.read_graph(edges)[0])


def test_one_file_alone_and_wrong_settings_are_refused():
    with pytest.raises(UserError, match="needs both"):
        galax.build(graph="edges.csv")
    with pytest.raises(UserError, match="no arm 'best'"):
        galax.build(arms=("best",))
    with pytest.raises(UserError, match="1 or more"):
        galax.build(tasks=0)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ('Sure: ["egfr", "XYZ", "TP53", "egfr"]', ["egfr", "XYZ", "TP53"]),
        ("<think>TP53</think> EGFR, I think.", ["EGFR"]),
        ("none", []),
        ('As in [1], I choose ["TP53"]', ["TP53"]),
        ('See [2]. Final: ["TP53"]. See [3].', ["TP53"]),
        ('Not EGFR [it is excluded]. ["TP53"]', ["TP53"]),
        ('First ["EGFR"], no: {"targets": ["TP53"]}', ["TP53"]),
        ("- TP53.\n- EGFR:", ["TP53", "EGFR"]),
        ("TP53-AS1, xTP53 and heat shock 90", ["heat shock 90"]),
        ("heat shock and TP53 [1]", ["heat shock", "TP53"]),
        ('["MYC", "ABC"]', ["MYC", "ABC"]),
        ('["TP53", "EGFR', ["TP53", "EGFR"]),
        ("[" * 3000, []),
    ],
)
def test_names_of_a_reply(reply, said):
    assert graphs.listed_names(reply, ("TP53", "EGFR", "not", "heat shock", "heat shock 90")) == said


def test_known_nodes_in_any_case():
    assert graphs.known_nodes(["egfr", "XYZ", "TP53"], ("TP53", "EGFR")) == [1, 0]


def test_the_planted_modules_hang_together():
    graph, file = graphs.planted(nodes=40, module=6, samples=20)
    for label in (0, 1):
        targets = sorted(next(c.targets for c in file.cases if c.label == label))
        reached = {targets[0]}
        for _ in range(6):
            reached |= {j for i in reached for j in targets if graph.linked_NN[i, j]}
        assert reached == {*targets} and len(targets) == 6
    assert not file.cases[0].targets & file.cases[1].targets and sum(c.held_out for c in file.cases) == 4


def test_a_run_on_own_files_with_a_language_model(tmp_path):
    """It is asked for the first nodes, and for the final list with and without the subgraph."""
    graph, samples = files(tmp_path)
    small = {"tasks": 2, "epochs": 2, "edges": 3, "draws": 2, "updates": 20}
    words = {"graph": graph, "samples": samples, "arms": ["top"], **small}
    replies = []

    async def ask(self, ctx, question):
        replies.append(question)
        return ["a", "b", "made up", "c3"]

    original = program.SubgraphSetting._ask
    program.SubgraphSetting._ask = lambda self, question: ask(self, None, question)
    try:
        made = galax.build(**{**words, "arms": ("top",)}, asked=palaestra.Scripted("[]"))
        setting = program.SubgraphSetting(made, Run(), *_read(graph, samples))
        case = setting.cases[0]
        asyncio.run(setting.ask_first())
        numbers = asyncio.run(setting.measure("guide", case, setting.first[0]))
        begun = begins(setting)
    finally:
        program.SubgraphSetting._ask = original
    assert len(replies) == 4 and "A subgraph that was found" in replies[2] and "A subgraph" not in replies[3]
    assert begun == {"none": [[0, 1], [0, 1]], "guide": [[0, 1], [0, 1]]}
    right = float(case.targets == {0, 1})
    assert numbers["answer"] == numbers["answer_bare"] == right / 2 and numbers["answer_recall"] == right
    assert not any("targets: a" in r for r in replies)
    assert [x for x in setting.text if x.startswith("Named")] == [
        f"Named {how}: a, b, made up, c3" for how in ("with the subgraph", "without it")
    ]
    run = palaestra.train("galax", out=tmp_path / "run", quiet=True, set=words)
    arms = (run.folder / "arms.md").read_text()
    assert "| none |" in arms and "| guide |" in arms and "| top |" in arms
    assert "Class " in (run.folder / "subgraphs.md").read_text()


def begins(setting):
    """The first nodes that two arms begin with, by sample."""
    begun = {}

    async def measure(name, case, first=()):
        begun.setdefault(name, []).append([*first])
        return {"gnn_calls": 0}

    own, setting.measure = setting.measure, measure
    for name in ("none", "guide"):
        asyncio.run(setting.arm(name)())
    setting.measure = own
    return begun


def _read(graph, samples):
    made, _ = graphs.read_graph(graph)
    return made, graphs.read_cases(samples, made)


class Run:
    seed, out = 0, None

    def __init__(self):
        self.notes = []

    def say(self, text):
        self.notes.append(text)

    async def once(self, name, runnable):
        return await runnable()
