"""The claim of cel: Cogito, Ergo Ludo: rule induction + playbook."""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.agents.cel import remembering, show_knowledge
from palaestra.recipes.agents.cel.lake import (
    DIRECTIONS,
    WriteMoves,
    read_aim,
    read_rules,
    things_in,
)
from palaestra.recipes.agents.cel.writing import WorldTexts

SHOWN = 260  # steps of imitation
MOVES = {"u": "up", "d": "down", "l": "left", "r": "right"}


@pl.stage
class DemonstrateReading:
    """An episode of T-lake by who reads what is written and nothing else: "t9a1 u4" goes to 9, which
    lies on a1, by the action 4, which should move up. A rule, and the playbook, is written with the
    chance `written`. Who does not know what to aim at aims at one of the two things for the whole
    episode, and for a move without a name tries an action that no rule names; whether it did what
    was expected is not looked at.
    """

    written: float = 0.7

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world, rng = ctx.bench.world, pl.rng_of(key)
        if not isinstance(world, pl.toys.Lake):
            raise pl.UserError(f"{ctx.bench.name} is not T-lake")
        start = group.task.meta["start"]
        goal, hole = start.names["goal"], start.names["hole"]
        written_rules = {
            d: start.names[MOVES[d]] for d in DIRECTIONS if rng.random() < self.written
        }
        known = WorldTexts(
            rules=" ".join(f"{d}{name}" for d, name in written_rules.items()),
            playbook=f"t{goal}" if rng.random() < self.written else "",
        )
        aim = read_aim(known.playbook) or str(rng.choice([goal, hole]))
        task = show_knowledge(group.task, known)
        frame, messages, text = world.reset(task, key), list(task.prompt), ""
        untried = [start.names[MOVES[d]] for d in DIRECTIONS if d not in written_rules]
        while frame.asks:
            ends = (frame.state.goal, frame.state.hole)
            target, around = ends if aim == goal else ends[::-1]
            move = pl.toys.way_to(frame.state, target, around)[0]
            name = written_rules.get(move) or rng.choice(untried)
            text = f"t{aim}{pl.toys.square_name(target)} {move}{name}"
            act = pl.Act(ask=frame.asks[0], text=text, call=None, finish="eos", n_tokens=0)
            frame = world.step(frame.state, (act,), key)
            message = pl.Message(
                role="assistant", content=text, author="demonstration", trained=True
            )
            messages += [message, *(frame.asks[0].say if frame.asks else ())]
        made = pl.recorded_episode(ctx, "policy", tuple(messages[:-1]), text, 1.0, judged=False)
        return replace(group, episodes=(made,))


def show_shuffled(task: pl.Task, known: WorldTexts) -> pl.Task:
    """What is known, with the names of actions and of things mixed up anew for every task: the same
    form and the same words, and nothing of the world.
    """
    rng, rules, aim = pl.rng_of(("shuffled", task.id)), read_rules(known.rules), known.playbook
    actions = pl.tasks.question_text(task).splitlines()[-2].split()[1:]
    names = rng.permutation(actions)[: len(rules)]
    mixed = " ".join(f"{d}{name}" for d, name in zip(rules, names, strict=True))
    aim = f"t{rng.choice(things_in(task))}" if aim else ""
    return show_knowledge(task, replace(known, rules=mixed, playbook=aim))


def show_nothing(task: pl.Task, known: WorldTexts) -> pl.Task:
    """The task as it is, whatever is known."""
    return task


def after_showing(learned: pl.Runnable) -> pl.Pipeline:
    """From a start that was shown how the texts are read."""
    sft = imitation(SHOWN, DemonstrateReading(), prompts=16, lr=2e-3, warmup=10)
    return pl.Pipeline(
        parts={"shown": pl.warm(sft), "rl": pl.Part(learned, model=pl.Output("shown"))}
    )


@pl.stage
class LateEpisodes:
    """The share of new worlds' episodes that are won, the mean over their episodes from `first` to
    `last`.
    """

    first: int = 6
    last: int = 10

    def __call__(self, cell: pl.ledger.Cell) -> float:
        each = (
            pl.ledger.Final(f"evaluations.new worlds.after.round {k}.mean")(cell)
            for k in range(self.first, self.last + 1)
        )
        return sum(each) / (self.last - self.first + 1)


def playing(**options: Any) -> pl.Recipe:
    """An arm: 8 worlds x 8 episodes a step, policy gradient without a ratio."""
    return pl.vary(remembering(WriteMoves(), **options), schedule=pl.Schedule(prompts=8, steps=200))


def unmoved_start() -> pl.Recipe:
    """No step at all: the start, measured with its memory as `cel` is."""
    return pl.vary(playing(), schedule=pl.Schedule(prompts=8, steps=0))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "frozen": after_showing(playing(updates=1)),
        "cel": after_showing(playing()),
        "shuffled": after_showing(playing(show=show_shuffled)),
        "no memory": after_showing(playing(show=show_nothing)),
    },
    start=after_showing(unmoved_start()),
    expect=pl.ledger.Greater(
        "cel",
        "frozen",
        by=0.10,
        why="ours, as the numbers of the paper's ablation were not read: one episode of ten",
    ),
    reasons=(
        pl.ledger.Needs("shuffled", "what the texts say of this world"),
        pl.ledger.Needs("no memory", "texts"),
    ),
    vetoes={"the first episode": pl.ledger.Veto(LateEpisodes(1, 1), 0.10)},
    measure=LateEpisodes(),
    metric="share of the sixth to tenth episodes of new worlds that are won (temperature 1)",
    tuned={"parts.rl.runnable.learners.policy.optimiser.lr": RATES},
    task="lake",
    tokens=60_000,
    evaluate=64,
    seconds=120.0,
    controls={
        "first episode won": LateEpisodes(1, 1),
        "fifth episode won": LateEpisodes(5, 5),
        "tenth episode won": LateEpisodes(10, 10),
        "moves that the rules predict, tenth episode": pl.ledger.Final(
            "evaluations.new worlds.after.round 10.part/rules"
        ),
    },
)
