"""`palaestra gateway`: a model behind an OpenAI-compatible address, and every episode recorded."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from palaestra.cli.listening import listen
from palaestra.cli.train import read_settings
from palaestra.errors import Fault, UserError
from palaestra.rollout.collect import judge_group
from palaestra.run import setup
from palaestra.run.context import RunContext
from palaestra.settings.fields import Settings
from palaestra.types import Episode, Group, Reward, Sampling, Task
from palaestra.worlds.gateway.agent import JudgeAgents
from palaestra.worlds.gateway.outside import Outside
from palaestra.worlds.gateway.server import Gateway


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    settings = read_settings(arguments)
    key = os.environ.get(arguments.key_env, "") if arguments.key_env else ""
    if arguments.key_env and not key:
        raise UserError(f"--key-env {arguments.key_env}: this environment variable is not set")
    ctx = setup.context(settings, talk=not arguments.json)
    try:
        server = listen(lambda: Gateway(arguments.port, key), arguments.port)
        with server:
            return asyncio.run(serve(ctx, settings, server, arguments))
    finally:
        ctx.close()


async def serve(
    ctx: RunContext, settings: Settings, server: Gateway, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Serves until the user stops it; the number of episodes that were recorded."""
    judge = None if ctx.bench.reward is None else JudgeAgents(ctx.bench.reward)

    async def judged(task: Task, episode: Episode) -> Reward | Fault:
        assert judge is not None
        return (await judge_group(ctx, judge, Group(task=task, episodes=(episode,))))[0]

    file, count = Path(arguments.out), 0

    def record(episode: Mapping[str, Any]) -> None:
        nonlocal count
        count += 1
        with open(file, "a", encoding="utf-8") as out:
            out.write(json.dumps(episode) + "\n")

    given = settings.data or settings.task
    sampling = Sampling(temperature=arguments.temperature, max_tokens=ctx.bench.max_tokens)
    outside = Outside(
        players=ctx.cast("policy", sampling),
        record=record,
        tasks=ctx.bench.tasks if given else None,
        judge=judged if judge and given else None,
        seconds=settings.agent_seconds,
        most_tokens=settings.max_tokens,
        seed=settings.seed,
    )
    outside.attach(server)
    server.start()
    say_address(server, arguments, file)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    server.shutdown()
    for work in outside.under_way:
        work.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*outside.under_way, return_exceptions=True)
    print(f"{count} episodes in {file}", file=sys.stderr)
    return {"episodes": count, "file": str(file)}


def say_address(server: Gateway, arguments: argparse.Namespace, file: Path) -> None:
    """What to type where the agent runs. A key of the user's own is not shown."""
    print(f"export OPENAI_BASE_URL={server.url}/v1")
    if not arguments.key_env:
        print(f"export OPENAI_API_KEY={server.key}")
    print(f"note: episodes are added to {file}; Ctrl-C ends this", file=sys.stderr)
    sys.stdout.flush()
