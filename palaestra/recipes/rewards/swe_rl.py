"""SWE-RL: GRPO on how much a patch looks like the one that was merged.

The reply is <think>..</think><solution>..</solution> with SEARCH/REPLACE blocks. All edits are
applied; for every path in the union of both patches the two unified diffs against the old file are
compared,

    r = -1                                               for any mistake of form
    r = mean over paths of 2 M / (|predicted| + |oracle|)    else, 0 for a path that only one of them touches

with M the matching characters (difflib's ratio without its shortcut, arXiv:2502.18449, section 2;
facebookresearch/swe-rl, core/reward.py). Likeness is no proof: an edit beside the right place is
paid for its context lines. An extra file that is touched counts as a 0 in the mean.

Tasks of repositories have the columns `files` (old contents by path) and `answer` (new ones): the
verifier `patch`. Any other task is one file, empty before, that its worked solution fills: the
reply is the file, and a reply without an answer line the mistake of form.
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
)


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


def build(malformed: float = -1.0) -> pl.Recipe:
    """With `malformed` 0 a mistake of form is worth as much as a patch that has nothing right."""
    reward = pl.Where("files", pl.Verified("patch", paper=malformed < 0), Likeness(malformed))
    return pl.vary(
        pl.recipe("grpo"), collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True))
    )
