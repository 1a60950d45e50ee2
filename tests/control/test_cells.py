"""Shortest ways among cells."""

import numpy as np
from palaestra.control.cells import steps_between, steps_from

# 0 - 1 - 2 in a row, 3 alone; -1 = the action leads nowhere, or a cell to itself
ROW = np.array([[1, -1], [0, 2], [1, 2], [3, -1]])


def test_a_row_of_three_cells_and_one_apart():
    assert steps_from(0, ROW).tolist() == [0, 1, 2, -1]
    assert steps_from(3, ROW).tolist() == [-1, -1, -1, 0]
    assert steps_between(ROW).tolist() == [[0, 1, 2, 4], [1, 0, 1, 4], [2, 1, 0, 4], [4, 4, 4, 0]]
