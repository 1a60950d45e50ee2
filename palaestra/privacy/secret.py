"""Random numbers that nobody can repeat, for coins and noise that privacy rests on.

A run's --seed is published: it stands on the model card. So the key of these streams is 256 bits of the
operating system, drawn at the first step and kept in the state, by which a resumed run goes on with it.
Who has the checkpoint's state can subtract the noise.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import is_dataclass

import numpy as np

from palaestra.types import Key, State

SECRET = "secret"  # of a state: the key, in hexadecimal digits
PUBLIC = "public"  # of a state: whether the key is known, which holds for the whole run


def secret_of(state: State, public_seed: int) -> State:
    """The two entries of a state, made where it has none: `SECRET` from the operating system, or
    from a `public_seed` above 0 for tests, after which nothing is private. A key that was known
    once stays known.
    """
    if SECRET in state:
        return {SECRET: state[SECRET], PUBLIC: state[PUBLIC]}
    public = public_seed > 0
    key = f"{public_seed:064x}" if public else os.urandom(32).hex()
    return {SECRET: key, PUBLIC: public}


def secret_rng(state: State, path: Key) -> np.random.Generator:
    """The random stream of a path under the state's key: Philox, whose key of 128 bits is BLAKE2b of
    both.
    """
    digest = hashlib.blake2b(repr(path).encode(), digest_size=16, key=bytes.fromhex(state[SECRET]))
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest.digest(), "big")))


def name_of_loss(objective: object) -> str:
    """A name of an objective with its settings, the same in every process."""
    return repr(objective) if is_dataclass(objective) else type(objective).__name__
