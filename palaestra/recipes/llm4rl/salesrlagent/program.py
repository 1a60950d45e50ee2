"""Predictors of a conversation's outcome that are learned from rewards, and the arms in which they are
compared.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.salesrlagent.judge import JudgedTurns, judge_talks
from palaestra.recipes.llm4rl.salesrlagent.live import PredictorSettings, save_settings
from palaestra.recipes.llm4rl.salesrlagent.predictors import (
    PredictionGames,
    Rewarded,
    advice_of,
    distances,
    fit_supervised,
    measure_predictions,
    predict,
    scores_by_turn,
    selective,
    supervised_probabilities,
)
from palaestra.recipes.llm4rl.salesrlagent.states import (
    EFFECTIVENESS,
    ENGAGEMENT,
    OUTCOME,
    TalkTable,
    exchanged,
    table_of,
)
from palaestra.recipes.llm4rl.salesrlagent.talks import SalesTalk, SimulatedTalks, recorded_talks

Doubt = Literal["ensemble", "distance"]
SPLITS = ("train", "test")
JUDGED = (ENGAGEMENT, EFFECTIVENESS, OUTCOME)  # metrics, in the order of a judge's scores
PREDICTIONS = "predictions.jsonl"  # in the run folder


@pl.declare(reads_columns=("converted",))
@pl.stage
class PredictConversion:
    """A program: PPO says after each message how likely the outcome is; see the module of the recipe.

    Args:
        asked: scores conversations so far; None = metrics are 0.5, and no arm has them.
        talks: simulated conversations; None = those of the run's data.
        goal: the outcome in words, for the language model.
        cue: whether the policy also reads the probability that the language model states.
        embed: FILE.py:NAME, from a list of texts to vectors; "" = hashed words, `width` numbers.
        turns: messages of a conversation that are read, at most.
        steps: messages that an arm learns from.
        members: policies of the ensemble.
        cover: share of the predictions for training conversations that are certain enough to be given.
        calls: conversations so far that are asked about, at most; 0 = all.
        epochs: of the supervised arms.
    """

    asked: pl.Source | None = None
    talks: SimulatedTalks | None = None
    goal: str = "the customer buys"
    cue: bool = False
    embed: str = ""
    width: int = 64
    turns: int = 20
    flip: float = 0.05
    bonus: float = 1.0
    steps: int = 20_000
    doubt: Doubt = "ensemble"
    members: int = 3
    cover: float = 0.9
    calls: int = 0
    epochs: int = 15
    learner: pl.control.PPO = pl.control.PPO(
        objective=pl.Clipped(reduce="tokens") + 0.5 * pl.ValueLoss(clip=0.0),
        games=32,
        gamma=1.0,
        lam=1.0,
    )
    brings_reward: ClassVar[bool] = True
    smallest: ClassVar[Mapping[str, float]] = {"members": 2, "epochs": 2}

    def __post_init__(self) -> None:
        pl.check_bounds("width", self.width, least=1)
        pl.check_bounds("turns", self.turns, least=1)
        pl.check_bounds("members", self.members, least=1)
        pl.check_bounds("epochs", self.epochs, least=1)
        pl.check_bounds("cover", self.cover, least=0, most=1)
        pl.check_bounds("flip", self.flip, least=0)
        pl.check_bounds("bonus", self.bonus, least=0)
        if self.doubt == "ensemble" and self.members < 2:
            raise pl.UserError(
                "doubt=ensemble compares members: members=2 or more, or doubt=distance"
            )

    async def run(self, ctx: pl.Context) -> pl.Result:
        study = await self.prepare(ctx)
        results = await pl.control.compare_arms(ctx, study.arms())
        ctx.spend("env_steps", sum(r.get("env_steps", 0) for r in results.values()))
        guided = "guide" if self.asked else "none"
        own = results[guided]
        ctx.log({"arm": guided, "moved": own["moved"], "brier": own["brier"]})
        best = min(
            (n for n in results if n in ("logistic", "gru")), key=lambda n: results[n]["brier"]
        )
        ctx.say(
            f"Brier score on held-out messages: {own['brier']:.4f}, always the base rate "
            f"{results['base rate']['brier']:.4f}, {best} (supervised) {results[best]['brier']:.4f}"
        )
        columns = ("brier", "log_loss", "calibration_error", "accuracy", "accuracy_last", "moved")
        columns += ("coverage", "risk_kept", "risk_withheld", "risk_area")
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results, guided),
                **{k: own[k] for k in columns},
                "supervised_brier": results[best]["brier"],
                "base_rate_brier": results["base rate"]["brier"],
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )

    async def prepare(self, ctx: pl.Context) -> "ConversionStudy":
        """The conversations of both splits as arrays, with the language model's scores."""
        talks = {split: self._talks(ctx, split) for split in SPLITS}
        share = float(np.mean([t.converted for t in talks["train"]]))
        if share in (0.0, 1.0):
            raise pl.UserError(
                f"all {len(talks['train'])} training conversations have converted={bool(share)}: there is "
                "nothing to predict; bring some that ended otherwise"
            )
        longest = max(len(t.messages) for both in talks.values() for t in both)
        embed = pl.tasks.load(self.embed, "function") if self.embed else None
        tables = {s: table_of(talks[s], self.width, embed, longest) for s in SPLITS}
        if len({t.width for t in tables.values()}) > 1:
            raise pl.UserError("embed= gave vectors of other lengths for held-out conversations")
        by_split: dict[str, JudgedTurns] = {}
        if self.asked:
            source, left = pl.services.TranscribedSource(self.asked), self.calls
            for split in SPLITS:
                # a budget is shared as the conversations are
                share = len(talks[split]) / sum(map(len, talks.values()))
                calls = max(1, round(left * share)) if left else 0
                by_split[split] = await judge_talks(
                    ctx, source, talks[split], longest, self.goal, calls
                )
            if lost := sum(j.left_out for j in by_split.values()):
                ctx.say(f"calls={self.calls}: {lost} conversations so far have scores of 0.5")
        return ConversionStudy(
            program=self, ctx=ctx, talks=talks, tables=tables, judge_scores=by_split
        )

    def _talks(self, ctx: pl.Context, split: str) -> list[SalesTalk]:
        drawn = self.talks.draw(split, ctx.seed) if self.talks else None
        talks = recorded_talks(ctx.bench, split) if drawn is None else drawn
        if not talks:
            raise pl.UserError(
                f"there is no conversation in the split {split!r}; bring ten or more, or a second file "
                "with --test-data"
            )
        if long := sum(len(t.messages) > self.turns for t in talks):
            ctx.say(
                f"{long} of {len(talks)} conversations ({split}) have more than {self.turns} messages; "
                "those behind are not read (turns=)"
            )
        return [
            replace(t, messages=t.messages[: self.turns], hidden=t.hidden[: self.turns])
            for t in talks
        ]


@pl.value_class
class ConversionStudy:
    """What the arms of a run share."""

    program: PredictConversion
    ctx: pl.Context
    talks: Mapping[str, Sequence[SalesTalk]]
    tables: Mapping[str, TalkTable]
    judge_scores: Mapping[str, JudgedTurns]

    @property
    def key(self) -> pl.Key:
        return ("salesrlagent", self.ctx.seed)

    @property
    def base(self) -> float:
        """The share of training conversations with the outcome."""
        return float(self.tables["train"].converted.mean())

    def arms(self) -> dict[str, pl.control.ArmRun]:
        plain, scored = dict(self.tables), self.scored()
        best = scored or plain
        arms = {
            "base rate": self.fixed("base rate"),
            "logistic": self.supervised("logistic", best),
            "gru": self.supervised("gru", best),
            "none": self.learned("none", plain, guided=not scored),
        }
        if scored:
            arms["guide"] = self.learned("guide", scored, guided=True)
            arms["shuffled"] = self.learned("shuffled", self.scored(shuffled=True))
            arms["zero-shot"] = self.fixed("zero-shot")
        if hidden := self.hidden():
            arms["oracle"] = self.learned("oracle", hidden)
        arms["accuracy"] = self.learned("accuracy", best, "accuracy")
        return arms

    def scored(self, shuffled: bool = False) -> dict[str, TalkTable]:
        """The conversations with a judge's scores, or those of other conversations; {} = nobody is
        asked.
        """
        tables = dict[str, TalkTable]()
        for split, turns in self.judge_scores.items():
            table, length = self.tables[split], self.tables[split].length
            for i, metric in enumerate(JUDGED):
                values = turns.scores[..., i]
                if shuffled:
                    values = exchanged(values, length, pl.rng_of((*self.key, "shuffled", split)))
                if metric != OUTCOME or self.program.cue:
                    table = table.with_metric(metric, values)
            tables[split] = table
        return tables

    def hidden(self) -> dict[str, TalkTable]:
        """With the customer's hidden state as the engagement; {} where nobody knows it."""
        if not all(t.hidden for both in self.talks.values() for t in both):
            return {}
        tables = dict[str, TalkTable]()
        for split, table in self.tables.items():
            T = table.x.shape[1]
            rows = [np.pad(t.hidden, (0, T - len(t.hidden)), "edge") for t in self.talks[split]]
            tables[split] = table.with_metric(ENGAGEMENT, np.array(rows))
        return tables

    def numbers(self, name: str, p: np.ndarray, rewarded: Rewarded = "proper") -> dict[str, Any]:
        """The measures of held-out predictions [N, T]; those by turn are kept as a file."""
        program, table = self.program, self.tables["test"]
        if self.ctx.out is not None:
            file = self.ctx.out / "turns" / f"{name.replace(' ', '-')}.jsonl"
            write_lines(file, [{"arm": name, **line} for line in scores_by_turn(p, table)])
        return measure_predictions(p, table, rewarded, program.flip, program.bonus)

    def fixed(self, name: str) -> pl.control.ArmRun:
        """The share of training conversations, or what the language model states."""

        async def run() -> Mapping[str, Any]:
            shape = self.tables["test"].x.shape[:2]
            p = np.full(shape, self.base)
            if name == "zero-shot":
                p = self.judge_scores["test"].scores[..., 2]
            return {**self.numbers(name, p), "env_steps": 0}

        return run

    def supervised(self, name: str, tables: Mapping[str, TalkTable]) -> pl.control.ArmRun:
        async def run() -> Mapping[str, Any]:
            net = fit_supervised(name, tables["train"], self.program.epochs, self.key)
            p = supervised_probabilities(net, tables["test"])
            seen = int(tables["train"].length.sum()) * self.program.epochs
            return {**self.numbers(name, p), "env_steps": seen}

        return run

    def learned(
        self,
        name: str,
        tables: Mapping[str, TalkTable],
        rewarded: Rewarded = "proper",
        guided: bool = False,
    ) -> pl.control.ArmRun:
        """PPO on the training conversations. The `guided` arm is saved, with what it withholds."""

        async def run() -> Mapping[str, Any]:
            policies, lines = await self.learn(tables["train"], rewarded, guided)
            before = self.program.learner.start(
                self.games(tables["train"], rewarded), self.key_of(0)
            )
            began = time.perf_counter()
            p = predict(policies[0], tables["test"], self.base)
            passed = (time.perf_counter() - began) / max(1, tables["test"].length.sum())
            alive = tables["test"].alive
            result: dict[str, Any] = {
                **self.numbers(name, p, rewarded),
                "moved": float(
                    np.abs(p - predict(before, tables["test"], self.base))[alive].mean()
                ),
                "env_steps": int(lines[-1]["env_steps"]),
                "curve": [{k: x[k] for k in ("env_steps", "reward")} for x in lines],
            }
            turns = self.judge_scores.get("test")
            if turns and name not in ("none", "oracle"):
                result["asked"] = turns.asked + self.judge_scores["train"].asked
                result["fallbacks"] = turns.fallbacks + self.judge_scores["train"].fallbacks
            if guided:
                self.ctx.say(
                    f"a prediction takes {1000 * passed:.3f} ms, embedding and asking apart"
                )
                result |= self.withhold(policies, tables, p)
            return result

        return run

    def key_of(self, member: int) -> pl.Key:
        return (*self.key, "learn", member) if member else (*self.key, "learn")

    def games(self, table: TalkTable, rewarded: Rewarded) -> PredictionGames:
        program = self.program
        return PredictionGames(table, rewarded, program.flip, program.bonus, base=self.base)

    async def learn(
        self, table: TalkTable, rewarded: Rewarded, guided: bool
    ) -> tuple[list[Any], list[dict[str, Any]]]:
        """The policies, of which all but the first are there to disagree, and the first one's log."""
        program, games = self.program, self.games(table, rewarded)
        steps = program.steps
        if (most := self.ctx.budget.get("steps")) is not None:
            steps = min(steps, int(most) * program.learner.games)
        n = program.members if guided and program.doubt == "ensemble" else 1
        policies, lines = list[Any](), list[dict[str, Any]]()
        for member in range(n):
            log = lines.append if member == 0 else None
            policies.append(await program.learner.learn(games, steps, self.key_of(member), log=log))
        return policies, lines

    def withhold(
        self, policies: Sequence[Any], tables: Mapping[str, TalkTable], p: np.ndarray
    ) -> dict[str, Any]:
        """What is lost and won where doubtful predictions are not given; the policy and the held-out
        predictions are written.
        """
        train, test = tables["train"], tables["test"]
        if self.program.doubt == "ensemble":
            doubt = {
                s: np.std([predict(each, t, self.base) for each in policies], 0)
                for s, t in tables.items()
            }
            known, doubtful = doubt["train"][train.alive], doubt["test"]
        else:
            E = train.width
            even = train.alive & (np.arange(len(train.length)) % 2 == 0)[:, None]
            odd = train.alive & ~even
            reference = train.x[even][:, :E]
            known = distances(train.x[odd][:, :E] if odd.any() else reference, reference)
            doubtful = np.zeros(test.alive.shape)
            doubtful[test.alive] = distances(test.x[test.alive][:, :E], reference)
        threshold = float(np.quantile(known, self.program.cover))
        y = test.converted[:, None] + np.zeros_like(p)
        if self.ctx.out is not None:
            folder, made = self.ctx.out / "policy", self.program
            pl.control.save_policy(policies[0], folder)
            metrics = [m for m in JUDGED if m != OUTCOME or made.cue] if self.judge_scores else []
            settings = PredictorSettings(
                embed=made.embed,
                width=made.width,
                turns=test.x.shape[1],
                metrics=tuple(metrics),
                base=self.base,
            )
            save_settings(folder, settings)
            write_lines(self.ctx.out / PREDICTIONS, self.spelled(p, doubtful, threshold))
        alive = test.alive
        return dict(selective(p[alive], y[alive], doubtful[alive], threshold))

    def spelled(self, p: np.ndarray, doubt: np.ndarray, threshold: float) -> list[dict[str, Any]]:
        """A line for each held-out conversation."""
        lines = list[dict[str, Any]]()
        for n, talk in enumerate(self.talks["test"]):
            T = len(talk.messages)
            given = doubt[n, :T] <= threshold
            lines.append(
                {
                    "id": talk.name,
                    "converted": talk.converted,
                    "probability": [round(float(x), 4) for x in p[n, :T]],
                    "doubt": [round(float(x), 4) for x in doubt[n, :T]],
                    "advice": [
                        advice_of(float(x)) if sure else "not known"
                        for x, sure in zip(p[n, :T], given, strict=True)
                    ],
                }
            )
        return lines


def write_lines(file: Any, lines: Sequence[Mapping[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
