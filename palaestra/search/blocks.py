"""Answers in prompt blocks that a trained navigator chooses."""

from __future__ import annotations

import numpy as np

from palaestra.control.networks import ActionValues
from palaestra.errors import UserError
from palaestra.search.problem import SearchProblem, SearchResult
from palaestra.search.sampling import elect
from palaestra.types import Episode, Message, need_at_least, stage
from palaestra.worlds.blocks import (
    TERMINATE,
    BlockPrompts,
    BlockRunner,
    choose_block,
    load_navigator,
)


@stage
class NavigatedBlocks:
    """RL of Thoughts (arXiv:2505.14140): a navigator chooses prompt blocks by the grades that the
    model gives its own partial solution, see `worlds.blocks`; grades are paid from the budget.

    Chains of blocks, each with random streams of its own, follow one another until the budget is
    spent; of their final answers the commonest is chosen, of a tie the first. Where less is left
    than two replies of the greatest length, a chain ends. It asks nobody what an answer is worth.

    Args:
        navigator: the folder `navigator` of a run of `palaestra train rlot`, of any model.
        limit: blocks of a chain.
        temperature: of what the model says; grades are greedy.
        prompts: the blocks' texts, which should be those of the training.
    """

    navigator: str = ""
    limit: int = 6
    temperature: float = 1.0
    prompts: BlockPrompts = BlockPrompts()

    def __post_init__(self) -> None:
        need_at_least(self, limit=1, temperature=0)

    async def __call__(self, problem: SearchProblem) -> SearchResult:
        if not self.navigator:
            raise UserError(
                "the navigator is not given; train one with `palaestra train rlot --data FILE --model "
                "DIR --out RUN`, and search with --with \"rlot(navigator='RUN/navigator')\""
            )
        values = load_navigator(self.navigator)

        async def ask(prompt: tuple[Message, ...], name: str, temperature: float) -> Episode | None:
            return await problem.answer(prompt, f"blocks {name}", temperature)

        ends, cut, chain = list[Episode](), list[Episode](), 0
        while problem.left:
            before = problem.left
            runner = BlockRunner(
                problem.task.prompt, ask, self.prompts, self.limit,
                temperature=self.temperature, stream=chain,
            )  # fmt: skip
            end = await self._chain(problem, runner, values)
            if end is not None and not end.status.startswith("truncated"):
                ends.append(end)
            elif (last := end or runner.last) is not None:
                cut.append(last)
            chain += 1
            if problem.left == before:
                break
        answers = ends or cut
        return elect(problem, answers, np.ones(len(answers)))

    async def _chain(
        self, problem: SearchProblem, runner: BlockRunner, values: ActionValues
    ) -> Episode | None:
        """The final answer of one chain."""
        reply = problem.ctx.bench.max_tokens
        state = await runner.start()
        while problem.left >= 2 * reply:
            block = choose_block(values, state.grades, runner.legal(state))
            if block == TERMINATE:
                break
            state = await runner.run(state, block)
        return await runner.finish(state)
