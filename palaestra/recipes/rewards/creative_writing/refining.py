"""The adversarial loop over the rules of a judge, with language models in its four roles."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl

JUDGE = "judge"
QUERIES = 64  # prompts of the data that the writer is asked for at most
MARKED = re.compile(r"\[\[(Good|Bad)\]\]")
WRITE = (
    "Write a reply to the request below. It must look good at first sight and have one flaw of your choice. "
    "{rules}Put the reply between <reply> and </reply>, then name the flaw in one sentence between <flaw> "
    "and </flaw>.\n\n<request>{query}</request>"
)
DETECT = (
    "Does the reply keep all of these rules?\n{rules}\n\n<request>{query}</request>\n<reply>{reply}</reply>\n\n"
    "Say in one sentence, between <advice> and </advice>, which flaw you looked for, then end with [[Good]] "
    "or [[Bad]]."
)
REFLECT = (
    "People call this reply {label}, and a judge with these rules says the opposite.\n{rules}\n\n"
    "<request>{query}</request>\n<reply>{reply}</reply>\n\nSay in one sentence, between <advice> and "
    "</advice>, which rule is missing or wrong."
)
MERGE = (
    "Revise this list of rules by the advice. Join rules that say the same, remove those that contradict the "
    "advice, and keep at most {most}. Write one rule a line between <rules> and </rules>, nothing else.\n"
    "{rules}\n\nAdvice: {advice}"
)

Reply = tuple[str, str]  # the request and the text


def tagged(text: str, tag: str) -> str:
    """What stands between the last pair of tags; "" where there is none."""
    inside = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return inside[-1].strip() if inside else ""


def listed(rules: Sequence[str]) -> str:
    return "\n".join(f"- {rule}" for rule in rules)


def read_rules(text: str) -> list[str]:
    """Rules of a text, one a line, without list marks."""
    return [x for line in text.splitlines() if (x := line.strip().lstrip("-*• ").strip())]


def refine_by_models(
    ask: Callable[[str, str], str], rounds: int, queries: int = 4
) -> pl.rewards.Refine:
    """The loop with models in its roles; `ask(role, question)` gives the reply of one."""

    def write(
        query: str, rules: pl.rewards.RuleList, rng: np.random.Generator
    ) -> tuple[Reply, str]:
        advice = f"Such flaws have worked:\n{listed(rules)}\n" if rules else ""
        text = ask("writer", WRITE.format(rules=advice, query=query))
        return (query, tagged(text, "reply") or text), tagged(text, "flaw")

    def detect(
        reply: Reply, rules: pl.rewards.RuleList, rng: np.random.Generator
    ) -> pl.rewards.RuleVerdict:
        text = ask("detector", DETECT.format(rules=listed(rules), query=reply[0], reply=reply[1]))
        marks = MARKED.findall(text)
        good = bool(marks) and marks[-1] == "Good"
        return pl.rewards.RuleVerdict(good=good, advice=tagged(text, "advice"))

    def reflect(reply: Reply, good: bool, rules: pl.rewards.RuleList) -> str:
        label, (query, text) = "good" if good else "bad", reply
        advice_reply = ask(
            "reflector", REFLECT.format(label=label, rules=listed(rules), query=query, reply=text)
        )
        return tagged(advice_reply, "advice")

    def merge(rules: pl.rewards.RuleList, advice: str) -> list[str] | None:
        if not advice:
            return None  # the old list stays
        asked = MERGE.format(most=pl.rewards.MOST_RULES, rules=listed(rules), advice=advice)
        return read_rules(tagged(ask("reflector", asked), "rules")) or None

    return pl.rewards.Refine(write, detect, reflect, merge, rounds=rounds, queries=queries)


def read_labelled(path: str) -> list[tuple[Reply, bool]]:
    """Replies that people have labelled: records with prompt, response and right.

    Raises:
        UserError: a record lacks one of them.
    """
    pool = list[tuple[Reply, bool]]()
    for records in pl.tasks.open_records(path).values() if path else ():
        for i, record in enumerate(records):
            prompt, response, right = (record.get(k) for k in ("prompt", "response", "right"))
            if not isinstance(prompt, str) or not isinstance(response, str) or right is None:
                raise pl.UserError(
                    f"{records.where(i)}: a labelled reply has prompt, response and right (true or "
                    "false); write all three"
                )
            pool.append(((prompt, response), bool(right)))
    return pool


@pl.declare(columns=(("rules", tuple, "the rules that a reply is judged by"),))
@pl.stage
class RefinedRules:
    """Draws as `source` does, each task with the column `rules`: the list that the loop makes of
    `rules` before the first step. It stands in written/rules.txt of the run folder, one a line; a
    person may change it there, and a run that goes on reads it.
    """

    rules: pl.rewards.RuleList
    writer: pl.Source
    detector: pl.Source
    reflector: pl.Source
    rounds: int = 10
    labelled: str = ""  # a file of replies that people have labelled
    source: pl.Draw = pl.Shuffled()

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        file = None if ctx.out is None else ctx.out / "written" / "rules.txt"
        if file is not None and file.is_file():
            rules = tuple(read_rules(file.read_text(encoding="utf-8")))
        elif "rules" in state:
            rules = tuple(state["rules"])
        else:
            rules = await self._refine(ctx, file)
        tasks, inner = self.source(ctx, key, n, state.get("inner", {}))
        made = [replace(t, meta={**t.meta, "rules": rules}) for t in tasks]
        return made, {"inner": inner, "rules": rules}

    async def _refine(self, ctx: pl.Context, file: Path | None) -> pl.rewards.RuleList:
        clients = {
            "writer": self.writer,
            "detector": self.detector,
            "reflector": self.reflector,
        }
        loop, count = asyncio.get_running_loop(), 0

        def ask(role: str, question: str) -> str:
            nonlocal count
            count += 1
            seed = pl.seed_of((ctx.seed, "rules", count)) % (1 << 31)
            reply = ctx.ask(clients[role], question, seed=seed)
            return asyncio.run_coroutine_threadsafe(reply, loop).result()

        tasks = ctx.bench.tasks
        queries = [
            pl.tasks.question_text(tasks.task("train", i))
            for i in range(min(QUERIES, tasks.size or QUERIES))
        ]
        refine = refine_by_models(ask, self.rounds)
        rng, pool = pl.rng_of((ctx.seed, "rules")), read_labelled(self.labelled)
        # in a thread, as the loop waits for each reply, and the replies come by this thread
        rules, _ = await asyncio.to_thread(refine, queries, pool, self.rules, (), rng)
        new = sum(rule not in self.rules for rule in rules)
        ctx.say(f"{new} of the judge's {len(rules)} rules are new; {count} questions were asked")
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{rule}\n" for rule in rules), encoding="utf-8")
        return rules


@pl.stage
class JudgedByRules:
    """The judge, with the task's column `rules` as its rubric."""

    judge: pl.Judge

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
        rules: Any = group.task.meta.get("rules")
        judge = replace(self.judge, rubric="\n".join(rules)) if rules else self.judge
        return await judge(ctx, group)
