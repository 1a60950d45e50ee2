"""A mixture of agents as a strategy of search, see `palaestra.engines.mixture`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from palaestra.engines.mixture import SignedAnswer, TokenSearch
from palaestra.errors import Fault, UserError
from palaestra.models.inside.cursor import Cursor
from palaestra.run.context import RunContext
from palaestra.search.lines import LineWriter, PartialAnswer
from palaestra.search.problem import SearchProblem, SearchResult
from palaestra.search.tokens import MeteredEngine
from palaestra.types import Episode, Sampling, need_at_least, stage
from palaestra.worlds.question import Question

POLICY = "policy"  # the run's own model


@stage
class MixtureDecoding:
    """Collab (arXiv:2503.21720): of several models, at each token the one speaks whose greedy end scores
    most, less `alpha` times its KL to the run's own model. One answer is made, and no other one chosen.

    Every forward pass of a model over a token counts as a generated token, as sampling a token needs
    one: those of the agents and of the run's own model at each place, and those of all ends. Where the
    budget pays for no search, the first agent answers greedily. What is left when the answer ends is
    not spent.

    Args:
        agents: folders or names of models, parted by commas, fine-tunes of one base; "policy" is the run's
            own model.
        alpha: weight of the KL, in units of the score a nat.
        horizon: tokens of an end that a score looks ahead; 0 = to the end of the text.
    """

    agents: str = ""
    alpha: float = 0.03
    horizon: int = 0

    def __post_init__(self) -> None:
        need_at_least(self, alpha=0, horizon=0)

    async def __call__(self, problem: SearchProblem) -> SearchResult:
        names = load_agents(problem.ctx, [x.strip() for x in self.agents.split(",") if x.strip()])
        writer = await problem.lines()
        place = AgentsAtProblem(problem, writer, names, self.alpha, self.horizon)
        if place.limit < 1:  # the prompt fills the context
            return problem.result(None, ())
        try:
            if problem.left < place.limit + len(names) + 1:
                made = SignedAnswer(await place.go_on(names[0], (), place.limit))
            else:
                made = await TokenSearch(place).answer()
        except Fault as fault:
            if fault.cause != "context":
                raise
            return problem.result(None, ())
        answer = place.episode(made.ids)
        (score,) = await problem.score([answer])
        return problem.result(answer, [answer], float(score))


def load_agents(ctx: RunContext, given: Sequence[str]) -> tuple[str, ...]:
    """The names of agents in a run; each is loaded where it is first named, and pays from the budgets of
    problems.

    Raises UserError without agents, in a world of several turns, and for a vocabulary that is not that of
    the run's own model.
    """
    if not given:
        raise UserError(
            "collab decodes with models that you have, fine-tunes of one base: name them, "
            "--with \"collab(agents='DIR,DIR')\"; --model is the reference of the KL"
        )
    if not isinstance(ctx.bench.world, Question):
        raise UserError(
            f"collab answers a question at once, and {ctx.bench.name} is played over several turns; "
            "search it with mcts, best-of-n or majority"
        )
    own, metered, names = ctx.model(POLICY), ctx.engine(POLICY), list[str]()
    for source in given:
        names.append(POLICY if source == POLICY else f"agent {source}")
        if names[-1] not in ctx.models:
            ctx.reference(names[-1], source)
        model = ctx.model(names[-1])
        if model.tokenizer.get_vocab() != own.tokenizer.get_vocab():
            raise UserError(
                f"the agent {source} has another vocabulary than {own.name}, and agents go on from one "
                "another's tokens; use fine-tunes of one base"
            )
        engine = ctx.engine(names[-1])
        if isinstance(metered, MeteredEngine) and not isinstance(engine, MeteredEngine):
            ctx.engines[names[-1]] = MeteredEngine(engine, budgets=metered.budgets)
    return tuple(names)


@dataclass(frozen=True)
class AgentsAtProblem:
    """A problem of a search as a mixture of agents sees it, see `MixtureProblem`."""

    problem: SearchProblem
    writer: LineWriter
    agents: tuple[str, ...]
    alpha: float
    horizon: int

    @property
    def eos(self) -> tuple[int, ...]:
        return tuple(self.problem.ctx.model(POLICY).eos)

    @property
    def prompt(self) -> tuple[int, ...]:
        return tuple(int(i) for i in self.writer.row.context())

    @property
    def limit(self) -> int:
        """What the problem allows, and the context of each model has room for."""
        contexts = [self.problem.ctx.model(name).context for name in (POLICY, *self.agents)]
        return min(self.writer.player.limit(self.writer.ask), min(contexts) - len(self.prompt))

    @property
    def left(self) -> int:
        return self.problem.left

    def cursor(self, model: str) -> Cursor:
        pay = lambda tokens: self.problem.tokens.settle(0, tokens)
        return replace(Cursor.start(self.problem.ctx.model(model), self.prompt), count=pay)

    async def go_on(self, agent: str, ids: Sequence[int], most: int) -> list[int]:
        sampling = Sampling(temperature=0.0, max_tokens=most)
        key = (*self.problem.key, "collab", agent)
        engine = self.problem.ctx.engine(agent)
        return list((await engine.generate((*self.prompt, *ids), sampling, key)).ids)

    async def judge(self, texts: Sequence[Sequence[int]]) -> list[float]:
        return [float(x) for x in await self.problem.score([self.episode(ids) for ids in texts])]

    def episode(self, ids: Sequence[int]) -> Episode:
        """A text as an answer; one that has not ended breaks off there. Nothing is drawn, so each token
        has the log-prob 0.
        """
        finish = "eos" if ids and ids[-1] in self.eos else "length"
        made = PartialAnswer(ids=tuple(ids), logp=(0.0,) * len(ids), finish=finish)
        return self.writer.episode(made)
