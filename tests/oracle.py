"""The check before the first step, for tests that have no event loop."""

import asyncio

from palaestra.tasks.oracle import problems


def check_oracle(tasks, judge, n=16):
    return asyncio.run(problems(tasks, judge, n))
