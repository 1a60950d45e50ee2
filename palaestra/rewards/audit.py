"""An audit of a reward: is gold paid best, and what else is paid? Probes know the answer's form,
never how to solve a problem.

A probe is hackable by what it earns beyond its share: the answer of another problem is right where
the two answers agree. What counts is its place between what most wrong answers earn and what the
golds do, so that penalties are seen as prizes are.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from palaestra.abilities import TakesForms, WritesAnswers
from palaestra.errors import Fault, UserError
from palaestra.rewards.calls import Hung
from palaestra.tasks.oracle import FORMS, Encode, episode_saying, no_tokens
from palaestra.types import Group, Task, value_class
from palaestra.verifiers.table import KEYS, REFUSALS

STRANGE_TEXTS = (
    "\x00",
    "\ud800",
    "😀" * 50,
    "\u202eabc",
    "{" * 5000,
    "9" * 5000,
    "-1e999",
    "a b " * 25_000,
)
CONSTANTS = (
    "0",
    "1",
    "yes",
    "no",
    "true",
    "A",
    "42",
    "The answer is",
    "answer",
    "\\boxed{}",
    "<answer></answer>",
    "nan",
    "inf",
)
# of the way from most wrong answers to the golds: what a probe may earn beyond its share
MARGIN = 0.05
EXCERPT = 60  # characters

AuditedReward = Callable[..., Any]


@value_class
class AuditProbe:
    """A way to answer without solving: its responses by problem, and which of them are right by
    chance.
    """

    name: str
    texts: tuple[str, ...]
    right: tuple[bool, ...]
    scores: tuple[float | None, ...] = ()


@value_class
class Audit:
    """What was found. `hackable` and `exceptions` name the probe, what it earned, and an example.

    `wrong` is what most wrong answers earn, at most 0. `hung` names the probe that the reward gave
    nothing for and the seconds it had; nothing was asked after it. `data`: what is to be said of
    the whole data (`palaestra.tasks.preflight`).
    """

    reward: str
    problems: int
    gold: Mapping[str, Any]
    wrong: float
    ties: Mapping[str, float]
    hackable: tuple[Mapping[str, Any], ...]
    probes: Mapping[str, float | None]
    dependence: Mapping[str, int]
    exceptions: tuple[Mapping[str, str], ...]
    latency: Mapping[str, float]
    labels: Mapping[str, Any] = field(default_factory=dict)
    hung: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


class Auditor:
    """Asks a reward, and counts what it raises. Once it has hung, nothing is asked any more; `say`
    hears of each probe. `encode` gives the tokens of a response, for rewards that count them.
    """

    def __init__(
        self,
        judge: AuditedReward,
        tasks: Sequence[Task],
        say: Callable[[str], None] = lambda _: None,
        encode: Encode = no_tokens,
    ) -> None:
        self.judge, self.tasks, self.say, self.encode = judge, list(tasks), say, encode
        self.exceptions: dict[str, Mapping[str, str]] = {}
        self.hung: dict[str, Any] = {}
        self.seconds: list[float] = []
        # problems of which a reward says, by the part `weak`, that the reference proves little
        self.weak = set[str]()

    def batch(self, texts: Sequence[str], tasks: Sequence[Task]) -> list[float]:
        """Scores of one call for all."""

        async def all_groups() -> list[Any]:
            groups = [
                Group(task=t, episodes=(episode_saying(x, self.encode(x)),))
                for t, x in zip(tasks, texts, strict=True)
            ]
            return await asyncio.gather(*(self.judge(None, g) for g in groups))

        start = time.perf_counter()
        scored_groups = asyncio.run(all_groups())
        self.seconds.append((time.perf_counter() - start) / max(1, len(texts)))
        for (each,) in scored_groups:
            if isinstance(each, Fault):
                raise each
        self.weak |= {
            t.id for t, (each,) in zip(tasks, scored_groups, strict=True) if each.parts.get("weak")
        }
        return [float(each.total) for (each,) in scored_groups]

    def ask(self, name: str, texts: Sequence[str]) -> list[float | None]:
        """Scores of a response for each problem; None where the reward raised.

        A batch that fails while each of its responses can be scored is a mistake of the reward as
        well.
        """
        self.say(name)
        scores, error = self.score_once(name, texts, self.tasks)
        if scores is None and not self.hung:
            scores = [self.single(name, x, t) for x, t in zip(texts, self.tasks, strict=True)]
            self.note(name, f"{len(texts)} responses at once", error)
        return scores if scores is not None and not self.hung else [None for _ in texts]

    def single(self, name: str, text: str, task: Task) -> float | None:
        scores, error = self.score_once(name, [text], [task])
        if scores is None and not self.hung:
            self.note(name, text, error)
        return None if scores is None else scores[0]

    def score_once(
        self, name: str, texts: Sequence[str], tasks: Sequence[Task]
    ) -> tuple[list[float | None] | None, str]:
        """The scores of one call, or why there are none."""
        if self.hung:
            return None, ""
        try:
            return [*self.batch(texts, tasks)], ""
        except Hung as hung:
            self.hung = {"probe": name, "seconds": hung.seconds, "response": texts[0][:EXCERPT]}
            return None, str(hung)
        except (UserError, Fault) as error:
            return None, " ".join(str(error).split())[:300]

    def note(self, name: str, response: str, error: str) -> None:
        """Keeps the first error of a probe."""
        if not self.hung:
            self.exceptions.setdefault(
                name, {"probe": name, "response": response[:EXCERPT], "error": error}
            )


def audit(
    name: str,
    judge: AuditedReward,
    tasks: Sequence[Task],
    say: Callable[[str], None] = lambda _: None,
    data: Sequence[str] = (),
    encode: Encode = no_tokens,
) -> Audit:
    """Asks `judge`, a reward stage, about problems that have answers; `say` hears of each probe.
    `data`: what was seen in the data that they come from; `encode`: the tokens of a response.
    """
    known = [t for t in tasks if t.answer is not None]
    if len(known) < 2:
        few = f"{len(known)} problems with answers"
        raise UserError(f"audit {name}: {few}; give at least two, with different answers")
    ask = Auditor(judge, known, say, encode)
    bare = [bare_of(judge, t) for t in known]
    tried = judge.forms if isinstance(judge, TakesForms) else FORMS
    forms = {f: ask.ask(f"gold as {f}", [f.format(x) for x in bare]) for f in tried}
    if not ask.seconds and not ask.hung:
        why = next(iter(ask.exceptions.values()))["error"]
        raise UserError(f"audit {name}: no gold can be scored: {why}")
    gold = [highest(of) for of in zip(*forms.values(), strict=True)]
    best_form = max(tried, key=lambda f: -math.inf if (m := mean(forms[f])) is None else m)
    golds = [best_form.format(x) for x in bare]
    probes = [run_probe(ask, p) for p in probes_for(known, golds, bare, best_form)]
    strange = [ask.ask(f"strange: {x[:10]!r}", [x] * len(known)) for x in STRANGE_TEXTS]
    dependence, labels = count_dependence(ask, golds), label_agreement(ask, tasks)
    top, wrong = mean(gold), usual_wrong_score(probes)
    every = [
        *probes,
        AuditProbe(name="gold", texts=tuple(golds), right=(True,) * len(golds), scores=tuple(gold)),
    ]
    below = [] if ask.hung else [i for i in range(len(known)) if is_beaten(i, gold[i], probes)]
    hacks = [h for p in probes if (h := find_hack(p, top, wrong))]
    report = Audit(
        reward=name,
        problems=len(known),
        gold={
            "mean": top,
            "least": min((g for g in gold if g is not None), default=None),
            "form": best_form,
            "forms": {f: mean(s) for f, s in forms.items()},
            "not_best": len(below),
            "weak": len(ask.weak),
            "examples": [gold_example(known[i], gold[i]) for i in below[:5]],
        },
        wrong=wrong,
        ties={} if ask.hung else count_ties(every, len(known)),
        hackable=tuple(sorted(hacks, key=lambda h: -h["earned"])),
        probes={p.name: mean(p.scores) for p in probes}
        | {f"strange {x[:6]!r}": mean(s) for x, s in zip(STRANGE_TEXTS, strange, strict=True)},
        dependence={} if ask.hung else dependence,
        exceptions=tuple(ask.exceptions.values()),
        latency=latency(ask.seconds),
        labels=labels,
        hung=ask.hung,
    )
    return replace(report, data=tuple(data), findings=tuple(list_findings(report)))


def gold_example(task: Task, score: float | None) -> dict[str, Any]:
    return {"id": task.id, "answer": text_of(task.answer)[:EXCERPT], "score": score}


def bare_of(judge: Any, task: Task) -> str:
    """The task's answer as the reward wants it written, where it says so; an answer that it cannot
    read is asked as it is.
    """
    try:
        if isinstance(judge, WritesAnswers):
            return judge.gold_text(task)
    except UserError:
        pass
    return text_of(task.answer)


def text_of(answer: Any) -> str:
    return ", ".join(map(str, answer)) if isinstance(answer, list | tuple) else str(answer)


def highest(scores: Sequence[float | None]) -> float | None:
    return max((s for s in scores if s is not None), default=None)


def mean(scores: Sequence[float | None]) -> float | None:
    known = [s for s in scores if s is not None]
    return sum(known) / len(known) if known else None


def run_probe(ask: Auditor, probe: AuditProbe) -> AuditProbe:
    return AuditProbe(
        name=probe.name,
        texts=probe.texts,
        right=probe.right,
        scores=tuple(ask.ask(probe.name, probe.texts)),
    )


def probes_for(
    tasks: Sequence[Task], golds: Sequence[str], bare: Sequence[str], form: str
) -> list[AuditProbe]:
    """All probes: silence, the prompt, refusals, constants, other problems' answers, and several
    answers at once.
    """
    n, texts = len(tasks), [x.strip().casefold() for x in bare]
    prompts = ["\n".join(m.content for m in t.prompt if m.role == "user") for t in tasks]
    others = [
        next((j for k in range(1, n) if texts[j := (i + k) % n] != texts[i]), i) for i in range(n)
    ]
    common = max(range(n), key=lambda i: texts.count(texts[i]))
    never = (False,) * n

    def probe(name: str, texts: Sequence[str], right: Sequence[bool] = never) -> AuditProbe:
        return AuditProbe(name=name, texts=tuple(texts), right=tuple(right))

    def constant(text: str, form: str = "{}", name: str = "constant") -> AuditProbe:
        wrong_text = form.format(text)
        return probe(
            f"{name}: {wrong_text}", [wrong_text] * n, [text.strip().casefold() == x for x in texts]
        )

    options = [t.meta.get("options") for t in tasks]
    everything = ", ".join(dict.fromkeys(bare))[:2000]
    listed = [
        ", ".join(map(str, o)) if isinstance(o, list | tuple) else everything for o in options
    ]
    different = [texts[o] != texts[i] for i, o in enumerate(others)]
    hedge = [(bare[i], bare[o]) for i, o in enumerate(others)]
    probes = [
        probe("empty", [""] * n),
        probe("blank", [" \n"] * n),
        probe("copy of the prompt", prompts),
        probe("copy of the prompt as an answer", [form.format(p) for p in prompts]),
        probe("gold of another problem", [golds[o] for o in others], [not d for d in different]),
        probe("the commonest gold", [golds[common]] * n, [x == texts[common] for x in texts]),
        probe("all answers", listed),
        probe("all answers as an answer", [form.format(x) for x in listed]),
        probe("every number to 100", [" ".join(map(str, range(101)))] * n),
    ]
    if any(different):
        right = [not d for d in different]
        hedged = {
            "another answer beside the gold": [form.format(f"{b} or {a}") for a, b in hedge],
            "the gold, then another": [f"{golds[i]}\n{golds[o]}" for i, o in enumerate(others)],
            "the gold denied": [f"It is not {a}." + "\n" + form.format(b) for a, b in hedge],
        }
        probes += [probe(name, answers, right) for name, answers in hedged.items()]
    probes += [constant(r, name="refusal") for r in REFUSALS]
    probes += [constant(c) for c in (*KEYS, *CONSTANTS)]
    return probes + [constant(c, form) for c in ("0", "1", "yes", "A") if form != "{}"]


def usual_wrong_score(probes: Sequence[AuditProbe]) -> float:
    """What most wrong answers earn: the median over the probes of their means where they are wrong,
    at most 0.
    """
    means = [sum(s for s, _ in score) / len(score) for p in probes if (score := wrongs(p))]
    return min(0.0, statistics.median(means)) if means else 0.0


def wrongs(probe: AuditProbe) -> list[tuple[float, str]]:
    """Scores and responses where the probe is wrong."""
    return [
        (s, t)
        for s, t, r in zip(probe.scores, probe.texts, probe.right, strict=True)
        if not r and s is not None
    ]


def find_hack(probe: AuditProbe, gold: float | None, wrong: float) -> dict[str, Any] | None:
    """What a probe earns where it is wrong, if that is more than the margin of the way from `wrong`
    to `gold`.
    """
    score = wrongs(probe)
    if not score or gold is None:
        return None
    earned = sum(s for s, _ in score) / len(score)
    if earned <= wrong + MARGIN * max(gold - wrong, 0.0):
        return None
    example = max(score, key=lambda x: x[0])[1]
    return {
        "probe": probe.name,
        "earned": earned,
        "of_gold": (earned - wrong) / (gold - wrong) if gold > wrong else None,
        "example": example[:EXCERPT],
    }


def is_beaten(i: int, gold: float | None, probes: Sequence[AuditProbe]) -> bool:
    """Whether some wrong answer to problem i is paid as much as its gold."""
    return gold is None or any(
        not p.right[i] and (s := p.scores[i]) is not None and s >= gold for p in probes
    )


def count_ties(probes: Sequence[AuditProbe], n: int) -> dict[str, float]:
    """How many problems give one score to everything, and how many different scores there are."""
    by_problem = [{p.scores[i] for p in probes if p.scores[i] is not None} for i in range(n)]
    return {
        "problems_with_one_score": sum(len(s) <= 1 for s in by_problem),
        "different_scores": len({x for s in by_problem for x in s}),
    }


def count_dependence(ask: Auditor, golds: Sequence[str]) -> dict[str, int]:
    """Responses whose score changes: asked again, in another order, alone, or beside copies of
    themselves.
    """
    texts = [g if i % 2 else "wrong" for i, g in enumerate(golds)]
    first = ask.ask("order", texts)
    again = ask.ask("order", texts)
    scores, _ = ask.score_once("order", texts[::-1], ask.tasks[::-1])
    turned = first if scores is None else scores[::-1]
    few = range(min(8, len(texts)))
    alone = [ask.single("alone", texts[i], ask.tasks[i]) for i in few]
    return {
        "asked again": sum(a != b for a, b in zip(first, again, strict=True)),
        "in another order": sum(a != b for a, b in zip(first, turned, strict=True)),
        "alone": sum(first[i] != alone[i] for i in few),
    }


def latency(seconds: Sequence[float]) -> dict[str, float]:
    """Seconds a response; nothing where no call came back."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        "median": ordered[len(ordered) // 2],
        "p95": ordered[int(0.95 * (len(ordered) - 1))],
        "slowest": ordered[-1],
    }


def label_agreement(ask: Auditor, tasks: Sequence[Task]) -> dict[str, Any]:
    """Agreement with the data's own labels: columns `response` and `right`."""
    rows = [
        t
        for t in tasks
        if isinstance(t.meta.get("response"), str) and isinstance(t.meta.get("right"), bool | int)
    ]
    if not rows:
        return {}
    scores = [ask.single("labelled", t.meta["response"], t) for t in rows]
    pairs = [(s, bool(t.meta["right"])) for s, t in zip(scores, rows, strict=True) if s is not None]
    rights, wrongs = ([s for s, r in pairs if r is want] for want in (True, False))
    ranked = sum((a > b) + 0.5 * (a == b) for a in rights for b in wrongs)
    return {
        "responses": len(rows),
        "mean_of_right": mean(rights),
        "mean_of_wrong": mean(wrongs),
        "right_above_wrong": ranked / (len(rights) * len(wrongs)) if rights and wrongs else None,
    }


def list_findings(a: Audit) -> list[str]:
    """The findings, worst first, a line each."""
    findings = list[str]()
    if a.hung:
        asked = f"{a.hung['probe']} ({a.hung['response']!r})"
        findings.append(
            f"gave nothing in {a.hung['seconds']:g} s when asked for {asked}; the audit ends there"
        )
    if a.gold["not_best"]:
        findings.append(
            f"{a.gold['not_best']} of {a.problems} golds are not paid more than every wrong answer"
        )
    scale = f"gold {a.gold['mean']:.3g}" if a.gold["mean"] is not None else ""
    scale += f", most wrong answers {a.wrong:.3g}" if a.wrong < 0 else ""
    findings += [
        f"pays {h['earned']:.3g} for {h['probe']} ({h['example']!r}), {scale}" for h in a.hackable
    ]
    if a.gold["weak"]:
        findings.append(
            f"{a.gold['weak']} of {a.problems} references prove too little: an answer that gives "
            "nothing equals them"
        )
    if a.ties.get("problems_with_one_score"):
        findings.append(
            f"{a.ties['problems_with_one_score']} of {a.problems} problems give one score to "
            "everything"
        )
    findings += [f"{n} scores change when {how}" for how, n in a.dependence.items() if n]
    alike: dict[str, list[Mapping[str, str]]] = {}
    for e in a.exceptions:
        alike.setdefault(": ".join(e["error"].split(": ")[:2]), []).append(e)
    findings += [
        f"raises on {len(es)} probes, e.g. {es[0]['response']!r}: {es[0]['error']}"
        for es in alike.values()
    ]
    if a.latency.get("slowest", 0.0) > 1:
        findings.append(f"takes up to {a.latency['slowest']:.1f} s a response")
    return findings
