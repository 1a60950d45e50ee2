"""Freed memory goes back between phases, of large models on a processor."""

import ctypes

import pytest
from palaestra.models import heap
from palaestra.models.load import load


@pytest.mark.parametrize(("small", "times"), [(10**9, 0), (10, 1)])
def test_only_large_models_give_back(small, times, monkeypatch):
    asked = []
    libc = type("LibC", (), {"malloc_trim": staticmethod(asked.append)})
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    monkeypatch.setattr(heap, "SMALL", small)
    heap.give_back(load("tiny"))
    assert asked == [0] * times


def test_a_c_library_that_cannot_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    monkeypatch.setattr(heap, "SMALL", 10)
    heap.give_back(load("tiny"))
