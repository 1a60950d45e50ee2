"""ZeroTIR: outcome in its form, the filters of prompts and answers, and the law that is fitted."""

import asyncio
import itertools

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.agents import zerotir
from palaestra.run.setup import bench_of, instruction_of
from palaestra.settings.fields import Settings
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

from tests.recipes.objectives.helpers import advantages, near, scored


def episode(right, text="so \\boxed{1}", status="finished", **facts):
    row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), trained=True, text=text),))
    return Episode(rows=(row,), reward=Reward(total=float(right), solved=right), facts=facts, status=status)


def collected(*episodes, **options):
    group = Group(task=Task(id="t", answer="1"), episodes=episodes)
    for link in zerotir.build(**options).collect.links[2:]:
        group = asyncio.run(link(None, ("k",), group))
    return group.episodes


def used(calls, errors=0, malformed=0, fences=None, outputs=None, faked=0):
    made = calls - malformed
    return {
        "tool_calls": calls,
        "tool_errors": errors,
        "tool_malformed": malformed,
        "code_fences": made if fences is None else fences,
        "outputs": ("1",) * (made if outputs is None else outputs),
        "faked_outputs": faked,
    }


def test_an_answer_is_paid_where_it_is_right_in_its_form_and_ended_by_itself():
    totals = [
        collected(e)[0].reward.total
        for e in (
            episode(True),
            episode(True, text="so 1"),
            episode(True, status="truncated:length"),
            episode(False),
        )
    ]
    assert totals == [1, 0, 0, 0]
    assert collected(episode(True, text="so 1"), boxed=False)[0].reward.total == 1


def test_rewards_of_the_catalogue():
    """Three failures of three cost 0.1 where that is on; one of one costs nothing; off by default."""
    all_failed, one = episode(True, **used(3, errors=3)), episode(True, **used(1, errors=1))
    assert collected(all_failed, failing=0.1)[0].reward.total == pytest.approx(0.9)
    assert collected(one, failing=0.1)[0].reward.total == 1 and collected(all_failed)[0].reward.total == 1
    assert collected(episode(True, **used(3, errors=2)), failing=0.1)[0].reward.total == 1


def test_faked_outputs_earn_and_teach_nothing():
    """Two fences and one output: reward 1, and muted."""
    faked = collected(episode(True, **used(1, fences=2)))[0]
    assert faked.reward.total == 1 and faked.muted and faked.reward.parts["filtered"] == 1
    assert collected(episode(True, **used(1, faked=1)))[0].muted
    assert not collected(episode(True, **used(2)))[0].muted
    assert not collected(episode(False, **used(1, fences=2)))[0].muted  # wrong is learned from
    assert not collected(episode(True, **used(1, fences=2)), filtered=False)[0].muted


def test_cut_and_repeated_answers_teach_nothing():
    assert collected(episode(False, status="truncated:length"))[0].muted
    assert not collected(episode(True, status="truncated:length"))[0].muted
    assert collected(episode(False, text="so it is " * 20))[0].muted
    assert not collected(episode(False, text=" ".join(map(str, range(60)))))[0].muted
    assert not collected(episode(False, text="so it is " * 5))[0].muted  # too short to say


def test_advantages_are_of_the_group_and_scaled_by_the_batch():
    """[1, 0] and [0, 0]: centred by group, divided by the deviation (ddof 1) of all four."""
    first, second = advantages(zerotir.build(), scored(1, 0), scored(0, 0))
    assert first == near([1.5**0.5, -(1.5**0.5)], 1e-3) and second == near([0, 0])


def pooled(groups, state, **options):
    return asyncio.run(zerotir.DropEasy(size=2, **options)(None, groups, state))


def of(*right):
    return Group(task=Task(id=str(right)), episodes=tuple(map(episode, right)))


def test_easy_prompts_are_drawn_again_three_times():
    easy, hard, never = of(True, True), of(True, False), of(False, False)
    assert pooled([hard, never], {}) == ([hard, never], [], {})  # 0.5 and 0 are within [0, 0.8]
    ready, again, state = pooled([easy, hard], {})
    assert (ready, again) == (None, []) and state["kept"] == [hard]
    assert pooled([never, easy], state)[0] == [hard, never]
    ready, _, state = pooled([easy, easy], pooled([easy, hard], pooled([easy, easy], {})[2])[2])
    assert ready == [hard, easy] and state == {}
    assert pooled([easy, easy], {}, easy=1.0)[0] == [easy, easy]
    assert zerotir.DropEasy().fit_to_run(5, 10).size == 5


def test_a_prompt_is_easy_by_what_its_answers_earn():
    """Four right answers, two in a box: they earn 0.5 on average, which is not above 0.8."""
    boxes = [episode(True, text=t) for t in ("so \\boxed{1}", "so 1", "so 1", "so \\boxed{1}")]
    group = Group(task=Task(id="t"), episodes=collected(*boxes))
    assert [e.reward.total for e in group.episodes] == [1, 0, 0, 1]
    assert pooled([group, of(True, False)], {})[0] == [group, of(True, False)]


def test_the_box_that_is_paid_for_is_asked_for(tmp_path):
    """Once, in every world: with tools, without them, and where programs stand in the reply."""
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"prompt": "{i} + 1?", "answer": "{i + 1}"}}\n' for i in range(20)))
    for boxed, world in itertools.product((True, False), ({"tools": ("python",)}, {"env": "interpreter"}, {})):
        recipe = zerotir.build(boxed=boxed, tool=bool(world))
        settings = Settings(recipe="zerotir", data=str(tmp_path / "rows.jsonl"), **world)
        bench, _ = bench_of(settings, instruction=instruction_of(recipe))
        begun = bench.world.reset(bench.tasks.task("train", 0), ("k",))
        frame = asyncio.run(begun) if asyncio.iscoroutine(begun) else begun
        asked = sum(m.content.count("\\boxed{}") for m in frame.asks[0].say)
        assert asked == (boxed or "env" in world)


def test_answers_that_are_right_without_a_box_are_said():
    plain = [episode(True, text="so 1"), episode(False, text="so 2")]
    note = lambda *episodes, **options: zerotir.OutcomeInForm(**options).first_step_note(
        [Group(task=Task(id="t"), episodes=collected(*episodes, **options))]
    )
    assert "1 of 2 answers of the first step are right and none stands in" in note(*plain)
    assert not note(*plain, episode(False)) and not note(plain[1]) and not note(*plain, boxed=False)


def test_a_power_law_is_found_with_its_interval():
    exact = zerotir.power_law([0.1 * t**0.5 for t in range(1, 9)])
    assert [exact[k] for k in ("exponent", "low", "high", "rank")] == near([0.5, 0.5, 0.5, 1.0])
    noisy = [0.1, 0.3, 0.2, 0.4, 0.6]
    fit = zerotir.power_law(noisy)
    x, y = np.log(np.arange(1, 6)), np.log(noisy)
    slope, covariance = np.polyfit(x, y, 1, cov=True)  # the covariance has n - 2 degrees of freedom
    assert fit["exponent"] == near(slope[0])
    assert fit["high"] - fit["low"] == near(2 * 3.182446 * covariance[0, 0] ** 0.5, 1e-4)  # t of 3 at 97.5%
    assert fit["rank"] == near(0.9)  # 1 - 6 * 2 / (5 * 24)


def test_what_has_no_law_has_no_number():
    assert zerotir.power_law([]) == {} and zerotir.power_law([0.1, 0.2]) == {}
    assert zerotir.power_law([0, 0, 0, 0]) == {} and zerotir.power_law([0.5] * 4) == {}
    assert zerotir.power_law([0, 0.1, 0.2, 0.3])["exponent"] > 0  # the first step has no logarithm
    assert list(pl.stats.ranks(np.array([3.0, 1.0, 3.0]))) == [2.5, 1, 2.5]


def test_the_series_of_a_run_is_kept_and_logged():
    keep, draw, state = zerotir.ScalingSeries(), zerotir.FittedDraw(pl.Shuffled()), {}
    for ran in (1, 2, 3, 4):
        group = Group(task=Task(id="t"), episodes=tuple(episode(i < ran, **used(int(i < ran))) for i in range(4)))
        state = keep([group], {}, state)
    assert state["scaling"][0] == (0.25, 1.0, 0.25)
    numbers = draw.draw_numbers(state)
    assert numbers["scaling/code/exponent"] == near(1.0) and numbers["scaling/accuracy/rank"] == near(1.0)
    assert "scaling/length/exponent" not in numbers and draw.draw_numbers({}) == {}
    assert keep([], {}, {}) == {}
    unread = Group(task=Task(id="t"), episodes=(episode(True, **used(1, malformed=1)),))
    assert keep([unread], {}, {})["scaling"] == [(0.0, 1.0, 1.0)]


def test_numbers_that_mean_nothing_are_refused():
    for options in ({"easy": 1.5}, {"failing": -0.1}):
        with pytest.raises(UserError, match="zerotir"):
            zerotir.build(**options)
