"""A corridor: go left or right until the door."""

import random


class Corridor:
    """Five places; the door is at the right end."""

    def reset(self):
        self.at = random.randrange(3)
        return f"You are at {self.at} of 4. Go right."

    def go(self, way: str) -> str:
        """Goes one place.

        Args:
            way: left or right.
        """
        self.at = max(0, min(4, self.at + (1 if way == "right" else -1)))
        return f"You are at {self.at} of 4."

    def get_reward(self):
        return self.at / 4
