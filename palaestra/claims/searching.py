"""What claims about agents that search share: demonstrations with a habit to be unlearned, and what
is logged.
"""

from dataclasses import replace

import palaestra as pl
from palaestra.claims.starts import imitation


@pl.stage
class DemonstrateSearch:
    """An episode of `Search`, turn by turn, as its oracle plays it. In the share `hasty` of the
    turns that should search, who was found last is the answer instead, which is wrong.
    """

    hasty: float = 0.4

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world, rng = ctx.bench.world, pl.rng_of(key)
        if not isinstance(world, pl.Search):
            raise pl.UserError(f"{ctx.bench.name} is no world of searches")
        world = replace(world, seconds=0.0)
        frame, said = world.reset(group.task, key), list(group.task.prompt)
        while True:
            text, known = world.oracle(frame.state), len(frame.state.outcomes)
            form, _ = world.read(text)
            if form == "search" and rng.random() < self.hasty:
                _, answer = world.forms
                text = f"<{answer}>{group.task.meta['path'][known]}</{answer}>"
            ask = frame.asks[0]
            act = pl.Act(ask=ask, text=text, call=None, finish="eos", n_tokens=0)
            frame = await world.step(frame.state, (act,), key)
            if not frame.asks:
                break
            shown = pl.Message(role="assistant", content=text, author="demonstration", trained=True)
            said += [shown, *frame.asks[0].say]
        made = pl.recorded_episode(ctx, "policy", tuple(said), text, 1.0, judged=False)
        return replace(group, episodes=(made,))


def after_showing(learned: pl.Runnable, steps: int, lr: float = 2e-3) -> pl.Pipeline:
    """From a start that was shown episodes: it searches, and often answers too early."""
    shown = imitation(steps, DemonstrateSearch(), prompts=8, lr=lr, warmup=10)
    return pl.Pipeline(
        parts={"shown": pl.warm(shown), "rl": pl.Part(learned, model=pl.Output("shown"))}
    )


@pl.stage
class TellSearches:
    """Leaves in the parts of the reward what an episode did: searches, the share of the pages on the
    way to the answer that it found, turns that could not be read, and being cut.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._told, group.episodes)))

    def _told(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        coverage = e.facts.get("coverage") or (0.0,)
        parts = {
            "searches": float(e.facts.get("calls", 0)),
            "coverage": float(coverage[-1]),
            "malformed": float(e.facts.get("malformed", 0)),
            "cut": float(e.status.startswith("truncated")),
        }
        return replace(e, reward=replace(e.reward, parts={**e.reward.parts, **parts}))
