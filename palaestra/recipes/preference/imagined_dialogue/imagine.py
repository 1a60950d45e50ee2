"""Dialogues that nobody had: profiles of users, whole conversations, a critique and a label of each,
by a language model that is told the task; and what every data set of dialogues goes through.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl

AGENTS = ("skilled", "average", "hasty", "clumsy and often off the point")
MANNERS = ("talkative", "terse", "unsure what they want", "impatient")
PROFILES = (
    "{task}\n\nThink of {n} users whom an agent may meet in this task, as different as can be: what each "
    "wants, knows and is like, in one or two sentences. Write each on a line of its own that begins "
    "with its number and a full stop."
)
TALK = (
    "{task}\n\nThe user, of whom the agent knows nothing before they talk:\n{profile}\n\nWrite their "
    "whole conversation. The agent is {agent}; the user is {manner}. Write each turn on a line that "
    'begins with "User:" or "Agent:". The user begins, and the agent has the last word.'
)
CRITIQUE = (
    "{task}\n\nThe user, of whom the agent knows nothing before they talk:\n{profile}\n\nA conversation:\n"
    "{talk}\n\nIs it realistic? Does the agent learn something of the user in it? Does the user speak as "
    "described? Does the agent say nothing of the description that the user has not told? If all of "
    "this is so, reply OK. Else write the whole conversation anew in the same form, with the same "
    "outcome."
)
LABEL = (
    "{task}\n\nThe user:\n{profile}\n\nA conversation:\n{talk}\n\nHow far did the agent reach the goal of the "
    "task for this user? Reply with one number from 0, not at all, to 1, fully."
)
BATCH = 8  # profiles that are asked for at once
SPEAKER = re.compile(r"^\W*(user|agent|assistant)\W*:\s*", re.IGNORECASE)
NUMBER = re.compile(r"(?<![\w.-])(?:0(?:\.\d+)?|1(?:\.0+)?|\.\d+)(?![\w%/]|\.\d)")


@pl.value_class
class RecordedTalk:
    """A dialogue with its reward, a number or one for each turn of the agent. `messages` are pairs
    of a role and a text and end with the agent. `profile`: "" = nobody knows it. `split`: as the
    data had it, or "".
    """

    messages: tuple[tuple[str, str], ...]
    reward: Any
    profile: str = ""
    split: str = ""

    @property
    def text(self) -> str:
        """As a script."""
        names = {"user": "User", "assistant": "Agent", "system": "System"}
        return "\n".join(f"{names.get(role, role)}: {text}" for role, text in self.messages)


def read_profiles(reply: str) -> list[str]:
    """The numbered lines of a reply."""
    lines = (re.match(r"\s*\W*\d+[.):]\W*\s*(.+)", line) for line in reply.splitlines())
    return [m[1].strip().strip("*").strip() for m in lines if m]


def read_talk(reply: str) -> tuple[tuple[str, str], ...]:
    """The turns of a script up to the agent's last one; lines without a speaker go on with the turn
    before, and turns of one speaker in a row are one. Empty where the user does not begin, or one of
    them says nothing.
    """
    turns: list[list[str]] = []
    for line in reply.splitlines():
        if m := SPEAKER.match(line):
            role = "user" if m[1].lower() == "user" else "assistant"
            text = line[m.end() :].strip()
            if turns and turns[-1][0] == role:
                turns[-1][1] += f"\n{text}"
            else:
                turns.append([role, text])
        elif turns and line.strip():
            turns[-1][1] += f"\n{line.strip()}"
    while turns and turns[-1][0] == "user":
        turns.pop()
    whole = bool(turns) and turns[0][0] == "user" and all(text.strip() for _, text in turns)
    return tuple((role, text.strip()) for role, text in turns) if whole else ()


def read_label(reply: str) -> float | None:
    """The one number from 0 to 1 of a reply, its last; None = there is none."""
    numbers = NUMBER.findall(reply)
    return float(numbers[-1]) if numbers else None


def words_of(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    return re.findall(r"\w+", text.lower())


def leak(talk: RecordedTalk, words: int = 6) -> str:
    """What an agent's turn has of the profile that the user has not told before: so many words in a
    row, or all of a shorter profile of three or more. "" = nothing.
    """
    profile = words_of(talk.profile)
    n = min(words, len(profile))
    if n < min(words, 3):
        return ""
    parts = {tuple(profile[i : i + n]) for i in range(len(profile) - n + 1)}
    given_grams = set[tuple[str, ...]]()
    for role, text in talk.messages:
        words_here = words_of(text)
        grams = [tuple(words_here[i : i + n]) for i in range(len(words_here) - n + 1)]
        if role == "assistant":
            known = next((g for g in grams if g in parts and g not in given_grams), None)
            if known:
                return " ".join(known)
        else:
            given_grams.update(grams)
    return ""


def split_by_profile(talks: Sequence[RecordedTalk], share: float, seed: int) -> list[RecordedTalk]:
    """The dialogues with their split, all of one profile in the same one; a dialogue whose profile
    nobody knows is alone. The splits that they come with stay if they do so already.
    """
    names = [t.profile or f"\0{i}" for i, t in enumerate(talks)]
    held = {n for n, t in zip(names, talks, strict=True) if t.split == "test"}
    rest = {n for n, t in zip(names, talks, strict=True) if t.split != "test"}
    if not held or held & rest:
        order = sorted({*names})
        n = max(1, round(share * len(order))) if len(order) > 1 else 0
        chosen = pl.rng_of((seed, "held-out profiles")).permutation(len(order))[:n]
        held = {order[i] for i in chosen}
    return [
        replace(t, split="test" if n in held else "train")
        for n, t in zip(names, talks, strict=True)
    ]


def keep_talks(
    ctx: pl.Context, talks: Sequence[RecordedTalk], words: int, share: float, more: dict[str, float]
) -> pl.Result:
    """Drops dialogues that leak, splits the others by profile and writes them as the artifact
    "dialogues". Raises UserError where too few are left.
    """
    leaks = {i: text for i, t in enumerate(talks) if words and (text := leak(t, words))}
    kept = split_by_profile([t for i, t in enumerate(talks) if i not in leaks], share, ctx.seed)
    if leaks:
        ctx.say(
            f"{len(leaks)} of {len(talks)} dialogues are left out: the agent knows of the profile what "
            f"the user has not told, such as {next(iter(leaks.values()))!r}"
        )
    unknown = sum(not t.profile for t in kept)
    if unknown:
        ctx.say(
            f"{unknown} dialogues have no profile: no leak of one is looked for, and they are held "
            "out one by one; give them a column profile"
        )
    train = [t for t in kept if t.split == "train"]
    if not train:
        raise pl.UserError(
            f"of {len(talks)} dialogues {len(leaks)} leak the profile and none is left to learn from; "
            "bring more, with two profiles or more, or set leak=0 to look for no leaks"
        )
    totals = [float(np.sum(t.reward)) for t in train]
    if len(train) > 1 and max(totals) == min(totals):
        ctx.say(
            f"all {len(train)} dialogues have the reward {totals[0]:g}, so values tell no action from "
            "another; bring better and worse ones"
        )
    file = ctx.folder / "dialogues.jsonl"
    pl.tasks.write_records(file, map(record, kept))
    metrics = {
        "dialogues": len(kept),
        "profiles": len({t.profile for t in kept if t.profile}),
        "leaks": len(leaks) / max(1, len(talks)),
        "reward_mean": float(np.mean(totals)),
        **more,
    }
    ctx.log(metrics)
    return pl.Result(
        metrics={**metrics, "sampled_tokens": ctx.sampled_tokens},
        artifacts={"dialogues": str(file)},
    )


def record(talk: RecordedTalk) -> dict[str, Any]:
    """A dialogue as a row of a data file."""
    messages = [{"role": role, "content": text} for role, text in talk.messages]
    profile = {"profile": talk.profile} if talk.profile else {}
    return {"messages": messages, "reward": talk.reward, **profile, "split": talk.split}


def talk_of(task: pl.Task, split: str) -> RecordedTalk:
    """A row of the user's file as a dialogue. Raises UserError where it is none."""
    reply = task.meta.get("demonstration")
    if not isinstance(reply, str) or "reward" not in task.meta:
        raise pl.UserError(
            f"task {task.id!r} is no dialogue with a reward; write messages, of which one at least is "
            "the assistant's, and reward; or name who imagines dialogues of a task, imagine=DIR or "
            "imagine=endpoint(...), and describe it, goal=..."
        )
    messages = (*((m.role, m.text) for m in task.prompt), ("assistant", reply))
    profile = task.meta.get("profile")
    return RecordedTalk(
        messages=messages,
        reward=task.meta["reward"],
        profile=profile if isinstance(profile, str) else "",
        split=split,
    )


@pl.declare(reads_columns=("reward", "profile"))
@pl.stage
class BroughtDialogues:
    """A program: the dialogues of the user's file, checked and split by profile, as the artifact
    "dialogues". Metrics: "dialogues" and "profiles" that are kept, "leaks", the share that is not.

    Args:
        leak: words in a row of a profile that make a leak; 0 = no leak is looked for.
        share: of the profiles, held out, unless the file holds out whole profiles itself.
        tasks: dialogues, of a source without an end.
    """

    leak: int = 6
    share: float = 0.1
    tasks: int = 600

    async def run(self, ctx: pl.Context) -> pl.Result:
        tasks = ctx.bench.tasks
        n = pl.curriculum.count_tasks(None, tasks.size, self.tasks)
        held = range(0) if tasks.size is None else pl.run.chosen_tasks(ctx.bench, 1 << 30)
        talks = [talk_of(tasks.task("train", i), "train") for i in range(n)]
        talks += [talk_of(tasks.task("test", i), "test") for i in held]
        return keep_talks(ctx, talks, self.leak, self.share, {})


@pl.stage
class ImaginedDialogues:
    """A program: `client` imagines `profiles` users of every task, and `dialogues` conversations of
    each, with agents and users of several kinds; it criticises each one, may write it anew, and says
    how well it went. What cannot be read is left out and counted: the metric "unread".

    Args:
        goal: describes the task; "" = the prompts of the data do, of a source without an end the first
            `tasks`.
        critique: whether it is asked for one.
    """

    client: pl.Source
    goal: str = ""
    profiles: int = 32
    dialogues: int = 4
    critique: bool = True
    temperature: float = 1.0
    max_tokens: int = 1024
    leak: int = 6
    share: float = 0.1
    tasks: int = 1
    brings_reward: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pl.check_bounds("profiles", self.profiles, least=2)
        pl.check_bounds("dialogues", self.dialogues, least=1)

    async def run(self, ctx: pl.Context) -> pl.Result:
        tasks = ctx.bench.tasks
        n = 0 if self.goal else pl.curriculum.count_tasks(None, tasks.size, self.tasks)
        prompts = [pl.curriculum.prompt_text(tasks.task("train", i)) for i in range(n)]
        described = [self.goal] if self.goal else prompts
        users = [
            (task, profile)
            for i, task in enumerate(described)
            for profile in await self.imagine_users(ctx, task, i)
        ]
        asked = [
            self.imagine(ctx, *user, (i, j))
            for i, user in enumerate(users)
            for j in range(self.dialogues)
        ]
        talks = [t for t in await asyncio.gather(*asked) if t is not None]
        unread = 1 - len(talks) / max(1, len(asked))
        if not talks:
            raise pl.UserError(
                f"imagine: of {len(asked)} dialogues of {len(users)} users none could be read; it has to "
                'write lines that begin with "User:" and "Agent:", and a number: take a larger model'
            )
        if unread:
            ctx.say(f"{len(asked) - len(talks)} of {len(asked)} dialogues could not be read")
        return keep_talks(ctx, talks, self.leak, self.share, {"unread": unread})

    async def imagine_users(self, ctx: pl.Context, task: str, number: int) -> list[str]:
        """Different profiles, `profiles` of them unless the client repeats itself."""
        known: dict[str, str] = {}
        for at in range(2 * -(-self.profiles // BATCH)):  # twice as often as would do
            n = min(BATCH, self.profiles - len(known))
            reply = await self.ask(ctx, PROFILES.format(task=task, n=n), (number, "users", at))
            for profile in read_profiles(reply)[:n]:
                known.setdefault(" ".join(words_of(profile)), profile)
            if len(known) >= self.profiles:
                break
        if len(known) < self.profiles:
            ctx.say(f"{len(known)} different users were imagined, of {self.profiles}")
        return [*known.values()]

    async def imagine(
        self, ctx: pl.Context, task: str, profile: str, number: tuple[int, int]
    ) -> RecordedTalk | None:
        """A conversation with its reward; None where the client's words cannot be read."""
        i, j = number
        words = {"task": task, "profile": profile}
        kind = {"agent": AGENTS[j % len(AGENTS)], "manner": MANNERS[(i + j) % len(MANNERS)]}
        messages = read_talk(await self.ask(ctx, TALK.format(**words, **kind), (i, j, "talk")))
        if not messages:
            return None
        talk = RecordedTalk(messages=messages, reward=0.0, profile=profile)
        if self.critique:
            question = CRITIQUE.format(**words, talk=talk.text)
            anew = read_talk(await self.ask(ctx, question, (i, j, "critique")))
            talk = replace(talk, messages=anew) if anew else talk
        question = LABEL.format(**words, talk=talk.text)
        reward = read_label(await self.ask(ctx, question, (i, j, "label"), 0.0))
        return None if reward is None else replace(talk, reward=reward)

    async def ask(
        self, ctx: pl.Context, question: str, at: pl.Key, temperature: float | None = None
    ) -> str:
        """The client's reply without its thinking. Raises the Fault of a client that has none."""
        request = pl.ChatRequest(
            messages=pl.services.question_messages(question),
            temperature=self.temperature if temperature is None else temperature,
            max_tokens=self.max_tokens,
        )
        seed = pl.seed_of((ctx.seed, "imagine", *at)) % (1 << 31)
        reply = await ctx.ask(self.client, request, seed=seed)
        return re.sub(r"(?s)^.*</think>", "", reply)
