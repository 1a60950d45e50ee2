"""The engine of this process, which counts what it is asked for and says it when it is closed."""

import sys

import palaestra as pl


class Counting(pl.engines.OwnEngine):
    """Made with the model and the settings `slots` and `cache_mb`, as every engine is."""

    requests = 0

    async def generate(
        self, prompt: tuple[int, ...], sampling: pl.Sampling, key: pl.Key
    ) -> pl.Completion:
        self.requests += 1
        return await super().generate(prompt, sampling, key)

    def close(self) -> None:
        print(f"{self.requests} requests", file=sys.stderr)
        super().close()
