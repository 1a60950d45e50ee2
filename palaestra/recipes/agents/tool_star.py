"""Tool-Star: several tools in one solution, by a cold start on the model's own tool use, a reward of
three levels, and preferences that teach the model this reward.

    palaestra train tool-star --data problems.jsonl --tools python,search.py:search --model DIR

Three stages on the user's problems with the user's tools (arXiv:2505.16410; dongguanting/Tool-Star):

1. "cold": imitation of what the model solves itself. Each problem is tried `tries` times in plain text
   and as often with tools. Where plain text is never right and tools are, the right tool use is imitated;
   where plain text is right, a plain answer; where neither is, a plain chain that was wrong is continued
   behind a hint to verify it with the tools, and imitated with the hint if that is right. Solutions
   with more than `calls` calls, the same message of calls twice, or a call that fails are left out.
2. "rl": GRPO on as many problems as its steps draw, 12 * `rl_steps` = 144 and at most the first 512
   (`rl.draw.tasks` says others; None = all), which are tried twice each before its first step, and the
   easy ones come first; with

       broken form or no answer   R = -1
       wrong                      R = 0
       right by f in (0, 1]       R = f + bonus * [two different tools or more gave a result]

   f is 1 where the reward says that the answer is right, else the F1 of its words; bonus = 0.1. After `calls`
   (3) messages with calls another one ends the episode, which then has no answer.
3. "critic": the best against the worst of a problem's answers by the same R, as DPO.

Calls are written in the way of the model's family. `think=True` and `boxed=True` ask for thoughts in
<think> and for the answer in \\boxed{}.

Long because the cold start makes its own data: three kinds of attempts at each problem, rules for which are
clean, and plain answers rewritten to the prompt with tools; the reward serves both later stages.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Tool-Star: multi-tool self-critic RL",
    paper="arXiv:2505.16410",
    claim="A cold start on synthesised tool use and self-critic RL with a hierarchical reward teach a model "
    "to combine several tools, over ten benchmarks.",
    source="released code (dongguanting/Tool-Star: re_search.py, vllm_rollout.py, run_tool_star.sh) and the "
    "abstract; the schedule of the self-critic and the thresholds of the data from public reviews",
    size=pl.Size(
        setting="Qwen2.5-3B-Instruct; 54,000 solutions for the cold start, lr 7e-6, 3 epochs; 10,000 problems, "
        "128 prompts x 8, 4,096 tokens, lr 1e-6, no KL; search, browser and Python, at most 3 calls",
        model="qwen2.5-3b",
        prompts=128,
        samples=8,
        tokens=4096,
        lr=1e-6,
    ),
    model="tiny-agent",
    task="store",
    needs=pl.needs.Requirements(
        columns=(
            replace(pl.needs.QUESTION, meaning="a question that takes several tools"),
            replace(
                pl.needs.GOLD_ANSWER,
                examples=("tiru", "mema", "bako"),
                meaning="the right answer",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "tools",
                "several, such as python and a search of yours",
                built_in=("store",),
            ),
        ),
        shows="part/hierarchy",
        off={"hierarchical": False},
        own={
            "model": "tiny-agent",
            "tries": 1,
            "samples": 3,
            "cold.schedule.prompts": 2,
            "rl.draw.tasks": 3,
            "rl.schedule.prompts": 3,
            "critic.schedule.prompts": 2,
            "max_tokens": 40,
        },
    ),
    use="It helps where problems need more than one tool, or the model does not know which; where one tool "
    "solves everything the bonus buys calls that are of no use.",
    lacks=(
        "The browser, and the three tools of inference (debugger of code, going back before a failed "
        "call, shortening of chains), are not there.",
        "A search comes from the user, as a function or an MCP server.",
        "The cold start imitates what was synthesised in the same step, three epochs in the paper; the "
        "critic comes once behind RL and is not interleaved with it.",
        "The benchmarks of the paper are not there.",
    ),
    grade="A",
)
HINT = "\nWait, let me verify this with a tool.\n"
SORTED = 512  # problems, at most
PROMPTS = 12  # a step
KINDS = ("text", "tool", "hint")


@pl.stage
class HierarchicalReward:
    """A link after `AnswerF1`, whose part "formed" it reads: R above. Parts: "several", whether two
    different tools gave a result; "bonus", what that paid; "hierarchy", by how much R is not f. Not
    `on`: R = f.
    """

    bonus: float = 0.1
    on: bool = True

    def __post_init__(self) -> None:
        pl.check_bounds("tool-star: bonus", self.bonus, least=0)

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._paid, group.episodes)))

    async def check_start(self, ctx: pl.Context) -> None:
        world = ctx.bench.world
        offers = isinstance(world, pl.abilities.OffersTools)
        tools = [t.name for t in await world.open()] if offers else []
        if self.on and self.bonus and len(tools) == 1:
            ctx.say(
                f"note: {tools[0]} is the only tool, and the bonus is for results of two different ones, so "
                "nothing earns it; name more with --tools A,B"
            )

    def _paid(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        if "formed" not in e.reward.parts:
            raise pl.UserError(
                "tool-star reads answers of episodes with tools; give it tools, such as --tools "
                "python,FILE.py:NAME, and problems with an answer"
            )
        parts = e.reward.parts
        f = 1.0 if e.solved else parts["f1"]
        several = len(e.facts.get("tools_used", ())) > 1
        bonus = self.bonus if several and f > 0 and parts["formed"] else 0.0
        total = (f + bonus if parts["formed"] else -1.0) if self.on else f
        new_parts = {
            "several": float(several),
            "bonus": bonus * self.on,
            "hierarchy": abs(total - f),
        }
        reward = replace(e.reward, total=total, parts={**parts, **new_parts}, solved=e.solved)
        return replace(e, reward=reward)


@pl.stage
class HintedChain:
    """What a hinted attempt begins with: the first plain chain of a group, and the hint. A chain is
    cut before its last line, which is its answer, where it has several.
    """

    hint: str = HINT

    def __call__(self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> str:
        chain = next((e.text for e in group.valid if e.text.strip()), "")
        return (chain.rstrip().rpartition("\n")[0] or chain.rstrip()) + self.hint if chain else ""


@pl.stage
class Synthesise:
    """Makes the solutions that the cold start imitates, see the file; other attempts are muted. Parts,
    each the share of all attempts: "kept text", "kept tool", "kept hint".

    Args:
        tries: attempts in plain text, with tools, and behind a hint.
        calls: of a solution, at most.
        hints: whether hinted attempts are made.
    """

    tries: int = 2
    calls: int = 3
    hints: bool = True

    def __post_init__(self) -> None:
        pl.check_bounds("tool-star: tries", self.tries, least=1)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        sample = pl.Sample(n=self.tries, turns=self.calls + 1)
        plain = await pl.worlds.Unaided(sample)(ctx, (*key, "text"), replace(group, episodes=()))
        plain = await pl.Score()(ctx, (*key, "text score"), plain)
        with_tools = await sample(ctx, (*key, "tool"), replace(group, episodes=()))
        with_tools = await pl.Score()(ctx, (*key, "tool score"), with_tools)
        hinted: tuple[pl.Episode, ...] = ()
        if self.hints and not any(e.solved for g in (plain, with_tools) for e in g.valid):
            begun = await pl.rollout.Begin(HintedChain(), sample)(ctx, (*key, "hint"), plain)
            made = replace(group, episodes=begun.episodes[len(plain.episodes) :])
            hinted = (await pl.Score()(ctx, (*key, "hint score"), made)).episodes
        text = [await self._as_text(ctx, group.task, e) for e in plain.episodes]
        kept = self.choose(text, with_tools.episodes, hinted)
        return replace(group, episodes=(*group.episodes, *kept))

    def first_step_note(self, groups: pl.Groups) -> str:
        attempts = [e for g in groups for e in g.valid]
        if not attempts or any(not e.muted for e in attempts):
            return ""
        right = sum(e.solved for e in attempts if e.reward is not None)
        return (
            f"no attempt of the first step was imitated: {right} of {len(attempts)} are right, and those "
            f"did not end by themselves, or had a call that failed or came twice, or more than {self.calls}; "
            "take a model that solves some with its tools, easier problems, or more tries"
        )

    def choose(
        self,
        text: list[pl.Episode],
        tool: tuple[pl.Episode, ...],
        hint: tuple[pl.Episode, ...],
    ) -> Iterator[pl.Episode]:
        """All attempts, muted but for the solutions that are imitated."""
        solved = any(e.ok and e.solved for e in text)
        allowed = {"text": solved, "tool": not solved, "hint": not solved}
        for kind, episodes in zip(KINDS, (text, tool, hint), strict=True):
            for e in episodes:
                keep = allowed[kind] and e.ok and e.solved and self.is_clean(e)
                yield shown(e, kind, keep)

    def is_clean(self, e: pl.Episode) -> bool:
        """Whether a solution ended by itself, with few calls, none of which failed or came twice."""
        calls = e.facts.get("tool_calls", 0)
        texts = [s.text.strip() for r in e.rows for s in r.segments if s.logp is not None]
        return (
            e.status == "finished"
            and calls <= self.calls
            and pl.rewards.successful_calls(e.facts) == calls
            and len(set(texts)) == len(texts)
        )

    async def _as_text(self, ctx: pl.Context, task: pl.Task, e: pl.Episode) -> pl.Episode:
        """A plain answer as one to the prompt that offers the tools."""
        if not e.ok or e.reward is None or not e.solved:
            return e
        world = ctx.bench.world
        tools = await world.open() if isinstance(world, pl.abilities.OffersTools) else ()
        made = pl.recorded_episode(
            ctx,
            "policy",
            task.prompt,
            e.text,
            e.total,
            of=f"task {task.id!r}: a plain answer",
            tools=tools,
        )
        return replace(made, reward=e.reward, status=e.status)


def shown(e: pl.Episode, kind: str, keep: bool) -> pl.Episode:
    """An attempt as a demonstration, with the chain and the hint that it was begun with; muted where
    it is not kept.
    """
    if e.reward is None:
        return replace(e, muted=True)

    def taught(s: pl.Segment) -> pl.Segment:
        own = s.trained or (kind == "hint" and s.author == "forced" and HINT in s.text)
        return replace(s, trained=True, policy="policy", version=None) if own and keep else s

    rows = tuple(replace(r, segments=tuple(map(taught, r.segments))) for r in e.rows)
    parts = {**e.reward.parts, **{f"kept {k}": float(keep and k == kind) for k in KINDS}}
    return replace(e, rows=rows, muted=not keep, reward=replace(e.reward, parts=parts))


def build(
    bonus: float = 0.1,
    hierarchical: bool = True,
    calls: int = 3,
    tries: int = 2,
    hints: bool = True,
    samples: int = 8,
    think: bool = False,
    boxed: bool = False,
    beta: float = 0.1,
    rl_steps: int = 12,
) -> pl.Pipeline:
    """`hierarchical` False pays f alone; `beta` is that of DPO. `rl_steps` of RL go once from the easiest
    problem to the hardest, unless more than 512 are drawn.
    """
    pl.check_bounds("tool-star: rl_steps", rl_steps, least=1)
    scored_sample = pl.links(
        pl.Sample(n=samples, turns=calls + 1),
        pl.Score(),
        pl.rewards.ToolUse(),
        pl.rewards.AnswerF1(think=think, boxed=boxed),
        HierarchicalReward(bonus, hierarchical),
    )
    asked = " ".join(
        (
            *([pl.rewards.THINK_FIRST] if think else ()),
            *(["Put the answer in \\boxed{}."] if boxed else ()),
        )
    )
    cold = pl.vary(
        pl.recipe("sft"),
        collect=Synthesise(tries, calls, hints),
        schedule=pl.Schedule(prompts=12, steps=8),
        instruction=asked,
    )
    rl = pl.vary(
        pl.recipe("grpo"),
        draw=pl.curriculum.EasyToHard(
            tasks=min(SORTED, rl_steps * PROMPTS), batches=2, probe=pl.Sample(n=2, turns=calls + 1)
        ),
        collect=scored_sample,
        schedule=pl.Schedule(prompts=PROMPTS, steps=rl_steps),
        instruction=asked,
    )
    critic = pl.vary(
        pl.recipe("dpo", beta=beta),
        collect=scored_sample,
        schedule=pl.Schedule(prompts=12, steps=4),
        instruction=asked,
    )
    return pl.Pipeline(
        parts={
            "cold": pl.Part(cold),
            "rl": pl.Part(rl, model=pl.Output("cold")),
            "critic": pl.Part(critic, model=pl.Output("rl")),
        }
    )
