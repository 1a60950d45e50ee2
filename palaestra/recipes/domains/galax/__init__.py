"""GALAX: a subgraph is built edge by edge around a sample's nodes, by a generator that a frozen graph network
rewards after every step (arXiv:2509.20935).

    q(S) = f_c(S) - 1/K                                 f: a classifier of samples by subgraphs, c the sample's class
    R(S) = q(S) + mean of q over 5 edges ahead + v(S)   v = -1 if an edge of S is none of the reference graph, else 0
    loss = -R (log pi(a) + log pi(b | a))               after every step; the edge (a, b) stays only if R > 0

For each held-out sample a generator of its own is trained for `epochs` subgraphs of `edges` steps; of `draws`
more the one stays that f believes most, with all reference edges among its nodes. A search begins at the
sample's `seeds`, else at nodes that a language model names (`asked`), else at its largest values: in all arms
alike. With `asked` the model also writes the final list of nodes, with the subgraph (`answer`, its precision, and
`answer_recall`) and without it (`answer_bare`, `answer_bare_recall`); an invented name is a wrong one.

    palaestra train galax graph=edges.csv samples=samples.csv [asked="endpoint(url='http://HOST:PORT/v1',model='NAME')"]

edges.csv has a row an edge: source, target, perhaps relation (or head, relation, tail). samples.csv (or .jsonl)
has a row a sample: `label`, its class; a column for each node with a value, or a record `signal`; perhaps
`targets` (nodes that should be found, for measures alone), `seeds` and `split` (train or test; else a fifth
is held out). A search never sees targets. subgraphs.md in the run folder has the subgraphs and the model's lists.

arms.md has all arms, on the same samples:

    none       edges of the reference graph by chance, the best of as many draws: no training
    top        the nodes of the largest values
    outcome    the same generator, rewarded by q after the last step alone
    unchecked  R without v, and edges that are none of the reference graph stay
    guide      R as above
    baseline   R less its running mean (ours)
    published  the sign of the released code, which lowers the probability of what is rewarded
    shuffled   as guide, with a classifier of shuffled classes

`moved` is the total variation between the probabilities of the first edge before and after training, `valid` the
share of proposed edges that interact, `belief` f's of the final subgraph, `gnn_calls` the subgraphs that f
judged: the cost of training at test time.

`palaestra train galax`, seed 1, 8 samples: precision is 0.28 (guide), 0.29 (none), 0.29 (top), 0.37 (outcome, whose
subgraphs have 4 nodes and a recall of 0.15), 0.21 (unchecked), 0.27 (baseline), 0.29 (published, which adds nothing to
its seeds) and 0.25 (shuffled). The process reward does not raise precision here. It teaches which edges
interact (valid 0.39; 0.06 where v is not paid, 0.01 with the released sign), and the classifier's own belief is
higher for random subgraphs (1.00) than for guided ones (0.99): what f believes is not what the targets are. R is above
0 for nearly all valid edges, so it says little about which of them is better. One seed, no claim.

Deviations: the generator attends over reference edges and its second head reads whether two nodes
interact, so that a small one finds valid edges in a hundred steps; an edge that is there already is not proposed
again, for R pays the repetition of a good edge. Softmaxes are over what is allowed, in the loss too. The
classifier is trained on random subgraphs of samples.
"""

from typing import Any

import palaestra as pl
from palaestra.recipes.domains.galax.program import ARMS, Arm, BuildSubgraphs
from palaestra.recipes.domains.galax.rollouts import GraphReward

CARD = pl.Card(
    title="GALAX: graph process reward, subgraph reasoning",
    paper="arXiv:2509.20935",
    claim="A frozen graph network that rewards each step guides the building of subgraphs, and with them a "
    "language model names targets with higher precision and recall.",
    source="released code (FuhaiLiAiLab/GALAX: motasg_explainer.py, galax.py), with its sign mended and kept as an "
    "arm",
    size=pl.Size(
        setting="Llama3-8B-Instruct, tuned twice by imitation, with a graph network of BioMedGraphica; Target-QA: CRISPR "
        "targets of cancer cell lines"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "names the first nodes and writes the final list",
                otherwise="searches begin at the largest values, and the subgraph is the list",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "graph",
                "edges, and samples with values of its nodes and a class",
                flag="graph=EDGES.csv samples=SAMPLES.csv",
                otherwise="a planted graph whose targets are known",
            ),
        ),
        shows="moved",
        off={"epochs": 0},
        own={"tasks": 1, "epochs": 1, "edges": 3, "draws": 2, "updates": 4, "arms": ("guide",)},
    ),
    use="It helps where classes of samples follow from parts of a known graph and nobody can label steps; compare with "
    "`none` and `top` first, for a classifier's belief is high for many wrong subgraphs.",
    lacks=(
        "Target-QA, its cell lines and its biomedical graph are not there: their terms forbid passing them on. "
        "Without files the graph is planted, and nothing is said about biology.",
        "The language model is not tuned by imitation, neither for the first nodes nor for the final list.",
        "Texts of nodes and several kinds of values a node (text-numeric graphs) are not read: a node is its name, "
        "a value and its edges.",
        "A search that fails is not tried again with other settings.",
    ),
    grade="B",
)


def build(
    graph: str = "",
    samples: str = "",
    asked: pl.Source | None = None,
    ahead: float = 1.0,
    valid: float = 1.0,
    rollouts: int = 5,
    arms: tuple[Arm, ...] = ARMS,
    tasks: int = 8,
    seeds: int = 3,
    edges: int = 14,
    epochs: int = 12,
    lr: float = 1e-2,
    draws: int = 10,
    most: int = 60,
    updates: int = 200,
    k: int = 10,
) -> BuildSubgraphs:
    """`ahead` and `valid` weigh the parts of R, `rollouts` are edges ahead; see `BuildSubgraphs`."""
    settings: dict[str, Any] = {
        "tasks": tasks, "seeds": seeds, "edges": edges, "epochs": epochs, "lr": lr, "draws": draws, "most": most,
        "updates": updates, "k": k,
    }  # fmt: skip
    reward = GraphReward(ahead, valid, rollouts)
    return BuildSubgraphs(graph, samples, asked, reward, tuple(arms), **settings)
