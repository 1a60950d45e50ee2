"""Variants of a theorem contradict one another."""

from dataclasses import replace

from palaestra.toys.variants import Variants


def test_variants_contradict_one_another():
    source = Variants(variants=3)
    for i in range(30):
        tasks = [source.task("train", 3 * i + k) for k in range(3)]
        assert [t.answer for t in tasks] == ["right", "wrong", "wrong"]
        assert len({t.meta["theorem"] for t in tasks}) == 1 and len({t.prompt for t in tasks}) == 3
        for t in tasks:
            assert source.check("\n".join([*source.steps(t), f"= {t.answer}"]), t) == 1
            assert source.check("", t) == source.check("= right\n= wrong\n", replace(t, answer="right")) == 0
