"""A real OpenEnv server in a process of its own: guess a number from 1 to 8, drawn from the seed.

Run as a program it serves on the port that is its argument.
"""

import random
import sys

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Guess(Action):
    number: int


class Hint(Observation):
    hint: str


class Guessing(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.answer, self.turn = random.Random(seed).randint(1, 8), 0
        return Hint(hint=f"guess 1-{kwargs.get('most', 8)}")

    def step(self, action, timeout_s=None, **kwargs):
        self.turn += 1
        if action.number > 1000:
            raise RuntimeError("the machine is on fire")
        right = action.number == self.answer
        hint = "right" if right else "higher" if action.number < self.answer else "lower"
        return Hint(hint=hint, reward=float(right), done=right or self.turn == 4)

    @property
    def state(self):
        return State(step_count=self.turn)


if __name__ == "__main__":
    import uvicorn

    app = create_fastapi_app(Guessing, Guess, Hint, max_concurrent_envs=2)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
