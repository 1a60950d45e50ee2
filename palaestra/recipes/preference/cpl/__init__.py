"""CPL: searches over the steps of a plan, and learns which of two steps from one point is better, by
as much as their advantages differ.

A tree search over each question. A state is the question with some steps of a plan, an action the
next step, or the solution once the plan is complete. A node is opened with

    argmax  Q + c P sqrt(N_parent) / (1 + N),    c = 1.5, P = exp(mean log-prob of the step's tokens)

from the root down, ends excluded. Opening the root samples `root` whole answers from it, any other
node `children`, at temperature 0.7. Their first new steps are the children, equal ones once, and
what the verifier says of the whole answers, +1 right and -1 wrong, is backed up to every node on
the way, so Q is the mean over all answers below a node. A tree has exactly `openings` openings: root +
children (openings - 1) answers, fewer only where every node was opened.

Step-APO on siblings, with A = Q - V of their parent, so that V cancels in a pair:

    loss = -log sigmoid(beta (h(chosen) - h(rejected)) - alpha (A(chosen) - A(rejected)))

h is log pi - log pi_ref of the step's own tokens. beta 0.3, alpha 1: a pair whose values are far
apart has to be told apart further. Of plan steps every one with Q > 0 meets every one with Q < 0. Of
solutions only the best meets the worst, with A times 0.3. A plan step never meets a solution,
and answers without a plan make no pair
(arXiv:2409.08642; keesh0410/CPL-Reasoning: mcts_tree.py, gen_policy_model_round1_apo_data.py).

A step ends at `marker`. From the line with `solution` on, all is the solution; an answer without it
ends with its last step. Past `depth` steps the last holds the rest, where the released code counts -1.

The released code values a leaf by a model that is trained on Q, for which the outcome of an answer
stands here; before Step-APO it imitates right paths, for which `sft` stands, the weight of the
chosen steps' imitation. Trees are searched by the current weights in every step, where it has two
rounds. alpha 0 is Step-DPO.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

import palaestra as pl
from palaestra.recipes.preference.cpl.plans import SOLUTION, PlanTree, ask

CARD = pl.Card(
    title="CPL: plan-step MCTS + Step-APO",
    paper="arXiv:2409.08642",
    claim="Preferences between steps of plans, found by tree search and weighted by advantages, improve "
    "reasoning in and beyond the domain that was trained.",
    source="released code (keesh0410/CPL-Reasoning: mcts_tree.py, mcts_node.py, mcts_round2.yaml, "
    "gen_policy_model_round1_apo_data.py, its DPO trainer) and the abstract",
    size=pl.Size(
        setting="DeepSeekMath-7B-Base on 5k and 15k questions of GSM8K and MATH, 200 and 100 openings, "
        "children 5 and 3, temperature 0.7, depth 6, c 1.5; beta 0.3, alpha 1, lr 1e-6, 3 epochs of batch 8",
        model="deepseekmath-7b",
        lr=1e-6,
        arguments={"openings": 100, "depth": 6},
    ),
    task="chain",
    needs=pl.needs.Requirements(
        shows="advantage_gap",
        off={"alpha": 0.0},
        own={
            "schedule.prompts": 4,
            "openings": 4,
            "root": 4,
            "solution": "",
            "temperature": 1.3,
        },
    ),
    use="It helps where a question is solved in several steps and a bad step can be told by how the answers "
    "end; where one step decides all, or every answer ends alike, there are no pairs.",
    lacks=(
        "No value model is trained: the value of a step is the share of right answers sampled below it.",
        "Imitating right paths before Step-APO is no stage of its own; `sft` adds it to the loss.",
        "Plans deeper than `depth` and answers without the mark of a solution do not count as wrong.",
        "Gains beyond the domain (HumanEval, GPQA, ARC-C, MMLU-STEM, BBH) are not measured, nor those on "
        "GSM8K and MATH.",
    ),
    grade="B",
)

SCALE = 0.3  # of the advantages of solutions


@dataclass(frozen=True)
class PlanStep:
    """A node of a tree: the step that leads to it, in the first answer that has it."""

    episode: int
    step: int
    q: float  # in [-1, 1]
    end: bool


@pl.declare(reads=("prefix_values", "step_ends"))
@pl.stage
class SiblingPairs:
    """Pairs of steps from one point: of plan steps each with Q > 0 against each with Q < 0; of
    solutions behind a plan step the best against the worst, where one has Q > 0 and the other Q < 0.

    Only the tokens of the step are trained. Columns `sign`, and `gap`, the difference of the advantages,
    times `scale` between solutions, and `plan`, 1 between plan steps. The rows of a pair are a unit.
    """

    scale: float = SCALE
    needs_several: ClassVar[bool] = True

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples: list[pl.Example] = []
        for g, group in enumerate(groups):
            for n, (chosen, rejected) in enumerate(sibling_pairs(group)):
                gap = (self.scale if chosen.end else 1.0) * (chosen.q - rejected.q)
                shared = {"gap": gap, "plan": float(not chosen.end)}
                for node, sign in ((chosen, 1.0), (rejected, -1.0)):
                    e = group.episodes[node.episode]
                    r, _ = e.facts["step_ends"][node.step]
                    columns = {**signals[g][node.episode][r], **shared, "sign": sign}
                    columns["trained"] = tokens_of_step(e, node.step)
                    unit = f"pair {g} {n}"
                    examples.append(pl.Example(row=e.rows[r], columns=columns, unit=unit))
        return examples, state


def sibling_pairs(group: pl.Group) -> Iterator[tuple[PlanStep, PlanStep]]:
    """The better and the worse of each pair of a tree."""
    for siblings in steps_by_parent(group):
        plans = [s for s in siblings if not s.end]
        better, worse = [s for s in plans if s.q > 0], [s for s in plans if s.q < 0]
        yield from ((b, w) for b in better for w in worse)
        if solutions := [s for s in siblings if s.end and s.step]:
            best = max(solutions, key=lambda s: s.q)
            worst = min(solutions, key=lambda s: s.q)
            if best.q > 0 > worst.q:
                yield best, worst


def steps_by_parent(group: pl.Group) -> list[list[PlanStep]]:
    """The children of each node of a tree, in the order of their answers."""
    families = dict[Hashable, dict[Hashable, PlanStep]]()
    for i, e in enumerate(group.episodes):
        if not e.ok or e.muted or "step_ends" not in e.facts:
            continue
        ends, values = e.facts["step_ends"], e.facts["prefix_values"]
        parent: Hashable = ()
        for h, (r, t) in enumerate(ends):
            end = bool(e.facts.get("plan_complete", True)) and h == len(ends) - 1
            node = (r, tuple(e.rows[r].view().ids_T[: t + 1].tolist()), end)
            step = PlanStep(i, h, 2 * values[h + 1] - 1, end)
            families.setdefault(parent, {}).setdefault(node, step)
            parent = node
    return [list(family.values()) for family in families.values()]


def tokens_of_step(e: pl.Episode, step: int) -> np.ndarray:
    """[T] which trained tokens of its row a step has."""
    ends = e.facts["step_ends"]
    row, last = ends[step]
    before = ends[step - 1] if step else (row, -1)
    first = before[1] + 1 if before[0] == row else 0
    trained_T = e.rows[row].view().trained_T.copy()
    trained_T[:first] = False
    trained_T[last + 1 :] = False
    return trained_T


@pl.stage
class AdvantageGap(pl.Algebra):
    """Logs the mean of alpha (A(chosen) - A(rejected)), which the margins have to exceed, and the
    share of pairs that are of plan steps; adds nothing to the gradient.
    """

    alpha: float = 1.0

    @property
    def needs(self) -> tuple[str, ...]:
        return ()

    @property
    def couples(self) -> pl.objective.Couples:
        return "unit"

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        means = {
            name: pl.objective.pair_column(batch, name).sum() / batch.n_units
            for name in ("gap", "plan")
        }
        logged = {"advantage_gap": self.alpha * means["gap"], "plan_pairs": means["plan"]}
        return batch.mask.new_zeros(()), logged


def build(
    alpha: float = 1.0,
    beta: float = 0.3,
    openings: int = 8,
    root: int = 5,
    children: int = 3,
    depth: int = 8,
    marker: str = "\n",
    solution: str = SOLUTION,
    temperature: float = 0.7,
    sft: float = 0.0,
    right: float | None = None,
) -> pl.Recipe:
    """`marker` ends a step of a plan, `solution` begins the solution ("" = it is the last step, and
    the model is told no form). `right` is the reward from which on an answer is right; None = as the
    reward says, else 1.
    """
    pl.check_bounds("alpha", alpha, least=0)
    tree = PlanTree(
        openings=openings,
        root=root,
        children=children,
        depth=depth,
        marker=marker,
        solution=solution,
        temperature=temperature,
        right=right,
    )
    loss = pl.DPO(beta=beta, offset=alpha) + AdvantageGap(alpha)
    return pl.vary(
        pl.recipe("dpo", beta=beta),
        collect=pl.links(tree),
        credit=SiblingPairs(),
        objective=loss + sft * pl.objective.ImitatePreferred() if sft else loss,
        instruction=ask(marker, solution),
    )


def embedded(temperature: float = 1.3, **options: Any) -> pl.Recipe:
    """On the embedded problem, whose model hardly ever says two first lines at 0.7."""
    few = pl.Schedule(prompts=8, steps=20)
    return pl.vary(build(temperature=temperature, **options), schedule=few)
