"""Dialogue managers with and without two levels and meta-learning, and how they adapt to new clients."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

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
        if self.asked and self.words:
            arms["language model"] = self.asked_arm(ctx)
        elif self.asked:
            ctx.say(
                "asked= is not used: this simulator's acts have no words (`acts` and `client_acts`)"
            )
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
            result, personal = self.measure(ctx, agent)
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
        self, ctx: pl.Context, agent: DialogueAgent
    ) -> tuple[dict[str, Any], list[DialogueAgent]]:
        """Returns on held-out simulators after each number of rounds of adaptation, a mean over them, of
        the same test games; "return" is that after one round, and "adapted" the mean over simulators of
        |return after one round - before|. And the agents after one round, one for each simulator.
        """
        personal, after = list[DialogueAgent](), {r: list[float]() for r in ROUNDS}
        phases, ends, tested = list[float](), list[float](), list[np.ndarray]()
        for k, sim in enumerate(self.clients.held_out):
            key = (*self.key(ctx), "held out", k)
            adapted = agent
            for r in range(max(ROUNDS) + 1):
                if r:
                    games = pl.control.play_games(
                        sim, adapted.player(), self.episodes, (*key, "adapt", r)
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

    def asked_arm(self, ctx: pl.Context) -> pl.control.ArmRun:
        """The language model chooses every act, without learning."""

        async def run() -> Mapping[str, Any]:
            paid, unread = list[np.ndarray](), 0
            for k, sim in enumerate(self.clients.held_out):
                key = (*self.key(ctx), "held out", k, "test")
                words = DialogueWords.of(sim)
                assert words is not None
                returns, lost = await choose_acts(ctx, self.source(), sim, self.talks, key, words)
                paid.append(returns)
                unread += lost
            all_paid = np.concatenate(paid)
            mean = float(all_paid.mean())
            error = pl.stats.standard_error(all_paid)
            return {"return": mean, "error": error, "learned_from": mean, "agreement": 1.0,
                    "env_steps": 0, "fallbacks": unread}  # fmt: skip

        return run
