"""Shortest ways among cells.

C cells, K actions.
"""

from __future__ import annotations

from collections import deque

import numpy as np


def steps_from(begin: int, next_CK: np.ndarray) -> np.ndarray:
    """[C] steps from a cell to each other, along the cells [C, K] that actions lead to, -1 where one leads
    nowhere; -1 = there is no way.
    """
    far = np.full(len(next_CK), -1)
    far[begin], left = 0, deque([begin])
    while left:
        cell = left.popleft()
        for to in next_CK[cell]:
            if to >= 0 and far[to] < 0:
                far[to] = far[cell] + 1
                left.append(to)
    return far


def steps_between(next_CK: np.ndarray) -> np.ndarray:
    """[C, C] the same of every cell; C = there is no way, as it is farther than any."""
    far = np.stack([steps_from(begin, next_CK) for begin in range(len(next_CK))])
    return np.where(far < 0, len(next_CK), far)
