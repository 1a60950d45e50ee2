"""Your reward: what a reply is worth. Run `pytest test_reward.py` after each change."""

import re

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def score(response: str, answer: object = None, **columns: object) -> float:
    """1 where the last number of the reply is the answer, else 0.

    Args:
        response: what the model wrote.
        answer: the column `answer` of the row.
        columns: its other columns, by name.
    """
    numbers = NUMBER.findall(response)
    return float(bool(numbers) and numbers[-1] == str(answer))
