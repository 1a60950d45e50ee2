"""What a large model wrote once about the drones: the targets of mrlmn where nobody is asked."""

import re
from typing import Any

import numpy as np

import palaestra as pl

PLACE = re.compile(r"\((-?[\d.]+), (-?[\d.]+)\)")
REACH, HOP = 2.0, 3.5


def written_targets(request: pl.ChatRequest) -> dict[str, Any]:
    """Targets by a rule that a large model wrote while this file was written, so it knew the simulator. It reads the
    question alone: again and again the user with most unserved users around, where
    they are half-way of a game, and relays on the straight way there. The
    order says nothing of who should fly where.
    """
    text = request.messages[0].content
    line_of = lambda name: text.partition(f"\n{name}: ")[2].partition("\n")[0]
    spots = lambda name: np.array([tuple(map(float, x)) for x in PLACE.findall(line_of(name))])
    base, users = spots("Base stations"), spots("Users")
    way = spots("All of them move in a game by about")
    users = users + (way[0] / 2 if len(way) else 0.0)
    most = int(line_of("Drones"))
    left, chain = np.ones(len(users), bool), list[np.ndarray]()
    while len(chain) < most and left.any():
        near = (np.linalg.norm(users[:, None] - users, axis=-1) <= REACH) & left
        goal = users[near.sum(1).argmax()]
        nodes = np.array([*base, *chain])
        start = nodes[np.linalg.norm(nodes - goal, axis=-1).argmin()]
        hops = max(1, int(np.ceil(np.linalg.norm(goal - start) / (HOP - 0.75))))
        way = [np.round(start + (goal - start) * k / hops) for k in range(1, hops + 1)]
        chain += way[: most - len(chain)]
        for cell in (*way, goal):
            left &= np.linalg.norm(users - cell, axis=-1) > REACH
    order = pl.rng_of(("written targets", text)).permutation(len(chain))
    return {"targets": [chain[int(i)].tolist() for i in order]}
