"""The saved manager on a dialogue under way, and on recorded ones, to which it adapts."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.llm4rl.mi_dialogue.agent import DialogueAgent, OptionPolicies, adapt_agent
from palaestra.recipes.llm4rl.mi_dialogue.clients import (
    ACTS,
    CLIENT_ACTS,
    MEMORY,
    PAYS,
    TURN_PAY,
    ClientSimulator,
    ClientState,
)

SETTINGS = "manager.json"  # in the folder of the policy


def save_manager(
    agent: DialogueAgent, folder: Path, acts: Sequence[str], adapts: Mapping[str, float]
) -> None:
    """Writes the master, each option, and what they are played with.

    Args:
        acts: their names, where they have some.
        adapts: what a round of adaptation needs: "inner", the rate, "gamma" and "lam".
    """
    pl.control.save_policy(agent.master, folder / "master")
    for o, policy in enumerate(agent.options.each):
        made: Any = policy
        pl.control.save_policy(made, folder / f"option-{o}")
    kept = {
        "every": agent.every,
        "options": len(agent.options.each),
        "overview": [int(i) for i in agent.overview],
        "acts": list(acts),
        "adapts": dict(adapts),
    }
    (folder / SETTINGS).write_text(json.dumps(kept) + "\n", encoding="utf-8")


def read_manager(folder: Path | str) -> tuple[dict[str, Any], DialogueAgent]:
    """The record and the agent of a folder. Raises UserError for one that holds no manager."""
    where = Path(folder)
    try:
        kept: dict[str, Any] = json.loads((where / SETTINGS).read_text(encoding="utf-8"))
        every, options = int(kept["every"]), int(kept["options"])
        overview = [int(i) for i in kept["overview"]]
        kept["acts"] = list(kept["acts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise pl.UserError(f"{where} holds no dialogue manager: {error}") from None
    each: list[Any] = [pl.control.load_policy(where / f"option-{o}") for o in range(options)]
    master = pl.control.load_policy(where / "master")
    return kept, DialogueAgent(master, OptionPolicies(each), overview, every)


def adapt_manager(
    folder: Path | str,
    dialogues: Path | str | Sequence[Mapping[str, Any]],
    out: Path | str,
    rate: float | None = None,
) -> None:
    """Writes to `out` the manager of `folder` after one round of adaptation to recorded dialogues with one user: one
    inner step of both levels, as after the `episodes` dialogues of a round in a run. Their acts count as if the manager
    had drawn them.

    Args:
        dialogues: records or a FILE.jsonl of them: {"turns": [[ACT, CLIENT ACT], ...]} of an interview, by name, or
            {"observations": [[...], ...], "acts": [...]} of a simulator of yours, acts by name or number, an
            observation before each; and "rewards" of the turns, which of an interview may be left out: they are then
            what the simulated clients pay for the client's acts.
        rate: of the inner step; None = that of the run.

    Raises:
        UserError: for a folder without a manager or its rates, and for records that do not fit.
    """
    kept, agent = read_manager(folder)
    adapts = kept.get("adapts")
    if not adapts:
        raise pl.UserError(f"{folder} was saved without the rates of adaptation; train it again")
    rows = read_dialogues(dialogues) if isinstance(dialogues, Path | str) else list(dialogues)
    if not rows:
        raise pl.UserError("there is no dialogue to adapt to")
    games = [read_dialogue(row, i, kept, agent) for i, row in enumerate(rows, start=1)]
    learner = pl.control.PPO(gamma=adapts["gamma"], lam=adapts["lam"])
    paths = paths_of(agent, games)
    adapted = adapt_agent(agent, paths, learner, adapts["inner"] if rate is None else rate)
    save_manager(adapted, Path(out), kept["acts"], adapts)


def read_dialogues(file: Path | str) -> list[Mapping[str, Any]]:
    """Records of a file. Raises UserError for a line that is none."""
    rows = list[Mapping[str, Any]]()
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise pl.UserError(f"{file}: {error}") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise pl.UserError(f"{file}:{number} is no JSON: {error}") from None
            rows.append(row if isinstance(row, dict) else {})
    return rows


def read_dialogue(
    row: Mapping[str, Any], number: int, kept: Mapping[str, Any], agent: DialogueAgent
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations [T, O], acts [T] and rewards [T] of a record."""
    each: Any = agent.options.each[0]
    O, K, names = each.observation, each.actions, kept["acts"]
    try:
        if "turns" in row:
            turns = [(str(a), str(u)) for a, u in row["turns"]]
            obs = observe_dialogue(turns)[:-1]
            acts: list[Any] = [a for a, _ in turns]
            paid = [TURN_PAY + PAYS.get(CLIENT_ACTS.index(u), 0.0) for _, u in turns]
        else:
            obs, acts, paid = np.array(row["observations"], float), list(row["acts"]), None
        rewards = np.array(row.get("rewards", paid), float)
        chosen = np.array([names.index(a) if isinstance(a, str) else int(a) for a in acts], int)
    except (TypeError, ValueError, KeyError) as error:
        raise pl.UserError(
            f'dialogue {number}: a record is {{"turns": [[ACT, CLIENT ACT], ...]}} or {{"observations": [...], '
            f'"acts": [...], "rewards": [...]}} ({type(error).__name__}: {error})'
        ) from None
    T = len(chosen)
    fits = obs.shape == (T, O) and rewards.shape == (T,) and np.isfinite(obs).all()
    if (
        not T
        or not fits
        or not np.isfinite(rewards).all()
        or (chosen < 0).any()
        or (chosen >= K).any()
    ):
        raise pl.UserError(
            f"dialogue {number}: observations {obs.shape} and rewards {rewards.shape} of {T} acts below {K}; there is "
            f"one row of {O} numbers and one reward for each act"
        )
    return obs, chosen, rewards


def paths_of(
    agent: DialogueAgent, games: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]
) -> pl.control.Paths:
    """Recorded dialogues as the agent's own games: its likeliest option at each decision, and what it thinks of
    each act.
    """
    T = max(len(act) for _, act, _ in games)
    pad = lambda x: np.concatenate([x, np.repeat(x[-1:], T - len(x), 0)])
    obs = np.stack([pad(o) for o, _, _ in games])[:, None]
    act = np.stack([pad(a) for _, a, _ in games])[:, None]
    reward = np.stack([pad(r) for _, _, r in games])[:, None]
    alive = np.stack([np.arange(T) < len(a) for _, a, _ in games])
    over = np.stack([np.arange(T) == len(a) - 1 for _, a, _ in games])
    held = np.arange(T) // agent.every * agent.every
    master = agent.master.act(obs[..., agent.overview], None, None, greedy=True)
    option = master["act"][:, :, held]
    columns = {"obs": torch.from_numpy(obs[:, 0]).float(), "act": torch.from_numpy(act[:, 0])}
    with torch.no_grad():
        outputs = agent.options({**columns, "option": torch.from_numpy(option[:, 0])})
    return {
        "obs": obs,
        "act": act,
        "reward": reward * alive[:, None],
        "alive": alive,
        "over": over,
        "logp": outputs["logp"].numpy()[:, None],
        "value": outputs["value"].numpy()[:, None],
        "option": option,
        "option_logp": master["logp"][:, :, held],
        "option_value": master["value"][:, :, held],
    }


def load_manager(folder: Path | str) -> Callable[[Any], dict[str, Any]]:
    """A function from the observations of a dialogue so far, [T, O] with the present turn's last, to
    {"act": number, "option": number, "name": the act's, "" for a simulator of one's own}: the likeliest
    option at the last turn when the master decided, and that option's likeliest act now.

    Raises UserError for a folder that holds no manager, and for observations of another shape.
    """
    kept, agent = read_manager(folder)
    every, overview, names = agent.every, agent.overview, list(kept["acts"])
    master, each = agent.master, list[Any](agent.options.each)

    def act(observations: Any) -> dict[str, Any]:
        try:
            seen = np.array(observations, float)
        except (TypeError, ValueError):
            seen = np.zeros((0, 0))
        O = each[0].observation
        if seen.ndim != 2 or not len(seen) or seen.shape[1] != O or not np.isfinite(seen).all():
            raise pl.UserError(
                f"a dialogue so far is one row of {O} numbers for each turn, the present one last"
            )
        decided = (len(seen) - 1) // every * every
        choose = lambda policy, row: int(policy.act(row[None], None, None, greedy=True)["act"][0])
        option = choose(master, seen[decided, overview])
        chosen = choose(each[option], seen[-1])
        return {"act": chosen, "option": option, "name": names[chosen] if names else ""}

    return act


def observe_dialogue(turns: Sequence[tuple[str, str]], horizon: int = 16) -> np.ndarray:
    """[T + 1, O] what the manager of simulated clients saw before each of T turns and sees now.

    Args:
        turns: of each the counsellor's act and the client's, by name.
        horizon: turns of a dialogue in training.

    Raises UserError for an act that there is not.
    """
    sim, acts, heard = ClientSimulator(horizon=horizon), [-1], [-1] * MEMORY
    counts, rows = np.zeros(3), list[np.ndarray]()
    for t in range(len(turns) + 1):
        state = ClientState(
            phase=np.zeros(1, int),
            turn=t,
            said=np.array(acts[-1:]),
            heard=np.array([heard[-MEMORY:]]),
            counts=counts[None],
        )
        rows.append(sim.observe(state)[0, 0])
        if t < len(turns):
            act, answer = turns[t]
            if act not in ACTS or answer not in CLIENT_ACTS:
                raise pl.UserError(
                    f"turn {t + 1} is {turns[t]!r}: the counsellor's acts are {', '.join(ACTS)}, the "
                    f"client's {', '.join(CLIENT_ACTS)}"
                )
            acts.append(ACTS.index(act))
            heard.append(CLIENT_ACTS.index(answer))
            counts = counts + (heard[-1] == np.arange(3))
    return np.stack(rows)
