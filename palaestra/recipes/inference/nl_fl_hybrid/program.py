"""Answers by proof as a program: on held-out problems, beside answers in words of at least the same
cost.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import palaestra as pl


@dataclass
class AnsweredProblem:
    """One problem: the answers in words that a hybrid has, those that as many tokens buy, and those by
    proof, all scored; the generated tokens of the hybrid; why statements were refused; how often none
    came about; and the stages whose reply was cut.
    """

    plain: list[pl.Episode]
    control: list[pl.Episode]
    proven: list[pl.worlds.FormalAnswer]
    right_by_proof: list[bool]
    tokens: int
    refused: list[str] = field(default_factory=list[str])
    unstated: int = 0
    cut: list[str] = field(default_factory=list[str])


@pl.stage
class ProveAnswers:
    """A program: the accuracy of answers by proof and in words on held-out problems.

    Its summary has the accuracy of the hybrid and of the majority of answers in words at no fewer
    generated tokens; of either alone; `answers_changed`, the share of problems whose answer is another than
    the hybrid's answers in words alone elect; `verified`, the share with a verified answer, and
    `verified_right`, the share of these that is right; `beyond_words`, the share that the hybrid solves
    and no answer in words of either kind; why statements were refused; `unstated`, how many never came
    about; and `cut`, the replies by stage that did not come to their end.

    Args:
        formaliser: aligns and writes statements; None = the run's own model.
        prover: reasons on question and statement; None = the run's own model.
        plain: answers in words.
        proofs: statements; 0 = words alone.
        tries: that are written at most until one determines the answer.
        attempts: of the prover at one statement.
        verified_first: whether verified answers stand before all others.
        seconds: of each question to z3.
        temperature: of what is said.
        tasks: held-out problems.
        prompts: of the stages.
    """

    formaliser: pl.Source | None = None
    prover: pl.Source | None = None
    plain: int = 4
    proofs: int = 2
    tries: int = 2
    attempts: int = 1
    verified_first: bool = True
    seconds: float = 2.0
    temperature: float = 1.0
    tasks: int = 32
    prompts: pl.worlds.FormalPrompts = pl.worlds.FormalPrompts()

    async def run(self, ctx: pl.Context) -> pl.Result:
        if self.proofs:
            pl.verifiers.need_z3()
        metrics = await ctx.once("answers", lambda: self._measure(ctx))
        ends = metrics["words"]["accuracy"], metrics["hybrid"]["accuracy"]
        return pl.Result(
            metrics={**pl.ends.at_ends(*ends), **metrics, "sampled_tokens": ctx.sampled_tokens}
        )

    async def _measure(self, ctx: pl.Context) -> dict[str, Any]:
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        if not all(t.prompt for t in tasks):
            raise pl.UserError(
                f"{ctx.bench.name} asks no question that could be put as an existence problem; use a "
                "task of questions, or --data"
            )
        solved = await asyncio.gather(
            *(self._solve(ctx, i, t) for i, t in zip(numbers, tasks, strict=True))
        )
        if not any(p.plain or p.proven for p in solved):
            raise pl.Fault("nl-fl-hybrid", "no problem could be answered")
        metrics = self.summary(solved)
        if refused := metrics["refused"]:
            why = max(refused, key=lambda w: refused[w])
            ctx.say(f"{sum(refused.values())} statements were refused, most often because: {why}")
        if note := self.inert_note(metrics, len(solved)):
            ctx.say(note)
        logged = ("answers_changed", "verified", "verified_right", "beyond_words", "tokens")
        accuracies = {
            f"accuracy/{way}": metrics[way]["accuracy"]["mean"]
            for way in ("words", "proofs", "hybrid")
        }
        ctx.log({**{k: metrics[k] for k in logged if metrics[k] is not None}, **accuracies})
        return metrics

    async def _solve(self, ctx: pl.Context, i: int, task: pl.Task) -> AnsweredProblem:
        plain = await self._words(ctx, ctx.key("words", i), task, self.plain)
        proven, spent = list[pl.worlds.FormalAnswer](), 0
        runners = list[pl.worlds.FormalRunner]()
        for c in range(self.proofs):
            runner, cost = self.runner(ctx, task, i, c)
            proven += await runner.run()
            runners.append(runner)
            spent += sum(cost)
        tokens = sum(e.n_sampled for e in plain) + spent
        control, more = list(plain), 0
        while sum(e.n_sampled for e in control) < tokens:
            episodes = await self._words(ctx, ctx.key("more words", i, more), task, self.plain)
            if not any(e.n_sampled for e in episodes):
                break
            control, more = [*control, *episodes], more + 1
        by_proof = await self._score(ctx, task, [a.episode for a in proven])
        right = [e.solved for e in by_proof]
        return AnsweredProblem(
            *(plain, control, proven, right, tokens),
            refused=[why for r in runners for why in r.refused],
            unstated=sum(r.unstated for r in runners),
            cut=[stage for r in runners for stage in r.cut],
        )

    async def _words(self, ctx: pl.Context, key: pl.Key, task: pl.Task, n: int) -> list[pl.Episode]:
        """Scored answers in words; those that infrastructure failed for are left out."""
        group = await pl.Sample(n=n, temperature=self.temperature)(ctx, key, pl.Group(task=task))
        return await self._score(ctx, task, group.valid)

    async def _score(
        self, ctx: pl.Context, task: pl.Task, answers: Sequence[pl.Episode]
    ) -> list[pl.Episode]:
        bare = tuple(replace(e, reward=None) for e in answers)
        scored = (await pl.Score()(ctx, (), pl.Group(task=task, episodes=bare))).episodes
        if failed := [e.status for e in scored if e.reward is None]:
            raise pl.Fault("nl-fl-hybrid", f"an answer could not be judged: {failed[0]}")
        return list(scored)

    def runner(
        self, ctx: pl.Context, task: pl.Task, i: int, stream: int
    ) -> tuple[pl.worlds.FormalRunner, list[int]]:
        """What answers a problem by proof, and where it notes generated tokens, those of an endpoint by
        the own model's tokenizer.
        """
        cost = list[int]()
        aligner = self.formaliser
        sources = {"align": aligner, "formalise": aligner, "reason": self.prover}

        async def ask(stage: str, prompt: tuple[pl.Message, ...], name: str) -> pl.Episode | None:
            key, source = ctx.key("proof", i, name), sources.get(stage)
            if source is not None:
                e = await self._ask_other(ctx, source, stage, prompt, key)
            else:
                asked = pl.Group(task=replace(task, prompt=prompt))
                sample = pl.Sample(n=1, temperature=self.temperature)
                (e,) = (await sample(ctx, key, asked)).episodes
            if not e.ok and e.status != "error:context":
                raise pl.Fault("nl-fl-hybrid", f"the stage {stage} could not be asked: {e.status}")
            cost.append(sum(len(s.ids) for r in e.rows for s in r.segments if s.trained))
            return e if e.ok else None

        def say(text: str) -> pl.Episode:
            return pl.recorded_episode(
                ctx, "policy", task.prompt, text, 0.0, of="a proven answer", judged=False
            )

        runner = pl.worlds.FormalRunner(
            task.prompt, ask, say, self.prompts, self.tries, self.attempts, self.seconds, stream
        )
        return runner, cost

    async def _ask_other(
        self,
        ctx: pl.Context,
        source: pl.Source,
        stage: str,
        prompt: tuple[pl.Message, ...],
        key: pl.Key,
    ) -> pl.Episode:
        """The reply of another model, which may have been cut at its most tokens."""
        request = pl.ChatRequest(
            messages=prompt, temperature=self.temperature, max_tokens=ctx.bench.max_tokens
        )
        seeded = replace(request, seed=pl.seed_of(key) % (1 << 31))
        reply = await ctx.client(source).chat(seeded)
        ids = tuple(ctx.engine("policy").dialect.encode_text(reply.text))
        segment = pl.Segment(ids=ids, author=stage, policy=stage, trained=True, text=reply.text)
        status = "truncated:length" if reply.finish == "length" else "finished"
        return pl.Episode(rows=(pl.Row(segments=(segment,)),), status=status)

    # ---- what it comes to

    def summary(self, problems: Sequence[AnsweredProblem]) -> dict[str, Any]:
        """The numbers of the class's docstring."""
        ways: dict[str, list[bool]] = {"words": [], "proofs": [], "hybrid": []}
        changed, beyond, verified = list[bool](), list[bool](), list[bool]()
        for p in problems:
            words, only = self._choose(p.control, [], []), self._choose(p.plain, [], [])
            proofs = self._choose([], p.proven, p.right_by_proof)
            hybrid = self._choose(p.plain, p.proven, p.right_by_proof)
            for way, (_, right) in zip(ways.values(), (words, proofs, hybrid), strict=True):
                way.append(right)
            changed.append(hybrid[0] != only[0])
            beyond.append(hybrid[1] and not any(e.solved for e in p.control))
            if any(a.verified for a in p.proven):
                verified.append(proofs[1])
        accuracies = {
            way: {"accuracy": {"of": "accuracy", **pl.stats.proportion(sum(r), len(r)).json()}}
            for way, r in ways.items()
        }
        of_words = [sum(e.n_sampled for e in p.control) for p in problems]
        return {
            **accuracies,
            "answers_changed": float(np.mean(changed)),
            "beyond_words": float(np.mean(beyond)),
            "verified": len(verified) / len(problems),
            "verified_right": float(np.mean(verified)) if verified else None,
            "tokens": float(np.mean([p.tokens for p in problems])),
            "tokens_of_words": float(np.mean(of_words)),
            "refused": dict(Counter(w for p in problems for w in p.refused).most_common(5)),
            "unstated": sum(p.unstated for p in problems),
            "cut": dict(Counter(stage for p in problems for stage in p.cut)),
        }

    def inert_note(self, metrics: Mapping[str, Any], problems: int) -> str:
        """One line where statements did not come about, with a remedy; "" where all did."""
        if not metrics["unstated"]:
            return ""
        note = (
            f"no statement came about in {metrics['unstated']} of {self.proofs * problems} tries by "
            "proof, which add nothing to the answers in words"
        )
        if cut := metrics["cut"]:
            each = ", ".join(f"{n} of {stage}" for stage, n in cut.items())
            return f"{note}; replies were cut ({each}): raise --max-tokens"
        return f"{note}; give a formaliser that writes SMT-LIB"

    def _choose(
        self,
        plain: Sequence[pl.Episode],
        proven: Sequence[pl.worlds.FormalAnswer],
        right: Sequence[bool],
    ) -> tuple[str, bool]:
        """The vote that is elected, and whether it is right; answers that were cut do not vote."""
        whole = [e for e in plain if not e.status.startswith("truncated")] or list(plain)
        votes = [
            *(a.vote for a in proven),
            *(pl.rewards.vote_of(pl.response_text(e)) for e in whole),
        ]
        verified = [*(a.verified for a in proven), *(False for _ in whole)]
        solved = [*right, *(e.solved for e in whole)]
        at = pl.worlds.elect_answer(votes, verified, verified_first=self.verified_first)
        return ("", False) if at is None else (votes[at], bool(solved[at]))
