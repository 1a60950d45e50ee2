"""A recorded answer as if it had been sampled."""

from dataclasses import replace

from palaestra.rollout.recorded import recorded_episode


def answer(ctx, text, index=0):
    """A finished episode as if sampled: known log-probs, version 0."""
    task = ctx.bench.tasks.task("train", index)
    e = recorded_episode(ctx, "policy", task.prompt, text, ctx.bench.tasks.check(text, task))
    said = e.rows[0].segments[-1]
    logp = tuple(-1.0 - n / 64 for n in range(len(said.ids)))
    said = replace(said, logp=logp, author="policy", version=0)
    return replace(e, rows=(replace(e.rows[0], segments=(*e.rows[0].segments[:-1], said)),))
