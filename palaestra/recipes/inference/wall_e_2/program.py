"""WALL-E 2.0 as a program: rounds of acting and learning rules, and an exam with and without them."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.inference.wall_e_2.recorded import read_transitions
from palaestra.recipes.inference.wall_e_2.rules import (
    LoggedAction,
    PrunedRules,
    VetoRule,
    induce_rules,
    knowledge_graph,
    prune_rules,
    rules_as_code,
    scene_features,
)
from palaestra.recipes.inference.wall_e_2.world import (
    FAILURE,
    ImaginedFirst,
    Predict,
    PredictedFrame,
)
from palaestra.recipes.inference.wall_e_2.written import forecast_by_model, run_written, write_rules

NEARLY_ALL = 0.9  # of the actions of a round


@pl.value_class
class WorldRules:
    """What is known of a world: rules of the built-in form, and rules that a model wrote as Python."""

    induced: tuple[VetoRule, ...] = ()
    written: tuple[str, ...] = ()

    def vetoes(self, log: Sequence[LoggedAction]) -> list[list[bool | None]]:
        """By rule, the written ones last, whether it vetoes each transition; None = it broke there."""
        features = [scene_features(t.state, t.scene) for t in log]
        rows: list[list[bool | None]] = [
            [r.applies(t.action, f) for t, f in zip(log, features, strict=True)]
            for r in self.induced
        ]
        if self.written and log:
            cases = [(t.state, t.action, t.scene) for t in log]
            outcomes = run_written(self.written, cases)
            rows += [[None if x is None else x.fails for x in row] for row in outcomes]
        return rows

    def at(self, numbers: Sequence[int]) -> "WorldRules":
        """Those of some numbers, in the order of `vetoes`."""
        n = len(self.induced)
        return WorldRules(
            induced=tuple(self.induced[i] for i in numbers if i < n),
            written=tuple(self.written[i - n] for i in numbers if i >= n),
        )

    def forecast(self, state: str, action: str, scene: dict[str, str]) -> PredictedFrame:
        """What the first rule says that forbids an action."""
        features = scene_features(state, scene)
        for r in self.induced:
            if r.applies(action, features):
                return PredictedFrame(feedback=r.feedback, suggestion=r.suggestion)
        if self.written:
            for (predicted,) in run_written(self.written, [(state, action, scene)]):
                if predicted is not None and predicted.fails:
                    return predicted
        return PredictedFrame()


def veto_precision(rules: WorldRules, log: Sequence[LoggedAction]) -> float | None:
    """The share of vetoed transitions of a log that failed; None where none is vetoed."""
    rows = rules.vetoes(log)
    hit = [i for i in range(len(log)) if any(row[i] for row in rows)]
    return float(np.mean([not log[i].success for i in hit])) if hit else None


@pl.stage
class AlignWorldModel:
    """A program: plays training tasks in rounds, learns rules from all transitions after each, and
    plays held-out tasks alone and with the world model.

    Its summary has of either arm the accuracy or reward, failing actions an episode, and actions; of
    the world model `avoided`, actions an episode that it vetoed and that would have failed, and
    `veto_precision`, the share of vetoes that were right; and the precision that the rules have on the
    actions of the agent alone with and without pruning.

    Args:
        rounds: of playing and learning; 0 = only `transitions` are learned from.
        games: training tasks of a round.
        tasks: held-out tasks.
        transitions: logged transitions: a file of rows, the folder of a run whose rollouts were kept, or the
            record of `palaestra play --json`; "" = none.
        learn: whether rules are learned.
        prune: whether rules that veto a success are dropped, and the others chosen by coverage.
        tries: imagined actions in a row at most.
        batch: transitions that rules are induced from at a time.
        least: failures of a batch that a rule must explain.
        miner: a language model that also writes rules; None = they are induced alone.
        predictor: a language model that says whether an action will work; None = each is expected to.
        failure: what the world says of an action that failed, as a regular expression.
        say: what the agent is told of an imagined failure; see `ImaginedFirst`.
        look: whether a fork of the environment is asked what a vetoed action would have done, to measure
            vetoes; never where the agent has tools, which may act on something outside.
        temperature: of the agent.
    """

    rounds: int = 4
    games: int = 32
    tasks: int = 32
    transitions: str = ""
    learn: bool = True
    prune: bool = True
    tries: int = 5
    batch: int = 100
    least: int = 2
    miner: pl.Source | None = None
    predictor: pl.Source | None = None
    failure: str = FAILURE
    say: str = ImaginedFirst.say
    look: bool = True
    temperature: float = 1.0

    async def run(self, ctx: pl.Context) -> pl.Result:
        if len(ctx.bench.world.seats) != 1:
            raise pl.UserError(
                f"wall-e-2 learns what one agent's actions do, and {ctx.bench.name} has the seats "
                f"{', '.join(ctx.bench.world.seats)}; use an environment of one seat"
            )
        learned = await ctx.once("rules", lambda: self._rounds(ctx))
        rules, all_rules = _rules_from(learned["rules"]), _rules_from(learned["candidates"])
        exam = await ctx.once("exam", lambda: self._exam(ctx, rules, all_rules))
        files = self._write(ctx, rules) if ctx.out else {}
        ends = exam["alone"]["outcome"], exam["world model"]["outcome"]
        metrics = {
            "rules": len(rules.induced) + len(rules.written),
            "rules_written": len(rules.written),
            "rules_without_pruning": len(all_rules.induced) + len(all_rules.written),
            "transitions": learned["transitions"],
            **exam,
            "sampled_tokens": ctx.sampled_tokens,
        }
        return pl.Result(metrics={**pl.ends.at_ends(*ends), **metrics}, artifacts=files)

    # ---- rounds

    async def _rounds(self, ctx: pl.Context) -> dict[str, Any]:
        log = read_transitions(ctx, self.transitions, self.failure) if self.transitions else []
        known, candidates, replies = WorldRules(), WorldRules(), Counter[str]()
        if log:
            known, candidates = await self._learn(ctx, log, candidates, 0)
        first = pl.curriculum.first_number(ctx)
        size = ctx.bench.tasks.size
        for r in range(self.rounds):
            numbers = [first + r * self.games + i for i in range(self.games)]
            numbers = numbers if size is None else [i % size for i in numbers]
            played = await self._play(
                ctx, ("round", r), "train", numbers, known, self.tries, replies
            )
            log += [t for e in played for t in e.facts.get("logged", ())]
            if self.learn:
                known, candidates = await self._learn(ctx, log, candidates, r + 1)
            numbers_of_round = measure_games(played)
            if share := nearly_all_failed(played):
                ctx.say(
                    f"round {r + 1}: {share:.0%} of all actions failed; if some of them worked, what the "
                    'environment says matches failure: give failure="REGEX", or say it by the fact success'
                )
            logged = {k: v for k, v in numbers_of_round.items() if isinstance(v, int | float)}
            ctx.log({"round": r + 1, "rules": len(known.induced) + len(known.written), **logged})
        if self.learn and not (known.induced or known.written):
            failed = sum(not t.success for t in log)
            ctx.say(
                f"no rule was learned: {failed} of {len(log)} actions failed; induced rules read only the "
                "first word of an action, and what depends on the others a miner can write"
            )
        if self.learn and self.miner is not None and log and not candidates.written:
            ctx.say(
                "the miner gave no rule: no reply had a fence ```python with `def rule(`, or nothing "
                "failed that was expected to work; its replies may be cut by max_tokens"
            )
        say_replies(ctx, replies)
        return {
            "rules": _plain(known),
            "candidates": _plain(candidates),
            "transitions": len(log),
        }

    async def _learn(
        self, ctx: pl.Context, log: Sequence[LoggedAction], before: WorldRules, number: int
    ) -> tuple[WorldRules, WorldRules]:
        """The rules of all transitions so far, and all that were proposed for them."""
        batches = [log[i : i + self.batch] for i in range(0, len(log), self.batch)]
        induced = [r for b in batches for r in induce_rules(b, self.least)]
        written = list(before.written)
        if self.miner is not None and batches:
            written += await write_rules(ctx, self.miner, batches[-1], number)
        proposed = WorldRules(
            induced=tuple(dict.fromkeys([*before.induced, *induced])),
            written=tuple(dict.fromkeys(written)),
        )
        if not self.prune:
            return proposed, proposed
        vetoes = await asyncio.to_thread(proposed.vetoes, log)
        pruned: PrunedRules = prune_rules(vetoes, log)
        return proposed.at(pruned.chosen), proposed

    # ---- play

    async def _play(
        self,
        ctx: pl.Context,
        name: tuple[str | int, ...],
        split: Any,
        numbers: Sequence[int],
        rules: WorldRules,
        tries: int,
        replies: Counter[str],
    ) -> list[pl.Episode]:
        """Scored episodes in which actions are imagined first; `replies` of the predictor are counted."""
        world = ImaginedFirst(
            ctx.bench.world,
            self.predict_with(ctx, rules, replies),
            turns=ctx.bench.max_turns,
            tries=tries,
            failure=self.failure,
            say=self.say,
            look=self.look and not isinstance(ctx.bench.world, pl.abilities.OffersTools),
        )
        turns = ctx.bench.max_turns * (tries + 1)
        there = ctx.with_bench(replace(ctx.bench, world=world, max_turns=turns))

        async def one(i: int) -> tuple[pl.Episode, ...]:
            group, key = pl.Group(task=ctx.bench.tasks.task(split, i)), ctx.key(*name, i)
            played = await pl.Sample(n=1, temperature=self.temperature)(there, key, group)
            return (await pl.Score()(there, key, played)).valid

        episodes = [e for each in await asyncio.gather(*map(one, numbers)) for e in each]
        if not episodes:
            raise pl.Fault("wall-e-2", "no task could be played")
        return episodes

    def predict_with(self, ctx: pl.Context, rules: WorldRules, replies: Counter[str]) -> Predict:
        """The world model: what `predictor` expects, and what rules forbid. A reply without yes or no
        counts as yes.
        """

        async def predict(state: str, action: str, scene: dict[str, str]) -> PredictedFrame:
            expected = True
            if self.predictor is not None:
                success = await forecast_by_model(ctx, self.predictor, state, action, scene)
                replies["unclear" if success is None else "clear"] += 1
                expected = success is not False
            run = asyncio.to_thread if rules.written else _at_once
            forecast: PredictedFrame = await run(rules.forecast, state, action, scene)
            if not expected and not forecast.fails:
                forecast = PredictedFrame(feedback="It is expected to fail.")
            return replace(forecast, expected=expected)

        return predict

    # ---- the exam

    async def _exam(
        self, ctx: pl.Context, rules: WorldRules, candidates: WorldRules
    ) -> dict[str, Any]:
        numbers, replies = pl.run.chosen_tasks(ctx.bench, self.tasks), Counter[str]()
        alone = await self._play(ctx, ("exam",), "test", numbers, WorldRules(), 0, Counter())
        aided = await self._play(ctx, ("exam",), "test", numbers, rules, self.tries, replies)
        log = [t for e in alone for t in e.facts.get("logged", ())]
        arms = {"alone": measure_games(alone), "world model": measure_games(aided)}
        both = arms["world model"]
        ends = [x["outcome"]["mean"] for x in (both, arms["alone"])]
        if ends[0] < ends[1]:
            ctx.say(
                f"with the world model the agent ends at {ends[0]:.3g}, below {ends[1]:.3g} alone: rules "
                "may forbid what works; see rules.py, veto_precision and what counts as a failure"
            )
        ctx.log(
            {
                "avoided": both["avoided"],
                "failed": both["failed"],
                "failed_alone": arms["alone"]["failed"],
            }
        )
        return {
            **arms,
            "precision_on_agent_alone": veto_precision(rules, log),
            "precision_without_pruning": veto_precision(candidates, log),
            **say_replies(ctx, replies),
        }

    def _write(self, ctx: pl.Context, rules: WorldRules) -> dict[str, str]:
        """The rules as Python, and the knowledge graph, in the run folder."""
        code, graph = ctx.folder / "rules.py", ctx.folder / "graph.json"
        text = rules_as_code(rules.induced)
        for i, own in enumerate(rules.written):
            text += f"\n\n# written by a model: run it in a sandbox alone\nWRITTEN_{i} = {own!r}\n"
        code.write_text(text)
        graph.write_text(json.dumps(knowledge_graph(rules.induced), indent=1) + "\n")
        return {"rules": str(code), "graph": str(graph)}


def measure_games(episodes: Sequence[pl.Episode]) -> dict[str, Any]:
    """Of some episodes the accuracy, or the mean reward where nobody knows what is solved, actions and
    failing actions an episode, vetoes an episode and those that avoided a failure, and the share of
    vetoes that were right (None where none is known).
    """
    logs = [e.facts.get("logged", ()) for e in episodes]
    vetoes = [e.facts.get("vetoes", ()) for e in episodes]
    known = [v for each in vetoes for v in each if v is not None]
    if all(e.reward is not None and e.reward.solved is not None for e in episodes):
        interval = pl.stats.proportion(sum(e.solved for e in episodes), len(episodes))
        outcome = {"of": "accuracy", **interval.json()}
    else:
        mean = pl.stats.mean_interval([e.total for e in episodes])
        outcome = {"of": "reward", **mean.json()}
    n = len(episodes)
    return {
        "outcome": outcome,
        "actions": sum(map(len, logs)) / n,
        "failed": sum(not t.success for log in logs for t in log) / n,
        "vetoes": sum(map(len, vetoes)) / n,
        "avoided": sum(known) / n,
        "veto_precision": float(np.mean(known)) if known else None,
    }


def say_replies(ctx: pl.Context, replies: Counter[str]) -> dict[str, int]:
    """Notes how many replies of the predictor say neither yes nor no, as metrics too; {} = it was not
    asked.
    """
    asked = replies.total()
    if replies["unclear"]:
        ctx.say(
            f"the predictor said neither yes nor no in {replies['unclear']} of {asked} replies, which "
            "count as yes"
        )
    return {"forecasts": asked, "unclear_forecasts": replies["unclear"]} if asked else {}


def nearly_all_failed(episodes: Sequence[pl.Episode]) -> float:
    """The share of actions that failed where it is suspiciously high, else 0."""
    log = [t for e in episodes for t in e.facts.get("logged", ())]
    share = float(np.mean([not t.success for t in log])) if log else 0.0
    return share if share >= NEARLY_ALL else 0.0


async def _at_once(call: Any, *given: Any) -> Any:
    return call(*given)


def _plain(rules: WorldRules) -> dict[str, Any]:
    return {"induced": [asdict(r) for r in rules.induced], "written": list(rules.written)}


def _rules_from(plain: dict[str, Any]) -> WorldRules:
    made = (
        VetoRule(kind=r["kind"], present=tuple(r["present"]), absent=tuple(r["absent"]))
        for r in plain["induced"]
    )
    return WorldRules(induced=tuple(made), written=tuple(plain["written"]))
