"""Sums that cannot be done."""

import numpy as np
from palaestra.recipes.rewards import salu
from palaestra.toys.unanswerable import Unanswerable


def test_sums_that_cannot_be_done():
    tasks = [Unanswerable().task("train", i) for i in range(200)]
    assert 0.3 < np.mean([not t.meta["answerable"] for t in tasks]) < 0.5
    for t in tasks:
        question = t.prompt[0].content
        assert ("?" in question) == (not t.meta["answerable"]) == (t.answer == "?")
        shown = Unanswerable().demonstration(t, None, "work")
        assert Unanswerable().check(shown, t) == 1 and salu.is_abstention(shown) == (not t.meta["answerable"])
    test = {Unanswerable().task("test", i).prompt[0].content for i in range(200)}
    assert not test & {t.prompt[0].content for t in tasks}
    assert 0.3 < np.mean(["?" in Unanswerable().task("test", i).prompt[0].content for i in range(200)]) < 0.5
    places = {t.prompt[0].content.find("?") for t in tasks}
    assert places == {-1, 0, 1, 3, 4}  # of 38+27
    assert np.mean(["?" in Unanswerable(share=0.9).task("train", i).prompt[0].content for i in range(50)]) > 0.75
