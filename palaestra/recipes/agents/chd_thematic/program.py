"""Coders, theme agents and reviewers over a folder of transcripts, as a program."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

import palaestra as pl
from palaestra.recipes.agents.chd_thematic.prompts import ThematicPrompts
from palaestra.recipes.agents.chd_thematic.themes import (
    Interview,
    Quote,
    Theme,
    ThemeCode,
    apply_edits,
    coder_agreement,
    join_themes,
    match_themes,
    merge_codes,
    precision_recall,
    read_codes,
    read_score,
    read_themes,
    redundancy,
    share_changed,
    split_lines,
    text_similarity,
)
from palaestra.recipes.agents.chd_thematic.toy import PLANTED, made_up_diaries

IDENTITIES = (
    "a physician, who looks for what is said of the course of care",
    "a surgeon, who looks for what is said of operations and of recovery",
    "a researcher, who looks for what is said of experiences, feelings and ways to cope",
    "a layperson, who looks for what is said of everyday life, family and money",
)
CRITERIA = (
    "credibility: do the lines show what the theme says?",
    "confirmability: does it follow from the lines and not from the reader?",
    "dependability: would another reader of these codes find the same themes?",
    "transferability: is it said so that it can be compared with other interviews?",
)
HERE = ("localhost", "127.0.0.1", "::1")
FILES = ("themes.json", "codes.jsonl", "pairs.jsonl")


@pl.stage
class ThematicAnalysis:
    """A program: codes, themes and their review of transcripts, with the numbers of the module.

    Its summary has "codes" and "themes"; `grounding`, the share of quoted lines that are there;
    `themes_changed`, the share of themes that review changed; `found_by_others`, the share of codes that the
    first coder did not write; `coder_agreement`, kappa of coders on lines; `covered`, the share of codes in a
    theme; `redundancy`; by `human` themes precision, recall and F1, before and after review.

    Args:
        transcripts: a folder, as --docs names it; "" = `diaries` that are made up.
        human: a file with people's themes, a record with `name`, and `definition` if there is one, each.
        coder, theme, feedback: models of the roles; None = the run's own.
        matcher: says whether a theme means the same as a person's; None = their words are compared.
        identities: of the coders.
        criteria: of the reviewers, one each.
        rounds: of review, at most; 0 = none.
        passing: the score of each reviewer at which it ends.
        chunk: tokens of a transcript that a coder reads at once, at most.
        batch: codes that a theme agent reads at once.
        threshold: at which two themes are alike.
        pairs: whether theme agents answer twice, for people to choose.
        send: whether transcripts may go to an endpoint on another machine.
        reply: tokens of a reply, at most.
        prompts: of the agents.
    """

    transcripts: str = ""
    diaries: int = 8
    human: str = ""
    coder: pl.Source | None = None
    theme: pl.Source | None = None
    feedback: pl.Source | None = None
    matcher: pl.Source | None = None
    identities: tuple[str, ...] = IDENTITIES
    criteria: tuple[str, ...] = CRITERIA
    rounds: int = 3
    passing: int = 4
    chunk: int = 1500
    batch: int = 40
    threshold: float = 0.7
    pairs: bool = False
    send: bool = False
    temperature: float = 0.0
    reply: int = 512
    prompts: ThematicPrompts = ThematicPrompts()
    brings_reward: ClassVar[bool] = True

    async def run(self, ctx: pl.Context) -> pl.Result:
        self._check_sending()
        metrics = await ctx.once("analysis", lambda: self._analyse(ctx))
        there = [] if ctx.out is None else [f for x in FILES if (f := ctx.out / x).is_file()]
        return pl.Result(
            metrics={**metrics, "sampled_tokens": ctx.sampled_tokens},
            artifacts={f.stem: str(f) for f in there},
        )

    def _check_sending(self) -> None:
        """Raises UserError where transcripts of a user would leave this machine unasked."""
        for source in (self.coder, self.theme, self.feedback, self.matcher):
            if not (isinstance(source, pl.Endpoint) and self.transcripts and not self.send):
                continue
            if urlsplit(source.url).hostname not in HERE:
                raise pl.UserError(
                    f"{source.url} is on another machine, and transcripts would be sent there; where the "
                    "people in them have agreed to that, say send=true"
                )

    async def _analyse(self, ctx: pl.Context) -> dict[str, Any]:
        transcripts, human = self._material()
        team = AgentTeam(self, ctx)
        written = await asyncio.gather(
            *(
                team.code(coder, t, transcript)
                for t, transcript in enumerate(transcripts)
                for coder in range(len(self.identities))
            )
        )
        codes = merge_codes([code for each in written for code in each])
        if not codes:
            return self._nothing(ctx, team, len(transcripts))
        first = await team.themes(codes)
        themes = await team.review(first, codes, transcripts)
        if note := team.told():
            ctx.say(note)
        metrics = {
            "transcripts": len(transcripts),
            "codes": len(codes),
            "themes": len(themes),
            "grounding": team.true / team.given if team.given else 0.0,
            "themes_changed": share_changed(first, themes),
            "found_by_others": float(np.mean([0 not in c.coders for c in codes])),
            "coder_agreement": self._agreement(codes, transcripts),
            "covered": sum(len(t.codes) for t in themes) / len(codes),
            "redundancy": redundancy(themes),
            "calls": team.calls,
        }
        if human:
            for name, own_themes in (("unreviewed", first), ("reviewed", themes)):
                metrics |= {
                    f"{name}/{k}": x for k, x in (await team.compare(own_themes, human)).items()
                }
        ctx.log({k: x for k, x in metrics.items() if x is not None})
        self._keep(ctx, transcripts, codes, themes, team.asked_twice)
        return metrics

    def _nothing(self, ctx: pl.Context, team: "AgentTeam", transcripts: int) -> dict[str, Any]:
        """The numbers of an analysis without codes. Raises Fault where replies failed."""
        line = f"no coder wrote a code that is grounded in a line; {team.told()}"
        if team.failed:
            raise pl.Fault("thematic", line)
        ctx.say(f"note: {line}")
        metrics = {
            "transcripts": transcripts,
            "codes": 0,
            "themes": 0,
            "grounding": team.true / team.given if team.given else 0.0,
            "themes_changed": 0.0,
            "calls": team.calls,
        }
        ctx.log(metrics)
        return metrics

    def _material(self) -> tuple[list[Interview], list[tuple[str, str]]]:
        """The transcripts, and people's themes as (name, definition)."""
        if not self.transcripts:
            return made_up_diaries(self.diaries), [(name, "") for name in PLANTED]
        texts = pl.tasks.whole_documents(self.transcripts)
        transcripts = [t for name, text in texts if (t := split_lines(name, text)).lines]
        return transcripts, read_human_themes(self.human) if self.human else []

    def _agreement(
        self, codes: Sequence[ThemeCode], transcripts: Sequence[Interview]
    ) -> float | None:
        every = [(t, i) for t, x in enumerate(transcripts) for i in x.lines]
        coded: list[set[Quote]] = [
            {q for c in codes if k in c.coders for q in c.quotes}
            for k in range(len(self.identities))
        ]
        return coder_agreement(coded, every)

    def _keep(
        self,
        ctx: pl.Context,
        transcripts: Sequence[Interview],
        codes: Sequence[ThemeCode],
        themes: Sequence[Theme],
        pairs: Sequence[Mapping[str, str]],
    ) -> None:
        """Writes themes with their codes and lines, all codes, and pairs for people to choose from."""
        if ctx.out is None:
            return
        records = [
            {
                "label": c.label,
                "coders": [self.identities[k] for k in c.coders],
                "quotes": [
                    {"transcript": transcripts[t].name, "line": i, "text": transcripts[t].lines[i]}
                    for t, i in c.quotes
                ],
            }
            for c in codes
        ]
        of_themes = [
            {"name": t.name, "definition": t.definition, "codes": [records[c] for c in t.codes]}
            for t in themes
        ]
        text = json.dumps(of_themes, ensure_ascii=False, indent=1)
        Path(ctx.out / FILES[0]).write_text(text + "\n", encoding="utf-8")
        for name, rows in ((FILES[1], records), (FILES[2], pairs)):
            if rows:
                pl.tasks.write_records(Path(ctx.out / name), rows)


def read_human_themes(path: str) -> list[tuple[str, str]]:
    """(name, definition) of each theme. Raises UserError for a record without a name."""
    themes = list[tuple[str, str]]()
    for records in pl.tasks.open_records(path).values():
        for i, record in enumerate(records):
            name = record.get("name")
            if not isinstance(name, str) or not name.strip():
                raise pl.UserError(
                    f"{records.where(i)}: a theme has a name; write it in the column name"
                )
            themes.append((name.strip(), str(record.get("definition") or "")))
    return themes


@dataclass
class AgentTeam:
    """The agents of one analysis, and what is counted of them."""

    program: ThematicAnalysis
    ctx: pl.Context
    calls: int = 0
    given: int = 0  # lines that coders quoted
    true: int = 0  # of these, that are there
    void: int = 0  # edits that named nothing that is there
    unscored: int = 0  # replies of reviewers without a score
    failed: Counter[str] = field(default_factory=Counter[str])
    asked_twice: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])

    async def ask(self, source: pl.Source | None, question: str, again: int = 0) -> str:
        """The reply behind its thinking; "" where nobody answered, which is counted. Replies to equal
        questions differ by `again` alone.
        """
        self.calls += 1
        request = pl.ChatRequest(
            messages=(pl.Message(role="user", content=question),),
            temperature=1.0 if again else self.program.temperature,
            max_tokens=self.program.reply,
            seed=again,
        )
        try:
            reply = await self.ctx.ask(source or pl.LocalModel(), request, seed=again)
        except pl.Fault as fault:
            self.failed[fault.cause] += 1
            return ""
        return pl.judges.reply_after_thinking(reply)

    def told(self) -> str:
        """What went wrong on the way, in a line; "" = nothing."""
        parts = [f"{n} replies failed by {cause}" for cause, n in self.failed.most_common()]
        if self.given > self.true:
            parts.append(
                f"{self.given - self.true} quoted lines are not there, and their codes are dropped"
            )
        if self.void:
            parts.append(f"{self.void} edits named nothing that is there")
        if self.unscored:
            parts.append(f"{self.unscored} reviews had no score")
        return "; ".join(parts) or (
            "" if self.given else "no reply named a line, as in LABEL: q3, q7"
        )

    async def code(
        self, coder: int, t: int, transcript: Interview
    ) -> list[tuple[int, str, tuple[Quote, ...]]]:
        """The codes of a coder for a transcript, chunk by chunk."""
        identity, prompts = self.program.identities[coder], self.program.prompts
        written = list[tuple[int, str, tuple[Quote, ...]]]()
        for lines in self.chunks(transcript, identity):
            listing = "\n".join(f"{i} {pl.judges.defuse(text)}" for i, text in lines.items())
            asked = prompts.code.format(identity=identity, lines=listing, caution=pl.judges.CAUTION)
            reading = read_codes(await self.ask(self.program.coder, asked), lines)
            self.given, self.true = self.given + reading.given, self.true + reading.true
            written += [(coder, label, tuple((t, i) for i in ids)) for label, ids in reading.codes]
        return written

    def chunks(self, transcript: Interview, identity: str) -> list[dict[str, str]]:
        """The lines in parts of at most `chunk` tokens of the run's own model, and that fit into its
        context with the prompt and a reply where it is the coder; a longer line is a part of its own.
        """
        dialect, program = self.ctx.engine("policy").dialect, self.program
        size = lambda text: len(dialect.encode_text(text))
        most = program.chunk
        if program.coder is None:
            empty = program.prompts.code.format(
                identity=identity, lines="", caution=pl.judges.CAUTION
            )
            room = self.ctx.model("policy").context - size(empty) - 16
            most = max(1, min(most, room - min(program.reply, room // 2)))
        parts, used = list[dict[str, str]](), 0
        for i, text in transcript.lines.items():
            cost = size(f"{i} {text}\n")
            if not parts or used + cost > most:
                parts.append({})
                used = 0
            parts[-1][i], used = text, used + cost
        return parts

    async def themes(self, codes: Sequence[ThemeCode]) -> list[Theme]:
        """The themes of all codes, batch by batch."""
        program, themes = self.program, list[Theme]()
        for start in range(0, len(codes), program.batch):
            part = codes[start : start + program.batch]
            listing = "\n".join(
                f"c{i + 1} {pl.judges.defuse(c.label)} ({len(c.coders)})"
                for i, c in enumerate(part)
            )
            asked = program.prompts.theme.format(codes=listing, caution=pl.judges.CAUTION)
            reply = await self.ask(program.theme, asked)
            if program.pairs:
                second = await self.ask(program.theme, asked, again=1)
                if reply and second and reply != second:
                    self.asked_twice.append({"prompt": asked, "first": reply, "second": second})
            themes += [
                Theme(t.name, t.definition, tuple(c + start for c in t.codes))
                for t in read_themes(reply, len(part))
            ]
        return join_themes(themes, program.threshold)

    async def review(
        self, themes: list[Theme], codes: Sequence[ThemeCode], transcripts: Sequence[Interview]
    ) -> list[Theme]:
        """The themes after at most `rounds` of review; each reviewer sees what the one before left."""
        program, now = self.program, list(themes)
        for _ in range(program.rounds):
            scores = list[int]()
            for criterion in program.criteria:
                listing = "\n".join(self.lines_of(now, codes, transcripts))
                asked = program.prompts.review.format(
                    criterion=criterion, themes=listing, caution=pl.judges.CAUTION
                )
                reply = await self.ask(program.feedback, asked)
                score = read_score(reply)
                self.unscored += score is None
                scores.append(score or 0)
                now, void = apply_edits(reply, now, len(codes))
                self.void += void
            if min(scores) >= program.passing:
                break
        return now

    def lines_of(
        self, themes: Sequence[Theme], codes: Sequence[ThemeCode], transcripts: Sequence[Interview]
    ) -> list[str]:
        """What a reviewer sees: each theme, its codes, and some lines that show it."""
        lines = list[str]()
        for at, t in zip(count(1), themes, strict=False):
            defined = f" ({pl.judges.defuse(t.definition)})" if t.definition else ""
            labels = ", ".join(f"c{c + 1} {pl.judges.defuse(codes[c].label)}" for c in t.codes)
            label_text = f": {labels}" if self.program.prompts.labels else ""
            lines.append(f"t{at} {pl.judges.defuse(t.name)}{defined}{label_text}")
            quotes = dict.fromkeys(q for c in t.codes for q in codes[c].quotes)
            lines += [
                f"  {pl.judges.defuse(transcripts[n].lines[i])}"
                for n, i in list(quotes)[: self.program.prompts.quotes]
            ]
        return lines

    async def compare(
        self, themes: Sequence[Theme], human: Sequence[tuple[str, str]]
    ) -> dict[str, float]:
        """Precision, recall and F1 by people's themes."""
        similar_MH = np.zeros((len(themes), len(human)))
        for m, theme in enumerate(themes):
            for h, (name, definition) in enumerate(human):
                similar_MH[m, h] = await self.similarity(theme, name, definition)
        matches = match_themes(similar_MH, self.program.threshold)
        return precision_recall(len(matches), len(themes), len(human))

    async def similarity(self, theme: Theme, name: str, definition: str) -> float:
        """1 or 0 by the matcher; without one the similarity of names, or of names and definitions where
        both have one, whichever is greater.
        """
        ours, theirs = f"{theme.name}. {theme.definition}", f"{name}. {definition}"
        if self.program.matcher is not None:
            a, b = map(pl.judges.defuse, (ours, theirs))
            asked = self.program.prompts.same.format(a=a, b=b, caution=pl.judges.CAUTION)
            reply = await self.ask(self.program.matcher, asked)
            return float(reply.strip(" *\"'`").lower().startswith("yes"))
        whole = text_similarity(ours, theirs) if theme.definition and definition else 0.0
        return max(whole, text_similarity(theme.name, name))
