"""JoyAgents-R1: a master and specialists, each a model of its own with a memory, learn together; at each
step only those learn whose decisions made the reward differ most.

    palaestra train joyagents-r1 --tools FILE.py --data problems.jsonl --model DIR --lora 8 \\
        team="shop: search, price; maths: python; solver:"

The master names a specialist, who works on the question with its tools in turns of thought, call and result; the
master reads its answer and names another one (`rounds`), or writes the team's answer. For each question:

    1. one trajectory of the team: nodes t = 1 .. T, each a message of the agent m(t) after a prefix h_t
    2. at each node n - 1 more messages of m(t) after the same h_t, and after each the rest of the
       trajectory once: rewards r[t, 1 .. n], T n messages in place of the n^T of a joint sampling
    3. s_t = variance of r[t, :];  the `keep` nodes of the largest s_t > 0 are kept, the first of equals
    4. A[t, i] = (r[t, i] - mean) / (std + 1e-6) of that message alone, and the GRPO update of the models of
       the kept nodes' agents; others stay as they are

A cut or refused call is an outcome, and what follows is scored as it is. `memory`: what worked is noted for each
agent, and notes on the nearest questions are shown to it, see `EvolveMemory` (arXiv:2506.19846; n, `keep`, the
scoring by completion and the memory's thresholds are inferred).

With --lora the agents have adapters of their own on one base, which is held once. The model "policy" is the
master; "team" among the held-out numbers is the whole team, greedy, without notes.

Long because its sampling is no group of whole episodes: the recipe plays one trajectory of the team, continues
it anew from every message, selects nodes by their variance, and credits one message for each alternative.
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

import palaestra as pl
from palaestra.recipes.games.joyagents_r1.memory import EvolveMemory, RecallNotes
from palaestra.recipes.games.joyagents_r1.team import TEAM, Team, read_team

CARD = pl.Card(
    title="JoyAgents-R1: joint evolution of heterogeneous agents",
    paper="arXiv:2506.19846",
    claim="Node-wise sampling, updates of the agents whose rewards fluctuate most, and a memory scored by the same "
    "rewards let a team of small models match larger ones.",
    source="abstract, the abstract of a later version and public summaries; sizes, the completion of nodes and the "
    "memory's thresholds inferred",
    size=pl.Size(
        setting="a team of Qwen2.5-3B models on general and shopping assistance; sizes of the batch are not known",
        model="qwen2.5-3b",
    ),
    model="tiny-agent",
    task="store",
    needs=pl.needs.Requirements(
        columns=(
            replace(
                pl.needs.QUESTION,
                meaning="a question that the team answers with its tools",
            ),
            replace(
                pl.needs.GOLD_ANSWER,
                examples=("bako", "tiru", "mema"),
                meaning="the right answer",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "tools",
                "all tools of the team, which `team` shares out",
                built_in=("store",),
            ),
        ),
        shows="part/marginal",
        off={"select": "all"},
        own={
            "model": "tiny-agent",
            "final": "specialist",
            "n": 6,
            "keep": 1,
            "schedule.prompts": 4,
            "max_tokens": 12,
            "exam": 0,
        },
    ),
    use="It helps where questions are of several kinds that take different tools, and models of their own can be "
    "kept for each role; one model with all tools is simpler, and as good where one kind is all there is.",
    lacks=(
        "Each agent starts from the same model; the supervised start of each role is not there.",
        "A node is scored by completing the trajectory once, so its variance holds the luck of what follows.",
        "Notes are what was written, question and message; nothing sums them up, and held-out questions are "
        "answered without them.",
        "On the built-in store 12 steps took the team from 46.9% to 71.9% of 64 held-out questions (one seed), and "
        "the agent without tools from 31% of them to none; the choice by variance was not compared with others.",
        "Neither the paper's data and assistants nor a comparison with larger models is there.",
    ),
    grade="B",
)
Selection: TypeAlias = Literal["variance", "random", "all"]


def choose_nodes(
    variance_T: np.ndarray, keep: int, select: Selection, rng: np.random.Generator
) -> list[int]:
    """The nodes that are learned from, of those whose rewards differ: the `keep` of the largest variance,
    the first of equals; as many at random; or all.
    """
    live = [int(t) for t in np.flatnonzero(variance_T > 0)]
    if select == "random":
        live = [live[i] for i in rng.permutation(len(live))]
    elif select == "variance":
        live.sort(key=lambda t: -variance_T[t])
    return live if select == "all" else live[:keep]


def messages_of(e: pl.Episode) -> list[pl.Segment]:
    """What the agents said, by turn."""
    segments = (s for r in e.rows for s in r.segments if s.logp is not None)
    return sorted(segments, key=lambda s: s.turn)


@pl.declare(
    facts=(
        "agent",
        ("node", str, "the message that is compared: its turn and agent"),
        ("node_text", str, "what was said at the node"),
    )
)
@pl.stage
class SampleNodes:
    """Alternatives at each node of one trajectory, scored; those of nodes that are not kept are muted.
    Parts: "marginal", the mean variance of the kept nodes less that of all whose rewards differ; "kept",
    whether a node is.

    Args:
        n: alternatives of a node, the first trajectory's message included.
        keep: nodes of a trajectory that are learned from.
    """

    team: Team
    n: int = 5
    keep: int = 2
    select: Selection = "variance"

    def __post_init__(self) -> None:
        pl.check_bounds("joyagents-r1: n", self.n, least=2)
        pl.check_bounds("joyagents-r1: keep", self.keep, least=1)

    async def check_start(self, ctx: pl.Context) -> None:
        world = team_in(ctx, self.team).bench.world
        assert isinstance(world, Team)
        await world.check()

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        there = team_in(ctx, self.team)
        sample = team_sample(self.team, 1)
        first = (await sample(there, (*key, "first"), replace(group, episodes=()))).episodes[0]
        if not first.ok:
            return replace(group, episodes=(*group.episodes, first))
        nodes = messages_of(first)
        players = sample.players(there)
        rest = await asyncio.gather(
            *(self._alternatives(there, key, group, players, nodes, s.turn) for s in nodes)
        )
        flat = (first, *(e for each in rest for e in each))
        scored = await pl.Score()(there, (*key, "score"), replace(group, episodes=flat))
        first, *others = scored.episodes
        step = self.n - 1
        compared = [(first, *others[t * step : (t + 1) * step]) for t in range(len(nodes))]
        made = self._chosen(compared, nodes, pl.rng_of((*key, "selection")))
        return replace(group, episodes=(*group.episodes, *made))

    def first_step_note(self, groups: pl.Groups) -> str:
        valid = [e for g in groups for e in g.valid if e.reward is not None]
        if not valid or any(not e.muted for e in valid):
            return ""
        right = sum(e.solved for e in valid)
        return (
            f"no node of the first step has rewards that differ, so nothing was learned: {right} of "
            f"{len(valid)} answers of the team are right; take easier or harder questions, or more n"
        )

    async def _alternatives(
        self,
        ctx: pl.Context,
        key: pl.Key,
        group: pl.Group,
        players: Mapping[str, Any],
        nodes: Sequence[pl.Segment],
        turn: int,
    ) -> tuple[pl.Episode, ...]:
        """Trajectories that say the same before `turn`, and anew from there."""
        earlier = tuple(s for s in nodes if s.turn < turn)
        begun = {n: pl.rollout.Continued(player=p, said=earlier) for n, p in players.items()}
        alone = replace(group, episodes=())
        sample = team_sample(self.team, self.n - 1)
        return (await sample.play(ctx, (*key, "node", turn), alone, begun)).episodes

    def _chosen(
        self,
        compared: Sequence[Sequence[pl.Episode]],
        nodes: Sequence[pl.Segment],
        rng: np.random.Generator,
    ) -> list[pl.Episode]:
        rewards = [[e.total for e in each if e.ok and e.reward is not None] for each in compared]
        variance_T = np.array([np.var(r) if len(r) > 1 else 0.0 for r in rewards])
        kept = choose_nodes(variance_T, self.keep, self.select, rng)
        live = variance_T[variance_T > 0]
        gain = float(variance_T[kept].mean() - live.mean()) if kept else 0.0
        return [
            as_node(e, nodes[t], {"marginal": gain, "kept": float(t in kept)}, t not in kept)
            for t, each in enumerate(compared)
            for e in each
        ]


def team_in(ctx: pl.Context, team: Team) -> pl.Context:
    """The run with the team in place of its environment. Raises UserError where that asks no questions."""
    world = ctx.bench.world
    if not isinstance(world, pl.worlds.WithTools | pl.worlds.Question):
        raise pl.UserError(
            f"joyagents-r1 answers questions with tools, and {ctx.bench.name} is another environment; give --tools "
            "and --data, without --env"
        )
    tools = world if isinstance(world, pl.worlds.WithTools) else None
    return ctx.with_bench(replace(ctx.bench, world=replace(team, tools=tools)))


def team_sample(team: Team, n: int, temperature: float = 1.0) -> pl.Sample:
    """Each agent is its own model; the specialists' environments end their turns."""
    seats = tuple((name, name) for name in team.specialists)
    return pl.Sample(n=n, temperature=temperature, seats=seats, turns=256)


def as_node(e: pl.Episode, node: pl.Segment, parts: Mapping[str, float], muted: bool) -> pl.Episode:
    """An alternative in which the message of its node alone is learned from."""
    if not e.ok or e.reward is None:
        return e

    def masked(s: pl.Segment) -> pl.Segment:
        return replace(s, trained=s.trained and s.logp is not None and s.turn == node.turn)

    rows = tuple(replace(r, segments=tuple(map(masked, r.segments))) for r in e.rows)
    node_text = next((s.text for s in messages_of(e) if s.turn == node.turn), "")
    agent = node.policy
    facts = {**e.facts, "agent": agent, "node": f"{node.turn} {agent}", "node_text": node_text}
    reward = replace(e.reward, parts={**e.reward.parts, **parts}, solved=e.solved)
    return replace(e, rows=rows, facts=facts, muted=muted, reward=reward)


@pl.declare(reads=("node",))
def node_of(table: pl.Table, episode: int) -> Hashable:
    """The question and the node at which an episode is compared."""
    return int(table.group_E[episode]), table.episodes[episode].facts.get("node")


@pl.stage
class TeamExam:
    """An evaluator: "team", the share of held-out questions that the team answers rightly, greedily and
    without notes; "asked NAME", the share of them on which a specialist worked.
    """

    team: Team
    tasks: int = 64

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        there = team_in(ctx, self.team)
        judge = pl.links(team_sample(self.team, 1, 0.0), pl.Score())
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        groups = await asyncio.gather(
            *(judge(there, (ctx.seed, "team", i), pl.Group(task=t)) for i, t in enumerate(tasks))
        )
        valid = [e for g in groups for e in g.valid]
        if not valid:
            return {}
        right = sum(e.solved for e in valid)
        asked = {
            f"asked {name}": sum(name in e.facts.get("consulted", ()) for e in valid) / len(valid)
            for name in self.team.specialists
        }
        return {
            "team": {"of": "accuracy"} | pl.stats.proportion(right, len(valid)).json(),
            **asked,
        }


def build(
    team: str = TEAM,
    n: int = 5,
    keep: int = 2,
    select: Selection = "variance",
    rounds: int = 2,
    final: Literal["master", "specialist"] = "master",
    memory: int = 2,
    kl: float = 0.0,
    exam: int = 64,
) -> pl.Recipe:
    """`team`: specialists, each with its tools by name, "*" = all. `n` alternatives of a node, of which `keep` of a
    trajectory are learned from; `select` random or all keeps others. `rounds`: specialists who work on a question;
    `final=specialist`: the only one's answer is the team's. `memory`: notes an agent is shown, 0 = none are
    kept. `exam` held-out questions are answered by the team.
    """
    pl.check_bounds("joyagents-r1: rounds", rounds, least=1)
    pl.check_bounds("joyagents-r1: memory", memory, least=0)
    world = Team(specialists=read_team(team), rounds=rounds, final=final)
    grpo = pl.recipe("grpo", kl=kl)
    agent = replace(
        grpo.learners["policy"],
        credit=pl.chain(pl.Center(node_of), pl.Scale(node_of, ddof=0)),
    )
    return pl.vary(
        grpo,
        draw=RecallNotes(memory),
        observe=EvolveMemory() if memory else pl.Unchanged(),
        collect=SampleNodes(world, n, keep, select),
        learners={
            name: replace(agent, credit=pl.credit.Own(name, agent.credit)) for name in world.seats
        },
        evaluate={"team": TeamExam(world, exam)} if exam else {},
        schedule=pl.Schedule(prompts=8, steps=50),
    )


def embedded(
    final: Literal["master", "specialist"] = "specialist",
    memory: int = 0,
    exam: int = 64,
    **options: Any,
) -> pl.Recipe:
    """On the built-in store, whose small model was taught to call tools and to answer, and no notes; it
    learns to whom questions go.
    """
    made = build(final=final, memory=memory, exam=exam, **options)
    learners = {n: replace(x, optimiser=pl.AdamW(lr=1e-4)) for n, x in made.learners.items()}
    return pl.vary(made, learners=learners, schedule=pl.Schedule(prompts=4, steps=12))
