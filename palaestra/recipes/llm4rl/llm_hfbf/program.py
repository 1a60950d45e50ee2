"""Feedback that is corrected before it shapes a reward, and the arms in which that is compared."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

import palaestra as pl
from palaestra.recipes.llm4rl.llm_hfbf.humans import (
    BIASES,
    WRONG,
    Human,
    LabelTeam,
    OwnHuman,
    SegmentLabels,
    Segments,
    SimulatedHuman,
    cut_segments,
    who_labels,
)

Feedback = Literal["corrected", "model", "human"]
SAMPLE = 64  # games of the start, which bounds and the scale of labels are taken from
LEVELS = 12  # between the ends of a quantity's range; a mean is rounded to the next one
RADIUS = 2.0  # levels within which nothing is asked anew
APART = 100.0  # between the labels 0 and 1; a situation has its label in quarters
REACH = 24.0  # levels within which guidance is looked up: less than a quarter of a label is
ASKS = 3
KEPT = 4096  # segments that a potential is fitted to
LABEL, FLAG, CORRECTED, CONFIDENCE = -1, 0, 1, 2  # columns of a situation, and of guidance
NOT_READ = 2.0  # a flag: the model did not answer so, and the label is not used
QUESTION = """{about}

A segment of {steps} steps, by its means:
{lines}

"""
HUMAN = """A person labelled it {label:.2f}, from -1 (bad) to 1 (good). People may be biased: too \
careful, so that what is fast is bad, or too bold, so that risk is good. Is this label biased? If so, what \
is the right one?"""
ALONE = "How good is this for the task, from -1 (bad) to 1 (good)?"


class LabelVerdict(BaseModel):
    """What a model says of a person's label."""

    biased: bool
    kind: str = ""
    corrected: float = Field(ge=-1.0, le=1.0)
    confidence: float = Field(default=1.0, ge=0.0, le=1.0)


class Opinion(BaseModel):
    """A label of the model itself."""

    feedback: float = Field(ge=-1.0, le=1.0)


def mix(human: np.ndarray, guidance: np.ndarray) -> np.ndarray:
    """f = (1 - c) f_human + c f_model where a label is flagged, f_human where it is not, and 0 where
    the model's answer could not be read.

    Args:
        human: labels [...].
        guidance: [..., 3] flag, corrected label, confidence c.
    """
    flag, corrected, c = np.moveaxis(guidance, -1, 0)
    mixed = np.where(flag == 1, (1 - c) * human + c * corrected, human)
    return np.where(flag == NOT_READ, 0.0, mixed)


def trust(flags: int, labels: int) -> float:
    """1 - (flags + 1) / (labels + 2): how far a person is believed, smoothed by Beta(1, 1)."""
    return 1 - (flags + 1) / (labels + 2)


@pl.stage
class CorrectFeedback:
    """A program: PPO whose reward is shaped by labels of segments, r' = r + weight f, in four arms.

    Args:
        asked: who judges labels; None = nobody, which is refused.
        human: a bias of `BIASES`, FILE.py:NAME or FILE.jsonl; several with commas label games in turn.
        feedback: of the guided arm: the person's labels "corrected" by the model, the "model" alone, or
            the "human" alone, where nobody is asked.
        potential: F = gamma Phi(s') - Phi(s), Phi a linear fit of the labels, in the place of f.
        calls: situations that an arm asks about at most.
        segment: steps.
        edge: a simulator of edge cases, with the same observations and actions, on which every arm is measured
            too and nobody trains; None = there is none.
    """

    asked: pl.Source | None = None
    sim: pl.control.Simulator = pl.control.CarFollowing()
    human: str = "conservative"
    feedback: Feedback = "corrected"
    weight: float = 0.5
    potential: bool = False
    calls: int = 500
    segment: int = 10
    steps: int = 60_000
    games: int = 256
    edge: pl.control.Simulator | None = None
    learner: pl.control.PPO = pl.control.PPO(games=32, bootstrap=True)

    def __post_init__(self) -> None:
        sizes = lambda sim: (sim.agents, sim.observation, sim.actions)
        if self.edge is not None and sizes(self.edge) != sizes(self.sim):
            raise pl.UserError(
                "llm-hfbf: the simulator of edge= has other agents, observations or actions than that of --env"
            )
        if min(self.calls, self.games) < 2 or min(self.segment, self.steps) < 1:
            raise pl.UserError(
                "llm-hfbf: calls and games are 2 or more, segment and steps 1 or more"
            )

    @property
    def source(self) -> pl.Source:
        """Who judges labels, its replies kept. Raises UserError where nobody does."""
        if self.asked is None:
            raise pl.UserError(
                "llm-hfbf needs a language model that judges labels: "
                "--llm endpoint(url='...',model='...'), a folder, or transcript:FILE"
            )
        return pl.services.TranscribedSource(self.asked)

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("llm-hfbf", ctx.seed)
        start = self.learner.start(self.sim, key).act
        games = pl.control.play_games(self.sim, start, SAMPLE, (*key, "sample"))
        words = pl.control.SimulatorWords.of(self.sim, games)
        setting = FeedbackSetting(program=self, ctx=ctx, words=words, key=key, sample=games)
        human, unbiased = setting.people()
        guide = None if self.feedback == "human" else setting.guide()
        arms = {
            "none": setting.arm("none", None, None),
            "human": setting.arm("human", human, None),
            "guide": setting.arm("guide", human, guide),
        }
        if self.feedback == "corrected":
            alone = replace(setting, program=replace(self, feedback="model"))
            arms["model"] = alone.arm("model", human, alone.guide())
        if guide is not None:
            arms["shuffled"] = setting.arm("shuffled", human, pl.control.ShuffledGuide(guide))
        arms["oracle"] = setting.arm("oracle", unbiased, None)
        results = await pl.control.compare_arms(ctx, arms)
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        own = results["guide"]
        ctx.log({"arm": "guide", "corrected": own["corrected"], "return": own["return"]})
        lost = results["oracle"]["return"] - results["human"]["return"]
        won = own["return"] - results["human"]["return"]
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                "lost_by_bias": lost,
                "recovered": won,
                "corrected": own["corrected"],
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )


@pl.value_class
class FeedbackSetting:
    """What the arms of a run share."""

    program: CorrectFeedback
    ctx: pl.Context
    words: pl.control.SimulatorWords
    key: pl.Key
    sample: pl.control.Paths  # games of the start

    def segments(self, paths: pl.control.Paths) -> Segments:
        columns = self.words.compute(paths)
        return cut_segments(paths, columns, self.program.segment, self.program.sim.actions)

    def people(self) -> tuple[Human, Human]:
        """The person of the run, or several, and one without bias."""
        segments = self.segments(self.sample)
        true = segments.true[segments.alive]
        fastest = max((q.high for n, q in self.words.declared.items() if n == "speed"), default=1.0)
        simulated = lambda bias: SimulatedHuman(
            bias, float(true.mean()), float(true.std()) or 1.0, fastest, (*self.key, "human")
        )

        def person(human: str) -> Human:
            if human in BIASES:
                return simulated(human)
            if human.endswith(".jsonl"):
                return SegmentLabels(human, segments.names)
            return OwnHuman(pl.tasks.load(human, "function"), human)

        names = people_of(self.program.human)
        if len(names) == 1:
            return person(names[0]), simulated("unbiased")
        short = [
            name.rpartition(":")[2].removesuffix(".jsonl").rpartition("/")[2] for name in names
        ]
        known = names if len(set(short)) < len(short) else short
        team = {own: person(name) for own, name in zip(known, names, strict=True)}
        return LabelTeam(team), simulated("unbiased")

    def guide(self) -> pl.control.ChatGuide:
        """Who is asked about a situation: the levels of a segment, and behind them its label."""
        alone = self.program.feedback == "model"
        return pl.control.ChatGuide(
            source=self.program.source,
            spell=self.spell,
            reply=Opinion if alone else LabelVerdict,
            read=read_opinion if alone else read_verdict,
            fallback=(NOT_READ, 0.0, 1.0),
            asks=ASKS,
        )

    def spell(self, situation: np.ndarray) -> str:
        """The question about a situation."""
        lines = [
            f"- {name} = {q.low + level * (q.high - q.low) / LEVELS:.3g} ({q.about})"
            for (name, q), level in zip(self.words.declared.items(), situation[:LABEL], strict=True)
        ]
        text = QUESTION.format(
            about=self.words.about, steps=self.program.segment, lines="\n".join(lines)
        )
        if self.program.feedback == "model":
            return text + ALONE
        return text + HUMAN.format(label=situation[LABEL] / APART)

    def situations(self, segments: Segments, label: np.ndarray) -> np.ndarray:
        """[n, A, S, Q + 1] the level of each quantity, and the label in quarters."""
        low, high = (
            np.array([getattr(q, end) for q in self.words.declared.values()])
            for end in ("low", "high")
        )
        share = (segments.means - low) / np.maximum(high - low, 1e-9)
        levels = np.round(np.clip(share, 0, 1) * LEVELS)
        level = 0 * label if self.program.feedback == "model" else np.round(label * 4) / 4
        return np.concatenate([levels, level[..., None] * APART], -1)

    def arm(self, name: str, human: Human | None, guide: Any) -> pl.control.ArmRun:
        """What `compare_arms` runs, with a cache of its own."""

        async def run() -> Mapping[str, Any]:
            program, lines = self.program, list[dict[str, Any]]()
            given = ShapedFeedback(self, human, guide)
            steps = program.steps
            if (most := self.ctx.budget.get("steps")) is not None:
                steps = min(steps, int(most) * program.learner.games * program.sim.horizon)
            policy = await program.learner.learn(
                program.sim,
                steps,
                (*self.key, "learn"),
                given,
                between=given.advisor.ask if given.advisor else None,
                log=lambda line: lines.append({**line, "corrected": given.corrected}),
            )
            if name == "guide" and self.ctx.out is not None:
                pl.control.save_policy(policy, self.ctx.out / "policy")
            numbers, played = pl.control.measure_arm(
                program.sim, policy.act, given, program.games, self.key
            )
            numbers["ended_early"] = float(played["over"].any(1).mean())
            if program.edge is not None:
                hard = pl.control.play_games(
                    program.edge, policy.act, program.games, (*self.key, "edge")
                )
                paid = pl.control.returns_of(hard)
                numbers["edge_return"] = float(paid.mean())
                numbers["edge_error"] = pl.stats.standard_error(paid)
            curve = [{k: x[k] for k in ("env_steps", "reward", "corrected")} for x in lines]
            return {
                **numbers,
                **given.numbers(played),
                "env_steps": int(lines[-1]["env_steps"]),
                "curve": curve,
            }

        return run


class ShapedFeedback:
    """The rewards of an arm: r + weight f, f the label of the segment that a step is in.

    What the model was not asked about is the person's own label, and counts less where this person is
    often flagged: times the trust in them where that is below a half.
    """

    def __init__(self, setting: FeedbackSetting, human: Human | None, guide: Any):
        self.setting, self.human = setting, human
        self.corrected = (
            0.0  # how far the labels of the last games were moved by what could be read
        )
        self.labels, self.flags = Counter[str](), Counter[str]()  # by person
        self.read: Any = True  # [n, A, S] whether what the model answered could be read
        self.seen = np.zeros((0, setting.program.sim.observation + 1))
        self.given = np.zeros(0)
        self.advisor: pl.control.Advisor | None = None
        if guide is not None:
            asking = pl.control.Asking(
                most=32, calls=setting.program.calls, radius=RADIUS, reach=REACH
            )
            key = (*setting.key, "guide")
            self.advisor = asking.start(
                guide, 3, key, setting.ctx, situations=lambda paths: self.rows(paths)
            )

    def rows(self, paths: pl.control.Paths) -> np.ndarray:
        """[M, Q + 1] the situations of games."""
        segments = self.setting.segments(paths)
        assert self.human is not None
        return self.setting.situations(segments, self.human(segments))[segments.alive]

    def feedback(self, segments: Segments, label: np.ndarray) -> np.ndarray:
        """[n, A, S] what the labels become."""
        if self.advisor is None:
            return label
        guidance = self.advisor(self.setting.situations(segments, label))
        self.read = guidance[..., FLAG] != NOT_READ
        if self.setting.program.feedback == "model":  # which sees nobody's label
            label = 0 * label
        assert self.human is not None
        names, who = who_labels(self.human, segments)
        for i, name in enumerate(names):
            known = guidance[..., FLAG][segments.alive & (who == i)]
            self.labels[name] += known.size
            self.flags[name] += int((known == 1).sum())
        believed = np.array([self.trust(name) for name in names])[who]
        flagged = guidance[..., FLAG] > 0
        mixed = mix(label, guidance)
        return np.where(flagged, mixed, mixed * np.where(believed < 0.5, believed, 1.0))

    def trust(self, name: str) -> float:
        """How far a person is believed."""
        return trust(self.flags[name], self.labels[name])

    def __call__(self, paths: pl.control.Paths) -> np.ndarray:
        program, reward = self.setting.program, paths["reward"]
        if self.human is None:
            return reward
        segments = self.setting.segments(paths)
        label = self.human(segments)
        f = self.feedback(segments, label)
        moved = np.abs(f - label)[segments.alive & self.read]
        self.corrected = float(moved.mean()) if moved.size else 0.0
        given = segments.spread(f, reward.shape[-1]) * paths["alive"][:, None]
        if program.potential:
            return self.by_potential(paths, given)
        return reward + program.weight * given

    def by_potential(self, paths: pl.control.Paths, f: np.ndarray) -> np.ndarray:
        """[n, A, T] r + gamma Phi(s') - Phi(s), Phi a ridge regression of labels on observations."""
        alive = np.broadcast_to(paths["alive"][:, None], f.shape)
        x = with_one(paths["next_obs"][alive])
        self.seen = np.concatenate([self.seen, x])[-KEPT:]
        self.given = np.concatenate([self.given, f[alive]])[-KEPT:]
        square = self.seen.T @ self.seen + np.eye(self.seen.shape[1])
        slope = np.linalg.solve(square, self.seen.T @ self.given)
        program = self.setting.program
        phi = lambda obs: program.weight * (with_one(obs) @ slope)
        return pl.control.Potential(phi, program.learner.gamma)(paths)

    def numbers(self, paths: pl.control.Paths) -> dict[str, Any]:
        """What was asked, and how right flags are in games: of labels that are off by 0.5 or more from
        what was paid.
        """
        numbers: dict[str, Any] = {"corrected": self.corrected}
        if self.advisor is None or self.human is None:
            return numbers
        asked = lambda advisor: {k.removeprefix("guide/"): v for k, v in advisor.numbers().items()}
        if self.setting.program.feedback == "model":  # which flags nobody's labels
            return numbers | asked(self.advisor)
        segments = self.setting.segments(paths)
        label = self.human(segments)
        flagged = (self.advisor(self.setting.situations(segments, label))[..., FLAG] == 1)[
            segments.alive
        ]
        _, unbiased = self.setting.people()
        biased = (np.abs(unbiased(segments) - label) >= WRONG)[segments.alive]
        both = float((flagged & biased).sum())
        return {
            **numbers,
            **asked(self.advisor),
            "flagged": float(flagged.mean()),
            "precision": both / max(1, flagged.sum()),
            "recall": both / max(1, biased.sum()),
            "trust": min(map(self.trust, self.labels), default=trust(0, 0)),
            **{f"trust_{name}": self.trust(name) for name in self.labels if len(self.labels) > 1},
        }


def people_of(human: str) -> list[str]:
    """The names of `human`, several with commas. Raises UserError for one that is nobody, or twice there."""
    names = [name.strip() for name in human.split(",") if name.strip()]
    for name in names:
        if name not in BIASES and not name.endswith(".jsonl") and ".py:" not in name:
            raise pl.UserError(
                f"human={name}: it is one of {', '.join(BIASES)}, FILE.py:NAME or FILE.jsonl"
            )
    if not names or len(set(names)) < len(names):
        raise pl.UserError(f"human={human}: name one person, or different ones with commas")
    return names


def with_one(obs: np.ndarray) -> np.ndarray:
    """[..., O + 1] observations with a column of ones."""
    return np.concatenate([obs, np.ones((*obs.shape[:-1], 1))], -1)


def read_verdict(answer: Any) -> Sequence[float]:
    return (float(answer.biased), answer.corrected, answer.confidence)


def read_opinion(answer: Any) -> Sequence[float]:
    return (1.0, answer.feedback, 1.0)
