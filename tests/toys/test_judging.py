"""Pairs to judge are both orders of one problem."""

from palaestra.toys.judging import CompareAnswers, Grade, Pairs


def test_pairs_to_judge_are_both_orders_of_one_problem():
    for source in (CompareAnswers(), Grade()):
        a, b, c = (source.task("train", i) for i in range(3))
        assert a.bundle == b.bundle != c.bundle and a.answer != b.answer and len({a.id, b.id, c.id}) == 3
        assert a.meta["judged"] == b.meta["judged"] and Pairs(source).task("train", 0).meta["halves"] == (a, b)
        for half, other in ((a, b), (b, a)):
            for habit in ("work", "guess"):
                assert source.check(source.demonstration(half, None, habit), half) == 1
            assert source.check("", half) == 0 == source.check(f"= {other.answer}", half)
        assert source.task("test", 0).meta["judged"].id.startswith("chain/test")
    assert CompareAnswers().task("train", 0).meta["texts"] == CompareAnswers().task("train", 1).meta["texts"][::-1]
