"""Schedules of a pool of slots: the catalogue's numbers, and what no order goes below."""

from itertools import permutations

import palaestra as pl
import pytest
from palaestra.planning.slots import fewest_steps, longest_first, refill_steps, rounds_steps, shortest_first

LENGTHS = [8, 7, 2, 1, 4, 2]


def test_schedules_of_the_catalogue():
    """S = 2: rounds 14, refills 13, shortest first 14, longest first 12 = sum / 2."""
    assert rounds_steps(LENGTHS, 2) == 14 and refill_steps(LENGTHS, 2) == 13
    assert refill_steps(LENGTHS, 2, shortest_first(LENGTHS)) == 14
    assert refill_steps(LENGTHS, 2, longest_first(LENGTHS)) == 12 == fewest_steps(LENGTHS, 2)


def test_longest_first_is_within_its_bound_of_the_best_order():
    for slots, lengths in ((2, [3, 3, 2, 2, 2]), (3, [5, 5, 4, 4, 3, 3, 3]), (2, [1, 9, 1])):
        best = min(refill_steps(lengths, slots, p) for p in permutations(range(len(lengths))))
        found = refill_steps(lengths, slots, longest_first(lengths))
        assert fewest_steps(lengths, slots) <= best <= found <= best * (4 / 3 - 1 / (3 * slots)) + 1e-9
    assert refill_steps([3, 3, 2, 2, 2], 2, longest_first([3, 3, 2, 2, 2])) == 7  # where the best order takes 6
    assert fewest_steps([1, 9, 1], 2) == 9


def test_edges():
    assert rounds_steps([], 3) == refill_steps([], 3) == fewest_steps([], 3) == 0
    assert refill_steps([4, 2], 8) == rounds_steps([4, 2], 8) == 4
    assert longest_first([1.0, 2.0, 2.0, 1.0]) == [1, 2, 0, 3] and shortest_first([2.0, 1.0, 1.0]) == [1, 2, 0]
    with pytest.raises(pl.UserError, match="slots"):
        refill_steps([1], 0)
