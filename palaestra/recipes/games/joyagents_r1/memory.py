"""What each agent remembers: what worked on earlier questions, with a score that the rewards of the
nodes move.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

import palaestra as pl

STATE = "team memory"
MOST = 200  # notes of an agent


def words_of(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


def overlap(a: str, b: str) -> float:
    """Jaccard's index of the words of two texts."""
    mine, other = words_of(a), words_of(b)
    return len(mine & other) / len(mine | other) if mine | other else 0.0


def nearest_notes(
    notes: Sequence[pl.curriculum.Note], question: str, most: int
) -> list[pl.curriculum.Note]:
    """The `most` notes of the questions that share the largest share of words with this one, the best
    score first among equals. Notes of the same question are none: they may hold its answer.
    """
    near = [(overlap(n.about, question), n.facts["score"], n) for n in notes]
    near = [x for x in near if x[0] > 0 and x[2].about.strip() != question.strip()]
    return [n for *_, n in sorted(near, key=lambda x: x[:2], reverse=True)[:most]]


@pl.declare(columns=(("team_notes", dict, "what each agent is shown of its memory"),))
@pl.stage
class RecallNotes:
    """Tasks of `draw` with up to `most` notes for each agent."""

    most: int = 2
    draw: pl.Draw = pl.Shuffled()

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        tasks, after = self.draw(ctx, key, n, state)
        memory: Mapping[str, Sequence[pl.curriculum.Note]] = after.get(STATE, {})

        def shown(task: pl.Task) -> pl.Task:
            question = pl.tasks.plain_question(task)
            notes = {
                agent: tuple(x.text for x in nearest_notes(kept, question, self.most))
                for agent, kept in memory.items()
            }
            return replace(task, meta={**task.meta, "team_notes": notes}) if notes else task

        return [shown(t) for t in tasks], after


@pl.declare(reads=("agent", "node", "node_text"), reads_columns=("team_notes",))
@pl.stage
class EvolveMemory:
    """Moves the scores of notes after a step, for each node of mean reward m:

        +1, -1   a note whose text an alternative wrote again, with a reward above or below m
        +1, -1   a note that was shown, where m is above or below the mean m of its agent in the step
        new, 1   what the best alternative of a node wrote, where its reward is above m

    Notes below 0 are forgotten, and of an agent the `most` best stay, the newest of equals.
    """

    most: int = MOST

    def __call__(self, seen: pl.Groups, examples: object, state: pl.State) -> pl.State:
        nodes = [x for g in seen for x in nodes_of(g)]
        levels = {
            agent: float(np.mean([m for a, m, *_ in nodes if a == agent]))
            for agent in dict.fromkeys(a for a, *_ in nodes)
        }
        memory = {a: {n.text: n for n in kept} for a, kept in state.get(STATE, {}).items()}
        for agent, mean, episodes, task in nodes:
            notes = memory.setdefault(agent, {})
            question = pl.tasks.plain_question(task)
            for text in task.meta.get("team_notes", {}).get(agent, ()):
                move(notes, text, mean - levels[agent])
            for e in episodes:
                move(notes, note_text(question, e.facts["node_text"]), e.total - mean)
            best = max(episodes, key=lambda e: e.total)
            text = note_text(question, best.facts["node_text"])
            if best.total > mean and text not in notes:
                notes[text] = pl.curriculum.Note(
                    text=text, task=task.id, about=question, facts={"score": 1}
                )
        return {**state, STATE: {a: self._kept(notes) for a, notes in memory.items()}}

    def _kept(self, notes: Mapping[str, pl.curriculum.Note]) -> list[pl.curriculum.Note]:
        live = [n for n in notes.values() if n.facts["score"] >= 0]
        order = sorted(range(len(live)), key=lambda i: (live[i].facts["score"], i), reverse=True)
        return [live[i] for i in sorted(order[: self.most])]


def note_text(question: str, strategy: str) -> str:
    return f"{question.strip()}\n{strategy.strip()}"


def move(notes: dict[str, pl.curriculum.Note], text: str, by: float) -> None:
    """A note's score by the sign of a difference; nothing where there is no such note."""
    if text in notes:
        note = notes[text]
        score = note.facts["score"] + int(np.sign(by))
        notes[text] = replace(note, facts={**note.facts, "score": score})


def nodes_of(
    group: pl.Group,
) -> list[tuple[str, float, list[pl.Episode], pl.Task]]:
    """For each node of a group its agent, the mean reward, and its episodes."""
    nodes = dict[str, list[pl.Episode]]()
    for e in group.valid:
        if "node" in e.facts:
            nodes.setdefault(e.facts["node"], []).append(e)
    return [
        (x[0].facts["agent"], float(np.mean([e.total for e in x])), x, group.task)
        for x in nodes.values()
    ]
