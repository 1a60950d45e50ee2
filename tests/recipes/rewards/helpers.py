"""Answers to the first problem of a bench, judges by script, and steps of training."""

import asyncio
from dataclasses import replace

from palaestra.rollout.recorded import recorded_episode
from palaestra.run.driver import prepare
from palaestra.services.chat.scripted import Scripted
from palaestra.step import start, step
from palaestra.tasks.oracle import episode_saying
from palaestra.types import Group, Message, Task


def run(work):
    return asyncio.run(work)


def attempts(ctx, *texts):
    """Replies to the bench's first task, not yet judged."""
    first = ctx.bench.tasks.task("train", 0)
    each = (replace(recorded_episode(ctx, "policy", first.prompt, t, 0.0), reward=None) for t in texts)
    return Group(task=first, episodes=tuple(each))


def said_to(*texts, answer="7"):
    """Replies to one question with a reference."""
    return Group(
        task=Task(id="q", prompt=(Message(role="user", content="3+4?"),), answer=answer),
        episodes=tuple(episode_saying(t) for t in texts),
    )


def verifier_says(text, asked=None):
    def reply(request):
        if asked is not None:
            asked.append(request.messages[-1].content)
        return text

    return Scripted(reply)


def reward_of(recipe):
    return recipe.collect.links[-1].reward


def steps(recipe, ctx, n):
    """Metrics of n steps at the size of a smoke run."""
    prepare(recipe, ctx)
    state, found = start(0), []
    for _ in range(n):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        found.append(metrics)
    return found
