"""DAHLIA: a language model writes a program of primitives, others write the functions that it lacks and judge
from poses whether the task is done; what is judged to fail is planned again with a report (arXiv:2503.21969).

    planner     a Python program that calls primitives, each of which moves a whole object; its thoughts are comments
    co-planners one writes functions that the program calls and does not define, up to 4 of a program; four answer in
                words what it asks while it runs, parse_obj_name("the block at the far left"), parse_position,
                parse_question and transform_shape_pts, each by a program of the poses at that moment
    reporter    a program of poses that sets judge, and three lines: what differs, which step, what to do

A program runs in the sandbox alone. At each primitive it pauses, the world carries the call out, and the program runs
again with what came of all calls before it: it sees the poses after each call, and may not draw random numbers. An
error of a program ends its attempt, and the reporter is told of it; so it is with whatever a primitive raises. A
program that imports something is asked for again. What counts as success is the world's own test, which nobody who is
asked sees.

    palaestra train dahlia --env FILE.py:make instructions=tasks.jsonl --llm "endpoint(url='...',model='...')"
    palaestra train dahlia --llm DIR reporter=DIR attempts=3 retry=reset instructions=tasks.jsonl
    palaestra train dahlia --llm transcript:RUN/transcript.jsonl

`FILE.py:make` is a class, or a function that makes a world, with `about`, in words; `primitives`, {"stack":
"stack(block, below): puts ..."}, whose parameters may have annotations and defaults, (n: int, times=1), and are all
given to `act`; `reset(task, rng)`; `poses(state)`, plain data; `act(state, name, arguments, rng)`, the state and what
the call returns, ValueError for what cannot be done; `success(state, task)`. It may have `example`, a solved task, and
`tasks(rng, n)`, or (rng, n, kind). One world serves all tasks, one after another, so it may keep its state itself or
change one in place; where neither happens, `concurrent = True` has its tasks attempted at once, which is faster.

All rows of tasks.jsonl are attempted unless `tasks` says how many. A row is {"instruction": "..."} with whatever
`success` reads; on the default's table it is {"instruction": "...", "goal": [["in", "red block", "left zone"], ["on",
"blue block", "red block"]]}.

With retry=continue the next attempt begins where things are, with reset where they were at first, as in the released
code; the planner's programs so far stay in its conversation. `attempts` are 2, as there. In the run folder are
arms.md, transcript.jsonl and tasks/, every task of an arm with programs, calls and reports; arms begin with the same
states and the same luck in each attempt:

    none    one attempt
    guide   with the reporter
    verdict the reporter judges, and its lines are not told
    shuffled  the reporter judges, and the lines that are told were of another task
    random  without; the same numbers of attempts, each in another task
    oracle  the world's own test judges, and the reporter's lines are told where it says no

With retry=reset `random` ends with its last attempt, as nobody tells it that one before was good. Where a judgment is
none, as the judge's program breaks or sets no bool, the task ends as `unjudged`, and the run says why.

`recovered` is the share of tasks that fail at first and are done in the end. `precision` and `recall` are those of
the reporter's "done"; `expected` is what `first`, the success of one attempt, and its judgments would give if
attempts were independent, s_k = p (1 - a) + (p a + (1 - p) n) s_(k-1), with n of failures noticed and a of successes
taken for failures. `flip` turns a share of its judgments. `--steps` attempts four tasks for each at most. `answers` is
how often co-planners answered in words, of a task; co_planners=false leaves these four out.

`palaestra train dahlia`, seed 0, 20 tasks, one of each kind, with the script: 0.40 are done at one attempt (standard
error 0.11), 0.90 with the reporter, 0.55 with its judgment alone, 0.90 with its judgment and lines of other tasks, 0.50
with as many attempts, 1.6, at random, and 0.90 with a judge that knows: lines help and a judgment alone hardly does, but
not by what they say, as the script reads the poses with more care after any lines. Half
of the tasks are recovered; precision and recall are 1, as the script's reporter tests what the world tests. `expected`
is 0.64: attempts are not independent, as a report makes the script write another program, and without one it writes
the same. 0.40 of its first programs end in an error, mostly because a tower is built in the order of the
words. With retry=reset it is 0.80 (guide), 0.35 (random) and 0.80 (oracle). That the script is careful only after a
report is our doing: a model may be so at once, or not at all. One seed and one script, no claim.
"""

import palaestra as pl
from palaestra.recipes.llm4rl.dahlia.program import JudgeAttempts, Retry, world_by_name
from palaestra.recipes.llm4rl.dahlia.script import scripted_arm
from palaestra.recipes.llm4rl.dahlia.tabletop import Tabletop

CARD = pl.Card(
    title="DAHLIA: dual-tunnel planner/reporter manipulation",
    paper="arXiv:2503.21969",
    claim="A planner with co-planners that writes programs of primitives, and a reporter that closes the loop, do "
    "long tasks of manipulation without data, and recover from failures.",
    source="repository Ghiara/DAHLIA (prompts, execution, reporter, one retry) by notes of it, and the abstract; the "
    "table, its tasks and the report's three lines are ours",
    size=pl.Size(
        setting="chat models plan and report in tabletop tasks of simulators and on a robot arm"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "llm": "asked"},
        columns=(),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "writes programs, and functions and judgments unless others do",
            ),
            pl.needs.chat_model(
                "reporter",
                "reporter",
                "judges from poses whether a task is done, and reports",
                otherwise="the one that is asked for programs",
            ),
            pl.needs.chat_model(
                "co-planner",
                "helper",
                "writes functions that a program calls and does not define, and answers what it asks in words",
                otherwise="the one that is asked for programs",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "with primitives, poses and a success test",
                flag="--env FILE.py:NAME",
                otherwise="a table with six blocks and three zones",
            ),
        ),
        shows="recovered",
        off={"attempts": 1},
        own={
            "endpoint": "{\"program\": \"w = instruction.split()\\npick_place(w[2] + ' block', w[6] + ' zone')\", "
            '"judge": "judge = poses()[instruction.split()[2] + \' block\'][\'y\'] > 0.45", "report": ["What differs"]}',
            "kind": "one in",
            "fail": 0.5,
            "attempts": 3,
            "tasks": 6,
        },
    ),
    use="It helps where an attempt can fail unnoticed and poses tell whether it did; where programs see that for "
    "themselves, or a wrong plan is repeated whatever is reported, it only costs calls.",
    lacks=(
        "The reporter reads poses, no pictures, and no robot, PyBullet, CLIPort or LoHoRavens task was run.",
        "Co-planners are told the poses and no examples; the script of the default asks none of those that answer in "
        "words.",
        "By default no language model is asked but a script that knows the table; its planner does careless programs "
        "first and careful ones after a report, also after one of another task (0.90 of tasks each), and its reporter "
        "is always right, so its numbers show that the loop works, not that a model recovers by what a report says.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    reporter: pl.Source | None = None,
    helper: pl.Source | None = None,
    sim: str = "",
    instructions: str = "",
    kind: str = "",
    fail: float = 0.15,
    attempts: int = 2,
    retry: Retry = "continue",
    flip: float = 0.0,
    tasks: int = 0,
    co_planners: bool = True,
) -> JudgeAttempts:
    """`asked` writes programs for tasks of `instructions` in the world `sim`, FILE.py:NAME, or at a table
    whose grasps `fail`, with tasks of one `kind`; see `JudgeAttempts`.
    """
    return JudgeAttempts(
        asked=asked,
        reporter=reporter,
        helper=helper,
        world=world_by_name(sim) if sim else Tabletop(fail=fail),
        instructions=instructions,
        kind=kind,
        attempts=attempts,
        retry=retry,
        flip=flip,
        tasks=tasks,
        co_planners=co_planners,
    )


def embedded(
    asked: pl.Source | None = None,
    reporter: pl.Source | None = None,
    helper: pl.Source | None = None,
    kind: str = "",
    fail: float = 0.15,
    attempts: int = 2,
    retry: Retry = "continue",
    flip: float = 0.0,
    tasks: int = 20,
) -> JudgeAttempts:
    """At the table, with the script in the place of a model unless one is `asked`."""
    return build(
        asked or pl.Scripted(scripted_arm, name="script"),
        reporter,
        helper,
        kind=kind,
        fail=fail,
        attempts=attempts,
        retry=retry,
        flip=flip,
        tasks=tasks,
    )
