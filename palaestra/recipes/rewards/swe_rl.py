"""SWE-RL: the model is given an issue and files, writes edits, and is rewarded for how much its patch
looks like the one that was merged.

The reply is <think>..</think><solution>..</solution> with SEARCH/REPLACE blocks. All edits are
applied; for every path in the union of both patches the two unified diffs against the old file are
compared,

    r = -1                                               for any mistake of form
    r = mean over paths of 2 M / (|predicted| + |oracle|)    else, 0 for a path that only one of them touches

with M the matching characters (difflib's ratio without its shortcut, arXiv:2502.18449, section 2;
facebookresearch/swe-rl, core/reward.py). Likeness is no proof: an edit beside the right place is
paid for its context lines. An extra file that is touched counts as a 0 in the mean.

A record has the prompt (the issue, the files and the form that is asked for), `files`, their old
contents by path, and `answer`, the new contents of those that change. The verifier is `patch`.
"""

import palaestra as pl

CARD = pl.Card(
    title="SWE-RL: similarity reward on software evolution",
    paper="arXiv:2502.18449",
    claim="Likeness to the merged patch, with -1 for a wrong form, is a cheap reward that teaches "
    "to solve real issues.",
    source="released code (facebookresearch/swe-rl) for the reward; sizes of the run from memory",
    size=pl.Size(
        setting="Llama-3.3-70B-Instruct, mined pull requests, 32 prompts x 16, 16k tokens, 1,600 "
        "steps",
        model="llama-3.3-70b",
        prompts=32,
        samples=16,
        tokens=16384,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("add() should have types. a.py: def add(a, b): return a + b",),
                "the issue, the files that matter, and the form that is asked for",
            ),
            pl.needs.NeededColumn(
                "files",
                "record",
                ({"a.py": "def add(a, b):\n    return a + b\n"},),
                "the old contents of the files, by path",
            ),
            pl.needs.NeededColumn(
                "answer",
                "record",
                ({"a.py": "def add(a: int, b: int):\n    return a + b\n"},),
                "the new contents of the files that the merged patch changes, by path",
            ),
        ),
        shows="part/paper",
        never_off="A reply without a patch is paid -1; the reward is the method.",
        own={"collect.links.0.n": 2, "schedule.prompts": 4},
    ),
    use="It helps where many merged patches are there and no tests can be run; where tests can be run, "
    "they say more than likeness.",
    lacks=(
        "Mining of pull requests: the records are brought.",
        "The scaffold that finds the files, and SWE-bench.",
    ),
    grade="B",
)
ASK = """Reason in <think></think>, then write the edits in <solution></solution>, each as a block
```
### path/of/the/file
<<<<<<< SEARCH
lines as they are in the file
=======
lines that take their place
>>>>>>> REPLACE
```"""


@pl.stage
class Likeness:
    """The reward for a task that is one file, empty before; `malformed` for a reply without an
    answer line.
    """

    malformed: float = -1.0

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward]:
        oracle = pl.tasks.demonstration(
            ctx.bench.tasks, group.task, pl.rng_of((group.task.id, "oracle")), "work"
        )
        return [self.judge(pl.response_text(e), oracle) for e in group.episodes]

    def judge(self, text: str, oracle: str) -> pl.Reward:
        formed = pl.tasks.final_answer(text) is not None
        old, new, wanted = {"answer": ""}, {"answer": text}, {"answer": oracle}
        alike = pl.verifiers.difflib_ratio(
            pl.verifiers.unified_diffs(old, new).get("answer", ""),
            pl.verifiers.unified_diffs(old, wanted).get("answer", ""),
        )
        return pl.Reward(
            total=alike if formed else self.malformed, parts={"malformed": float(not formed)}
        )


def build() -> pl.Recipe:
    return rewarded(pl.Verified("patch", paper=True))


def rewarded(reward: pl.RewardFn) -> pl.Recipe:
    """The method's learner under a reward."""
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True)),
        instruction=ASK,
    )


def embedded(malformed: float = -1.0) -> pl.Recipe:
    """On the embedded problem. With `malformed` 0 a mistake of form is worth as much as a patch that
    has nothing right.
    """
    verified = pl.Verified("patch", paper=malformed < 0)
    return rewarded(pl.Where("files", verified, Likeness(malformed)))
