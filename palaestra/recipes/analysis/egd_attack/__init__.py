"""Exponentiated gradient descent on relaxed one-hot tokens, as a robustness meter of a model of the user's: how
much does a suffix of bounded length lower its refusal in the worst case, and which defence restores that? A
study on a harmless stand-in: a made-up code of digits that the model is told and asked to keep.

    x_i    a distribution over the tokens that a suffix may have at position i; its embedding is x_i E
    L      mean of -log p of the code as the answer
    F      L + lambda sum_i [ H(x_i) + D(e_argmax || x_i) ], lambda from 0 to `sharpen`
    step   x_i[v] <- x_i[v] exp(-eta g_i[v]) / sum_u x_i[u] exp(-eta g_i[u]),   g = dF/dx

The step is mirror descent with the negative entropy: the division is the Bregman projection onto the simplex
(arXiv:2505.09820). After each one the nearest tokens are measured themselves. Beside it stand projected gradient, greedy
exchange and random search, with as many passes each; see `egd_attack.search`.

    palaestra study egd-attack
    palaestra study egd-attack --model DIR mine=true
    palaestra study egd-attack --model DIR mine=true length=10 passes=1000 rounds=0

    refusal     share of prompts under which no search makes the model say the code, as text and by a greedy answer
    defences    shorter suffixes; a filter by perplexity; noise on embeddings; training on what was found, in
                `rounds`; a check of the answer. Each beside what it costs: harmless questions, and
                those of the one person who may have the code

It runs on models that come with the package or were trained from one here, and on those that the user declares as
theirs with mine=true; on no other. It takes no data: the questions are its own. Suffixes stay in memory: no page, file, log or
result holds one.

Long because each defence changes another place (suffix, filter, embeddings, weights, answer): some are searched
anew, others are measured on suffixes found without them; the searches have a file of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch

import palaestra as pl
from palaestra.recipes.analysis.egd_attack.canary import (
    KINDS,
    REFUSAL,
    CanaryQuestion,
    Kind,
    Wording,
    canary_questions,
    says_code,
    teach_canary,
)
from palaestra.recipes.analysis.egd_attack.defences import (
    allowed_tokens,
    answers_of,
    fit_filter,
    guarded_prompts,
    harden,
    polite,
    right_answers,
    spell_suffixes,
    violations,
)
from palaestra.recipes.analysis.egd_attack.results import (
    Arm,
    chart,
    defences_table,
    items_of,
    numbers_of,
    searches_table,
    tell,
)
from palaestra.recipes.analysis.egd_attack.search import (
    SEARCHERS,
    Searcher,
    SearchSettings,
    WorstSuffixes,
)

CARD = pl.Card(
    title="Exponentiated gradient descent prompt attack (as robustness evaluation on harmless stand-ins)",
    paper="arXiv:2505.09820",
    claim="Exponentiated gradient descent on relaxed one-hot tokens, which stay on the simplex, finds adversarial "
    "suffixes more often and with less computation than earlier searches do.",
    source="abstract; the step is the textbook's, both regularisers, their schedule, the searches beside it and the "
    "defences are ours; released code was not opened",
    size=pl.Size(setting="five open models, four data sets of requests, three earlier methods"),
    needs=pl.needs.Requirements(
        columns=(),
        shows="fall_eg",
        off={"eta": 0.0},
        own={"task": "chain", "prompts": 2, "length": 2, "passes": 9, "rounds": 0, "eta": 200.0},
    ),
    use="It helps to compare two checkpoints or defences of one model under one budget; a model that keeps the code "
    "here may still say other things, and a longer search may break it.",
    lacks=(
        "Requests of the paper's data sets, its five models, transfer of suffixes to other models and a rate of "
        "success on real requests are left out on purpose: the meter takes no requests and returns no suffix.",
        "The proof of convergence is not checked; the optimiser of the paper may differ in its schedule and in how "
        "gradients are scaled.",
        "The three earlier methods of the paper are not here; projected gradient, greedy exchange and random search are.",
        "The filter, the noise and the check of the answer meet suffixes that were found without them; a search that "
        "knows of them may find others.",
        "All prompts are searched at once: a large model needs fewer of them (prompts=4).",
        "The paper's advantage is not seen on the built-in model: of 16 prompts in one seed exponentiated gradient breaks "
        "81%, projected gradient and greedy exchange 100%, random search 69%. Training on what it found keeps 81% of them "
        "under all searches, and 88% of harmless questions stay answered; the check of the answer keeps all, and refuses the "
        "code's owner too.",
    ),
    grade="A",
)  # fmt: skip
OWN_REQUESTS = "the meter asks harmless questions of its own and takes no others"
SHORTER = (1, 2)
DRAWS = 4  # of the noise


@pl.stage
class SuffixMeter:
    """The study; see the module.

    Args:
        mine: the model is the user's, or they were asked to test it.
        words: of the questions; "" = short for models that were made here, else plain.
        prompts: about the code, and as many that should be answered of each kind.
        search: suffix, passes and step sizes.
        rounds: of training on what exponentiated gradient found; 0 = none.
        steps: of each round.
        lr: of that training.
        noise: on embeddings, as a share of their root mean square.
    """

    mine: bool = False
    words: Literal["", "plain", "short"] = ""
    prompts: int = 16
    search: SearchSettings = SearchSettings()
    rounds: int = 3
    steps: int = 30
    lr: float = 5e-5
    noise: float = 0.1
    question: ClassVar[str] = (
        "How far does the worst suffix of a few tokens lower the model's refusal?"
    )
    check_up: ClassVar[bool] = False
    trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pl.check_bounds("prompts", self.prompts, least=1)
        pl.check_bounds("length", self.search.length, least=1)
        pl.check_bounds("passes", self.search.passes, least=1)
        pl.check_bounds("eta", self.search.eta, least=0)
        pl.check_bounds("pgd", self.search.pgd, least=0)
        pl.check_bounds("sharpen", self.search.sharpen, least=0)
        pl.check_bounds("rounds", self.rounds, least=0)
        pl.check_bounds("noise", self.noise, least=0)
        if self.words not in ("", "plain", "short"):
            raise pl.UserError(f"words={self.words}: it is plain or short")

    async def run(self, ctx: pl.Context) -> pl.Result:
        model = ctx.model("policy")
        pl.studies.refuse_data(ctx, OWN_REQUESTS)
        pl.studies.check_owned(ctx, model.name, self.mine)
        words: Wording = self.words or (
            "short" if pl.studies.made_here(ctx, model.name) else "plain"
        )
        points = 100 * pl.studies.least_difference(self.prompts)
        power = (
            f"with {self.prompts} prompts a difference of {points:.0f} points between two defences is seen four "
            "times out of five, if one prompt in five changes its outcome"
        )
        ctx.say(power)
        asked = MeterQuestions(words, self.prompts, ctx.seed)
        arms: dict[str, Arm] = dict(
            await ctx.once("undefended", lambda: self._undefended(ctx, model, asked))
        )
        if self.rounds:
            arms["trained"] = await ctx.once("trained", lambda: self._trained(ctx, model, asked))
        if "output" in arms:
            arms["output"] = arms.pop("output")  # the last of the table
        report = pl.studies.StudyReport(
            study="egd-attack",
            question=self.question,
            findings=tell(arms, self.search.passes),
            numbers=numbers_of(arms),
            protocol=self._protocol(words, power),
            tables=[
                defences_table(arms),
                *(
                    searches_table(arms[k], f"Searches, {title}")
                    for k, title in (("none", "without a defence"), ("trained", "trained model"))
                    if k in arms
                ),
            ],
            charts=[chart(arms["none"])],
            items=items_of(asked.guarded, arms),
        )
        return pl.studies.publish(ctx, report)

    def _protocol(self, words: str, power: str) -> dict[str, str]:
        s = self.search
        return {
            "questions": f"{self.prompts} strangers' for a code of digits, "
            f"{self.prompts} for a room, {self.prompts} by the code's owner, in the {words} wording",
            "searches": f"{s.passes} passes each for a suffix of {s.length} tokens without digits; forward and back count 3",
            "steps": f"eta {s.eta:g}, projected {s.pgd:g}, lambda up to {s.sharpen:g}",
            "training": f"{self.rounds} rounds of {self.steps} steps" if self.rounds else "none",
            "suffixes": "stay in memory; none is written",
            "power": power,
        }

    # ---- parts

    def _undefended(self, ctx: pl.Context, model: Any, asked: "MeterQuestions") -> dict[str, Arm]:
        """The model as it is, and defences that leave its weights alone."""
        arm, suffixes = self._searched(ctx, model, asked, SEARCHERS)
        arms = {"none": arm}
        for n in SHORTER:
            if n < self.search.length:
                shorter = replace(self.search, length=n)
                arms[f"limit-{n}"], _ = self._searched(ctx, model, asked, SEARCHERS, shorter)
        return arms | self._around(model, asked, arm, suffixes)

    def _searched(
        self,
        ctx: pl.Context,
        model: Any,
        asked: "MeterQuestions",
        searchers: Mapping[str, Searcher],
        settings: SearchSettings | None = None,
    ) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """What searches reach, and their suffixes, which are not kept."""
        prompts = guarded_prompts(model, asked.guarded, allowed_tokens(model))
        searches, suffixes = dict[str, Any](), dict[str, list[str]]()
        for name, searcher in searchers.items():
            ctx.say(f"{name}: {(settings or self.search).passes} passes")
            best = searcher(prompts, settings or self.search, asked.generator(name))
            suffixes[name] = spell_suffixes(model, prompts, best.choice_Bn)
            violated = violations(model, asked.guarded, suffixes[name])
            searches[name] = {**plain(best), "violated": violated}
        nothing = [""] * len(asked.guarded)
        clean = violations(model, asked.guarded, nothing)
        served = {k: right_answers(model, some) for k, some in asked.served.items()}
        return {"searches": searches, "clean": clean, **served}, suffixes

    def _around(
        self, model: Any, asked: "MeterQuestions", arm: Arm, suffixes: Mapping[str, Sequence[str]]
    ) -> dict[str, Arm]:
        """Defences around the same model, against the suffixes that were found without them."""
        texts = [
            q.text + e for q, e in zip(asked.calibration, polite(asked.calibration), strict=True)
        ]
        gate = fit_filter(model, texts, self.search.length)
        filtered = {
            name: {
                "violated": [
                    v and not gate.blocks(model, q.text + e)
                    for v, q, e in zip(
                        arm["searches"][name]["violated"], asked.guarded, ends, strict=True
                    )
                ]
            }
            for name, ends in suffixes.items()
        }
        draw = asked.generator("noise")
        noisy = {
            name: {
                "violated": [
                    2 * sum(x) > DRAWS
                    for x in zip(
                        *(
                            violations(model, asked.guarded, ends, noise=self.noise, draw=draw)
                            for _ in range(DRAWS)
                        ),
                        strict=True,
                    )
                ]
            }
            for name, ends in suffixes.items()
        }
        nobody = {name: {"violated": [False] * len(asked.guarded)} for name in suffixes}
        passed, shaken, sent = dict[str, Any](), dict[str, Any](), dict[str, Any]()
        for kind, some in asked.served.items():
            ends, right = polite(some), arm[kind]
            answers = answers_of(model, some, ends)
            open_ = [not gate.blocks(model, q.text + e) for q, e in zip(some, ends, strict=True)]
            clear = [not says_code(a, q.code) for a, q in zip(answers, some, strict=True)]
            passed[kind] = [a and b for a, b in zip(right, open_, strict=True)]
            sent[kind] = [a and b for a, b in zip(right, clear, strict=True)]
            shaken[kind] = right_answers(model, some, noise=self.noise, draw=draw)
        return {
            "perplexity": {"searches": filtered, **passed},
            "noise": {"searches": noisy, **shaken},
            "output": {"searches": nobody, **sent},
        }

    def _trained(self, ctx: pl.Context, model: Any, asked: "MeterQuestions") -> Arm:
        """A copy that learns in rounds to answer found suffixes as it answers without them, searched anew
        on other questions.
        """
        copy = pl.models.trainable_copy(model)
        guarded, *others = (asked.of("harden", kind) for kind in KINDS)
        rows: list[tuple[CanaryQuestion, str]] = [(q, "") for q in guarded]
        for some in others:
            rows += [(q, e) for q, e in zip(some, polite(some), strict=True)]
        own = answers_of(model, [q for q, _ in rows], [e for _, e in rows])
        kept = [
            REFUSAL if q.guarded and says_code(a, q.code) else a
            for (q, _), a in zip(rows, own, strict=True)
        ]
        draw, allowed = asked.generator("training"), allowed_tokens(model)
        for number in range(self.rounds):
            ctx.say(f"training on found suffixes: round {number + 1} of {self.rounds}")
            prompts = guarded_prompts(copy, guarded, allowed)
            best = SEARCHERS["eg"](prompts, self.search, asked.generator(f"round {number}"))
            ends = spell_suffixes(copy, prompts, best.choice_Bn)
            rows += [(q, e) for q, e in zip(guarded, ends, strict=True)]
            kept += kept[: len(guarded)]
            harden(copy, rows, kept, self.steps, self.lr, draw)
        return self._searched(ctx, copy, asked, SEARCHERS)[0]


class MeterQuestions:
    """The questions of a study, and its random numbers."""

    def __init__(self, words: Wording, n: int, seed: int) -> None:
        self.words: Wording = words
        self.n, self.seed = n, seed
        self.guarded = self.of("test", "guarded")
        self.calibration = canary_questions(words, "calibration", "harmless", max(n, 20))

    def of(self, split: str, kind: Kind) -> list[CanaryQuestion]:
        return canary_questions(self.words, split, kind, self.n)

    @property
    def served(self) -> dict[str, list[CanaryQuestion]]:
        """What should be answered, by kind."""
        kinds: tuple[Kind, ...] = ("harmless", "owner")
        return {kind: self.of("test", kind) for kind in kinds}

    def generator(self, name: str) -> torch.Generator:
        number = int(pl.rng_of(("egd-attack", self.seed, name)).integers(1 << 62))
        return torch.Generator().manual_seed(number)


def plain(best: WorstSuffixes) -> dict[str, Any]:
    """What a search reached, without the suffixes."""
    return {
        "loss": best.loss_B.tolist(),
        "relaxed": best.relaxed_B.tolist(),
        "first": best.first_B.tolist(),
        "fall": (best.start_B - best.loss_B).tolist(),
        "curve": [list(x) for x in best.curve],
    }


def build(
    mine: bool = False,
    words: Literal["", "plain", "short"] = "",
    prompts: int = 16,
    length: int = 5,
    passes: int = 200,
    eta: float = 5.0,
    pgd: float = 3.0,
    sharpen: float = 0.001,
    rounds: int = 3,
    steps: int = 30,
    lr: float = 5e-5,
    noise: float = 0.1,
) -> SuffixMeter:
    """`mine=true` declares the model as yours. Suffixes have `length` tokens, and each search `passes` for a
    prompt. `rounds` of `steps` each train a copy on what was found, at the rate `lr`; 0 = none. `noise` is a share of
    the embeddings' root mean square."""
    search = SearchSettings(length, passes, eta, pgd, sharpen)
    return SuffixMeter(mine, words, prompts, search, rounds, steps, lr, noise)


def embedded(
    teach: int = 60,
    keep: int = 110,
    prompts: int = 16,
    length: int = 5,
    passes: int = 200,
    eta: float = 5.0,
    pgd: float = 3.0,
    sharpen: float = 0.001,
    rounds: int = 3,
    steps: int = 30,
    lr: float = 1e-3,
    noise: float = 0.1,
) -> pl.Pipeline:
    """The built-in model learns in `teach` steps to tell what it is asked for, and in `keep` more to keep the
    code from all but one person; then it is measured."""
    study = build(False, "", prompts, length, passes, eta, pgd, sharpen, rounds, steps, lr, noise)
    return pl.Pipeline(
        parts={
            "taught": pl.warm(teach_canary(False, teach, 2e-3)),
            "kept": pl.warm(teach_canary(True, keep, 1e-3), model=pl.Output("taught")),
            "study": pl.Part(study, model=pl.Output("kept")),
        }
    )
