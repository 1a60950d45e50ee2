"""Sharpe-active: chooses the pairs of answers that are worth a label before anybody labels them, by
the Sharpe ratio of the two gradients that DPO may have of a pair.

With the policy's margin m = beta (h(first) - h(second)), h = log pi - log pi_ref, DPO's gradient has the
norm |G1| = c sigmoid(-m) if the first answer is preferred and |G2| = c sigmoid(m) = |G1| e^m if the second
is. With g = e^m and the probabilities p1, p2 of the two labels, the common |G1| cancels:

    mu = p1 + p2 g,      SR = mu / sqrt(p1 (1 - mu)^2 + p2 (g - mu)^2)

SHARP has no prior, p1 = p2 = 1/2; W-SHARP takes the policy's own, p1 = sigmoid(m). Each has a closed form:

    SHARP     mu = (1 + g) / 2,    deviation |1 - g| / 2:                 SR = (1 + g) / |1 - g| = coth(|m| / 2)
    W-SHARP   mu = 2 g / (1 + g),  deviation sqrt(g) |1 - g| / (1 + g):   SR = 2 sqrt(g) / |1 - g| = 1 / sinh(|m| / 2)

Both fall strictly in |m|. So SHARP and W-SHARP rank every set of pairs as -|m| does: they buy the same
pairs, those of which the policy is least certain, and this is uncertainty sampling. The score is
computed as -|m|, which also ranks where coth is 1 in floating point. At the first step every m is 0, and
ties are broken at random. Under Bradley and Terry's model pairs with a small margin are also those whose
labels are noisiest, so compare with `select=random`, and try `smoothing` above 0.

Each step draws `factor` times as many pairs as it trains on, scores them by two forward passes without
a gradient, buys labels of those with the highest score and takes one step of DPO; the others go back.
A label is not read before it is bought: the order of the two answers tells nothing of it.

    palaestra train sharpe-active --data pairs.jsonl label=queue

    label=file        columns chosen and rejected, hidden until bought (the default)
    label=queue       the run pauses with its questions in RUN/labels.jsonl; write first, second or tie
                      as `better` of each line, then `palaestra train --resume RUN`
    label=FILE.jsonl  the same in a file of your own, whose labels several runs share
    label=terminal    a person at the terminal
    label=command:'PROGRAM ARGUMENTS'   gets prompt, first and second as JSON, prints first, second or tie
    label=endpoint(url='http://HOST:PORT/v1',model='NAME')   a judge, which sees both orders

Labels by all of these lie in that file, and a run that goes on buys none again. After `budget` labels the
run learns on from the bought pairs (arXiv:2503.22137, eq. 6 to 15, algorithm 1).

Long because the draw is a process that spends a budget: it collects candidates, measures margins, buys labels from
people, files or models, waits for them, resumes without a second purchase, and learns on from what it has.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import numpy as np

import palaestra as pl
from palaestra.recipes.preference.sharpe_active.labels import (
    LabelFile,
    Labeller,
    RecordedLabel,
    UnlabelledPair,
    labeller_of,
    unlabelled,
)

CARD = pl.Card(
    title="Active preference selection by Sharpe ratio",
    paper="arXiv:2503.22137",
    claim="Pairs that are chosen by the Sharpe ratio of their possible gradients teach more per "
    "label, up to 5% in win rate.",
    source="full text as stored in a public repository; the identity with -|m| is ours",
    size=pl.Size(
        setting="GPT-2, Pythia-2.8B and Llama-3-8B on HH and SHP, LoRA of rank 16, 28,672 labels",
        model="llama-3.1-8b",
        prompts=64,
        lora=16,
    ),
    task="preferences",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "first",
                "text",
                ("42", "29", "49"),
                "one answer of a pair that nobody has compared",
                otherwise="the columns chosen and rejected are the pair, without their label",
                when={"label": ("queue", "terminal")},
            ),
            pl.needs.NeededColumn(
                "second",
                "text",
                ("32", "39", "31"),
                "the other answer",
                otherwise="the columns chosen and rejected are the pair, without their label",
                when={"label": ("queue", "terminal")},
            ),
            replace(pl.needs.CHOSEN, when={"label": ("file",)}),
            replace(pl.needs.REJECTED, when={"label": ("file",)}),
        ),
        models=(
            pl.needs.NeededModel(
                "judge",
                "label",
                "says which answer of a bought pair is better",
                inert="file",
                example="endpoint(url='http://HOST:PORT/v1',model='NAME')",
                otherwise="the data have the labels, or a person or a command is asked",
            ),
        ),
        shows="margin_gap",
        off={"factor": 1},
        own={"schedule.prompts": 2, "factor": 3},
    ),
    use="It helps where labels cost more than forward passes; where labels of pairs that are hard to "
    "tell apart are mostly noise, random pairs teach as much.",
    lacks=(
        "Without a budget all pairs of a small file are bought in the end, so only their order is chosen.",
        "The win rates against the chosen answer, judged by GPT-4o, and the data sets of the "
        "paper are not there.",
        "Adapters on a quantised model are not the default: `--lora` trains adapters.",
    ),
    grade="A",
)
Selection: TypeAlias = Literal["sharp", "w-sharp", "random", "certain"]


def sharpe_ratio(m: np.ndarray, prior: bool = False) -> np.ndarray:
    """SHARP, or with the policy's own `prior` W-SHARP, of margins in nats times beta; infinite
    where the margin is 0.
    """
    half = np.abs(np.asarray(m, np.float64)) / 2
    with np.errstate(divide="ignore", over="ignore"):
        return 1 / np.sinh(half) if prior else 1 / np.tanh(half)


def selection_scores(m: np.ndarray, select: Selection, key: pl.Key) -> np.ndarray:
    """[N] what the pairs are ranked by, the highest first."""
    if select == "random":
        return pl.rng_of((*key, "random")).random(len(m))
    return np.abs(m) if select == "certain" else -np.abs(m)


@pl.declare(columns=("chosen", "rejected"))
@pl.stage
class BuyLabels:
    """Draws pairs that are worth a label and has them labelled, see the module.

    Args:
        labeller: who is asked.
        select: "random" and "certain" (the largest |m|) are what the two ratios are compared with.
        beta: of the loss, in m.
        factor: candidates for each pair that is bought.
        budget: labels, at most; 0 = any number.
        file: of the labels; "" = labels.jsonl of the run folder.

    Raises:
        Paused: pairs wait for a person, or no label came.
    """

    labeller: Labeller = RecordedLabel()
    select: Selection = "sharp"
    beta: float = 0.1
    factor: int = 6
    budget: int = 0
    file: str = ""

    def __post_init__(self) -> None:
        pl.check_bounds("sharpe-active: factor", self.factor, least=1)
        pl.check_bounds("sharpe-active: budget", self.budget, least=0)

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        state = {"bought": [], "cursor": 0, **state}
        tasks: list[pl.Task] = []
        while not tasks and (room := self._room(n, state)):
            here = (*key, len(state["bought"]))
            pairs, state = self._candidates(ctx, here, room * self.factor, state)
            if not pairs:
                break
            if len(pairs) < room * self.factor and not state.get("few"):
                choice = (
                    "all of them are bought" if len(pairs) <= room else "there is little choice"
                )
                ctx.say(
                    f"note: {len(pairs)} pairs without a label are left for the {room} of a step, which "
                    f"are chosen among {room * self.factor}: {choice}; give more pairs, or a smaller "
                    "budget, factor or schedule.prompts"
                )
                state = {**state, "few": True}
            chosen, state = await self._choose(ctx, here, pairs, room, state)
            tasks, state = await self._buy(ctx, chosen, state)
        return (tasks, state) if tasks else self._again(ctx, key, n, state)

    def _room(self, n: int, state: pl.State) -> int:
        return n if not self.budget else max(0, min(n, self.budget - len(state["bought"])))

    def _candidates(
        self, ctx: pl.Context, key: pl.Key, k: int, state: pl.State
    ) -> tuple[list[UnlabelledPair], pl.State]:
        """Pairs that are not bought yet, at random; of an endless source the next ones."""
        tasks, at = ctx.bench.tasks, state["cursor"]
        if tasks.size is None:
            numbers = [ctx.bench.first_drawn + at + i for i in range(k)]
        else:
            free = np.setdiff1d(np.arange(tasks.size), np.array(state["bought"], np.int64))
            numbers = pl.rng_of((*key, "pool")).permutation(free)[:k].tolist()
        pairs = [unlabelled(tasks.task("train", i), i) for i in numbers]
        return pairs, {**state, "cursor": at + len(pairs)}

    async def _choose(
        self, ctx: pl.Context, key: pl.Key, pairs: list[UnlabelledPair], n: int, state: pl.State
    ) -> tuple[list[UnlabelledPair], pl.State]:
        """The `n` with the highest score, in the order in which they were drawn."""
        m_N = await self.margins(ctx, key, pairs)
        score_N = selection_scores(m_N, self.select, key)
        ties = pl.rng_of((*key, "ties")).permutation(len(pairs)).tolist()
        kept = sorted(sorted(ties, key=lambda i: -score_N[i])[:n])
        least = sharpe_ratio(np.abs(m_N[kept]).max(), self.select == "w-sharp")
        numbers = {
            "margin_gap": float(np.abs(m_N).mean() - np.abs(m_N[kept]).mean()),
            "margin_bought": float(np.abs(m_N[kept]).mean()),
        }
        numbers |= {"sharpe_least": float(least)} if np.isfinite(least) else {}
        return [pairs[i] for i in kept], {**state, "numbers": numbers}

    async def margins(
        self, ctx: pl.Context, key: pl.Key, pairs: list[UnlabelledPair]
    ) -> np.ndarray:
        """[N] m of each pair by the weights of now, in nats times beta."""
        record = pl.Recorded()  # in the order first, second, whichever is better
        groups = await asyncio.gather(
            *(record(ctx, key, pl.Group(task=p.with_label("first"))) for p in pairs)
        )
        signals = ctx.measure(groups, (("policy", "logp"), ("ref", "logp")))
        h_N2 = [
            [sum(float((row["policy_logp"] - row["ref_logp"]).sum()) for row in e) for e in g]
            for g in signals
        ]
        return self.beta * (np.array(h_N2) @ np.array([1.0, -1.0]))

    async def _buy(
        self, ctx: pl.Context, pairs: list[UnlabelledPair], state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        """The pairs with their labels, without ties. What could not be labelled is not bought."""
        store = self._store(ctx, state)
        faults, turns = list[pl.Fault](), asyncio.Semaphore(self.labeller.at_once)

        async def label(pair: UnlabelledPair) -> None:
            async with turns:
                try:
                    store.put(pair, await self.labeller(ctx, pair))
                except pl.Fault as fault:
                    faults.append(fault)

        new = {p.id: p for p in pairs if p.id not in store.labels}
        await asyncio.gather(*map(label, new.values()))
        bought = [p for p in pairs if p.id in store.labels]
        waiting = len(new) - len(faults) - sum(i in store.labels for i in new)
        if waiting:
            raise pl.Paused(
                f"{waiting} of {len(pairs)} pairs wait for a label: write first, second or tie as "
                f"`better` of each line of {store.file or 'a file; give the run a folder'}, then "
                "resume the run"
            )
        if not bought:
            raise pl.Paused(f"none of {len(pairs)} pairs could be labelled; the first: {faults[0]}")
        if faults:
            ctx.say(f"note: {len(faults)} of {len(pairs)} labels failed; the first: {faults[0]}")
        state = {**state, "bought": [*state["bought"], *(p.number for p in bought)]}
        if store.file is None:
            state["labels"] = store.labels
        sides = [(p, store.labels[p.id]) for p in bought]
        return [p.with_label(x) for p, x in sides if x != "tie"], state

    def _store(self, ctx: pl.Context, state: pl.State) -> LabelFile:
        own = Path(self.file).expanduser() if self.file else None
        of_run = None if ctx.out is None else ctx.out / "labels.jsonl"
        return LabelFile(own or of_run, state.get("labels", {}))

    def _again(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        """Bought pairs at random, where nothing is left to buy."""
        labels = self._store(ctx, state).labels
        pairs = [unlabelled(ctx.bench.tasks.task("train", i), i) for i in state["bought"]]
        sides = [(p, labels[p.id]) for p in pairs if labels.get(p.id, "tie") != "tie"]
        if not sides:
            raise pl.UserError(
                f"sharpe-active: all of the {len(pairs)} bought pairs are ties, and nothing is left "
                "to buy; raise budget, or give more pairs"
            )
        if not state.get("spent"):
            ctx.say(f"note: {len(pairs)} labels are bought, and the run learns on from these pairs")
        order = pl.rng_of((*key, "again")).permutation(len(sides))[:n].tolist()
        tasks = [sides[i][0].with_label(sides[i][1]) for i in order]
        return tasks, {**state, "spent": True, "numbers": {"margin_gap": 0.0}}

    def draw_numbers(self, state: pl.State) -> dict[str, float]:
        """Labels bought so far, and by how much the bought pairs of the step are nearer to 0 in |m|
        than its candidates, in nats times beta.
        """
        return {"labels": float(len(state["bought"])), **state["numbers"]}


@pl.stage
class BoughtPair(pl.Recorded):
    """Adds the pair of a task that has a label; held-out pairs without one are not compared."""

    recorded: ClassVar[bool] = True

    def texts(self, task: pl.Task) -> list[tuple[str, str]]:
        """Both answers, whether or not a label is there."""
        pair = unlabelled(task, 0)
        return [("first", pair.first), ("second", pair.second)]

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        if not {"chosen", "rejected"} <= group.task.meta.keys():
            return group
        return await pl.Recorded(self.model)(ctx, key, group)


def build(
    label: str = "file",
    select: Selection = "sharp",
    factor: int = 6,
    budget: int = 0,
    beta: float = 0.1,
    smoothing: float = 0.0,
) -> pl.Recipe:
    """`label` says who labels, see the module; `smoothing` is the share of labels taken to be wrong."""
    labeller, file, models = labeller_of(label)
    return pl.vary(
        pl.recipe("dpo", pairs="data", beta=beta, smoothing=smoothing),
        draw=BuyLabels(labeller, select, beta, factor, budget, file),
        collect=pl.links(BoughtPair()),
        references={"ref": "policy", **models},
        schedule=pl.Schedule(steps=40),
    )
