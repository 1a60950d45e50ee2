"""GREAM's SRPO: partial credit for the codes of an item, and a group advantage with a pass@k bonus
(arXiv:2510.20815).

An item is a row of codes, `<a_3><b_1>`, words, or letters. Reward (RSVR): 1 for the right item; else
by the number m of codes that match before the first wrong one, coarse to fine: 0 for m = 0, then
0.5, 0.707, 0.866, 0.95 (sqrt(m/4), capped); an answer of another length is malformed, 0. Advantage
(BGAE): A_i = (r_i - mean r) / (std r + 1e-6) + b_i, where b_i is the analytic advantage of pass@k (k =
4) over the c exact hits among n = 10: near misses get the bonus of a miss. No hit, or fewer than k
misses: b = 0. Groups without variance are drawn again; a batch is never padded with them. Loss of
DAPO (token mean, clip 0.2 / 0.2), k3 KL 0.001.
"""

import re
from dataclasses import replace

import palaestra as pl

CARD = pl.Card(
    title="GREAM: sparse-regularised group policy optimisation, generative reasoning "
    "recommendation",
    paper="arXiv:2510.20815",
    claim="Partial credit for matching codes and a pass@k bonus make sparse item rewards learnable "
    "for a recommender.",
    source="released code (Indolent-Kawhi/GRRM: reward_answer.py, core_algos.py, "
    "dapo_ray_trainer.py)",
    size=pl.Size(
        setting="Qwen3-4B-Instruct, three Amazon data sets, 256 prompts x 10 kept of nine times as "
        "many, minibatches of 64, 1,560 tokens, 150 steps, lr 2e-6 after 10, weight decay 0.1, KL "
        "0.001",
        model="qwen3-4b",
        prompts=256,
        samples=10,
        tokens=1560,
        lr=2e-6,
        arguments={
            "kl": 1e-3,
            "update.minibatches": 4,
            "optimiser.weight_decay": 0.1,
            "optimiser.warmup": 10,
        },
    ),
    task="rec",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            replace(
                pl.needs.ANSWER,
                type="text",
                meaning="the code of the right item, coarse to fine, such as <a_3><b_4><c_2>; words or "
                "letters do too",
                otherwise="",
            ),
        ),
        shows="bonus",
        off={"bonus": 0.0},
        own={"pool.size": 2, "schedule.prompts": 6},
    ),
    use="It helps where items have codes from coarse to fine and exact hits are rare; where hits are "
    "common, GRPO on exact hits does as well.",
    lacks=(
        "The alignment of items and language is not there: codes are not made from the texts "
        "of items, and no alignment tasks are trained. Bring the codes.",
        "The reasoning curriculum before RL, which imitates written reasoning, is not there.",
        "There is one mode of inference, not a direct and a reasoning one.",
    ),
    grade="C",
)
MARK = re.compile(r"<[^<>]+>")
WORTH = (0.5, 0.707, 0.866, 0.95)  # of 1, 2, 3, 4 matching codes


def codes(item: str) -> list[str]:
    """The codes of an item, coarse to fine: its <marks>, else its words, else its letters."""
    marks, words = MARK.findall(item), item.split()
    return marks or (words if len(words) > 1 else list(item))


def worth(answer: str | None, gold: str) -> float:
    """Of an answer by its codes: 1 if all match, else by the first wrong one."""
    said, right = codes(answer or ""), codes(gold)
    if len(said) != len(right):
        return 0.0
    matched = next((m for m, (a, b) in enumerate(zip(said, right, strict=True)) if a != b), None)
    return 1.0 if matched is None else WORTH[min(matched, len(WORTH)) - 1] if matched else 0.0


@pl.stage
class PartialCredit:
    """Gives what the bench judges wrong the worth of its matching prefix. The bench's own reward
    becomes the part "exact", and what is added to it "partial".
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        gold = str(group.task.answer)
        credited = (self._credited(e, gold) if e.ok else e for e in group.episodes)
        return replace(group, episodes=tuple(credited))

    def _credited(self, e: pl.Episode, gold: str) -> pl.Episode:
        total = max(e.total, worth(pl.tasks.final_answer(pl.response_text(e)), gold))
        parts = {"exact": e.total, "partial": total - e.total}
        return replace(e, reward=pl.Reward(total=total, parts=parts))


@pl.stage
class BonusSize:
    """Leaves the column "bonus": the size of the weighted pass@k advantage of each episode."""

    weight: float

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        table.track("bonus", replace(x, x_N=abs(self.weight * x.x_N)))
        return x


def build(
    partial: bool = True, bonus: float = 1.0, k: int = 4, size: int = 16, kl: float = 0.0
) -> pl.Recipe:
    """`bonus` weighs the pass@k advantage. `kl`: the released scripts use 0.001."""
    loss = pl.Clipped(reduce="tokens")
    near = (pl.Center("group"), pl.Scale("group"))
    hits = (pl.credit.PassAtK(k), BonusSize(bonus))
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=10), pl.Score(), *((PartialCredit(),) if partial else ())),
        pool=pl.Mixed(size),
        credit=pl.chain(pl.credit.Blend(((1.0, near), (bonus, hits)))),
        objective=loss + kl * pl.KL("k3", reduce="tokens") if kl else loss,
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
    )
