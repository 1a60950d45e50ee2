"""The check before the first step, for tests that have no event loop: its lines."""

import asyncio

from palaestra.tasks.oracle import find_problems


def check_oracle(tasks, judge, n=16):
    return [found.line for found in asyncio.run(find_problems(tasks, judge, n))]
