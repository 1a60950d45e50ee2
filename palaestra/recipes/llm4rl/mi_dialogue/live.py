"""The saved manager on a dialogue under way."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.mi_dialogue.agent import DialogueAgent
from palaestra.recipes.llm4rl.mi_dialogue.clients import (
    ACTS,
    CLIENT_ACTS,
    MEMORY,
    ClientSimulator,
    ClientState,
)

SETTINGS = "manager.json"  # in the folder of the policy


def save_manager(agent: DialogueAgent, folder: Path, simulated: bool) -> None:
    """Writes the master, each option, and what they are played with."""
    pl.control.save_policy(agent.master, folder / "master")
    for o, policy in enumerate(agent.options.each):
        made: Any = policy
        pl.control.save_policy(made, folder / f"option-{o}")
    kept = {
        "every": agent.every,
        "options": len(agent.options.each),
        "overview": [int(i) for i in agent.overview],
        "acts": list(ACTS) if simulated else [],
    }
    (folder / SETTINGS).write_text(json.dumps(kept) + "\n", encoding="utf-8")


def load_manager(folder: Path | str) -> Callable[[Any], dict[str, Any]]:
    """A function from the observations of a dialogue so far, [T, O] with the present turn's last, to
    {"act": number, "option": number, "name": the act's, "" for a simulator of one's own}: the likeliest
    option at the last turn when the master decided, and that option's likeliest act now.

    Raises UserError for a folder that holds no manager, and for observations of another shape.
    """
    where = Path(folder)
    try:
        kept = json.loads((where / SETTINGS).read_text(encoding="utf-8"))
        every, options = int(kept["every"]), int(kept["options"])
        overview, names = [int(i) for i in kept["overview"]], list(kept["acts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise pl.UserError(f"{where} holds no dialogue manager: {error}") from None
    master: Any = pl.control.load_policy(where / "master")
    each: list[Any] = [pl.control.load_policy(where / f"option-{o}") for o in range(options)]

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
    sim, said, heard = ClientSimulator(horizon=horizon), [-1], [-1] * MEMORY
    counts, rows = np.zeros(3), list[np.ndarray]()
    for t in range(len(turns) + 1):
        state = ClientState(
            phase=np.zeros(1, int),
            turn=t,
            said=np.array(said[-1:]),
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
            said.append(ACTS.index(act))
            heard.append(CLIENT_ACTS.index(answer))
            counts = counts + (heard[-1] == np.arange(3))
    return np.stack(rows)
