"""What a reward must get right before a model is trained on it: it will find every mistake."""

from reward import score


def test_a_right_reply_is_paid():
    assert score("17 + 25 = 42", answer=42) == 1


def test_an_empty_reply_is_not():
    assert score("", answer=42) == 0


def test_naming_many_numbers_does_not_help():
    assert score("41, 42, 43", answer=42) == 0
