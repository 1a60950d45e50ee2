"""The claim of cel: Cogito, Ergo Ludo: rule induction + playbook."""

from dataclasses import replace

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.agents.cel import (
    DIRECTIONS,
    WorldTexts,
    build,
    read_aim,
    read_rules,
    show_knowledge,
    things_in,
)

SHOWN = 300  # steps of imitation
MOVES = {"U": "up", "D": "down", "L": "left", "R": "right"}


@pl.stage
class DemonstrateReading:
    """An episode of T-lake by who reads what is written and nothing else: ">ma1 Uk" goes to m, which
    lies on a1, by the action k, which should move up. A rule, and the playbook, is written with the
    chance `written`. Who does not know what to aim at aims at one of the two things for the whole
    episode, and for a move without a name tries an action that no rule names; whether it did what
    was expected is not looked at.
    """

    written: float = 0.7

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world, rng, start = ctx.bench.world, pl.rng_of(key), group.task.meta["start"]
        if not isinstance(world, pl.Lake):
            raise pl.UserError(f"{ctx.bench.name} is not T-lake")
        goal, hole = start.names["goal"], start.names["hole"]
        told = {d: start.names[MOVES[d]] for d in DIRECTIONS if rng.random() < self.written}
        known = WorldTexts(
            rules=" ".join(f"{d}{name}" for d, name in told.items()),
            playbook=f">{goal}" if rng.random() < self.written else "",
        )
        aim = read_aim(known.playbook) or str(rng.choice([goal, hole]))
        task = show_knowledge(group.task, known)
        frame, said, text = world.reset(task, key), list(task.prompt), ""
        untried = [start.names[MOVES[d]] for d in DIRECTIONS if d not in told]
        while frame.asks:
            ends = (frame.state.goal, frame.state.hole)
            target, around = ends if aim == goal else ends[::-1]
            move = pl.way_to(frame.state, target, around)[0].upper()
            name = told.get(move) or rng.choice(untried)
            text = f">{aim}{pl.square_name(target)} {move}{name}"
            act = pl.Act(ask=frame.asks[0], text=text, call=None, finish="eos", n_tokens=0)
            frame = world.step(frame.state, (act,), key)
            shown = pl.Message(role="assistant", content=text, author="demonstration", trained=True)
            said += [shown, *(frame.asks[0].say if frame.asks else ())]
        made = pl.recorded_episode(ctx, "policy", tuple(said[:-1]), text, 1.0, judged=False)
        return replace(group, episodes=(made,))


def show_shuffled(task: pl.Task, known: WorldTexts) -> pl.Task:
    """What is known, with the names of actions and of things mixed up anew for every task: the same
    form and the same words, and nothing of the world.
    """
    rng, rules, aim = pl.rng_of(("shuffled", task.id)), read_rules(known.rules), known.playbook
    actions = pl.question_text(task).splitlines()[-2].split()[1:]
    names = rng.permutation(actions)[: len(rules)]
    mixed = " ".join(f"{d}{name}" for d, name in zip(rules, names, strict=True))
    aim = f">{rng.choice(things_in(task))}" if aim else ""
    return show_knowledge(task, replace(known, rules=mixed, playbook=aim))


def show_nothing(task: pl.Task, known: WorldTexts) -> pl.Task:
    """The task as it is, whatever is known."""
    return task


def after_showing(learned: pl.Runnable) -> pl.Pipeline:
    """From a start that was shown how the texts are read."""
    shown = imitation(SHOWN, DemonstrateReading(), prompts=16, lr=2e-3, warmup=10)
    return pl.Pipeline(
        parts={"shown": pl.warm(shown), "rl": pl.Part(learned, model=pl.Output("shown"))}
    )
