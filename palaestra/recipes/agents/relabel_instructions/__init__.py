"""Open-ended instruction relabelling: of what an agent did, a language model says which instructions that
accomplished, and the agent learns from its own episodes as if it had been given these.

    given        an instruction i of the buffer is drawn and followed: reward 1, and the end, where it is accomplished
    relabelled   a model reads the episode as numbered steps and writes up to `relabel` instructions i' that were
                 accomplished, each with its step; the same actions up to there become a sample of i' with reward 1
    buffer       the i', but for near copies of known ones, are drawn as well from then on

    loss = PPO on given ones, A_t = G_t - V(s_t, i)  +  0.5 * (-log pi(a_t | s_t, i') max(0, G_t - V(s_t, i')))

G_t = gamma^(n-1-t) R at action t of n, gamma = 0.99 (arXiv:2506.20061 for the loop and the buffer; its optimiser could
not be read, and this one, PPO with self-imitation, arXiv:1806.05635, is ours). A relabelled sample is a
success always, so without max(0, G - V) the policy would imitate whatever it did.

Where the environment says what was achieved (fact `achievements`, names so far), an instruction of such
names is checked: a claim that is not true is refused, and its step is that of the achievement. Any other one counts
half (`unverified`).

    palaestra train relabel-instructions --env FILE.py:NAME --model DIR relabeller=DIR|endpoint(...)
        [instructions=FILE.txt]

`instructions` are the first ones, a line each; without them the environment's own goal is followed until something
was written. Without a relabeller the achievements and pairs of them are the instructions, as in hindsight
experience replay. The evaluation `instructions` counts how many are followed on held-out tasks.

The built-in run relabels two samples an episode, which are achievements it was given or none: its buffer stays at
the three first instructions, and one run of 16 steps is too short to say whether they are followed more often.
`relabel=4` lets pairs in.

Long because hindsight touches every place of the loop: the draw and the growing buffer, episodes that are cut
where their instruction is accomplished, the relabelled samples with their checks, and a credit for both kinds.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.agents.relabel_instructions.instructed import (
    Instructed,
    completion,
    cut_rows,
    plain_name,
    relabel_rows,
)
from palaestra.recipes.agents.relabel_instructions.relabeller import (
    ASK,
    CHECK,
    Claim,
    claims_by_rule,
    is_shortened,
    read_claims,
    read_step,
    steps_text,
    verify,
)

CARD = pl.Card(
    title="Open-ended instruction relabelling (Craftax)",
    paper="arXiv:2506.20061",
    claim="Instructions that a language model writes for what an agent did, drawn again afterwards, make one policy "
    "follow more instructions with fewer steps and almost no human ones.",
    source="the abstract and public summaries for the loop and the buffer; optimiser, weights and the check by "
    "achievements are ours",
    size=pl.Size(
        setting="Craftax with a recurrent policy on sentence embeddings, not a language model; about 1e8 steps"
    ),
    model="tiny-agent",
    task="craftmini",
    needs=pl.needs.Requirements(
        columns=(),
        models=(
            pl.needs.NeededModel(
                "relabeller",
                "relabeller",
                "says which instructions an episode accomplished, and when",
                inert=None,
                otherwise="the achievements that the environment reports, and pairs of them, are the instructions",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "environment",
                "with several actions an episode",
                built_in=("craftmini",),
            ),
        ),
        shows="hindsight",
        off={"relabel": 0},
        own={
            "model": "tiny-agent",
            "samples": 2,
            "schedule.prompts": 2,
            "exam": 0,
            "endpoint": "1: take a step",
        },
    ),
    use="It helps where goals are rarely reached and an episode still does something that can be named; where goals "
    "are reached often, PPO on them is cheaper.",
    lacks=(
        "The policy reads the instruction as text; the paper's reads a sentence's vector.",
        "Near copies are told by their words, not by an encoder of sentences.",
        "Environments that offer tools or ask several players at once are refused.",
        "Craftax is not built in: it is an environment of yours to wrap, and a small world of crafts stands for "
        "it; the paper's runs of about 1e8 steps and its baselines are not repeated.",
    ),
    grade="B",
)


def bag_cosine(a: str, b: str) -> float:
    """The cosine of two texts as bags of words."""
    x, y = Counter(plain_name(a).split()), Counter(plain_name(b).split())
    norm = (sum(n * n for n in x.values()) * sum(n * n for n in y.values())) ** 0.5
    return sum(n * y[w] for w, n in x.items()) / norm if norm else 0.0


def instructions_of(state: pl.State) -> list[str]:
    """What of the buffer was written so far, the oldest first."""
    return list(state.get("instructions", []))


@pl.declare(columns=(("instruction", str, "what is to be done in the environment"),))
@pl.stage
class DrawInstructions:
    """Draws tasks, a `share` of them with an instruction of the buffer, all alike; those of a task's own
    column stay.
    """

    seeds: tuple[str, ...] = ()
    share: float = 0.75
    source: pl.Draw = pl.Shuffled()

    def __post_init__(self) -> None:
        pl.check_bounds("relabel-instructions: share", self.share, least=0, most=1)

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        drawn, inner = self.source(ctx, key, n, dict(state.get("inner", {})))
        known = [*self.seeds, *instructions_of(state)]
        rng, tasks = pl.rng_of((*key, "instructions")), list[pl.Task]()
        for task in drawn:
            if known and not task.meta.get("instruction") and rng.random() < self.share:
                text = known[int(rng.integers(len(known)))]
                meta = {**task.meta, "instruction": text}
                task = replace(task, id=f"{task.id}/{plain_name(text)}", meta=meta)
            tasks.append(task)
        return tasks, {**state, "inner": inner}

    def draw_numbers(self, state: pl.State) -> dict[str, float]:
        return {"instructions": float(len(self.seeds) + len(instructions_of(state)))}


@pl.stage
class GrowInstructions:
    """Adds the instructions of relabelled samples to the buffer, but for those as like a known one as `near`
    (cosine of their words, whose order counts where one has "then"). Keeps the newest `most`.
    """

    seeds: tuple[str, ...] = ()
    near: float = 0.9
    most: int = 200

    def __call__(
        self, seen: pl.Groups, examples: Mapping[str, list[pl.Example]], state: pl.State
    ) -> pl.State:
        known = instructions_of(state)
        for e in (e for g in seen for e in g.valid if e.facts.get("relabelled")):
            text = str(e.facts["instruction"])
            if not any(self._is_near(text, other) for other in (*self.seeds, *known)):
                known.append(text)
        return {**state, "instructions": known[-self.most :]}

    def _is_near(self, a: str, b: str) -> bool:
        x, y = plain_name(a), plain_name(b)
        if x == y:
            return True
        swapped = "then" in x.split() and sorted(x.split()) == sorted(y.split())
        return not swapped and bag_cosine(a, b) >= self.near


@pl.stage
class FollowInstructions(pl.Sample):
    """Plays `n` episodes of the task's instruction. What achievements do not complete, the relabeller is
    asked about: an episode is cut, and paid 1, where it says that the instruction was accomplished.
    """

    relabeller: pl.Source | None = None
    chars: int = 6000
    brings_reward: ClassVar[bool] = True

    async def play(
        self,
        ctx: pl.Context,
        key: pl.Key,
        group: pl.Group,
        players: Mapping[str, pl.Player],
    ) -> pl.Group:
        if ctx.bench.reward is not None or isinstance(ctx.bench.world, pl.worlds.Question):
            raise pl.UserError(
                f"relabel-instructions acts in an environment, and {ctx.bench.name} asks questions; give --env "
                "FILE.py:NAME, or --task craftmini"
            )
        there = replace(ctx.bench, world=Instructed(ctx.bench.world))
        played = await super().play(ctx.with_bench(there), key, group, players)
        paid = await pl.Score()(ctx.with_bench(there), key, played)
        episodes = [
            await self._checked(ctx, (*key, i, "check"), e) for i, e in enumerate(paid.episodes)
        ]
        return replace(paid, episodes=tuple(episodes))

    async def _checked(self, ctx: pl.Context, key: pl.Key, e: pl.Episode) -> pl.Episode:
        text = e.facts.get("instruction", "")
        if not e.ok or e.reward is None or not text:
            return e
        at = completion(text, e.facts["achieved"])
        (claim,) = verify([Claim(instruction=text, step=1)], e.facts)[0] or [None]
        if at is None and self.relabeller and claim is not None and not claim.verified:
            asked = CHECK.format(instruction=text, steps=steps_text(e.facts, self.chars))
            try:
                with ctx.judging():
                    reply = await ctx.ask(self.relabeller, asked, seed=pl.seed_of(key))
            except pl.Fault as fault:
                facts = {**e.facts, "error": str(fault)}
                return replace(e, status=f"error:{fault.cause}", reward=None, facts=facts)
            step = read_step(reply)
            at = step if step and step <= len(e.facts["acted"]) else None
        followed = at is not None and at > 0
        reward = pl.Reward(
            total=float(followed), solved=followed, parts={"followed": float(followed)}
        )
        rows = cut_rows(e.rows, at) if followed and at else e.rows
        return replace(e, rows=rows, reward=reward)


@pl.declare(
    facts=(
        ("relabelled", float, "1 of a sample with another instruction than it was played with"),
        ("hindsight_weight", float, "by how much a relabelled sample counts"),
        "error",
    )
)
@pl.stage
class RelabelEpisodes:
    """Adds up to `most` samples to each episode, with instructions that it accomplished. Parts of the
    rewards: "relabelled", their number; "refused", claims that are not true or name no step.
    """

    relabeller: pl.Source | None = None
    most: int = 4
    unverified: float = 0.5
    chars: int = 6000

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        if not self.most:
            return group
        able = [i for i, e in enumerate(group.episodes) if e.ok and e.reward is not None]
        claims = await asyncio.gather(
            *(self._claims(ctx, (*key, i), group.episodes[i]) for i in able)
        )
        episodes, more = list(group.episodes), list[pl.Episode]()
        for i, claimed in zip(able, claims, strict=True):
            e = episodes[i]
            assert e.reward is not None
            if isinstance(claimed, pl.Fault):  # the episode itself was played and counts
                episodes[i] = replace(e, facts={**e.facts, "error": str(claimed)})
                continue
            kept, refused = verify(claimed, e.facts)
            own = plain_name(e.facts["instruction"])
            kept = [c for c in kept if plain_name(c.instruction) != own]
            counts = {"relabelled": float(len(kept)), "refused": float(len(refused))}
            reward = replace(e.reward, parts={**e.reward.parts, **counts}, solved=e.solved)
            episodes[i] = replace(e, reward=reward)
            more += [self._relabelled(ctx, e, c) for c in kept]
        return replace(group, episodes=(*episodes, *more))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where nothing was relabelled, and where the relabeller is not told all."""
        valid = [e for g in groups for e in g.valid]
        played = [e for e in valid if "acted" in e.facts]
        if not self.most or not played:
            return ""
        if any(e.facts.get("relabelled") for e in valid):
            cut = sum(is_shortened(e.facts, self.chars) for e in played) if self.relabeller else 0
            note = (
                f"the relabeller is shown {self.chars} characters of an episode, and of {cut} of {len(played)} what "
                "was seen is shortened; give chars=N"
            )
            return note if cut else ""
        why = next((e.facts["error"] for e in played if e.facts.get("error")), "")
        if why:
            return f"nothing was relabelled in the first step: {why}"
        return "nothing was relabelled in the first step: " + (
            "the relabeller's replies have no line STEP: INSTRUCTION that is true"
            if self.relabeller
            else "no episode had an achievement (fact `achievements`) but its own instruction, and without a "
            "model nothing else is read; give relabeller=DIR or endpoint(...)"
        )

    async def _claims(self, ctx: pl.Context, key: pl.Key, e: pl.Episode) -> list[Claim] | pl.Fault:
        if self.relabeller is None:
            return claims_by_rule(e.facts, self.most)
        asked = ASK.format(k=self.most, steps=steps_text(e.facts, self.chars))
        try:
            with ctx.judging():
                reply = await ctx.ask(self.relabeller, asked, seed=pl.seed_of(key))
        except pl.Fault as fault:
            return fault
        return read_claims(reply, self.most)

    def _relabelled(self, ctx: pl.Context, e: pl.Episode, claim: Claim) -> pl.Episode:
        facts = {
            "instruction": claim.instruction,
            "relabelled": 1.0,
            "hindsight_weight": 1.0 if claim.verified else self.unverified,
        }
        rows = relabel_rows(ctx, e.rows, e.facts["told"], claim.instruction, claim.step)
        reward = pl.Reward(total=1.0, solved=True, judged=False)
        return pl.Episode(rows=rows, reward=reward, status="finished", facts=facts)


def returns_to_go(reward: float, turn_T: np.ndarray, gamma: float) -> np.ndarray:
    """[T] gamma^(n-1-t) R for tokens of the actions t = 0 .. n-1, the last of which earned R."""
    return reward * gamma ** (turn_T.max(initial=0) - turn_T)


@pl.stage
class HindsightCredit:
    """A_t = G_t - V_t of given samples, weight * max(0, G_t - V_t) of relabelled ones. The column "return"
    is G_t, of relabelled samples max(G_t, V_t), so that successes alone push no value down. Logs "hindsight", the
    mean advantage that relabelled tokens bring in.
    """

    gamma: float = 0.99

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        at = table.tokens
        value_N = pl.credit.table_signal(table, "policy_value")
        return_N, weight_N, hindsight_N = (np.zeros(len(value_N)) for _ in range(3))
        for e, episode in enumerate(table.episodes):
            mine = np.flatnonzero(at.episode_N == e)
            return_N[mine] = returns_to_go(episode.total, at.turn_N[mine], self.gamma)
            hindsight_N[mine] = float(episode.facts.get("relabelled") or 0.0)
            weight_N[mine] = float(episode.facts.get("hindsight_weight", 1.0))
        gap_N, relabelled_N = return_N - value_N, hindsight_N > 0
        credit_N = np.where(relabelled_N, weight_N * np.maximum(0.0, gap_N), gap_N)
        target_N = np.where(relabelled_N, np.maximum(return_N, value_N), return_N)
        table.add_column("return", pl.Values(level="token", x_N=target_N))
        table.track(
            "hindsight", pl.Values(level="token", x_N=np.where(relabelled_N, credit_N, 0.0))
        )
        return pl.Values(level="token", x_N=credit_N)


@pl.stage
class InstructionExam:
    """An evaluator: held-out tasks, each with the next of some instructions: "followed", the share that
    was accomplished, and "achievements" an episode where the environment says so.
    """

    sample: FollowInstructions
    instructions: tuple[str, ...]
    tasks: int = 16

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        texts = [self.instructions[i % len(self.instructions)] for i in range(len(tasks))]
        tasks = [
            replace(t, meta={**t.meta, "instruction": x}) for t, x in zip(tasks, texts, strict=True)
        ]
        sample = replace(self.sample, n=1)
        keys = [(ctx.seed, "instructions", i) for i in range(len(tasks))]
        pairs = zip(keys, tasks, strict=True)
        groups = await asyncio.gather(*(sample(ctx, key, pl.Group(task=t)) for key, t in pairs))
        played = [e for g in groups for e in g.valid]
        if not played:
            return {}
        solved = sum(e.solved for e in played)
        return {
            "followed": {"of": "accuracy"} | pl.stats.proportion(solved, len(played)).json(),
            "achievements": sum(len(e.facts["achieved"]) for e in played) / len(played),
        }


def read_instructions(given: str | Sequence[str]) -> tuple[str, ...]:
    """The lines of a file, or texts that are given themselves. Raises UserError for a file that is not
    there or is empty.
    """
    if not isinstance(given, str):
        return tuple(t.strip() for t in given if t.strip())
    if not given:
        return ()
    if not given.endswith((".txt", ".md")):
        return (given.strip(),)
    try:
        lines = Path(given).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise pl.UserError(f"instructions={given} cannot be read: {error}") from None
    texts = tuple(dict.fromkeys(x.strip() for x in lines if x.strip()))
    if not texts:
        raise pl.UserError(f"instructions={given} has no line; write an instruction a line")
    return texts


def build(
    relabeller: pl.Source | None = None,
    instructions: str | Sequence[str] = "",
    relabel: int = 4,
    share: float = 0.75,
    weight: float = 0.5,
    unverified: float = 0.5,
    gamma: float = 0.99,
    near: float = 0.9,
    samples: int = 4,
    exam: int = 16,
    chars: int = 6000,
) -> pl.Recipe:
    """`relabel` samples an episode at most, 0 = none; `weight` of their loss. `share` of the tasks have an
    instruction of the buffer. `exam` held-out tasks are played with the given instructions; 0 = none.
    `chars` of an episode at most are shown to the relabeller. An instruction that only the relabeller can judge is
    paid 1 on its word; as another sample's it counts `unverified`.
    """
    pl.check_bounds("relabel-instructions: gamma", gamma, above=0, most=1)
    pl.check_bounds("relabel-instructions: relabel", relabel, least=0)
    seeds = read_instructions(instructions)
    follow = FollowInstructions(n=samples, relabeller=relabeller, chars=chars)
    again = RelabelEpisodes(relabeller, relabel, unverified, chars)
    given = pl.On("relabelled", pl.Clipped(reduce="tokens"), absent=True)
    hindsight = weight * pl.On("relabelled", pl.Reinforce(reduce="tokens"))
    return pl.vary(
        pl.recipe("ppo"),
        draw=DrawInstructions(seeds, share),
        observe=GrowInstructions(seeds, near),
        collect=pl.links(follow, again),
        credit=pl.chain(pl.Fact("relabelled"), HindsightCredit(gamma)),
        objective=given + hindsight + 0.5 * pl.ValueLoss(clip=0.2),
        evaluate={"instructions": InstructionExam(follow, seeds, exam)} if seeds and exam else {},
    )


@pl.stage
class ShowWandering:
    """Demonstrates somebody who tries out actions in the small world of crafts, without an instruction."""

    share: float = 0.7

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = ctx.bench.world
        if isinstance(world, pl.toys.CraftMini):
            ctx = ctx.with_bench(replace(ctx.bench, world=replace(world, wander=self.share)))
        return await pl.Demonstrate()(ctx, key, group)


def embedded(
    instructions: str | Sequence[str] = ("collect wood", "drink water", "place table"),
    relabel: int = 2,
    exam: int = 24,
    **options: Any,
) -> pl.Pipeline:
    """On boards of a small world of crafts, whose achievements are the captioner. The small model has never
    seen it, so it is shown somebody who tries out actions first.
    """
    made: pl.Recipe = build(instructions=instructions, relabel=relabel, exam=exam, **options)
    sft = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowWandering()),
        schedule=pl.Schedule(prompts=16, steps=8),
        optimiser=pl.AdamW(lr=2e-3, warmup=4),
    )
    rl = pl.vary(made, schedule=pl.Schedule(prompts=4, steps=16), optimiser=pl.AdamW(lr=5e-4))
    return pl.Pipeline(parts={"shown": pl.warm(sft), "rl": pl.Part(rl, model=pl.Output("shown"))})
