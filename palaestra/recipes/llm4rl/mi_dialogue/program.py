"""Dialogue managers with and without two levels and meta-learning, and how they adapt to new clients."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.llm4rl.mi_dialogue.agent import (
    DialogueAgent,
    Order,
    adapt_agent,
    batches_of,
    draw_agent,
    levels_of,
    loss_on,
    meta_gradient,
)
from palaestra.recipes.llm4rl.mi_dialogue.clients import (
    ClientFamily,
    ClientSimulator,
    simulated_clients,
)
from palaestra.recipes.llm4rl.mi_dialogue.live import save_manager
from palaestra.recipes.llm4rl.mi_dialogue.words import DialogueWords, choose_acts, write_dialogue

DIALOGUES = "dialogues.jsonl"  # in the run folder
ROUNDS = (0, 1, 4)  # of adaptation, after which an arm is measured


@runtime_checkable
class KnowsActs(Protocol):
    """A simulator that knows which act works in a state: for the oracle's arm."""

    def best_acts(self, state: Any) -> np.ndarray:
        """[n, 1]"""
        ...


@pl.stage
class ManageDialogue:
    """A program: PPO on two levels with MAML over kinds of clients, and its ablations; see the module of
    the recipe.

    Args:
        asked: chooses acts itself in an arm, and writes the acts of some dialogues; None = neither.
        clients: simulators to learn from, and held-out ones.
        every: turns H for which the master holds an option.
        options: sub-policies.
        inner: rate of an inner step, in training and where an agent adapts.
        order: of the outer gradient.
        episodes: dialogues of a round of adaptation.
        steps: turns that an arm learns from.
        games: dialogues with each held-out simulator that an arm is measured by.
        talks: of them the language model chooses acts of, and writes one.
    """

    asked: pl.Source | None = None
    clients: ClientFamily = simulated_clients()
    every: int = 4
    options: int = 4
    inner: float = 0.3
    order: Order = "first"
    episodes: int = 5
    steps: int = 24_000
    games: int = 200
    talks: int = 4
    learner: pl.control.PPO = pl.control.PPO(games=16, gamma=0.95, lr=3e-3)

    def __post_init__(self) -> None:
        for name in ("every", "options", "episodes", "steps", "talks"):
            pl.check_bounds(name, getattr(self, name), least=1)
        pl.check_bounds("games", self.games, least=2)
        pl.check_bounds("inner", self.inner, least=0)
        if self.learner.bootstrap:
            raise pl.UserError(
                "learner.bootstrap=true: what follows the horizon is worth nothing here, as the master "
                "and its options have no common critic; leave it false"
            )

    async def run(self, ctx: pl.Context) -> pl.Result:
        arms = {
            "none": self.arm(ctx, "none", options=1, meta=False),
            "hierarchy": self.arm(ctx, "hierarchy", self.options, meta=False),
            "meta alone": self.arm(ctx, "meta alone", options=1, meta=True),
            "guide": self.arm(ctx, "guide", self.options, meta=True),
        }
        if len(self.clients.held_out) > 1:
            arms["shuffled"] = self.arm(ctx, "shuffled", self.options, meta=True)
        else:
            ctx.say("there is no arm shuffled: one held-out simulator has no other to adapt to")
        if self.asked and self.words:
            arms["language model"] = self.asked_arm(ctx)
            arms["other turns"] = self.other_arm(ctx)
        elif self.asked:
            ctx.say(
                "--llm is not used: this simulator's acts have no words (`acts` and `client_acts`)"
            )
        if all(isinstance(sim, KnowsActs) for sim in self.clients.held_out):
            arms["oracle"] = self.oracle_arm(ctx)
        results = await pl.control.compare_arms(ctx, arms)
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        own = results["guide"]
        ctx.log({"arm": "guide", "adapted": own["adapted"], "return": own["return"]})
        columns = ("adapted", "after_0", "after_1", "after_4")
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                **{k: own[k] for k in columns},
                "gain_of_hierarchy": results["hierarchy"]["return"] - results["none"]["return"],
                "gain_of_meta": own["return"] - results["hierarchy"]["return"],
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )

    @property
    def simulated(self) -> bool:
        """Whether all held-out clients are ours."""
        return all(isinstance(sim, ClientSimulator) for sim in self.clients.held_out)

    @property
    def words(self) -> DialogueWords | None:
        """Those of the held-out simulators' acts; None = one of them has none."""
        each = [DialogueWords.of(sim) for sim in self.clients.held_out]
        return None if None in each else each[0]

    def key(self, ctx: pl.Context) -> pl.Key:
        return ("mi-dialogue", ctx.seed)

    def arm(self, ctx: pl.Context, name: str, options: int, meta: bool) -> pl.control.ArmRun:
        """Learns from the training simulators, and is measured on held-out ones."""

        async def run() -> Mapping[str, Any]:
            agent, lines = self.learn(ctx, options, meta)
            result, personal = self.measure(ctx, agent, strangers=name == "shuffled")
            if name == "guide":
                if ctx.out is not None:
                    names = [] if self.words is None else self.words.acts
                    gamma, lam = self.learner.gamma, self.learner.lam
                    adapts = {"inner": self.inner, "gamma": gamma, "lam": lam}
                    save_manager(agent, ctx.out / "policy", names, adapts)
                if self.asked and self.words:
                    result |= await self.speak(ctx, personal, self.words)
            return {**result, "env_steps": int(lines[-1]["env_steps"]), "curve": lines}

        return run

    def learn(
        self, ctx: pl.Context, options: int, meta: bool
    ) -> tuple[DialogueAgent, list[dict[str, Any]]]:
        """An agent after `steps` turns, with the same games an iteration whether it is meta-learned or
        not; and the log.
        """
        key, sims = (*self.key(ctx), "learn"), self.clients.training
        agent = draw_agent(sims[0], options, self.every, self.learner, key)
        optimisers = {
            name: torch.optim.Adam(module.parameters(), self.learner.lr, eps=1e-5)
            for name, module in levels_of(agent).items()
        }
        steps = self.steps
        if (most := ctx.budget.get("steps")) is not None:
            steps = min(steps, int(most) * self.learner.games * sims[0].horizon)
        taken, i, lines = 0, 0, list[dict[str, Any]]()
        while taken < steps:
            played = self.iterate(agent, optimisers, meta, (*key, i))
            taken, i = taken + sum(int(p["alive"].sum()) for p in played), i + 1
            reward = float(np.mean([pl.control.returns_of(p).mean() for p in played]))
            lines.append({"env_steps": taken, "reward": reward})
        return agent, lines

    def iterate(
        self, agent: DialogueAgent, optimisers: Mapping[str, Any], meta: bool, key: pl.Key
    ) -> list[pl.control.Paths]:
        """One iteration: `games` dialogues with clients of each kind, and updates of the weights. MAML
        plays half of them as the agent is and half as it is adapted to the kind. Each level moves while
        the other one is held as it played. Returns what was played.
        """
        played, learner = list[pl.control.Paths](), self.learner
        half = max(1, learner.games // 2)
        pairs = list[tuple[dict[str, pl.Batch], dict[str, pl.Batch]]]()
        for k, sim in enumerate(self.clients.training):
            first = pl.control.play_games(sim, agent.player(), half, (*key, k, "support"))
            other = adapt_agent(agent, first, learner, self.inner) if meta else agent
            second = pl.control.play_games(sim, other.player(), half, (*key, k, "query"))
            played += [first, second]
            pairs.append((batches_of(agent, first, learner), batches_of(agent, second, learner)))
        for level, module in levels_of(agent).items():
            if level == "master" and len(agent.options.each) == 1:
                continue  # it has nothing to choose
            for _ in range(learner.epochs):
                self.update(
                    module, optimisers[level], [(a[level], b[level]) for a, b in pairs], meta
                )
        return played

    def update(
        self,
        module: Any,
        optimiser: torch.optim.Optimizer,
        pairs: list[tuple[pl.Batch, pl.Batch]],
        meta: bool,
    ) -> None:
        """A pass over the games of all kinds: one step along the mean gradient, of MAML or as it is."""
        weights, objective = dict(module.named_parameters()), self.learner.objective
        losses = [(loss_on(module, a, objective), loss_on(module, b, objective)) for a, b in pairs]
        optimiser.zero_grad()
        if meta:
            for k, g in meta_gradient(weights, losses, self.inner, self.order).items():
                weights[k].grad = g
        else:
            flat = [loss for pair in losses for loss in pair]
            total = torch.stack([loss(weights) for loss in flat]).mean()
            total.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(module.parameters(), self.learner.max_norm)
        optimiser.step()

    def measure(
        self, ctx: pl.Context, agent: DialogueAgent, strangers: bool = False
    ) -> tuple[dict[str, Any], list[DialogueAgent]]:
        """Returns on held-out simulators after each number of rounds of adaptation, a mean over them, of
        the same test games; "return" is that after one round, and "adapted" the mean over simulators of
        |return after one round - before|. And the agents after one round, one for each simulator.

        Args:
            strangers: each simulator is met after adaptation to the one before it in the list, of another kind.
        """
        others = [self.clients.held_out[-1], *self.clients.held_out]
        personal, after = list[DialogueAgent](), {r: list[float]() for r in ROUNDS}
        phases, ends, tested = list[float](), list[float](), list[np.ndarray]()
        for k, sim in enumerate(self.clients.held_out):
            key = (*self.key(ctx), "held out", k)
            adapted, taught = agent, others[k] if strangers else sim
            for r in range(max(ROUNDS) + 1):
                if r:
                    games = pl.control.play_games(
                        taught, adapted.player(), self.episodes, (*key, "adapt", r)
                    )
                    adapted = adapt_agent(adapted, games, self.learner, self.inner)
                if r in ROUNDS:
                    test = pl.control.play_games(sim, adapted.player(), self.games, (*key, "test"))
                    after[r].append(float(pl.control.returns_of(test).mean()))
                    if r == 1:
                        personal.append(adapted)
                        tested.append(pl.control.returns_of(test))
                        ends.append(float(test["over"].any(1).mean()))
                        if "phase" in test:
                            phases.append(float(test["phase"].max(-1).mean()))
        returns = np.concatenate(tested)
        result = {
            "return": float(np.mean(after[1])),
            "error": pl.stats.standard_error(returns),
            "learned_from": float(np.mean(after[1])),
            "agreement": 1.0,
            **{f"after_{r}": float(np.mean(x)) for r, x in after.items()},
            "adapted": float(np.mean(np.abs(np.subtract(after[1], after[0])))),
            "ended": float(np.mean(ends)),
            **({"phase": float(np.mean(phases))} if phases else {}),
        }
        return result, personal

    def source(self) -> pl.Source:
        """Who is asked, its replies kept."""
        assert self.asked is not None
        return pl.services.TranscribedSource(self.asked)

    async def speak(
        self, ctx: pl.Context, personal: Sequence[DialogueAgent], words: DialogueWords
    ) -> dict[str, Any]:
        """A dialogue in words of each held-out kind with the agent that adapted to it, in the run folder;
        "realised" is the share of acts that the model wrote so that it names them again.
        """
        lines, written, acts = list[dict[str, Any]](), 0, 0
        for k, (sim, agent) in enumerate(zip(self.clients.held_out, personal, strict=True)):
            path = pl.control.play_games(sim, agent.player(), 1, (*self.key(ctx), "speak", k))
            T = int(path["alive"].sum())
            own_acts = [int(x) for x in path["act"][0, 0, :T]]
            heard = [int(x) for x in path["client_act"][0, 0, :T]]
            turns, n = await write_dialogue(ctx, self.source(), own_acts, heard, words)
            written, acts = written + n, acts + T
            kind = str(getattr(sim, "name", k))
            lines.append({"client": kind, "simulation": True, "turns": turns})
        if ctx.out is not None:
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (ctx.out / DIALOGUES).write_text(text, encoding="utf-8")
        return {"realised": written / max(1, acts)}

    async def asked_acts(self, ctx: pl.Context) -> list[dict[str, Any]]:
        """The dialogues of each held-out kind in which the language model chooses every act."""
        kinds = list[dict[str, Any]]()
        for k, sim in enumerate(self.clients.held_out):
            key = (*self.key(ctx), "held out", k, "test")
            words = DialogueWords.of(sim)
            assert words is not None
            returns, lost, acts = await choose_acts(ctx, self.source(), sim, self.talks, key, words)
            kinds.append({"returns": returns.tolist(), "unread": lost, "acts": acts})
        return kinds

    def asked_arm(self, ctx: pl.Context) -> pl.control.ArmRun:
        """The language model chooses every act, without learning."""

        async def run() -> Mapping[str, Any]:
            kinds = await ctx.once("asked-acts", lambda: self.asked_acts(ctx))
            paid = np.concatenate([kind["returns"] for kind in kinds])
            return unlearned(paid) | {"fallbacks": sum(kind["unread"] for kind in kinds)}

        return run

    def other_arm(self, ctx: pl.Context) -> pl.control.ArmRun:
        """The same acts at other turns: those of a dialogue in an order that is drawn."""

        async def run() -> Mapping[str, Any]:
            kinds = await ctx.once("asked-acts", lambda: self.asked_acts(ctx))
            paid = list[np.ndarray]()
            for k, (sim, kind) in enumerate(zip(self.clients.held_out, kinds, strict=True)):
                key = (*self.key(ctx), "held out", k, "test")
                acts_nT = mixed_turns(kind["acts"], sim.horizon, (*key, "order"))
                choose = lambda state, t, acts_nT=acts_nT: acts_nT[:, t : t + 1]
                paid.append(play_states(sim, choose, self.talks, key))
            return unlearned(np.concatenate(paid))

        return run

    def oracle_arm(self, ctx: pl.Context) -> pl.control.ArmRun:
        """Acts that the simulator knows to work, of what nobody else sees."""

        async def run() -> Mapping[str, Any]:
            paid = list[np.ndarray]()
            for k, sim in enumerate(self.clients.held_out):
                known: Any = sim
                key = (*self.key(ctx), "held out", k, "test")
                choose = lambda state, t, known=known: known.best_acts(state)
                paid.append(play_states(sim, choose, self.games, key))
            return unlearned(np.concatenate(paid))

        return run


def unlearned(returns: np.ndarray) -> dict[str, Any]:
    """What an arm without learning says of its test games."""
    mean, error = float(returns.mean()), pl.stats.standard_error(returns)
    return {
        "return": mean,
        "error": error,
        "learned_from": mean,
        "agreement": 1.0,
        "env_steps": 0,
    }


def mixed_turns(acts: Sequence[Sequence[int]], turns: int, key: pl.Key) -> np.ndarray:
    """[n, T] the acts of each dialogue in another order, again from the start where it was shorter."""
    rng = pl.rng_of(key)
    return np.array([np.resize(rng.permutation(np.array(each, int)), turns) for each in acts])


def play_states(
    sim: pl.control.Simulator,
    choose: Callable[[Any, int], np.ndarray],
    games: int,
    key: pl.Key,
) -> np.ndarray:
    """[n] returns where acts [n, 1] are chosen from a state and the number of its turn."""
    rng = pl.rng_of((*key, "play"))
    state, alive, paid = sim.reset(rng, games), np.ones(games, bool), np.zeros(games)
    for t in range(sim.horizon):
        state, reward, over = sim.step(state, choose(state, t), rng)
        paid += reward[:, 0] * alive
        alive = alive & ~over
    return paid
