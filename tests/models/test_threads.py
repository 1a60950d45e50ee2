"""Threads by the size of the models; a user's own choice stands."""

import pytest
import torch
from palaestra.models import threads
from palaestra.models.load import load
from palaestra.models.precision import SMALL
from palaestra.models.threads import threads_for, use_threads


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "cores", lambda: 4)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_small_models_have_one_thread():
    assert threads_for(SMALL - 1).n == 1
    assert threads_for(SMALL).n == 4
    torch.set_num_threads(3)
    use_threads([load("tiny")])
    assert torch.get_num_threads() == 1


def test_the_user_decides(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    torch.set_num_threads(3)
    use_threads([load("tiny")])
    assert torch.get_num_threads() == 3
    assert "OMP_NUM_THREADS is 3" in threads_for(1).why
