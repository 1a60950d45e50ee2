"""What simulators of two fingers in a plane have in common."""

from typing import ClassVar

import numpy as np


class TwoFingers:
    """Observations begin with the places of `names`: two fingers, then the parts of objects."""

    names: ClassVar[tuple[str, ...]]

    @property
    def body_parts(self) -> tuple[str, ...]:
        return self.names[:2]

    @property
    def object_parts(self) -> tuple[str, ...]:
        return self.names[2:]

    def places(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        """[..., 2] where each part is, by observations [..., O]."""
        return {name: obs[..., 2 * i : 2 * i + 2] for i, name in enumerate(self.names)}
