"""Questions about molecules as the policy reads them: with similar training molecules, a drawing, and True or
False as the answer.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

import palaestra as pl

ASK = """{question}

{shown}Reason by principles (Lipinski, logP, H-bonds, weight, aromaticity, polarity, sterics, flexibility) and \
functional groups, compare similar molecules, weigh both answers. True means {positive}, False {negative}.
<think>...</think><answer>True or False</answer>"""
SHOWN = "Similar molecules:\n{rows}\n\n"
READ = 256  # training or held-out molecules of a problem that has no end


class WritesThoughts(Protocol):
    """Writes a chain of thought with its answer, where no person and no model does."""

    def __call__(
        self, smiles: str, neighbours: Sequence[str], answer: bool, rng: np.random.Generator
    ) -> str: ...


@pl.declare(columns=(("neighbours", list, "similar molecules that the prompt shows"),))
@pl.stage
class WriteMoleculeQuestions:
    """A program: writes the run's problems as a file of questions, those that are held out marked as such.

    A row has `prompt`, `answer` ("True" where the problem's is `positive`, else "False"), `smiles`,
    `neighbours`, `split`, the columns of the problem's row, and `image` where a drawing is asked for. Neighbours
    are training molecules, also those of held-out ones, so no answer that is held out is shown; a molecule is
    not its own neighbour.

    Args:
        neighbours: similar molecules that a prompt shows, with their answers.
        positive: the answer that is True; "" = the favourable one by its name.
        picture: pixels of a side of the drawing; 0 = there is none.
        ask, shown: templates.
        most: training molecules at most; 0 = all.
        demonstrated: whether what is imitated are the rows that have a `demonstration`; else a teacher writes
            it for all.
        author: writes the column `demonstration` of training rows, where there is none.
    """

    neighbours: int = 4
    positive: str = ""
    picture: int = 0
    ask: str = ASK
    shown: str = SHOWN
    most: int = 0
    demonstrated: bool = False
    author: WritesThoughts | None = None

    def __post_init__(self) -> None:
        pl.check_bounds("neighbours", self.neighbours, least=0)
        pl.check_bounds("picture", self.picture, least=0)

    async def run(self, ctx: pl.Context) -> pl.Result:
        pl.tasks.need_rdkit()
        if not hasattr(ctx.bench.tasks, "task"):
            raise pl.UserError(
                "mppreasoner learns from molecules: give a table of them, --data FILE.csv"
            )
        parts = {split: read_tasks(ctx, split, self.most) for split in ("train", "test")}
        labels = sorted({str(t.answer) for part in parts.values() for t in part})
        if len(labels) != 2:
            some = ", ".join(labels[:8])
            raise pl.UserError(
                f"mppreasoner: the property has {len(labels)} different answers ({some}), and True or False takes "
                "two; give a table of a property with two classes, or of numbers"
            )
        positive = self.positive or pl.tasks.favourable_answer(labels)
        if positive not in labels:
            raise pl.UserError(
                f"mppreasoner: positive={positive!r} is no answer; there are {', '.join(labels)}"
            )
        (negative,) = {*labels} - {positive}
        smiles = [pl.tasks.molecule_of(t) for t in parts["train"]]
        near = pl.tasks.SimilarMolecules(smiles)
        rows = [
            self._row(ctx, t, split, near, parts["train"], (positive, negative))
            for split, part in parts.items()
            for t in part
        ]
        worked = [r for r in rows if r["split"] == "test" or r.get("demonstration")]
        bare = not any(r["split"] == "train" for r in worked)
        if self.demonstrated and bare and from_file(ctx):
            raise pl.UserError(
                "mppreasoner: no training row has a chain of thought in the column `demonstration`, and no teacher writes "
                "one; give rows with it, teacher=..., or imitate=False for a model that writes the form already"
            )
        made = {
            "questions": rows,
            "trajectories": worked if self.demonstrated and not bare else rows,
        }
        files = {name: ctx.folder / f"{name}.jsonl" for name in made}
        for name, some in made.items():
            pl.tasks.write_records(files[name], some)
        alike = [x for row in rows for x in row["similarity"]]
        numbers = {
            "molecules": float(len(rows)),
            "similarity": float(np.mean(alike)) if alike else 0.0,
        }
        ctx.say(f"True is {positive!r}, False is {negative!r}; {len(rows)} questions")
        return pl.Result(
            metrics=numbers, artifacts={name: str(file) for name, file in files.items()}
        )

    def _row(
        self,
        ctx: pl.Context,
        task: pl.Task,
        split: str,
        near: pl.tasks.SimilarMolecules,
        train: Sequence[pl.Task],
        labels: tuple[str, str],
    ) -> dict[str, Any]:
        smiles = pl.tasks.molecule_of(task)
        neighbours = near.nearest(smiles, self.neighbours)
        others = [pl.tasks.molecule_of(train[i]) for i, _ in neighbours]
        truths = [str(train[i].answer) == labels[0] for i, _ in neighbours]
        lines = "\n".join(f"{s} {t}" for s, t in zip(others, truths, strict=True))
        text = self.ask.format(
            question=pl.tasks.question_text(task),
            shown=self.shown.format(rows=lines) if lines else "",
            positive=labels[0],
            negative=labels[1],
        )
        right = str(task.answer) == labels[0]
        made: dict[str, Any] = {
            "id": f"{split}-{task.id}",
            "prompt": text,
            "answer": str(right),
            "smiles": smiles,
            "neighbours": others,
            "similarity": [round(x, 4) for _, x in neighbours],
            "split": split,
        }
        demonstration = task.meta.get("demonstration")
        if not demonstration and self.author is not None and split == "train":
            rng = pl.rng_of((*ctx.key("thoughts"), smiles))
            demonstration = self.author(smiles, others, right, rng)
        if demonstration:
            made["demonstration"] = demonstration
        if self.picture:
            made["image"] = pl.tasks.molecule_picture(smiles, self.picture)
        return made


def from_file(ctx: pl.Context) -> bool:
    """Whether the problems are a user's."""
    return isinstance(ctx.bench.tasks, pl.tasks.FileTasks)


def read_tasks(ctx: pl.Context, split: str, most: int) -> list[pl.Task]:
    """The problems of a split; of one without an end the first ones."""
    tasks = ctx.bench.tasks
    if split == "test":
        return [tasks.task(split, i) for i in pl.run.chosen_tasks(ctx.bench, most or READ)]
    n = pl.curriculum.count_tasks(most or tasks.size or READ, tasks.size, most or READ)
    return [tasks.task(split, i) for i in range(n)]


@pl.stage
class WriteThoughts:
    """A stand-in for experts: short chains of thought in the vocabulary of the checks, whose claims are right for
    a share `right` of the times. `quote`: they name the molecule that is most alike.
    """

    right: float = 0.6
    quote: bool = False

    def __call__(
        self, smiles: str, neighbours: Sequence[str], answer: bool, rng: np.random.Generator
    ) -> str:
        bands = {"high": "lipophilic", "low": "hydrophilic"}
        x = pl.tasks.descriptor_value(smiles, "MolLogP") or 0.0
        true = bands["high"] if x > 3 else bands["low"] if x < 1 else "moderate logP"
        words = [w for w in (*bands.values(), "moderate logP") if w != true]
        verdict = true if rng.random() < self.right else words[int(rng.integers(2))]
        rings = (pl.tasks.descriptor_value(smiles, "NumAromaticRings") or 0) > 0
        names = {True: "aromatic", False: "not aromatic"}
        ring = names[rings == (rng.random() < self.right)]
        groups = {name: (pl.tasks.descriptor_value(smiles, f"fr_{name}") or 0) > 0 for name in ("ester", "amide",
                  "ether", "nitro", "ketone")}  # fmt: skip
        there = [n for n, is_there in groups.items() if is_there]
        absent = [n for n, is_there in groups.items() if not is_there]
        pool = there if there and rng.random() < self.right else absent or there
        group = pool[int(rng.integers(len(pool)))]
        like = f"Like {neighbours[0]} .\n" if neighbours and self.quote else ""
        end = f"overall likely {str(answer).lower()}"
        return (
            f"<think>{like}{verdict}, {ring}, has {group}; {end}</think><answer>{answer}</answer>"
        )
