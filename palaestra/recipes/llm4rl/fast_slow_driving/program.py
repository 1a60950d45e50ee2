"""The arms in which guidance by a language model is compared: without it, of another passenger, by the
true intent, and without the safety mask.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.llm4rl.fast_slow_driving.guidance import (
    HAS_LANE,
    HAS_SPEED,
    LANE,
    MENDED,
    NEUTRAL,
    SEEN,
    SPEED,
    STYLE,
    VALID,
    WIDTH,
    DrivesLanes,
    DrivingGuidance,
    GuidedDriving,
    MasksUnsafe,
    checked_guidance,
    match,
    matched_reward,
    seconds_of_step,
)
from palaestra.recipes.llm4rl.fast_slow_driving.lanes import Lanes
from palaestra.recipes.llm4rl.fast_slow_driving.sentences import (
    Sentence,
    meant_guidance,
    read_sentences,
)

Advice = Literal["model", "none"]
ASKS = 3
POLICIES = "policies"  # in the run folder
NEAR = 2.5  # metres a second within which a speed is read right
QUESTION = """{about}

{scene}
The passenger says: "{instruction}"

Which lane and which speed (from {low:.0f} to {high:.0f} m/s) should the car go for? Give goal_lane and \
target_speed as numbers, or null where the passenger does not care; style is cautious, normal or \
aggressive; avoid may have lane_change and faster; valid_for_s is how many seconds this holds."""


@pl.stage
class DriveByInstruction:
    """A program: PPO learns to drive by random guidance, and then drives by what a language model makes
    of instructions.

    Args:
        asked: who reads instructions; None = nobody, which is refused where somebody has to.
        instructions: FILE.jsonl; "" = the sixty sentences that come with the method.
        advice: "none" = the arm "guide" has no guidance.
        weight: of the match with guidance beside the simulator's reward, in training.
        latency: steps until a reply is there, drawn from 1 to this for each game; 0 = at once.
        games: of a test, each with an instruction and a question of its own.
    """

    asked: pl.Source | None = None
    sim: pl.control.Simulator = Lanes()
    instructions: str = ""
    advice: Advice = "model"
    weight: float = 2.0
    latency: int = 3
    steps: int = 50_000
    games: int = 120
    learner: pl.control.PPO = pl.control.PPO(games=16, gamma=0.9, lam=0.9, bootstrap=True)

    def __post_init__(self) -> None:
        if self.games < 2 or self.steps < 1 or self.latency < 0 or self.weight < 0:
            raise pl.UserError(
                "fast-slow-driving: games is 2 or more, steps 1 or more, latency and weight 0 or more"
            )

    @property
    def source(self) -> pl.Source:
        """Who reads instructions, the replies kept. Raises UserError where nobody does."""
        if self.asked is None:
            raise pl.UserError(
                "fast-slow-driving needs a language model that reads instructions: "
                "--llm endpoint(url='...',model='...'), a folder, or transcript:FILE"
            )
        return pl.services.TranscribedSource(self.asked)

    async def run(self, ctx: pl.Context) -> pl.Result:
        trips = Trips.of(self, ctx)
        # asked before anything is learned, so that an endpoint that does not answer is found at once
        guidance = None if self.advice == "none" else await ctx.once("guidance", trips.ask)
        arms: dict[str, pl.control.ArmRun] = {"none": await trips.arm("none", "alone")}
        if guidance is None:
            arms["guide"] = await trips.arm("guide", "alone")
        else:
            arms["guide"] = await trips.arm("guide", "guided", guidance)
            if other := trips.exchanged(guidance):
                arms["shuffled"] = await trips.arm("shuffled", "guided", other)
            else:
                ctx.say("one instruction has no other to be exchanged with: no arm shuffled")
            if trips.known.any():
                meant = {"given": trips.meant_nG.tolist(), "asked": 0, "fallbacks": 0}
                arms["oracle"] = await trips.arm("oracle", "guided", meant)
            if isinstance(self.sim, MasksUnsafe):
                arms["unmasked"] = await trips.arm("unmasked", "unmasked", guidance)
        results = await pl.control.compare_arms(ctx, arms)
        own = results["guide"]
        ctx.log({"arm": "guide", "guided": own["guided"], "return": own["return"]})
        matches = {f"match_{name}": r["match"] for name, r in results.items() if "match" in r}
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                **matches,
                "guided": own["guided"],
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )


@pl.value_class
class Trips:
    """The test games of a run, with their instructions, and what its arms share."""

    program: DriveByInstruction
    ctx: pl.Context
    sentences: tuple[Sentence, ...]  # of each game
    scenes: tuple[str, ...]
    meant_nG: np.ndarray  # what was meant, 0 where that is not known
    known: np.ndarray  # [n] whether it is
    arrives_n: np.ndarray
    steps: int
    key: pl.Key
    trained: dict[str, Any]  # the policies, which several arms drive with, and their training

    @classmethod
    def of(cls, program: DriveByInstruction, ctx: pl.Context) -> "Trips":
        key: pl.Key = ("fast-slow-driving", ctx.seed)
        sim, n, rng = program.sim, program.games, pl.rng_of((*key, "trips"))
        GuidedDriving(sim)  # whether it is one that drives
        assert isinstance(sim, DrivesLanes)
        sentences = read_sentences(program.instructions)
        order = np.concatenate(
            [rng.permutation(len(sentences)) for _ in range(-(-n // len(sentences)))]
        )
        chosen = tuple(sentences[i] for i in order[:n])
        # the games of `measure_arm`, which plays with this key
        start = sim.reset(pl.rng_of((*key, "test", "play")), n)
        lane_n, speed_n = sim.lane_and_speed(sim.observe(start)[:, 0])
        meant = [
            np.zeros(WIDTH)
            if s.intent is None
            else meant_guidance(s.intent, int(lane), float(speed), sim.lanes, sim.speeds)
            for s, lane, speed in zip(chosen, lane_n, speed_n, strict=True)
        ]
        steps, learner = program.steps, program.learner
        if (most := ctx.budget.get("steps")) is not None:
            steps = min(steps, int(most) * learner.games * sim.horizon)
        late = program.latency
        return cls(
            program=program,
            ctx=ctx,
            sentences=chosen,
            scenes=tuple(sim.scene(start)),
            meant_nG=np.array(meant),
            known=np.array([s.intent is not None for s in chosen]),
            arrives_n=rng.integers(1, late + 1, n) if late else np.zeros(n, int),
            steps=steps,
            key=key,
            trained={},
        )

    def question(self, situation: np.ndarray) -> str:
        """About the game of a number."""
        sim, i = self.program.sim, int(situation[0])
        assert isinstance(sim, DrivesLanes)
        low, high = sim.speeds
        return QUESTION.format(
            about=str(getattr(sim, "about", "") or "A car drives on a road with lanes."),
            scene=self.scenes[i],
            instruction=self.sentences[i].text,
            low=low,
            high=high,
        )

    def guide(self) -> pl.control.ChatGuide:
        """Who is asked what the passenger of a game wants; a situation is the number of the game."""
        sim = self.program.sim
        assert isinstance(sim, DrivesLanes)
        lanes, speeds, seconds = sim.lanes, sim.speeds, seconds_of_step(sim)
        return pl.control.ChatGuide(
            source=self.program.source,
            spell=self.question,
            reply=DrivingGuidance,
            read=lambda reply: checked_guidance(
                DrivingGuidance(**reply.model_dump()), lanes, speeds, seconds
            ),
            fallback=NEUTRAL,
            asks=ASKS,
        )

    async def ask(self) -> dict[str, Any]:
        """What the model makes of the instruction of each game: "given" [n, G]."""
        n = self.program.games
        rows = np.arange(n)[:, None].astype(float)
        guidance = await self.guide()(self.ctx, rows, (*self.key, "test"))
        return {
            "given": guidance.value_NG.tolist(),
            "asked": n,
            "fallbacks": guidance.fallbacks,
        }

    def exchanged(self, guidance: Mapping[str, Any]) -> dict[str, Any] | None:
        """The same, each game with the guidance of one that has another sentence; None = there is one
        sentence alone.
        """
        texts, rng = np.array([s.text for s in self.sentences]), pl.rng_of((*self.key, "shuffled"))
        others = [np.flatnonzero(texts != text) for text in texts]
        if not all(map(len, others)):
            return None
        return {
            **guidance,
            "given": [guidance["given"][int(rng.choice(games))] for games in others],
        }

    async def arm(
        self, name: str, kind: str, guidance: Mapping[str, Any] | None = None
    ) -> pl.control.ArmRun:
        """What `compare_arms` runs: drives with the guidance that was said, by a policy of a kind, see
        `train`. Arms of one kind share it, so that they differ by the guidance of the test alone.
        """
        first = kind not in self.trained
        policy, lines = await self.train(kind)

        async def run() -> Mapping[str, Any]:
            n = self.program.games
            given_nG = np.array(guidance["given"]) if guidance else np.zeros((n, WIDTH))
            driving = GuidedDriving(self.road(kind), given=given_nG, arrives=self.arrives_n)
            reward = self.reward(kind)
            numbers, played = pl.control.measure_arm(driving, policy.act, reward, n, self.key)
            if name == "guide" and self.ctx.out is not None:
                pl.control.save_policy(policy, self.ctx.out / "policy")
            curve = [{k: x[k] for k in ("env_steps", "reward")} for x in lines]
            return {
                **numbers,
                **self.numbers(driving, played, given_nG),
                "guided": guided(policy, played) if guidance else 0.0,
                "asked": guidance["asked"] if guidance else 0,
                "fallbacks": guidance["fallbacks"] if guidance else 0,
                "env_steps": int(lines[-1]["env_steps"]),
                "curve": curve if first else [],
            }

        return run

    def road(self, kind: str) -> pl.control.Simulator:
        sim = self.program.sim
        return sim.unmasked if kind == "unmasked" and isinstance(sim, MasksUnsafe) else sim

    def reward(self, kind: str) -> pl.control.Shaping:
        return pl.control.as_paid if kind == "alone" else matched_reward(self.program.weight)

    async def train(self, kind: str) -> tuple[Any, list[dict[str, Any]]]:
        """A policy, and the lines of its training: "alone" without guidance, "guided", or "unmasked",
        guided on the road without a mask. Each is trained once, however often the run is resumed, and
        lies in the run folder.
        """
        if kind in self.trained:
            return self.trained[kind]
        program, made = self.program, list[Any]()
        place = None if self.ctx.out is None else self.ctx.out / POLICIES / kind

        async def learn() -> list[dict[str, Any]]:
            lines = list[dict[str, Any]]()
            training = GuidedDriving(
                self.road(kind), latency=program.latency, neutral=kind == "alone"
            )
            key = (*self.key, "learn")
            made.append(
                await program.learner.learn(
                    training, self.steps, key, self.reward(kind), log=lines.append
                )
            )
            if place is not None:
                pl.control.save_policy(made[0], place)
            self.ctx.spend("env_steps", int(lines[-1]["env_steps"]))
            return lines

        self.ctx.say(f"policy {kind}")
        lines = await self.ctx.once(f"policy-{kind}", learn)
        if not made:
            assert place is not None  # nothing is kept without a folder
            made.append(pl.control.load_policy(place))
        self.trained[kind] = made[0], lines
        return self.trained[kind]

    def numbers(
        self, driving: GuidedDriving, played: pl.control.Paths, given_nG: np.ndarray
    ) -> dict[str, Any]:
        """How the drives of a test were, by what the passengers meant."""
        seen = played["next_obs"][..., : driving.inner_observation]
        lane, speed = driving.road.lane_and_speed(seen)
        alive = np.broadcast_to(played["alive"][:, None], lane.shape)
        since = np.arange(lane.shape[-1])[None] - self.arrives_n[:, None]
        waits, valid_n = since < 0, given_nG[:, VALID]
        share = lambda x_nT: float((x_nT & played["alive"]).sum() / played["alive"].sum())
        numbers: dict[str, Any] = {
            "without_guidance": share(waits),
            "stale": share(since >= np.where(valid_n > 0, valid_n, np.inf)[:, None]),
            "mended": float(given_nG[:, MENDED].sum()),
        }
        if "crash" in played:  # a drive may end for other reasons, too
            numbers["collisions"] = float(((played["crash"] > 0) & alive).any((1, 2)).mean())
        else:
            numbers["ended"] = float(played["over"].any(1).mean())
        wants_n = self.meant_nG[:, [HAS_LANE, HAS_SPEED]].any(1)
        if wants_n.any():
            matches = match(self.meant_nG[:, None, None], lane, speed)
            # the whole drive counts, and what follows a collision matches nothing
            lasts = alive[wants_n] & ~waits[wants_n][:, None]
            whole = lane.shape[-1] - self.arrives_n[wants_n]
            kept = (matches[wants_n] * lasts).sum(-1).mean(1) / np.maximum(whole, 1)
            numbers["match"] = float(kept.mean())
        if self.known.any() and given_nG[:, VALID].any():
            numbers["intent_accuracy"] = float(
                right_intent(given_nG[self.known], self.meant_nG[self.known]).mean()
            )
        return numbers


def right_intent(given: np.ndarray, meant: np.ndarray) -> np.ndarray:
    """[n] whether guidance wants the lane, the speed within 2.5 m/s, and the style that were meant."""
    lane = (given[:, HAS_LANE] == meant[:, HAS_LANE]) & (given[:, LANE] == meant[:, LANE])
    speed = given[:, HAS_SPEED] == meant[:, HAS_SPEED]
    speed &= np.abs(given[:, SPEED] - meant[:, SPEED]) <= NEAR
    return lane & speed & (given[:, STYLE] == meant[:, STYLE])


def guided(policy: Any, played: pl.control.Paths) -> float:
    """How far guidance moves the policy: the mean total variation of its actions from those that it
    has in the same states without guidance.
    """
    alive = np.broadcast_to(played["alive"][:, None], played["reward"].shape)
    obs = torch.from_numpy(played["obs"][alive]).float()
    without = obs.clone()
    without[:, -SEEN:] = 0
    with torch.no_grad():
        p, q = (torch.softmax(policy.actor(x), -1) for x in (obs, without))
    return float((p - q).abs().sum(-1).mean() / 2)
