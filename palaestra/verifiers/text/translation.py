"""Translations by BLEU and a semantic metric (MT-R1-Zero, arXiv:2504.10160)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeAlias

from palaestra.errors import Fault, UserError
from palaestra.tasks.user_code import load
from palaestra.types import stage
from palaestra.verifiers.answers.final import fold_case
from palaestra.verifiers.base import Judgement, failed_judgement, guard_verifier, require_field
from palaestra.verifiers.text.formats import Tags, repeated_share, scripts

Semantic: TypeAlias = Callable[[str, str, str], float]  # (source, hypothesis, reference) -> [0, 1]
# mecab is no part of the extra; its numbers differ
TOKENIZERS = {"zh": "zh", "ja": "char", "ko": "char", "th": "char"}
ORDER = 4  # of BLEU's n-grams
LONGEST_RATIO = 4  # a hypothesis so many times as long as its longest reference is none


@stage
class Translation:
    """BLEU / 100 of the text in <translate></translate> ("lex"), a semantic metric ("sem"), or
    their mean ("mix").

    `semantic` names a metric of your own, FILE.py:function(source, hypothesis, reference) -> [0,
    1], e.g. one that asks COMET; without it chrF stands in. The answer is one reference or several;
    a text equal to one scores 1. Where a reference has under four tokens, n-grams are counted up to
    its length, unsmoothed: the usual order 4 knows no right answer of such a one. Japanese, Korean
    and Thai are compared by characters. A copy of `source`, another script than the reference's and
    text that repeats itself are 0. The part `paper` is +1 for the form and the metric's value(s),
    or -3, -1.
    """

    metric: Literal["lex", "sem", "mix"] = "lex"
    language: str = "en"
    semantic: str = ""
    tagged: bool = True
    least: ClassVar[float] = -3.0

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, source: str = "") -> Judgement:
        references = (
            [answer]
            if isinstance(answer, str)
            else list(require_field(answer, "answer", (str, list, tuple), self))
        )
        if not references or not all(isinstance(r, str) and r.strip() for r in references):
            raise UserError("Translation: a reference is empty; give text")
        references = [r.strip() for r in references]
        text = response
        if self.tagged:
            form = Tags(tags=("think", "translate"))(response, None)
            empty = form.parts["tags"] == 1.0 and "<translate>" in response
            if not form.score:
                inside = response.rpartition("<translate>")[2].rpartition("</translate>")[0]
                return failed_judgement(
                    "unparsable",
                    format=form.score,
                    paper=-1.0 if empty and not inside.strip() else -3.0,
                )
            text = response.rpartition("<translate>")[2].rpartition("</translate>")[0]
        text = text.strip()
        if is_suspicious(text, references, source):
            return failed_judgement("ok", format=1.0, lex=0.0, sem=0.0, paper=1.0)
        lex = (
            bleu(text, references, TOKENIZERS.get(self.language, "13a"))
            if self.metric != "sem"
            else 0.0
        )
        sem = self.meaning(source, text, references) if self.metric != "lex" else 0.0
        total = lex + sem
        score = min(
            0.999, total / 2 if self.metric == "mix" else total
        )  # a metric may take another text for the reference:
        score = 1.0 if text in references else score  # BLEU sees no spaces
        return Judgement(
            score=score, parts={"format": 1.0, "lex": lex, "sem": sem, "paper": 1.0 + total}
        )

    def meaning(self, source: str, text: str, references: list[str]) -> float:
        likeness: Semantic = load(self.semantic, "function") if self.semantic else chrf
        score = max(float(likeness(source, text, r)) for r in references)
        if not 0.0 <= score <= 1.0:
            raise Fault(
                "verifier", f"{self.semantic} gave {score}; a semantic metric lies in [0, 1]"
            )
        return score


def is_suspicious(text: str, references: list[str], source: str) -> bool:
    """What learned metrics have been seen to pay: the source itself, another language, loops."""
    mine, theirs = scripts(text), scripts(" ".join(references))
    foreign = bool(theirs) and sum(mine.get(s, 0.0) for s in theirs) < 0.5
    copied = (
        bool(source.strip()) and fold_case(text) == fold_case(source) and text not in references
    )
    longest = max(map(len, references))
    return (
        copied
        or foreign
        or len(text) > LONGEST_RATIO * longest + 100
        or (repeated_share(text.split(), 2) > 0.5 and text not in references)
    )


def bleu(text: str, references: list[str], tokenizer: str) -> float:
    """Corpus BLEU of one line, in [0, 1]; of a short reference's order where one has fewer tokens
    than that.
    """
    if text in references:
        return 1.0
    order = min(ORDER, *(len(metric(tokenizer, ORDER).tokenizer(r).split()) for r in references))
    return min(
        1.0,
        max(
            0.0,
            metric(tokenizer, max(1, order)).corpus_score([text], [[r] for r in references]).score
            / 100,
        ),
    )


@lru_cache(maxsize=16)
def metric(tokenizer: str, order: int) -> Any:
    """sacrebleu's BLEU. Smoothing would pay a short text without a common bigram up to a half."""
    short = (
        {}
        if order == ORDER
        else {"max_ngram_order": order, "effective_order": True, "smooth_method": "none"}
    )
    return import_sacrebleu().BLEU(tokenize=tokenizer, **short)


def chrf(source: str, text: str, reference: str) -> float:
    return min(1.0, max(0.0, import_sacrebleu().sentence_chrf(text, [reference]).score / 100))


def import_sacrebleu() -> Any:
    try:
        import sacrebleu  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise Fault(
            "verifier", "sacrebleu is not installed; pip install 'palaestra[translation]'"
        ) from None
    return sacrebleu
