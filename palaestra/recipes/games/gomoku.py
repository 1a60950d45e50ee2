"""Gomoku by self-play: the model reads a board as text, recalls the rule, chooses a strategy and evaluates
candidate points side by side; it cannot make an illegal move, and learns from games with itself.

    p(s, c | board) = p(text of (s, c)) / sum over all s' and candidates c' of p(text of (s', c'))
    A = R - b[game][role],    b <- 0.95 b + 0.05 R

A reply is one of the pairs of a strategy s and a candidate point c ("block c2"): the model scores all of
them in one wave off the prompt that they share, and one is drawn (training) or the likeliest is
taken (measurement). Candidates are the free points within distance 2 of a stone; of an empty board
the middle. R is 1 for a win, -1 for a loss, 0 for a draw. In a share `rivals` of the games one seat,
drawn, is an earlier self or the rule-based player.

The abstract (arXiv:2503.21683) is what this is read from. Stated there: reading the board, understanding the rules, selecting
strategies, evaluating positions in parallel, no illegal positions, self-play with reinforcement learning.
The score (the model's own probability), the update (policy gradient with the role's running mean, that
of SPIRAL), the candidates, the list of strategies and the pool of rivals are our reading.

On boards of `mnk` the rule-based player wins, blocks or takes the point whose lines promise most; in
another game a random legal move stands in its place.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import palaestra as pl

STRATEGIES = ("attack", "block", "extend", "centre", "fork")
NOTE = "Read the board and recall the rule. Choose a strategy ({strategies}) and a move. Reply with both."
TASK = "mnk(columns=3,rows=3,line=3,illegal=never)"

CARD = pl.Card(
    title="Gomoku by self-play LLM",
    paper="arXiv:2503.21683",
    claim="A language model that chooses a strategy and evaluates candidate points in parallel makes no "
    "illegal moves and decides faster, and self-play with reinforcement learning makes it play better.",
    source="abstract only: the score of a candidate, the update, the candidates, the strategies and the "
    "pool of rivals are our reading",
    size=pl.Size(
        setting="a board of 15 x 15; the model and its training are not known to us",
        model="qwen3-4b",
    ),
    task=TASK,
    needs=pl.needs.Requirements(
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "game",
                "of two seats with zero sum, both of which the policy plays, and that lists its legal "
                "replies: a method legal(state)",
                built_in=(TASK, "mnk", "kuhn"),
            ),
        ),
        shows="part/prevented",
        off={"candidates": False},
        own={"games": 4, "strategies": ("low", "high"), "exam": 0},
    ),
    use="It helps where a model writes moves that are not legal, and the legal ones can be listed; where "
    "nearly all of its replies are legal, it is self-play with more to compute.",
    lacks=(
        "The update, the score of a candidate and the pool of rivals are not known from the abstract; no "
        "value function with a replay buffer is learned, games are used once.",
        "The paper also chooses one of several kinds of analytical reasoning in each turn, as a public "
        "summary of it says; a reply here names a strategy and a move alone.",
        "The wording of the paper's prompts for reading the board, the rules and the strategies is not "
        "known: one sentence stands for them, and `note` replaces it.",
        "That play becomes better was not shown: the default run's 240 games moved the points of 32 games "
        "against random play from 0.50 to 0.56, and against the rule-based player from 0.06 to 0, which is "
        "within chance.",
        "That evaluation in parallel saves time was not measured here.",
        "Shaped rewards for open threes and fours are not there.",
    ),
    grade="B",
)


@pl.stage
class RuleRival:
    """A player of boards of m, n, k: the rule-based player, in half of its moves with `weak`; of other
    games a random candidate. Says one of the choices of a turn, with any strategy before the move.
    """

    weak: bool = False
    random: bool = False
    name: str = "rule"
    policy: str = ""
    temperature: float = 1.0

    def hear(self, ask: pl.Ask, *, first: bool, closed: bool, turn: int) -> tuple[pl.Segment, ...]:
        return tuple(
            pl.Segment(ids=(), author=m.author, turn=turn, text=m.content) for m in ask.say
        )

    async def act(
        self, row: pl.Row, messages: tuple[pl.Message, ...], ask: pl.Ask, key: pl.Key
    ) -> Any:
        rng = pl.rng_of((*key, "rival"))
        choices, move = ask.choices or (), ""
        if not self.random:
            rule = pl.worlds.weak_move if self.weak else pl.worlds.rule_move
            try:
                move = rule(messages, rng)
            except pl.UserError:  # no board of m, n, k is shown
                move = ""
        fits = [c for c in choices if move and (c == move or c.endswith(f" {move}"))]
        drawn = choices[int(rng.integers(len(choices)))] if choices else move
        text = fits[0] if fits else drawn
        return await pl.rollout.Script(fn=lambda messages, rng: text).act(row, messages, ask, key)

    def parse(self, text: str, finish: str) -> None:
        return None


@pl.stage
class ChooseCandidates:
    """Samples as `sample` does, where a reply is a strategy and a candidate, and says as the part
    "prevented" of a game's reward which share of its turns' probability lay on replies that could
    not be said: illegal moves, moves that are no candidates, and other text. Without `candidates`
    the model writes what it likes, and nothing is prevented.
    """

    sample: pl.Sample
    strategies: tuple[str, ...] = STRATEGIES
    candidates: bool = True
    note: str = NOTE

    async def check_start(self, ctx: pl.Context) -> None:
        """Says what a turn costs, and that the held-out games are played without candidates."""
        if self.candidates:
            ways = len(self.strategies) or 1
            ctx.say(
                f"note: a turn scores each candidate move with each of {ways} strategies, so a step takes longer the more "
                "candidates there are; held-out games are played with moves that the model writes freely, and "
                "rivals/* with candidates"
            )

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        if not self.candidates:
            return await self.sample(ctx, key, group)
        listed = ", ".join(self.strategies)
        note = self.note.replace("{strategies}", listed) if self.strategies else ""
        world = pl.worlds.Candidates(ctx.bench.world, self.strategies, note)
        there = ctx.with_bench(replace(ctx.bench, world=world))
        return await self.sample(there, key, group)


@pl.stage
class RivalExam:
    """How the policy fares against three fixed players, with `collect`'s way to reply and the
    likeliest candidate: points a game, 1 for a win and 0.5 for a draw, over `n` games with either
    seat, by random legal play, the rule-based player with half of its moves at random, and the
    rule-based player. "illegal" is the share of games that ended with a refused reply.
    """

    collect: ChooseCandidates
    n: int = 32

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        rivals = {
            "random": RuleRival(random=True),
            "weak": RuleRival(weak=True),
            "rule": RuleRival(),
        }
        points = dict[str, float]()
        refused = games = 0
        for name, rival in rivals.items():
            cast = pl.rollout.Alternate(pl.rollout.Acted(rival))
            link = replace(self.collect, sample=pl.Sample(n=1, temperature=0.0, cast=cast))
            groups = await pl.run.attempt_tasks(ctx, self.n, link, label=f"against {name}")
            episodes = [e for g in groups for e in g.episodes if e.reward is not None]
            scores = [self._points(e) for e in episodes]
            points[name] = sum(scores) / len(scores) if scores else 0.0
            refused += sum(str(e.facts.get("result", "")).startswith("illegal") for e in episodes)
            games += len(episodes)
        return {**points, "illegal": refused / max(1, games)}

    def _points(self, e: pl.Episode) -> float:
        """Of the seat whose replies have tokens."""
        seats = {row.seat for row in e.rows if any(s.policy for s in row.segments)}
        if e.reward is None or not seats:
            return 0.0
        paid = e.reward.parts.get(pl.payment(min(seats)), 0.0)
        return 0.5 + 0.5 * float((paid > 0) - (paid < 0))


def build(
    candidates: bool = True,
    strategies: tuple[str, ...] = STRATEGIES,
    rivals: float = 0.5,
    every: int = 10,
    keep: int = 4,
    games: int = 64,
    exam: int = 32,
    note: str = NOTE,
) -> pl.Recipe:
    """`candidates` False lets the model write its moves. `rivals`: the share of games in which one
    seat is an earlier self or the rule-based player, which choose among candidates too. `exam`: games against each of three fixed
    players, before and after; 0 = none.
    """
    pl.check_bounds("rivals", rivals, least=0, most=1)
    past = pl.rollout.Alternate(
        pl.rollout.Either((pl.rollout.Frozen("past"), pl.rollout.Acted(RuleRival(weak=True))))
    )
    cast = pl.rollout.Sometimes(past, rivals) if rivals and candidates else None
    collect = ChooseCandidates(pl.Sample(n=1, cast=cast), strategies, candidates, note)
    return pl.vary(
        pl.recipe("spiral", games=games),
        collect=pl.links(collect, pl.Score(), pl.rewards.TellPrevented()),
        references={"past": pl.rollout.Snapshots(every, keep)} if cast else {},
        evaluate={"rivals": RivalExam(collect, exam)} if exam else {},
    )


def embedded(
    games: int = 8,
    exam: int = 16,
    strategies: tuple[str, ...] = ("attack", "block"),
    **options: Any,
) -> pl.Recipe:
    """On the smallest board, of which a game is short."""
    made: pl.Recipe = build(games=games, exam=exam, strategies=strategies, **options)
    return pl.vary(made, schedule=pl.Schedule(prompts=games, steps=30))
