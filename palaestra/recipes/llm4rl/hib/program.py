"""The bottleneck's terms, and the arms in which what they do is measured."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import palaestra as pl
from palaestra.recipes.llm4rl.hib.network import (
    HistoryPlayer,
    HistoryPolicy,
    Latent,
    save_controller,
)
from palaestra.recipes.llm4rl.hib.pendulums import HiddenPendulums
from palaestra.recipes.llm4rl.hib.privileged import PrivilegedView

Arm = Literal["none", "history", "no kl", "no nce", "hib", "two stage", "oracle"]
ARMS: tuple[Arm, ...] = ("none", "history", "no kl", "no nce", "hib", "two stage", "oracle")
WARM = 0.2  # share of an arm's steps in which the weight of the KL term grows
TEACHER = 2 / 3  # share of the two-stage arm's steps that train its teacher
RIDGE = 1e-3  # of the probe
CURVE = 40  # lines of an arm's curve in the log


def parse_arms(text: str | Sequence[str]) -> tuple[Arm, ...]:
    """Names of arms with commas, in their order; hib, history and none, which are compared, are always
    there. Raises UserError for others.
    """
    names = [x.strip() for x in (text.split(",") if isinstance(text, str) else text)]
    if unknown := [x for x in names if x not in ARMS]:
        raise pl.UserError(f"hib has no arm {unknown[0]!r}; it has {', '.join(ARMS)}")
    return tuple(x for x in ARMS if x in names or x in ("none", "history", "hib"))


def info_nce(z_NZ: Tensor, f_NZ: Tensor, e_NE: Tensor) -> tuple[Tensor, Tensor]:
    """[N] -log( exp S_ii / sum_j exp S_ij ), S_ij = z_i f_j, in nats, and [N] how many j the sum has: i, and
    those whose e differs from e_i. Its mean is at least log(their number) - I(z; e).
    """
    score_NN = z_NZ @ f_NZ.T
    alike = (e_NE[:, None] - e_NE[None]).abs().amax(-1) < 1e-6
    others = alike & ~torch.eye(len(e_NE), dtype=torch.bool)
    score_NN = score_NN.masked_fill(others, float("-inf"))
    return torch.logsumexp(score_NN, 1) - score_NN.diagonal(), (~others).sum(1)


def gaussian_kl(mean: Tensor, log_sd: Tensor) -> Tensor:
    """[...] KL(N(mean, diag sd^2) || N(0, I)) = sum 1/2 (mean^2 + sd^2 - 1 - 2 log sd), in nats."""
    return 0.5 * (mean**2 + (2 * log_sd).exp() - 1 - 2 * log_sd).sum(-1)


@pl.stage
class HistoryBottleneck(pl.Algebra):
    """nce L_NCE + kl KL(p(z | h) || N(0, I)), means over steps that are alive.

    The negatives of a step are those of the same time in other games, so the length of the history tells
    nothing, and a game is not compared with itself. A time at which one game is left counts for nothing
    in L_NCE.
    """

    nce: float = 0.3
    kl: float = 1e-3

    @property
    def needs(self) -> tuple[str, ...]:
        return ("z", "z_mean", "z_log_sd", "compared", "privileged")

    def __call__(
        self, out: Mapping[str, Tensor], batch: pl.Batch
    ) -> tuple[Tensor, dict[str, Tensor]]:
        alive_BT = batch.mask.bool()
        kl = gaussian_kl(out["z_mean"], out["z_log_sd"])[alive_BT].mean()
        losses, sizes = list[Tensor](), list[Tensor]()
        for t in range(alive_BT.shape[1]):
            rows = alive_BT[:, t]
            if int(rows.sum()) > 1:
                loss, size = info_nce(*(out[k][rows, t] for k in ("z", "compared", "privileged")))
                losses.append(loss)
                sizes.append(size)
        nce = torch.cat(losses).mean() if losses else 0 * kl
        bound = torch.cat(sizes).float().log().mean() - nce if losses else 0 * kl
        return self.nce * nce + self.kl * kl, {
            "nce": nce.detach(),
            "bound": bound.detach(),
            "kl": kl.detach(),
        }


def probe_r2(z_NZ: np.ndarray, e_NE: np.ndarray) -> float:
    """How much of e a linear map of z tells: R^2 on the second half of the rows of a map that is fitted to
    the first half (ridge 0.001 a row), the mean over numbers of e; those that are the same in all
    rows are left out. Below 0 the map tells less than the mean does.
    """
    half = len(z_NZ) // 2
    design = lambda rows: np.concatenate([z_NZ[rows], np.ones((len(z_NZ[rows]), 1))], 1)
    first, second = design(slice(half)), design(slice(half, None))
    gram = first.T @ first + RIDGE * half * np.eye(first.shape[1])
    predicted = second @ np.linalg.solve(gram, first.T @ e_NE[:half])
    error, spread = ((e_NE[half:] - predicted) ** 2).mean(0), e_NE[half:].var(0)
    varies = spread > 1e-9
    if not varies.any():
        return 0.0
    return float((1 - error[varies] / spread[varies]).mean())


@pl.stage
class LearnHistory:
    """A program: policies that read their history, in arms of equally many environment steps, and what they
    are paid where hidden numbers are drawn as in training, and from elsewhere.

    Args:
        sim: the simulator of training, `test` the same one with hidden numbers from outside; None = there
            is none.
        privileged, observed: see `PrivilegedView`.
        nce, kl: weights of the two terms of the bottleneck.
        k: steps of the history; `size` numbers of z.
        arms: that are trained, by names.
        steps: environment steps of an arm.
        games: on which a policy is measured.
    """

    sim: pl.control.Simulator = HiddenPendulums()
    test: pl.control.Simulator | None = HiddenPendulums(outside=True)
    privileged: str = "mass,length,friction"
    observed: str = ""
    nce: float = 0.3
    kl: float = 1e-3
    k: int = 20
    size: int = 8
    arms: tuple[Arm, ...] = ARMS
    steps: int = 60_000
    games: int = 256
    width: int = 64
    learner: pl.control.PPO = pl.control.PPO(
        lr=2e-3, games=32, epochs=6, minibatches=2, bootstrap=True
    )

    def __post_init__(self) -> None:
        if min(self.k, self.size, self.steps, self.width) < 1 or self.games < 4:
            raise pl.UserError("hib: k, size, steps and width are 1 or more, games 4 or more")
        if self.nce < 0 or self.kl < 0:
            raise pl.UserError("hib: nce and kl are 0 or more")
        if self.learner.part_steps:
            raise pl.UserError(
                "hib: an encoder reads histories, so parts are games: minibatches, not part_steps"
            )
        if self.learner.games < 2 * min(self.learner.minibatches, self.learner.games):
            raise pl.UserError("hib: a minibatch needs two games, so that one is a negative")

    def views(self) -> tuple[PrivilegedView, PrivilegedView | None]:
        """Of training and of the test. Raises UserError where they differ in form."""
        view = PrivilegedView(self.sim, self.privileged, self.observed)
        if self.test is None:
            return view, None
        outside = PrivilegedView(self.test, self.privileged, self.observed)
        if (view.observation, view.sim.actions) != (outside.observation, outside.sim.actions):
            raise pl.UserError("hib: sim and test differ in their observations or actions")
        return view, outside

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("hib", ctx.seed)
        view, outside = self.views()
        if outside is None:
            ctx.say("test=... names no simulator with other hidden numbers, so none is measured")
        steps = self.steps
        if (most := ctx.budget.get("steps")) is not None:
            steps = min(steps, int(most) * self.learner.games * view.horizon)
        sample = draw_sample(self, view, key)
        if constant := sample.constant(view.columns):
            ctx.say(
                f"{', '.join(constant)} is the same in all games of the start; what does not vary cannot be learned"
            )
        training = HistoryTraining(
            program=self,
            ctx=ctx,
            view=view,
            outside=outside,
            steps=steps,
            key=key,
            sample=sample,
        )
        results = await pl.control.compare_arms(
            ctx, {name: training.arm(name) for name in self.arms}
        )
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        own = results["hib"]
        gains = {"probe_gain": own["probe"] - results["history"]["probe"]}
        if outside is not None:
            gains["outside"] = own["outside"]
            gains["outside_gain"] = own["outside"] - results["history"]["outside"]
        ctx.log({"arm": "hib", "return": own["return"], **gains})
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results, guided="hib"),
                **gains,
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )


@pl.value_class
class StartSample:
    """Of games before the first update, the same for all arms: what is observed [N, O], e [N, E], and the
    deviation of their returns, in which rewards are learned, so that the critic's gradients do not drown
    the others.
    """

    seen: np.ndarray
    e: np.ndarray
    unit: float

    def constant(self, names: tuple[str, ...]) -> list[str]:
        """Numbers that never vary."""
        return [n for n, x in zip(names, np.ptp(self.e, 0), strict=True) if x < 1e-9]


def draw_policy(
    program: LearnHistory, view: PrivilegedView, latent: Latent, key: pl.Key
) -> HistoryPolicy:
    """The same weights for the same key, whatever z is."""
    size, width = program.size, program.width
    return pl.control.draw_network(
        lambda: HistoryPolicy(
            len(view.seen), view.privileged, view.actions, latent, program.k, size, width
        ),
        key,
    )


def draw_sample(program: LearnHistory, view: PrivilegedView, key: pl.Key) -> StartSample:
    """Eight games or more. Raises UserError for a number that is not finite."""
    act = HistoryPlayer(draw_policy(program, view, "none", key)).act
    n = max(8, program.learner.games)
    paths = pl.control.play_games(view, act, n, (*key, "sample"))
    alive = np.broadcast_to(paths["alive"][:, None], paths["reward"].shape)
    deviation = float(paths["reward"].sum(-1).std())
    obs_NO = paths["obs"][alive]
    names = (*(f"observed number {c}" for c in view.seen), *view.columns)
    if wrong := [x for i, x in enumerate(names) if not np.isfinite(obs_NO[:, i]).all()]:
        raise pl.UserError(
            f"{wrong[0]} is not a finite number in all games of the start, and hib learns from it; mend the "
            "simulator, or leave it out by privileged=... or observed=..."
        )
    return StartSample(
        seen=obs_NO[:, : len(view.seen)],
        e=obs_NO[:, len(view.seen) :],
        unit=deviation if deviation > 1e-6 else 1.0,
    )


@pl.value_class
class HistoryTraining:
    """Trains the policy of an arm, and measures it."""

    program: LearnHistory
    ctx: pl.Context
    view: PrivilegedView
    outside: PrivilegedView | None
    steps: int
    key: pl.Key
    sample: StartSample

    def start(self, arm: Arm) -> HistoryPolicy:
        """The same weights in every arm."""
        program, view = self.program, self.view
        latent: Latent = "none" if arm == "none" else "history"
        if arm in ("two stage", "oracle"):
            latent = "privileged"
        policy = draw_policy(program, view, latent, self.key)
        policy.scale(self.sample.seen, self.sample.e)
        return policy

    def arm(self, arm: Arm) -> pl.control.ArmRun:
        async def run() -> Mapping[str, Any]:
            lines = list[dict[str, Any]]()
            policy = self.start(arm)
            share = TEACHER if arm == "two stage" else 1.0
            taken = self.learn(policy, arm, round(share * self.steps), lines)
            if arm == "two stage":
                taken = self.imitate(policy, taken, lines)
            if arm == "hib" and self.ctx.out is not None:
                save_controller(policy, self.view.bounds, self.ctx.out / "policy")
            thin = max(1, len(lines) // CURVE)
            return {**self.measure(policy), "env_steps": taken, "curve": lines[::thin]}

        return run

    def weights(self, arm: Arm, share: float) -> HistoryBottleneck:
        """Of an arm, when a share of its steps is taken."""
        nce = self.program.nce if arm in ("hib", "no kl") else 0.0
        kl = self.program.kl if arm in ("hib", "no nce") else 0.0
        return HistoryBottleneck(nce=nce, kl=kl * min(1.0, share / WARM))

    def learn(
        self, policy: HistoryPolicy, arm: Arm, steps: int, lines: list[dict[str, Any]]
    ) -> int:
        """PPO, whose gradients reach the encoder too. Returns the steps that were taken."""
        ppo, taken, i = self.program.learner, 0, 0
        objective: Any = ppo.objective
        learned: Any = policy  # has what PPO uses of an ActorCritic
        optimiser = torch.optim.Adam(policy.parameters(), ppo.lr, eps=1e-5)
        while taken < steps:
            act = HistoryPlayer(policy).act
            paths = pl.control.play_games(self.view, act, ppo.games, (*self.key, i))
            learner = replace(ppo, objective=objective + self.weights(arm, taken / steps))
            taken, i = taken + int(paths["alive"].sum()), i + 1
            batch = ppo.batch_of(learned, paths, lambda paths: paths["reward"] / self.sample.unit)
            noise = torch.from_numpy(paths["noise"]).float().flatten(0, 1)
            batch = replace(batch, columns={**batch.columns, "noise": noise})
            metrics = learner.update(learned, optimiser, batch, (*self.key, i))
            reward = float(pl.control.returns_of(paths).mean())
            lines.append({"iteration": i, "env_steps": taken, "reward": reward, **metrics})
        return taken

    def imitate(self, policy: HistoryPolicy, taken: int, lines: list[dict[str, Any]]) -> int:
        """The second stage: the encoder learns z of the teacher, in games that it plays itself."""
        ppo, i = self.program.learner, 0
        policy.latent = "history"
        optimiser = torch.optim.Adam(policy.encoder.parameters(), ppo.lr)
        while taken < self.steps:
            act = HistoryPlayer(policy, greedy=True).act
            paths = pl.control.play_games(self.view, act, ppo.games, (*self.key, "imitate", i))
            taken, i = taken + int(paths["alive"].sum()), i + 1
            columns = flat_columns(paths)
            alive = torch.from_numpy(np.repeat(paths["alive"], self.view.agents, 0))
            with torch.no_grad():
                target = policy.of_privileged(policy.split(columns["obs"])[1])
            loss = torch.zeros(())
            for _ in range(ppo.epochs * ppo.minibatches):
                loss = ((policy.encode(columns)[0] - target) ** 2)[alive].mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.encoder.parameters(), ppo.max_norm)
                optimiser.step()
            reward = float(pl.control.returns_of(paths).mean())
            lines.append({"env_steps": taken, "reward": reward, "loss": float(loss.detach())})
        return taken

    def measure(self, policy: HistoryPolicy) -> dict[str, Any]:
        """What greedy games are paid, in the range of training and outside, and what z says of e there."""
        numbers, games = dict[str, Any](), self.program.games
        for name, view in (("return", self.view), ("outside", self.outside)):
            if view is not None:
                act = HistoryPlayer(policy, greedy=True).act
                arm, paths = pl.control.measure_arm(view, act, pl.control.as_paid, games, self.key)
                error = "error" if name == "return" else "outside_error"
                numbers |= {name: arm["return"], error: arm["error"]}
                if policy.latent == "history":
                    probes = self.probes(policy, paths)
                    numbers |= probes if name == "return" else {"probe_outside": probes["probe"]}
        return numbers

    @torch.no_grad()
    def probes(self, policy: HistoryPolicy, paths: pl.control.Paths) -> dict[str, float]:
        """R^2 of e from the mean of z, at the last step of each game and after its first one; and the mean
        KL of z, which is no less than I(z; h).
        """
        columns = flat_columns(paths)
        mean, log_sd = policy.encode(columns)
        alive = np.repeat(paths["alive"], self.view.agents, 0)
        _, e = policy.split(columns["obs"])
        last = torch.from_numpy(alive.sum(1) - 1)
        at = lambda x, t: x[torch.arange(len(x)), t].double().numpy()
        kl = gaussian_kl(mean, log_sd)[torch.from_numpy(alive)].mean()
        early = torch.clamp(last, max=1)
        return {
            "probe": probe_r2(at(mean, last), at(e, last)),
            "probe_first": probe_r2(at(mean, early), at(e, early)),
            "kl": float(kl),
        }


def flat_columns(paths: pl.control.Paths) -> dict[str, Tensor]:
    """obs and act, the agents of all games as rows."""
    names = ("obs", "act")
    return {k: torch.from_numpy(copy.copy(paths[k])).float().flatten(0, 1) for k in names}
