"""The tool of the arm that calls in the chat."""


def add(a: int, b: int) -> int:
    """The sum of a and b."""
    return a + b
