"""Think in Games: logged play becomes a task of one step, which a rule can check; the model thinks about a state
and names a macro action.

    state of a key frame, as JSON  ->  thoughts, one of the named actions
    label of a frame = the most important event of its own and of the next `window` frames
    r = 1 if the action is the label, else 0
    A_i = (r_i - mean(r)) / std(r),  clipped surrogate with KL to the start

    palaestra train tig --data games.jsonl --model DIR
    palaestra train tig --data games.jsonl --model DIR --env "frames(window=8,priority='dragon,defend')" teacher=DIR

A row of the log is {"game": "g7", "frame": 12, "state": {...}, "event": ""}; most frames have no event, and get their
label by relabelling, which makes labels dense and unique ([your logged games](../environments.md#your-logged-games)).
Whole games are held out. `imitate` steps of fine-tuning come first: on replies of a `teacher` whose action is the label, with
their reasoning, else on the labels alone. The reward is agreement with logged play, won or lost, and no play: the log's
habits are the ceiling. "impossible" is the share of replies whose action the row's `legal` does not list; these are wrong, and
not masked.

The built-in game is a simulated lane of four actions, whose log an expert with 10% noise wrote. There a live
exam lets the model play whole games, beside the expert's rule and random actions, and counts agreement with the rule.
After 40 steps of imitation and 10 of GRPO the small model names the logged action in 92% of 64 held-out states and wins 77% of
64 games, at first 0%; the rule wins 80%, random actions 23% (seed 0). GRPO raised the agreement of sampled actions from 73% to
93%, but neither of these two numbers, which imitation alone had reached. After 8 steps of imitation, 30 of GRPO brought sampled
agreement from 4% to 48%, and no game won.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Think in Games",
    paper="arXiv:2508.21365",
    claim="A language model that is trained by reinforcement learning on logged play as single decisions keeps its "
    "reasoning, and chooses macro actions as well as much larger models with far less data and compute.",
    source="abstract and public summaries of the paper; window and order of priority of the relabelling, and the settings of "
    "GRPO, inferred",
    size=pl.Size(
        setting="Qwen2.5 and Qwen3 to 32B on states of Honor of Kings, 40 macro actions; SFT on a strong reasoner's replies, "
        "then GRPO; Qwen3-14B 90.9% after 2,000 steps",
        model="qwen3-14b",
    ),
    task="lane",
    world="frames",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "game",
                "any",
                tuple(f"g{i // 3}" for i in range(12)),
                "the game that a frame is of; whole games are held out",
            ),
            pl.needs.NeededColumn(
                "frame", "number", (1, 2, 3), "the number or the time of the frame in its game"
            ),
            pl.needs.NeededColumn(
                "state",
                "any",
                (
                    {"front": -1, "gold": 2},
                    {"front": 0, "gold": 2},
                    {"front": 1, "gold": 1},
                    {"front": -2, "gold": 0},
                ),
                "what the player saw, an object or a text",
            ),
            pl.needs.NeededColumn(
                "event",
                "any",
                ("", "", "push", "", "", "defend"),
                "the macro action that the frame reveals, a list of them, or nothing",
            ),
            pl.needs.NeededColumn(
                "legal",
                "texts",
                (["push", "defend"],),
                "the actions that were possible",
                otherwise="impossible actions are not counted",
            ),
            pl.needs.NeededColumn(
                "won",
                "true or false",
                (True, True, True, False, False, False),
                "whether the player won that game",
                otherwise="all games teach, however many were lost",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "teacher",
                "teacher",
                "thinks about states before it names the action, and is imitated where that is the label",
                inert=None,
                otherwise="reinforcement learning begins with the model as it is",
            ),
        ),
        shows="part/filled",
        off={"env": "frames(window=0)"},
        own={"reinforce.schedule.prompts": 4, "reinforce.collect.links.0.n": 3, "max_tokens": 8},
    ),
    use="It helps where much play is logged and what a player was about shows later; where logged players choose badly, or "
    "states do not hold what they knew, it teaches their mistakes.",
    lacks=(
        "It does not play online: labels are those of a log, as in the paper, and your game is played by the model only as "
        "an environment of yours, with palaestra eval --env.",
        "Honor of Kings and its 40 macro actions are not there.",
        "General benchmarks, which show that reasoning is kept, are exams that you name.",
        "Frames of won games do not weigh more than those of lost ones.",
        "Explanations are not rated.",
    ),
    grade="B",
)


@pl.stage
class ShowAction:
    """Adds a reply to imitate: the teacher's, with its thoughts, where its action is the label; without a teacher
    the label. A task on which the teacher is wrong or fails has none.
    """

    teacher: pl.Source | None = None

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task = group.task
        reply = str(task.answer)
        if self.teacher is not None:
            request = pl.ChatRequest(messages=task.prompt, max_tokens=ctx.bench.max_tokens)
            try:
                reply = await ctx.ask(self.teacher, request)
            except pl.Fatal:
                raise
            except pl.Fault:  # its client has counted it
                return group
            if pl.worlds.read_arm(reply, task.meta["macro_actions"]) != task.answer:
                return group
        of = f"{task.id}: a reply to imitate"
        made = pl.recorded_episode(ctx, "policy", task.prompt, reply, 1.0, of=of, judged=False)
        return replace(group, episodes=(*group.episodes, made))


@pl.declare(reads_columns=("macro_actions", "ahead"))
@pl.stage
class TellPlay:
    """Adds parts to rewards: "filled", whether the label comes from a later frame; "unread", whether no action was
    named; "impossible", whether the one named was not possible, where the row says which were.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        meta = group.task.meta
        filled, legal = float(meta["ahead"] > 0), tuple(meta.get("legal") or ())
        episodes = list[pl.Episode]()
        for e in group.episodes:
            if e.ok and e.reward is not None:
                chosen = pl.worlds.read_arm(pl.response_text(e), meta["macro_actions"])
                counts = {"filled": filled, "unread": float(chosen is None)}
                if legal:
                    counts["impossible"] = float(chosen is not None and chosen not in legal)
                e = replace(e, reward=replace(e.reward, parts={**e.reward.parts, **counts}))
            episodes.append(e)
        return replace(group, episodes=tuple(episodes))


def build(
    teacher: pl.Source | None = None,
    imitate: int | None = None,
    samples: int = 8,
    kl: float = 1e-3,
    steps: int = 100,
    lr: float = 1e-6,
) -> pl.Pipeline:
    """`imitate` steps of fine-tuning before `steps` of GRPO with `samples` answers a state; None = 100 with a
    teacher, else 0.
    """
    sft_steps = (100 if teacher is not None else 0) if imitate is None else imitate
    pl.check_bounds("tig: imitate", sft_steps, least=0)
    if teacher is not None and not sft_steps:
        raise pl.UserError(
            "tig: a teacher is imitated, and imitate=0 leaves that out; drop one of both"
        )
    return stages(teacher, sft_steps, samples, kl, steps, lr, 1e-5, {})


def stages(
    teacher: pl.Source | None,
    imitate: int,
    samples: int,
    kl: float,
    steps: int,
    lr: float,
    imitate_lr: float,
    evaluate: Mapping[str, Any],
) -> pl.Pipeline:
    """Both parts, of which the first may be left out."""
    reinforce = pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(pl.Sample(n=samples), pl.Score(), TellPlay()),
        optimiser=pl.AdamW(lr=lr),
        evaluate=evaluate,
        schedule=pl.Schedule(prompts=16, steps=steps),
    )
    if not imitate:
        return pl.Pipeline(parts={"reinforce": pl.Part(reinforce)})
    sft = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowAction(teacher)),
        optimiser=pl.AdamW(lr=imitate_lr, warmup=min(10, imitate - 1)),
        evaluate=evaluate,
        schedule=pl.Schedule(prompts=32, steps=imitate),
    )
    return pl.Pipeline(
        parts={
            "imitate": pl.Part(sft),
            "reinforce": pl.Part(reinforce, model=pl.Output("imitate")),
        }
    )


# ---- the built-in game


@pl.stage
class LaneExam:
    """`n` lane games that the policy plays, with its likeliest action in each state, beside the expert's rule and
    random actions: the share that each wins, and "agreement", the share of the policy's actions that are the rule's.
    A reply that names no action lets the frames pass, and is counted as "unread".
    """

    n: int = 64

    async def __call__(self, ctx: pl.Context) -> Mapping[str, float]:
        chosen = await self._actions(ctx)
        asked = list[tuple[bool, bool]]()

        def model(state: pl.toys.LaneState, rng: np.random.Generator) -> str:
            action = chosen[state]
            asked.append((action == pl.toys.expert_action(state), not action))
            return action

        rule = lambda state, rng: pl.toys.expert_action(state)
        drawn = lambda state, rng: str(rng.choice(pl.toys.LANE_ACTIONS))
        return {
            "wins": self._wins(ctx, model),
            "wins_of_the_rule": self._wins(ctx, rule),
            "wins_at_random": self._wins(ctx, drawn),
            "agreement": float(np.mean([right for right, _ in asked])),
            "unread": float(np.mean([unread for _, unread in asked])),
        }

    def _wins(
        self, ctx: pl.Context, choose: Callable[[pl.toys.LaneState, np.random.Generator], str]
    ) -> float:
        games = (pl.toys.play_lane(choose, pl.rng_of((ctx.seed, "lane", i))) for i in range(self.n))
        return float(np.mean([won for _, won in games]))

    async def _actions(self, ctx: pl.Context) -> dict[pl.toys.LaneState, str]:
        """What the policy says in every state in which an action can be chosen; "" = it names none."""

        async def one(state: pl.toys.LaneState) -> str:
            asked = pl.Message(role="user", content=state.text)
            request = pl.ChatRequest(messages=(asked,), max_tokens=ctx.bench.max_tokens)
            reply = await ctx.ask(pl.LocalModel(), request)
            return pl.worlds.read_arm(reply, pl.toys.LANE_ACTIONS) or ""

        states = pl.toys.LaneState.every()
        return dict(zip(states, await asyncio.gather(*map(one, states)), strict=True))


def embedded(
    teacher: pl.Source | None = None,
    imitate: int = 40,
    samples: int = 8,
    kl: float = 1e-3,
    steps: int = 10,
    lr: float = 1e-4,
    exam: int = 64,
) -> pl.Pipeline:
    """On the built-in game, whose actions the built-in model has never seen: the labels are imitated first. `exam`
    games are played before and after each part.
    """
    pl.check_bounds("tig: imitate", imitate, least=0)
    evaluate = {"play": LaneExam(exam)} if exam else {}
    return stages(teacher, imitate, samples, kl, steps, lr, 2e-3, evaluate)
