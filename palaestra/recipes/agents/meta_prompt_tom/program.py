"""Rounds of writing, measuring and advice, as a program on held-out requests."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.agents.meta_prompt_tom.traits import (
    TRAITS,
    WORDING,
    Traits,
    expected_traits,
    rule_advice,
    rule_traits,
    trait_loss,
    traits_off,
)

LOG = "meta_prompts.jsonl"
HEADING = "Advice on how to write it:"
ADVISE = (
    "A writer got the request below and wrote the response. {caution}\n\n<question>{request}</question>\n"
    "<response>{text}</response>\n\nReaders expect another text. Measured from 0 to 1:\n{off}\n\nTell the "
    "writer in one or two sentences what to do differently. Write nothing else."
)
LONGEST = 600  # characters of a judge's advice that are shown


@dataclass(frozen=True)
class TraitDraft:
    """A text of a round: its traits and loss, and the advice that its prompt had."""

    episode: pl.Episode
    text: str
    traits: Traits
    loss: float
    advice: tuple[str, ...]


@pl.declare(reads_columns=("edited", "accepted"))
@pl.stage
class MetaPrompt:
    """A program: texts for held-out requests, by the rounds of the module and by as many without advice.

    Its summary has `aligned`, the share of requests whose kept text is within the threshold, in the first
    round, with advice and without; `rounds` until then, of those that are; the mean `loss` of each;
    `advice_gain`; the `expected` and the final traits; `edit_loss`, the distance to the traits of the
    request's own edited text, where the held-out row has one; the auditor's loss of the first and the kept
    text; `unread`, ratings that stood for the ones before them.

    Args:
        judge: measures texts and advises; None = the rules.
        auditor: measures the first and the kept text; None = the rules, where the judge is a model.
        read: how a model's rating is read: "rating", from 1 to 10, or "odds", p(Yes).
        traits: NAME: QUESTION of each.
        advice: who words it: "judge", "rules", or "none", which puts nothing behind the prompt.
        wording: of a line of the rules' advice.
        heading: above the advice; "" = none.
        rounds: texts for a request, at most.
        threshold: of L.
        smoothing: of h.
        edits: of the training split that are measured, at most.
        temperature: of the writer.
        tasks: held-out requests.
    """

    judge: pl.Source | None = None
    auditor: pl.Source | None = None
    read: Literal["rating", "odds"] = "rating"
    traits: tuple[str, ...] = TRAITS
    advice: Literal["judge", "rules", "none"] = "judge"
    wording: str = WORDING
    heading: str = HEADING
    rounds: int = 10
    threshold: float = 0.05
    smoothing: float = 0.0
    edits: int = 32
    temperature: float = 1.0
    tasks: int = 32
    brings_reward: ClassVar[bool] = True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(trait.partition(":")[0].strip() for trait in self.traits)

    async def run(self, ctx: pl.Context) -> pl.Result:
        metrics = await ctx.once("texts", lambda: self._measure(ctx))
        ends = metrics["aligned"]["first"], metrics["aligned"]["advised"]
        file = None if ctx.out is None else ctx.out / LOG
        return pl.Result(
            metrics={**pl.ends.at_ends(*ends), **metrics, "sampled_tokens": ctx.sampled_tokens},
            artifacts={"meta-prompts": str(file)} if file is not None else {},
        )

    async def _measure(self, ctx: pl.Context) -> dict[str, Any]:
        clerk = TraitClerk(self, ctx, self.judge)
        h = await self._expectation(ctx, clerk)
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        pairs = await asyncio.gather(
            *(self._both(ctx, clerk, i, t, h) for i, t in zip(numbers, tasks, strict=True))
        )
        whole = [
            (t, advised, plain)
            for t, (advised, plain) in zip(tasks, pairs, strict=True)
            if advised and plain
        ]
        why = ", ".join(f"{n} by {status}" for status, n in clerk.stopped.most_common())
        if not whole:
            raise pl.Fault("meta-prompt", f"no text could be written and measured: {why}")
        if why:
            ctx.say(
                f"rounds of requests ended early ({why}); {len(tasks) - len(whole)} are left out"
            )
        cut = sum(d.episode.status.startswith("truncated") for _, a, _ in whole for d in a)
        if cut:
            ctx.say(f"{cut} texts were cut at --max-tokens, and are measured as they are")
        self._keep(ctx, [(t, a, p) for t, a, p in whole])
        metrics = self.summary([a for _, a, _ in whole], [p for _, _, p in whole], h)
        metrics |= await self._audited(ctx, clerk, h, whole)
        metrics["unread"] = clerk.unread
        gain = {k: metrics[k] for k in ("advice_gain", "unread")}
        ctx.log({**gain, **{f"loss/{k}": x for k, x in metrics["loss"].items()}})
        if note := self.inert_note(metrics):
            ctx.say(note)
        return metrics

    async def _expectation(self, ctx: pl.Context, clerk: "TraitClerk") -> Traits:
        """h of the training split. Raises UserError where no row has an edited text that was accepted."""
        tasks = ctx.bench.tasks
        numbers = pl.run.chosen_tasks(ctx.bench, tasks.size or self.edits, "train")
        edited = list[tuple[pl.Task, str]]()
        for i in numbers:
            task = tasks.task("train", i)
            if text := edited_text(task):
                edited.append((task, text))
        if not edited:
            raise pl.UserError(
                f"{ctx.bench.name}: no training row has an edited text that was accepted; write texts as "
                "people publish them in the column edited"
            )
        vectors = await asyncio.gather(*(clerk.measure(t, x) for t, x in edited[-self.edits :]))
        read = [v for v in vectors if v is not None]
        if not read:
            raise pl.UserError(
                "the judge's rating of no edited text could be read; read=odds asks for one word"
            )
        return expected_traits(read, self.smoothing)

    async def _both(
        self, ctx: pl.Context, clerk: "TraitClerk", i: int, task: pl.Task, h: Traits
    ) -> tuple[list[TraitDraft], list[TraitDraft]]:
        """The rounds with advice, and those without from the same first text; none where somebody who
        is asked fails.
        """
        try:
            first = await self._draft(ctx, clerk, (i, 0), task, h, (), None)
            if first is None:
                return [], []
            return (
                await self._rounds(ctx, clerk, i, task, h, first, advised=True),
                await self._rounds(ctx, clerk, i, task, h, first, advised=False),
            )
        except pl.Fault as fault:
            clerk.stopped[fault.cause] += 1
            return [], []

    async def _rounds(
        self,
        ctx: pl.Context,
        clerk: "TraitClerk",
        i: int,
        task: pl.Task,
        h: Traits,
        first: TraitDraft,
        advised: bool,
    ) -> list[TraitDraft]:
        drafts, advice = [first], tuple[str, ...]()
        while len(drafts) < self.rounds and drafts[-1].loss > self.threshold:
            last = drafts[-1]
            if advised and self.advice != "none":
                comment = await clerk.advise(task, last, h)
                advice = (*advice, comment) if comment not in advice else advice
            made = await self._draft(ctx, clerk, (i, len(drafts)), task, h, advice, last.traits)
            if made is None:
                break
            drafts.append(made)
        return drafts

    async def _draft(
        self,
        ctx: pl.Context,
        clerk: "TraitClerk",
        at: tuple[int, int],
        task: pl.Task,
        h: Traits,
        advice: tuple[str, ...],
        before: Traits | None,
    ) -> TraitDraft | None:
        """A text and its measure; None where none came, or it could not be measured."""
        asked = replace(task, prompt=with_advice(task.prompt, advice, self.heading))
        sample = pl.Sample(n=1, temperature=self.temperature)
        (e,) = (await sample(ctx, ctx.key("text", *at), pl.Group(task=asked))).episodes
        if not e.ok:  # "error:context" where advice has filled the model's context
            clerk.stopped[e.status] += 1
            return None
        text = pl.judges.reply_after_thinking(pl.response_text(e))
        v = await clerk.measure(task, text, before)
        if v is None:
            clerk.stopped["an unread rating"] += 1
            return None
        return TraitDraft(e, text, v, trait_loss(v, h), advice)

    def _keep(
        self, ctx: pl.Context, whole: Sequence[tuple[pl.Task, list[TraitDraft], list[TraitDraft]]]
    ) -> None:
        """Writes every round, and gives the attempts of each to the run folder."""
        for r in range(self.rounds):
            there = [(t, a[r]) for t, a, _ in whole if len(a) > r]
            if there:
                groups = [pl.Group(task=t, episodes=(paid(d, self.threshold),)) for t, d in there]
                ctx.attempted(f"round {r + 1}", groups)
        if ctx.out is None:
            return
        lines = list[dict[str, Any]]()
        for task, advised, plain in whole:
            for arm, drafts in (("advised", advised), ("plain", plain)):
                best = best_of(drafts)
                for r, d in enumerate(drafts):
                    row = {
                        "request": pl.tasks.question_text(task),
                        "arm": arm,
                        "round": r + 1,
                        "advice": list(d.advice),
                        "text": d.text,
                        "traits": dict(zip(self.names, d.traits, strict=True)),
                        "loss": d.loss,
                        "kept": d is best,
                    }
                    lines.append(row)
        pl.tasks.write_records(Path(ctx.out / LOG), lines)

    async def _audited(
        self,
        ctx: pl.Context,
        clerk: "TraitClerk",
        h: Traits,
        whole: Sequence[tuple[pl.Task, list[TraitDraft], list[TraitDraft]]],
    ) -> dict[str, Any]:
        """Distances to held-out rows' own edited texts, and what the second judge measures."""
        audit: dict[str, Any] = {"edit_loss": None, "audit": None}
        own = [(t, a, text) for t, a, _ in whole if (text := edited_text(t))]
        if own:
            v = await asyncio.gather(*(clerk.measure(t, text) for t, _, text in own))
            pairs = [(a, x) for (_, a, _), x in zip(own, v, strict=True) if x is not None]
            if pairs:
                audit["edit_loss"] = {
                    "first": mean([trait_loss(a[0].traits, x) for a, x in pairs]),
                    "kept": mean([trait_loss(best_of(a).traits, x) for a, x in pairs]),
                }
        if self.judge is None and self.auditor is None:
            return audit
        if self.auditor is None and self.traits != TRAITS:
            return audit  # the rules know four traits alone
        auditor = TraitClerk(self, ctx, self.auditor)
        g = await self._expectation(ctx, auditor)
        ends = [(t, d.text) for t, a, _ in whole for d in (a[0], best_of(a))]
        v = await asyncio.gather(*(auditor.measure(t, x) for t, x in ends))
        both = [(x, y) for x, y in zip(v[::2], v[1::2], strict=True) if x and y]
        if both:
            audit["audit"] = {
                "first": mean([trait_loss(x, g) for x, _ in both]),
                "kept": mean([trait_loss(y, g) for _, y in both]),
            }
        return audit

    def summary(
        self,
        advised: Sequence[Sequence[TraitDraft]],
        plain: Sequence[Sequence[TraitDraft]],
        h: Traits,
    ) -> dict[str, Any]:
        """The numbers of the class's docstring, of rounds by request."""
        kept = {"advised": [best_of(a) for a in advised], "plain": [best_of(p) for p in plain]}
        ways = {"first": [a[0] for a in advised], **kept}
        aligned = {
            way: {"of": "accuracy"}
            | pl.stats.proportion(sum(d.loss <= self.threshold for d in x), len(x)).json()
            for way, x in ways.items()
        }
        needed = {
            way: [len(x) for x in arm if x[-1].loss <= self.threshold]
            for way, arm in (("advised", advised), ("plain", plain))
        }
        gains = [p.loss - a.loss for a, p in zip(kept["advised"], kept["plain"], strict=True)]
        final_EK = np.array([d.traits for d in kept["advised"]])
        return {
            "aligned": aligned,
            "rounds": {way: mean(x) if x else None for way, x in needed.items()},
            "loss": {way: mean([d.loss for d in x]) for way, x in ways.items()},
            "advice_gain": mean(gains),
            "expected": dict(zip(self.names, h, strict=True)),
            "traits": dict(zip(self.names, final_EK.mean(0).tolist(), strict=True)),
        }

    def inert_note(self, metrics: Mapping[str, Any]) -> str:
        """One line where advice did not help, and why that may be; "" where it did."""
        if self.advice == "none" or self.rounds == 1 or metrics["advice_gain"] > 0:
            return ""
        if metrics["aligned"]["first"]["mean"] == 1:
            return (
                "every first text is within the threshold, so no advice was given; lower threshold"
            )
        return (
            "texts with advice are no closer than as many without; look at the advice in "
            f"{LOG}, and try a writer that follows instructions"
        )


@dataclass
class TraitClerk:
    """Measures texts for a program, and words advice: by a model, or by the rules. `unread` counts
    ratings that could not be read twice, `stopped` why rounds ended early.
    """

    program: MetaPrompt
    ctx: pl.Context
    judge: pl.Source | None
    unread: int = 0
    stopped: Counter[str] = field(default_factory=Counter[str])

    async def measure(
        self, task: pl.Task, text: str, before: Traits | None = None
    ) -> Traits | None:
        """The traits of a text. A rating that cannot be read is asked for once more, then that of
        `before` stands; None where there is none.
        """
        if self.judge is None:
            return rule_traits(pl.tasks.question_text(task), text)
        read = await asyncio.gather(
            *(self._rate(self.judge, task, text, trait) for trait in self.program.traits)
        )
        self.unread += sum(x is None for x in read)
        if before is not None:
            read = [b if x is None else x for x, b in zip(read, before, strict=True)]
        values = tuple(x for x in read if x is not None)
        return values if len(values) == len(read) else None

    async def _rate(self, judge: pl.Source, task: pl.Task, text: str, trait: str) -> float | None:
        name, _, question = trait.partition(":")
        read: Any = pl.judges.Odds() if self.program.read == "odds" else pl.judges.Rating()
        once = pl.Judge(client=judge, rubric=question.strip(), read=read, name=name.strip())
        for asked in (once, replace(once, temperature=1.0)):
            try:
                return (await asked.judge_one(self.ctx, task, text)).score
            except pl.Fault as fault:
                if fault.cause != "judge-unparsed":
                    raise
        return None

    async def advise(self, task: pl.Task, draft: TraitDraft, h: Traits) -> str:
        """What to change of a text; the rules' words where the judge has none."""
        off = traits_off(draft.traits, h, self.program.names)
        by_rules = rule_advice(off, self.program.wording)
        if self.judge is None or self.program.advice == "rules":
            return by_rules
        asked = ADVISE.format(
            caution=pl.judges.CAUTION,
            request=pl.judges.defuse(pl.tasks.question_text(task)),
            text=pl.judges.defuse(draft.text),
            off=rule_advice(off, "- {trait}: {value}, expected {expected}"),
        )
        reply = await self.ctx.ask(self.judge, asked)
        return pl.judges.reply_after_thinking(reply)[:LONGEST].strip() or by_rules


def edited_text(task: pl.Task) -> str:
    """The text as a person edited it; "" where there is none, or it was not accepted."""
    text = task.meta.get("edited")
    accepted = pl.needs.truth_of(task.meta.get("accepted")) is not False
    return text if accepted and isinstance(text, str) and text.strip() else ""


def with_advice(
    prompt: tuple[pl.Message, ...], advice: Sequence[str], heading: str
) -> tuple[pl.Message, ...]:
    """The prompt with advice behind its last message; as it is where there is none."""
    if not advice:
        return prompt
    *before, last = prompt
    gap, lines = ("\n\n", [heading, *advice]) if heading else ("\n", list(advice))
    return (*before, replace(last, content=last.content + gap + "\n".join(lines)))


def best_of(drafts: Sequence[TraitDraft]) -> TraitDraft:
    """The text of the lowest loss, of equal ones the earliest."""
    return min(drafts, key=lambda d: d.loss)


def paid(draft: TraitDraft, threshold: float) -> pl.Episode:
    """The episode of a text, with 1 - L as its reward and whether it is aligned."""
    reward = pl.Reward(total=1 - draft.loss, solved=draft.loss <= threshold)
    return replace(draft.episode, reward=reward)


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
