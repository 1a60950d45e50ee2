"""MUA-RL: an agent learns to serve users while it talks with simulated ones.

    R = 1  if  digest(database at the end) = digest(database after the task's actions)
               and every required text was said to the user,        else 0

An episode: the user speaks; a message of the agent with a call goes to the tools, of which the user sees
nothing, any other to the user, who reveals by and by what they want and ends the talk with ###STOP###. Of
several calls in a message the first is executed; a call that cannot be read ends the episode (arXiv:2508.18669;
released code zzwkk/MUA-RL: sglang_rollout.py, schemas.py, taubench.py). Each episode has a database of its own. What the user
and the tools say is never trained on. GRPO on R with a KL of 0.001 (k3).

    palaestra train mua-rl --data tasks.jsonl --tools FILE.py --model DIR user=DIR|endpoint(...) [db=shop.json]
                           [policy=policy.md]

A row has `prompt`, what the user says first; `user`, what they want and know, which only who plays them reads;
`actions`, the calls that do it; and maybe `outputs`, texts that the user must be told, and `database`. `db` is a JSON or SQLite
file for all rows. A tool is a function whose parameter `db` is the episode's database, a dict or a connection:

    def order(db: dict, item: str, amount: int) -> str: "Orders an item." ...

`script=FILE.py:NAME` plays the user by a function (task, messages) -> text instead. A user who cannot be asked, or says
nothing, is an error of the episode, no failure of the agent (released: it is scored as it stands).

`static=True` is the control without a user: the whole wish is the first message and nobody replies. The evaluation
`service` plays held-out tasks with the same kind of user. In the built-in run the user is a program, who
tells how much is wanted when asked.

Long because the user is a second speaker in each episode: the recipe plays it by a model or a script, makes the
desk from tools, policy and database of a user or of the built-in shop, and checks all tasks before training.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import palaestra as pl

CARD = pl.Card(
    title="MUA-RL: simulated users in the RL loop",
    paper="arXiv:2508.18669",
    claim="Training on talks with simulated users, with tools over a database and a reward for its "
    "final state alone, makes agents that find out what users want and do it.",
    source="released code (zzwkk/MUA-RL: sglang_rollout.py, schemas.py, taubench.py, manager.py, mua_grpo.sh) and "
    "the abstract; the words to the simulated user are ours",
    size=pl.Size(
        setting="Qwen3-8B, 14B and 32B, non-thinking, after a supervised start; gpt-4o as the user; GRPO, 32 tasks x "
        "8 talks of at most 30 turns, 1,024 tokens a message and 32,768 in all, lr 1e-6, KL 0.001",
        model="qwen3-32b",
        prompts=32,
        samples=8,
        tokens=32768,
        lr=1e-6,
    ),
    model="tiny-agent",
    task="shop",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("hi, I have a question", "hello, can you look something up?", "I need help"),
                "what the user says first, and for which the agent knows them",
            ),
            pl.needs.NeededColumn(
                "user",
                "text",
                (
                    "You want to know what the number 4 stands for.",
                    "You ask about lions. You say so only if you are asked.",
                    "You ask for the answer, and nothing else.",
                ),
                "what the user wants and knows, which the agent is not shown",
            ),
            pl.needs.NeededColumn(
                "actions",
                "any",
                ([], [{"name": "search", "arguments": {"query": "lions"}}], []),
                "the calls that do what the user wants, in order; [] = the database stays as it is",
            ),
            pl.needs.NeededColumn(
                "outputs",
                "texts",
                (["4"], ["lions"], ["4"]),
                "texts that the user must be told",
                otherwise="the database alone counts",
            ),
            pl.needs.NeededColumn(
                "database",
                "any",
                ({"stock": {"lion": 3}}, {"stock": {"lion": 2}}, {"stock": {"lion": 1}}),
                "the JSON database that the tools work on",
                otherwise="it is that of db=FILE, for all rows",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "user",
                "user",
                "plays the users: it reads the column `user` and talks with the agent",
                inert=None,
                when={"script": ("",), "static": (False,)},
                built_in=("shop",),
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "tools",
                "over the database, which they get as `db`",
                built_in=("shop",),
                flag="--tools FILE.py",
            ),
        ),
        shows="part/replies",
        off={"static": True},
        own={
            "model": "tiny-agent",
            "samples": 2,
            "schedule.prompts": 4,
            "exam": 0,
            "turns": 2,
            "endpoint": "the whole of it",
        },
    ),
    use="It helps where what a user wants comes out in a talk and is done by calls that leave a trace; where the "
    "first message says it all, train on it with --tools and any method.",
    lacks=(
        "tau2-bench, BFCL-V3 and ACEBench are not run; tasks of their form are yours to bring.",
        "The supervised cold start is `palaestra train sft` on talks of yours; the built-in model was shown such talks.",
        "Users who call tools themselves, as in tau2's telecom, are not there.",
    ),
    grade="A",
)
CHECKED = 512
TURNS = 30  # of the paper
USER_RULES = """You play a user who talks with a service agent. What you want and know:
{goal}

Say one short message at a time, in your own words. Tell only what the agent asks for or what the next step needs, not all \
at once. Never make up what is not written above; if you are asked for it, say that you do not know. Do not play the \
agent. Once what you want is done, or cannot be done, say {stop} and nothing else."""


@dataclass(frozen=True)
class ModelUser:
    """A user whom a language model plays. It hears its own messages as the assistant's and the agent's as
    the user's, at temperature 0.
    """

    ctx: pl.Context
    client: pl.Source
    most_tokens: int = 256

    async def __call__(self, task: pl.Task, talk: pl.worlds.Talk, key: pl.Key) -> str:
        goal = pl.worlds.goal_of(task)
        rules = pl.Message(role="system", content=USER_RULES.format(goal=goal, stop=pl.tasks.STOP))
        flipped = {"user": "assistant", "assistant": "user"}
        begin = pl.Message(role="user", content="Hi! How can I help you?")
        heard = (pl.Message(role=flipped[role], content=text or "...") for role, text in talk)
        request = pl.ChatRequest(
            messages=(rules, begin, *heard), temperature=0.0, max_tokens=self.most_tokens
        )
        raw_reply = await self.ctx.ask(self.client, request, seed=pl.seed_of(key) % (1 << 31))
        reply = pl.verifiers.strip_thinking(raw_reply).strip()
        if not reply:
            raise pl.Fault("user", "the model that plays the user said nothing")
        return reply


@pl.stage
class SampleTalks(pl.Sample):
    """Plays `n` talks of the policy with a user.

    Args:
        user: a model that plays the users; None = `script` does, or the user of the problem itself.
        script: FILE.py:NAME, a function that does.
        db: a JSON or SQLite file, the database of tasks without one.
        policy: what the agent must keep to.
        talk_turns: calls and replies of an episode, together; 0 = 30, in the built-in shop 12.
        static: nobody replies, see `pl.worlds.Service`.
    """

    user: pl.Source | None = None
    script: str = ""
    db: str = ""
    policy: str = ""
    talk_turns: int = 0
    static: bool = False
    brings_reward: ClassVar[bool] = True

    async def check_start(self, ctx: pl.Context) -> None:
        """Executes the actions of the first 512 tasks of each split. Raises UserError where one cannot be."""
        world, tasks, checked = self.world(ctx), ctx.bench.tasks, list[bool]()
        sizes = {"train": tasks.size, "test": getattr(tasks, "test_size", None)}
        for split, size in sizes.items():
            for i in range(min(size or 0, CHECKED)):
                checked.append(await world.check_task(tasks.task(split, i)))
        if idle := checked.count(False):
            ctx.say(
                f"note: {idle} of {len(checked)} tasks have neither actions nor outputs, so an agent that does "
                "nothing is paid for them"
            )

    async def play(
        self,
        ctx: pl.Context,
        key: pl.Key,
        group: pl.Group,
        players: Mapping[str, pl.Player],
    ) -> pl.Group:
        world = self.world(ctx)
        there = replace(ctx.bench, world=world, max_turns=2 * world.turns + 2)
        return await super().play(ctx.with_bench(there), key, group, players)

    def world(self, ctx: pl.Context) -> pl.worlds.Service:
        """The desk at which the talks are. Raises UserError where there are no tools, or nobody plays the user."""
        own = ctx.bench.world
        user: pl.worlds.ServiceUser | None = ModelUser(ctx, self.user) if self.user else None
        user = pl.worlds.ScriptUser(self.script) if self.script else user
        if isinstance(own, pl.worlds.Service):
            if self.db:
                raise pl.UserError(
                    f"{ctx.bench.name} brings its own database; db= is for tasks and tools of yours, --data and --tools"
                )
            return replace(
                own,
                user=user or own.user,
                static=self.static,
                policy=self.policy or own.policy,
                turns=self.talk_turns or own.turns,
            )
        if not isinstance(own, pl.worlds.WithTools):
            raise pl.UserError(
                f"mua-rl needs tools over a database, and {ctx.bench.name} has none; give --tools FILE.py, whose "
                "functions take the database as `db`"
            )
        if user is None and not self.static:
            raise pl.UserError(
                "mua-rl needs somebody who plays the users: user=DIR, user=endpoint(...), or "
                "script=FILE.py:NAME"
            )
        return pl.worlds.Service(
            tools=own.tools,
            user=user or pl.toys.ShopUser(),
            policy=self.policy,
            db=self.db,
            turns=self.talk_turns or TURNS,
            static=self.static,
            seconds=own.seconds,
            chars=own.chars,
        )


@pl.stage
class ServiceParts:
    """A link behind `SampleTalks`. Parts: "replies", messages of the user behind the first; "database right", "outputs
    said", the two conditions of R; "asked first", whether the user replied before R was earned.
    """

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._told, group.episodes)))

    def _told(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        parts = {
            "replies": float(e.facts["replies"]),
            "database right": float(e.facts.get("database_right", False)),
            "outputs said": float(e.facts.get("outputs_said", False)),
            "asked first": float(e.solved and e.facts["replies"] > 0),
        }
        return replace(e, reward=replace(e.reward, parts=parts, solved=e.solved))

    def first_step_note(self, groups: pl.Groups) -> str:
        unkept = [x for g in groups for e in g.valid if (x := e.facts.get("tool_unkept", ""))]
        return (
            f"in {len(unkept)} talks of the first step a tool left a database that cannot be kept, so its call "
            f"failed; check its arguments in the tool: {unkept[0]}"
            if unkept
            else ""
        )


@pl.stage
class ServiceExam:
    """An evaluator: "success" on held-out tasks, with replies, calls and errors of calls a talk; "user_errors", talks
    that ended because the user could not be asked.
    """

    sample: SampleTalks
    tasks: int = 32

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        sample = replace(self.sample, n=1, temperature=0.0)
        link = pl.links(sample, ServiceParts())
        tasks = [
            ctx.bench.tasks.task("test", i) for i in pl.run.chosen_tasks(ctx.bench, self.tasks)
        ]
        keys = [(ctx.seed, "service", i) for i in range(len(tasks))]
        pairs = zip(keys, tasks, strict=True)
        groups = await asyncio.gather(*(link(ctx, key, pl.Group(task=t)) for key, t in pairs))
        return service_numbers([g.episodes[0] for g in groups])


def service_numbers(talks: Sequence[pl.Episode]) -> dict[str, Any]:
    """What `ServiceExam` says; without a talk that came to its end the number of errors alone."""
    whole = [e for e in talks if e.ok]
    errors = {"user_errors": float(len(talks) - len(whole))}
    if not whole:
        return errors
    n = len(whole)
    share = pl.stats.proportion(sum(e.solved for e in whole), n).json()
    return {
        "success": {"of": "accuracy"} | share,
        "replies": sum(e.facts["replies"] for e in whole) / n,
        "calls": sum(e.facts["tool_calls"] for e in whole) / n,
        "call_errors": sum(e.facts["tool_errors"] for e in whole) / n,
        **errors,
    }


def build(
    user: pl.Source | None = None,
    script: str = "",
    db: str = "",
    policy: str = "",
    static: bool = False,
    turns: int = 0,
    samples: int = 8,
    kl: float = 0.001,
    exam: int = 32,
) -> pl.Recipe:
    """`policy` is a file, or the text itself. `turns` are the calls and replies of an episode; 0 = 30, in the built-in
    shop 12. `exam` held-out tasks are played before and after training;
    0 = none.
    """
    sample = SampleTalks(
        n=samples,
        user=user,
        script=script,
        db=db,
        policy=policy_text(policy),
        talk_turns=turns,
        static=static,
    )
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(sample, ServiceParts()),
        evaluate={"service": ServiceExam(sample, exam)} if exam else {},
    )


def policy_text(policy: str) -> str:
    """The text of a file, or a text that is given itself. Raises UserError for a file that is not there."""
    if not policy.endswith((".md", ".txt")):
        return policy
    try:
        return Path(policy).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise pl.UserError(f"policy={policy} cannot be read: {error}") from None


def embedded(samples: int = 8, exam: int = 0, **options: Any) -> pl.Recipe:
    """On orders of one or two things from a small shop, whose users a program plays. The run's own evaluation serves
    them too.
    """
    made: pl.Recipe = build(samples=samples, exam=exam, **options)
    return pl.vary(made, schedule=pl.Schedule(prompts=8, steps=30))
