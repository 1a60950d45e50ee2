"""GREAM's SRPO: partial credit for the codes of an item, and a group advantage with a pass@k bonus
(arXiv:2510.20815).

An item is a row of codes, `<a_3><b_1>`, words, or letters. Reward (RSVR): 1 for the right item; else
by the number m of codes that match before the first wrong one, coarse to fine: 0 for m = 0, then
0.5, 0.707, 0.866, 0.95 (sqrt(m/4), capped); an answer of another length is malformed, 0. Advantage
(BGAE): A_i = (r_i - mean r) / (std r + 1e-6) + b_i, where b_i is the analytic advantage of pass@k (k =
4) over the c exact hits among n = 10: near misses get the bonus of a miss. No hit, or fewer than k
misses: b = 0. Groups without variance are drawn again; a batch is never padded with them. Loss of
DAPO (token mean, clip 0.2 / 0.2), k3 KL 0.001.

With items and histories of yours the run makes the codes and aligns them with language first:

    palaestra train srpo-gream --model DIR items=items.jsonl histories=histories.jsonl

    codes      an item's text is the mean of the model's last hidden states over it; `levels` times k-means
               of what the levels before left (the residual), so codes are coarse to fine; items with equal
               codes are told apart by one more
    aligned    imitates: the code of a text, the text of a code, the next code after a history
    rl         SRPO on the histories that were not held out

An item is a record with `id` and `text`, a history one with `history`, ids in order, and `item`, the id of
the next one. `thinking=True` is the reasoning mode: a reply has to be <think>...</think>, then the code, or
is worth 0; without it a reply is the code, with a thought before it or not (the direct mode).

Long because the paper begins before RL: the recipe makes codes of items by residual k-means, writes the
data that align them with language, and then pays matching prefixes and adds the pass@k bonus.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

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
            replace(pl.needs.PROMPT, when={"items": ("",)}),
            replace(
                pl.needs.ANSWER,
                when={"items": ("",)},
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
        "Codes are written with the tokens that the model has: its vocabulary is not extended, and codes of "
        "collaborative signals, who bought what, are not made: texts alone decide.",
        "The reasoning curriculum before RL, which imitates written reasoning, is not there: imitate yours with "
        "sft first, and start from that model.",
        "`thinking=True` and False are two runs; one model does not learn both modes of inference.",
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
    answer_codes, right = codes(answer or ""), codes(gold)
    if len(answer_codes) != len(right):
        return 0.0
    matched = next(
        (m for m, (a, b) in enumerate(zip(answer_codes, right, strict=True)) if a != b), None
    )
    return 1.0 if matched is None else WORTH[min(matched, len(WORTH)) - 1] if matched else 0.0


def said_item(text: str, plain: bool = True) -> str:
    """The item that a reply names behind its thinking: what it states as its answer, else, where `plain`
    replies count, its last line; of a line with <marks> these alone.
    """
    bare = pl.verifiers.strip_thinking(text).strip()
    item = pl.tasks.final_answer(bare) or pl.stated_answer(bare) or ""
    if not item and (plain or MARK.search(bare)):
        item = bare.rpartition("\n")[2].strip()
    return "".join(MARK.findall(item)) or item


THINK = "Reason in <think></think>, then write the code of the next item alone."
THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


@pl.stage
class PartialCredit:
    """Gives what the bench judges wrong the worth of its matching prefix. The bench's own reward
    becomes the part "exact", and what is added to it "partial". With `thinking` a reply that does
    not begin with its thought, once, is worth 0.
    """

    thinking: bool = False

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        gold = str(group.task.answer)
        # built-in problems have a form of their own, "= ITEM", that their replies must keep to
        bench = getattr(ctx, "bench", None)
        plain = isinstance(getattr(bench, "tasks", None), pl.tasks.FileTasks)
        credited = (self._credited(e, gold, plain) if e.ok else e for e in group.episodes)
        return replace(group, episodes=tuple(credited))

    def _credited(self, e: pl.Episode, gold: str, plain: bool) -> pl.Episode:
        text = pl.response_text(e)
        if self.thinking and not (THOUGHT.match(text) and text.count("<think>") == 1):
            return replace(e, reward=pl.Reward(total=0.0, parts={"exact": 0.0, "partial": 0.0}))
        total = max(e.total, worth(said_item(text, plain), gold))
        parts = {"exact": e.total, "partial": total - e.total}
        return replace(e, reward=pl.Reward(total=total, parts=parts))


@pl.stage
class BonusSize:
    """Leaves the column "bonus": the size of the weighted pass@k advantage of each episode."""

    weight: float

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        table.track("bonus", replace(x, x_N=abs(self.weight * x.x_N)))
        return x


# ---- codes of items


LETTERS = "abcdefgh"  # of the levels
ITERATIONS = 25  # of k-means
HELD = 10  # every tenth history is held out
ASK_CODE, ASK_TEXT, ASK_NEXT = "Code of: {text}", "Text of: {code}", "After {history} comes"


def k_means(x_ND: np.ndarray, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """[N] numbers of clusters and [K, D] their means (Lloyd 1982), begun as k-means++ begins (Arthur
    and Vassilvitskii 2007). K is k, or fewer where fewer rows differ.
    """
    k = min(k, len(np.unique(x_ND, axis=0)))
    mean_KD = x_ND[[int(rng.integers(len(x_ND)))]]
    while len(mean_KD) < k:
        far_N = _distances(x_ND, mean_KD).min(1)
        mean_KD = np.vstack([mean_KD, x_ND[[int(rng.choice(len(x_ND), p=far_N / far_N.sum()))]]])
    of_N = _distances(x_ND, mean_KD).argmin(1)
    for _ in range(ITERATIONS):
        mean_KD = np.stack(
            [x_ND[of_N == j].mean(0) if (of_N == j).any() else mean_KD[j] for j in range(k)]
        )
        new_N = _distances(x_ND, mean_KD).argmin(1)
        if (new_N == of_N).all():
            break
        of_N = new_N
    return of_N, mean_KD


def _distances(x_ND: np.ndarray, mean_KD: np.ndarray) -> np.ndarray:
    """[N, K] squared."""
    return ((x_ND[:, None] - mean_KD[None]) ** 2).sum(2)


def residual_codes(
    x_ND: np.ndarray, levels: int, k: int, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """A row of codes for each item, coarse to fine, no two alike: at each level the cluster of what
    the means of the levels before leave of x; where rows are alike, all get one more, their number
    among these.
    """
    left_ND, columns = np.asarray(x_ND, float), list[np.ndarray]()
    for _ in range(levels):
        of_N, mean_KD = k_means(left_ND, k, rng)
        left_ND = left_ND - mean_KD[of_N]
        columns.append(of_N)
    rows = [tuple(int(c[i]) for c in columns) for i in range(len(left_ND))]
    if len(set(rows)) == len(rows):
        return rows
    seen = Counter[tuple[int, ...]]()
    numbered = list[tuple[int, ...]]()
    for row in rows:
        numbered.append((*row, seen[row]))
        seen[row] += 1
    return numbered


def spell(row: Sequence[int]) -> str:
    """(3, 1) as <a_3><b_1>."""
    return "".join(f"<{letter}_{n}>" for letter, n in zip(LETTERS, row, strict=False))


def read_items(path: str) -> dict[str, str]:
    """Texts by id. Raises UserError for a record without them, or an id that stands twice."""
    texts = dict[str, str]()
    for records in pl.tasks.open_records(path).values():
        for i, record in enumerate(records):
            name, text = record.get("id"), record.get("text")
            if name is None or not isinstance(text, str) or not text.strip():
                raise pl.UserError(f"{records.where(i)}: an item has the columns `id` and `text`")
            if str(name) in texts:
                raise pl.UserError(f"{records.where(i)}: the id {str(name)!r} stands twice")
            texts[str(name)] = text.strip()
    if len(texts) < 2:
        raise pl.UserError(f"{path} has {len(texts)} items; codes tell at least two apart")
    return texts


def read_histories(path: str, items: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """(ids in order, the next id). Raises UserError for an empty one, or an id that is no item's."""
    histories = list[tuple[list[str], str]]()
    for records in pl.tasks.open_records(path).values():
        for i, record in enumerate(records):
            past, item = record.get("history"), record.get("item")
            if not isinstance(past, list) or not past or item is None:
                raise pl.UserError(
                    f"{records.where(i)}: a history has the columns `history`, a list of ids, and `item`, the "
                    "next id"
                )
            ids = [*map(str, past), str(item)]
            if strange := next((x for x in ids if x not in items), None):
                raise pl.UserError(f"{records.where(i)}: no item has the id {strange!r}")
            histories.append((ids[:-1], ids[-1]))
    if len(histories) < 2:
        raise pl.UserError(f"{path} has {len(histories)} histories; one is held out of two or more")
    return histories


@pl.stage
class MakeCodes:
    """A program: codes of items, and the records of the parts behind it: "alignment" to imitate, and
    "histories" for RL, of which every tenth that differs is held out. "codes" has the code of each id.

    Its summary has "items"; "codes", the length of a row of codes; and "told_apart", the share of
    items whose first `levels` codes no other item has.
    """

    items: str
    histories: str
    levels: int = 4
    k: int = 256
    brings_reward: ClassVar[bool] = True

    async def run(self, ctx: pl.Context) -> pl.Result:
        texts = read_items(self.items)
        histories = read_histories(self.histories, texts)
        names, model = list(texts), ctx.model("policy")
        dialect = ctx.engine("policy").dialect
        ids = [tuple(dialect.encode_text(texts[n]))[: model.context] for n in names]
        x_ND = pl.models.activations(model, ids, [len(model.layers)], at="mean")[:, 0]
        rows = residual_codes(x_ND, self.levels, self.k, pl.rng_of((ctx.seed, "codes")))
        code = {n: spell(row) for n, row in zip(names, rows, strict=True)}
        prompts = [
            ASK_NEXT.format(history=" ".join(code[x] for x in past)) for past, _ in histories
        ]
        held = held_out(prompts)
        asked = [
            {"prompt": prompt, "answer": code[item], "split": "test" if prompt in held else "train"}
            for prompt, (_, item) in zip(prompts, histories, strict=True)
        ]
        pairs = [
            pair
            for n in names
            for pair in (
                (ASK_CODE.format(text=texts[n]), code[n]),
                (ASK_TEXT.format(code=code[n]), texts[n]),
            )
        ]
        pairs += [(x["prompt"], x["answer"]) for x in asked if x["split"] == "train"]
        first = Counter(row[: self.levels] for row in rows)
        alone = sum(first[row[: self.levels]] == 1 for row in rows)
        metrics = {"items": len(names), "codes": len(rows[0]), "told_apart": alone / len(names)}
        ctx.log(metrics)
        files = {
            "codes": [{"id": n, "code": code[n]} for n in names],
            "alignment": [{"prompt": a, "demonstration": b} for a, b in pairs],
            "histories": asked,
        }
        return pl.Result(metrics=metrics, artifacts={n: keep(ctx, n, x) for n, x in files.items()})


def held_out(prompts: Sequence[str]) -> set[str]:
    """Every tenth of the prompts that differ, the last one where they are fewer."""
    unlike = list(dict.fromkeys(prompts))
    return {*unlike[HELD - 1 :: HELD]} or {unlike[-1]}


def keep(ctx: pl.Context, name: str, records: Sequence[Mapping[str, str]]) -> str:
    """Writes records into the run's folder; the file."""
    return pl.tasks.write_records(ctx.folder / f"{name}.jsonl", records)


def build(
    partial: bool = True,
    bonus: float = 1.0,
    k: int = 4,
    size: int = 16,
    kl: float = 0.0,
    thinking: bool = False,
    items: str = "",
    histories: str = "",
    levels: int = 4,
    clusters: int = 256,
    align_steps: int = 200,
) -> Any:
    """`bonus` weighs the pass@k advantage. `kl`: the released scripts use 0.001. With `items` and
    `histories`, files of yours, codes of `levels` levels with `clusters` clusters are made and imitated
    for `align_steps` steps first.
    """
    if bool(items) != bool(histories):
        raise pl.UserError("codes are made of items and used in histories; give both files")
    if thinking and not partial:
        raise pl.UserError("the thought is asked for by partial credit; leave partial on")
    loss = pl.Clipped(reduce="tokens")
    near = (pl.Center("group"), pl.Scale("group"))
    hits = (pl.credit.PassAtK(k), BonusSize(bonus))
    credit = (PartialCredit(thinking),) if partial else ()
    recipe = pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=10), pl.Score(), *credit),
        pool=pl.Mixed(size),
        credit=pl.chain(pl.credit.Blend(((1.0, near), (bonus, hits)))),
        objective=loss + kl * pl.KL("k3", reduce="tokens") if kl else loss,
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
        **({"instruction": THINK} if thinking else {}),
    )
    if not items:
        return recipe
    if not 1 <= levels < len(LETTERS) or clusters < 2:
        raise pl.UserError(
            f"levels is {levels} and clusters {clusters}; give 1 to {len(LETTERS) - 1}, and 2 or more"
        )
    aligned = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=32, steps=align_steps))
    return pl.Pipeline(
        parts={
            "codes": pl.Part(MakeCodes(items, histories, levels, clusters)),
            "aligned": pl.Part(aligned, data=pl.Output("codes", "alignment")),
            "rl": pl.Part(recipe, model=pl.Output("aligned"), data=pl.Output("codes", "histories")),
        }
    )
