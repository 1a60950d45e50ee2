"""How actions of Gymnasium's spaces are said in text, and kept as text: for the two libraries that have
such spaces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.worlds.adapters.base import Illegal, named_action


@dataclass(frozen=True)
class Speech:
    """A Discrete space's actions are said by number or by name, a Text space's are the reply, others
    are JSON on the last line. A function of the user's own stands in the place of all that.

    Args:
        space: of Gymnasium.
        actions: names of a Discrete space's actions, in their order.
        own: the action that a reply means; ValueError for none.
    """

    space: Any
    actions: tuple[str, ...] = ()
    own: Callable[[str], Any] | None = None

    def check(self, label: str) -> None:
        """Raises UserError where there are more or fewer names than actions."""
        n = int(self.space.n) if self.discrete else 0
        if self.actions and len(self.actions) != n:
            raise UserError(
                f"{label}: actions names {len(self.actions)} actions, {self.space} has "
                f"{n or 'none to name'}; name each, apart by blanks"
            )

    @property
    def discrete(self) -> bool:
        return type(self.space).__name__ == "Discrete"

    def names(self, mask: Any = None) -> dict[str, int]:
        """The actions of a Discrete space, those that a mask [n] allows; empty = another space."""
        if not self.discrete:
            return {}
        numbers = (int(self.space.start) + i for i in range(int(self.space.n)))
        called = {self.actions[i] if self.actions else str(n): n for i, n in enumerate(numbers)}
        return {k: n for i, (k, n) in enumerate(called.items()) if mask is None or mask[i]}

    def ways(self, mask: Any = None) -> str:
        """How an action is said."""
        if self.own is not None:
            return ""
        if names := self.names(mask):
            return f"Reply with one of: {', '.join(names)}"
        if type(self.space).__name__ == "Text":
            return ""
        return f"Reply with an action of {self.space}, as JSON on the last line"

    def read(self, text: str, mask: Any = None) -> str:
        """The action of a reply, as JSON. Raises Illegal."""
        if self.own is not None:
            action = self._read_own(text)
        elif self.discrete:
            names = self.names(mask)
            action = names[named_action(text, tuple(names))]
        elif type(self.space).__name__ == "Text":
            action = text.strip()
        else:
            action = self._read_json(text)
        if not self.space.contains(action) or not self._allows(action, mask):
            raise Illegal(f"That is no legal action. {self.ways(mask)}".strip())
        return json.dumps(self.space.to_jsonable([action])[0])

    def value(self, action: str) -> Any:
        """The action that was kept as JSON."""
        return self.space.from_jsonable([json.loads(action)])[0]

    def sample(self, rng: np.random.Generator, mask: Any = None) -> str:
        """Any action that a mask allows."""
        self.space.seed(int(rng.integers(2**31)))
        drawn = (
            self.space.sample() if mask is None else self.space.sample(np.asarray(mask, np.int8))
        )
        return json.dumps(self.space.to_jsonable([drawn])[0])

    def _allows(self, action: Any, mask: Any) -> bool:
        return mask is None or not self.discrete or bool(mask[int(action) - int(self.space.start)])

    def _read_own(self, text: str) -> Any:
        try:
            return self.own(text) if self.own is not None else None
        except ValueError as why:
            raise Illegal(f"That is no legal action: {why}") from None

    def _read_json(self, text: str) -> Any:
        try:
            return self.value(text.strip().splitlines()[-1])
        except (IndexError, ValueError, TypeError, KeyError, AttributeError):
            raise Illegal(f"That is no legal action. {self.ways()}") from None


def mask_of(observation: Any, info: Mapping[str, Any]) -> Any:
    """Which actions are legal, [n] of 0 and 1, where an environment says so; None = all."""
    mapping = observation if isinstance(observation, Mapping) else {}
    return mapping.get("action_mask", info.get("action_mask"))
