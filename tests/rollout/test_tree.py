"""Search trees: scores from the papers, exact openings, the same tree for the same key, games of two."""

import asyncio
import math

import pytest
from palaestra.errors import UserError
from palaestra.rollout.tree import BestFirst, Branch, Opening, Puct, SearchTree, TreeNode, Ucb, Uct, grow_tree
from palaestra.types import rng_of


def node(value=0.0, visits=0, **more):
    return TreeNode(state=0, parent=-1, total=value * visits, visits=visits, **more)


def test_scores_of_the_papers():
    """rest-rl: V=.5, c=.1, eps=.1, N=10, n=4; cpl: Q=.5, mean logp -.5, N=9, n=2, c=1.5; gg-bench: UCB1."""
    assert Uct(c=0.1, eps=0.1).score(node(visits=10), node(0.5, 4)) == pytest.approx(0.589750, abs=5e-7)
    child = node(0.5, 2, prior=math.exp(-0.5))
    assert Puct(c=1.5).score(node(visits=9), child) == pytest.approx(1.409796, abs=5e-7)
    assert Ucb(c=1.4).score(node(visits=20), node(0.6, 5)) == pytest.approx(1.683664, abs=5e-7)
    assert Ucb().score(node(visits=20), node()) == math.inf


@pytest.mark.parametrize(("alpha", "first", "second"), [(0, -3.0, -4.0), (0.5, -2.1213, -2.0), (1, -1.5, -1.0)])
def test_best_first_by_length(alpha, first, second):
    """bfs-prover-v2: path A with sum -3 in 2 actions, path B with -4 in 4; from alpha .5 on B comes first."""
    a, b = node(depth=2, logp=-3.0, leaves=1), node(depth=4, logp=-4.0, leaves=1)
    select = BestFirst(alpha)
    assert (select.score(a), select.score(b)) == pytest.approx((first, second), abs=5e-5)
    assert select(SearchTree(nodes=[a, b])) == (0 if first > second else 1)


def binary(depth, late=()):
    """Words of 0 and 1; a whole word is worth its share of ones."""

    async def expand(state, key):
        if late:
            await asyncio.sleep(late[key[-1] % len(late)])
        whole = len(state) + 1 == depth
        luck = rng_of(key).random()
        branches = tuple(
            Branch(
                state=(*state, b),
                logp=math.log((0.4, 0.6)[b]),
                prior=(0.4, 0.6)[b],
                end=whole,
                value=sum((*state, b)) / depth if whole else None,
            )
            for b in (0, 1)
        )
        return Opening(children=branches, value=luck if not whole else None)

    return expand


@pytest.mark.parametrize("select", [Uct(), Ucb(), Puct(), BestFirst()])
@pytest.mark.parametrize("width", [1, 3])
def test_openings_are_exact(select, width):
    """As many as asked, or all 15 inner nodes of a tree of depth 4, each once, and no end is opened."""
    asked = []
    inner = binary(4)

    async def expand(state, key):
        asked.append(state)
        return await inner(state, key)

    for openings in (1, 7, 99):
        asked.clear()
        tree = asyncio.run(grow_tree((), expand, select, openings, key=("t",), width=width))
        assert len(asked) == len(set(asked)) == len(tree.opened) == min(openings, 15)
        assert all(len(s) < 4 for s in asked)
        assert all(not n.asked for n in tree.nodes)
        assert tree.nodes[0].leaves == sum(not n.end and not n.children for n in tree.nodes)


@pytest.mark.parametrize("select", [Uct(), Ucb(), Puct(), BestFirst()])
def test_the_same_key_gives_the_same_tree(select):
    """Whoever answers first; and another key another one, unless values do not matter."""

    def grown(late, key=("a",)):
        tree = asyncio.run(grow_tree((), binary(5, late), select, 12, key=key, width=4))
        return [(n.state, n.visits, n.total) for n in tree.nodes], tree.opened

    assert grown((0.0, 0.003, 0.001)) == grown((0.004, 0.0, 0.002, 0.001))
    assert grown((), ("a",)) != grown((), ("b",))


def test_values_are_means_of_what_was_seen():
    tree = asyncio.run(grow_tree((), binary(3), Uct(c=2.0), 7, key=("t",)))
    ends = [n for n in tree.nodes if n.end]
    assert len(ends) == 8 and all(n.visits == 1 and n.value == pytest.approx(sum(n.state) / 3) for n in ends)
    inner = next(n for n in tree.nodes if n.state == (1, 1))
    assert inner.visits == 2 and inner.value == pytest.approx((2 / 3 + 1) / 2)
    assert tree.nodes[0].visits == 8 + 3  # ends, and what three inner nodes said of themselves


def test_equal_states():
    """One child of a node once; with merge=True no second place in the tree."""

    async def expand(state, key):
        return Opening(children=tuple(Branch(state=(state + d) % 5) for d in (1, 2, 1)))

    tree = asyncio.run(grow_tree(0, expand, BestFirst(), 3, key=()))
    assert [tree.nodes[i].state for i in tree.nodes[0].children] == [1, 2]
    merged = asyncio.run(grow_tree(0, expand, BestFirst(), 99, key=(), merge=True))
    assert sorted(n.state for n in merged.nodes) == [0, 1, 2, 3, 4] and len(merged.opened) == 5


LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


async def naughts(board, key):
    """Noughts and crosses: a board is nine letters, whoever has fewer marks moves; random playouts."""
    rng = rng_of(key)

    def mover(b):
        return "xo"[b.count("x") > b.count("o")]

    def over(b):
        """For who is to move, None while it goes on."""
        if any(b[i] == b[j] == b[k] != "." for i, j, k in LINES):
            return -1.0
        return None if "." in b else 0.0

    def put(b, i):
        return b[:i] + mover(b) + b[i + 1 :]

    at, sign = board, 1.0
    while (result := over(at)) is None:
        at = put(at, int(rng.choice([i for i in range(9) if at[i] == "."])))
        sign = -sign
    nexts = [(i, put(board, i)) for i in range(9) if board[i] == "."]
    return Opening(
        children=tuple(Branch(state=b, action=str(i), end=over(b) is not None, value=over(b)) for i, b in nexts),
        value=sign * result,
    )


@pytest.mark.parametrize("select", [Ucb(), Uct(c=1.0), Puct(c=1.0)])
@pytest.mark.parametrize(
    ("board", "move"),
    [("xx.oo....", "2"), ("oo.xx.x..", "2"), ("xo.xo....", "6")],
)
def test_a_win_in_one_is_found(select, board, move):
    """Whoever moves: values change their sign with the turns."""
    tree = asyncio.run(grow_tree(board, naughts, select, 150, key=(board,), turns=True))
    best = max(tree.nodes[0].children, key=lambda i: tree.nodes[i].value)
    assert tree.nodes[best].action == move


def test_a_threat_is_answered():
    """o to move must block. A search that forgets whose turn it is takes every line for its own."""
    tree = asyncio.run(grow_tree("xx..o....", naughts, Ucb(), 400, key=("b",), turns=True))
    assert tree.nodes[tree.most_visited()].action == "2"
    lost = next(i for i in tree.nodes[0].children if tree.nodes[i].action == "8")
    assert tree.nodes[lost].value < tree.nodes[tree.most_visited()].value - 0.2


def test_a_value_may_count_for_several_visits():
    """Five answers worth 3/5 at the root; of its children one counts twice, as two answers began so."""
    tree = SearchTree(nodes=[TreeNode(state=(), parent=-1, leaves=1)])
    children = (Branch(state="a", value=1.0, visits=2), Branch(state="b", value=0.0), Branch(state="c"))
    tree.ask(0)
    tree.add(0, Opening(children=children, value=0.6, visits=5))
    assert [(x.visits, x.value) for x in tree.nodes[1:]] == [(2, 1.0), (1, 0.0), (0, 0.0)]
    assert tree.nodes[0].visits == 8 and tree.nodes[0].value == pytest.approx((5 * 0.6 + 2 * 1.0) / 8)


def test_what_cannot_be():
    with pytest.raises(UserError, match="1 or more"):
        asyncio.run(grow_tree((), binary(2), Uct(), 0, key=()))
    with pytest.raises(UserError, match="take Ucb"):
        Uct(eps=0)
    with pytest.raises(UserError, match="no children"):
        SearchTree(nodes=[node()]).most_visited()
