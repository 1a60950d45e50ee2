"""How long tests take, as measured, and which of them run when.

`tests/durations.tsv` holds the seconds of every test that took more than one, on two cores. From these come the marks:

    slow      more than 1.5 s; `pytest` without arguments leaves them out
    nightly   more than 5 s, but for KEPT; `.ci/run` leaves them out, and a job runs them every night.
              A case of a parametrized test from 2.5 s on, too, where a shorter case of the same test is left

A test that is asked for by name or by its folder always runs. Measure anew, as whole runs are compared with whole runs only:

    pytest -n 2 -m "slow or not slow" --durations=0 -vv > whole.log; python -m tests.durations whole.log
"""

import re
import sys
from collections import Counter
from math import inf
from pathlib import Path

TABLE = Path(__file__).with_name("durations.tsv")
LEAST, SLOW, CASE, NIGHTLY = 1.0, 1.5, 2.5, 5.0  # seconds
# Laws that run on every change up to NIGHTLY, in every case: beginnings of ids.
LAWS = ("tests/laws/", "tests/test_recipes.py::test_law_09", "tests/scale/test_laws.py")
# Laws over all rows of a table, one test each (tests/rows.py), which plain `pytest` always runs.
PLAIN = (
    "tests/test_structure.py",
    "tests/test_public.py::test_recipes_claims_examples_and_pages_use_nothing_else",
    "tests/ledger/test_placements.py::test_every_row_is_placed_in_every_column",
    "tests/test_recipes.py::test_card_is_complete",
    "tests/docs/test_every_block.py",
)
# Tests of more than five seconds that run on every change, for nothing shorter sees what they see: beginnings of ids.
KEPT = (
    "tests/ledger/test_canaries.py::test_every_canary_is_recorded_for_what_it_runs_today",
    "tests/laws/test_law_06_resume.py::test_ten_kills_each[grpo",
    "tests/laws/test_law_11_logp.py::test_engine_and_trainer_agree[smollm2-1.0]",
    "tests/laws/test_law_12_company.py::test_the_law_holds_on_other_processors[no vector instructions]",
    "tests/laws/test_law_12_company.py::test_other_laws_hold_on_other_processors[AVX2]",
    "tests/laws/test_law_13_shards.py::test_gradients_of_some_objectives[2]",
    "tests/scale/test_carrier.py::test_a_run_on_ray_is_the_run_of_one_process[several turns]",
    "tests/scale/test_carrier.py::test_weights_move_under_what_is_sampled",
    "tests/scale/test_learning.py::test_a_checkpoint_goes_from_ranks_to_one_process_and_back[grpo]",
    "tests/docs/test_readme.py::test_command[palaestra train grpo --cluster 2]",
    "tests/docs/test_readme.py::test_command[palaestra compare grpo rloo",
    "tests/tools/test_package.py::test_the_wheel_alone_does_the_main_job",
    "tests/tools/test_method_lines.py::test_no_recipe_is_long_without_a_reason_but_those_listed",
    "tests/ledger/test_ledger.py::test_arms_are_tuned_measured_fail_and_resume",
    "tests/test_public.py::test_the_script_of_the_readme_runs_at",
    "tests/recipes/test_bare.py",
    "tests/test_declared.py",
    "tests/site/test_site.py::test_every_link_and_anchor",
    "tests/view/test_browser.py::test_a_run_is_watched",
    "tests/engines/test_vllm.py::test_the_command_line_trains",
    "tests/errands/test_mistakes.py",
    "tests/docs/test_documents.py",
)


def read():
    """Seconds by the id of a test."""
    lines = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.is_file() else []
    return {name: float(seconds) for seconds, name in (line.split("\t", 1) for line in lines)}


def marks_of(name, seconds, shortest=None):
    """The marks that a test of so many seconds gets.

    Args:
        name: its id.
        seconds: what was measured.
        shortest: seconds of the shortest case of the same test; None = not known.
    """
    if seconds <= SLOW or name.startswith(PLAIN):
        return ()
    if name.startswith(KEPT):
        return ("slow",)
    others = shortest is not None and shortest <= CASE and not name.startswith(LAWS)
    return ("slow", "nightly") if seconds > (CASE if others else NIGHTLY) else ("slow",)


def test_of(name):
    """The id of a test without the case."""
    return name.partition("[")[0]


def marks(names):
    """The marks of every test of a collection, by its id."""
    seconds, names = read(), list(names)
    shortest = {}
    for name in names:
        test = test_of(name)
        shortest[test] = min(shortest.get(test, inf), seconds.get(name, 0.0))
    return {name: marks_of(name, seconds.get(name, 0.0), shortest[test_of(name)]) for name in names}


def measured(log):
    """Seconds by the id of a test, with what its fixtures take, from what pytest prints with --durations=0 -vv."""
    total = Counter()
    for line in log.splitlines():
        if found := re.fullmatch(r"(\d+\.\d+)s (?:setup|call|teardown) +(\S.*)", line):
            total[found[2]] += float(found[1])
    return {name: round(seconds, 1) for name, seconds in total.items() if seconds >= LEAST}


def main(log):
    seconds = measured(Path(log).read_text(encoding="utf-8"))
    TABLE.write_text("".join(f"{s}\t{name}\n" for name, s in sorted(seconds.items())), encoding="utf-8")
    tiers = marks(seconds)
    for tier, n in sorted(Counter(tiers.values()).items()):
        spent = sum(s for name, s in seconds.items() if tiers[name] == tier)
        print(f"{' '.join(tier) or 'by default'}: {n} tests, {spent:.0f} s (of those above {LEAST:g} s)")


if __name__ == "__main__":
    main(sys.argv[1])
