"""Steps of an answer: lines of what the policy said."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palaestra.types import Episode, value_class

Decode = Callable[[Sequence[int]], str]


@value_class
class Step:
    """Where a step ends: `kept` tokens into a turn, at `token` of the row's training view."""

    row: int
    turn: int
    kept: int
    token: int
    text: str


def answer_steps(
    episode: Episode,
    decode: Decode,
    most: int = 1 << 30,
    *,
    recorded: bool = False,
    marker: str = "\n",
) -> list[Step]:
    """Every non-empty line, its line break included; the end token belongs to the last. Beyond
    `most` the last holds the rest. With `recorded` also of text that nobody sampled. With another
    `marker` steps end there instead of at line breaks.
    """
    steps: list[Step] = []
    for r, row in enumerate(episode.rows):
        at = 0  # tokens of the view before the segment
        for s in row.segments:
            if s.trained and (recorded or s.logp is not None):
                ids = s.ids[:-1] if s.finish == "eos" else s.ids
                ends = line_ends([decode((i,)) for i in ids], marker)
                # what follows the last line belongs to it
                ends = [*ends[:-1], len(s.ids)] if ends else []
                starts = [0, *ends]
                steps += [
                    Step(
                        row=r, turn=s.turn, kept=b, token=at + b - 1, text=decode(ids[a:b]).strip()
                    )
                    for a, b in zip(starts, ends, strict=False)
                ]
            at += 0 if s.hidden else len(s.ids)
    if len(steps) > most:
        rest = "\n".join(s.text for s in steps[most - 1 :])
        last = steps[-1]
        steps = [
            *steps[: most - 1],
            Step(row=last.row, turn=last.turn, kept=last.kept, token=last.token, text=rest),
        ]
    return steps


def line_ends(pieces: Sequence[str], marker: str = "\n") -> list[int]:
    """Token counts at which lines end; a line of spaces belongs to the one after it, a last one to
    none. A `marker` that several tokens spell ends its line with the last of them.
    """
    ends, line = list[int](), ""
    for n, piece in enumerate(pieces, start=1):
        line += piece
        closed = marker in line[-(len(piece) + len(marker) - 1) :]
        if closed:
            ends += [n] if line.replace(marker, "").strip() else []
            line = ""
    return [*ends, len(pieces)] if line.replace(marker, "").strip() else ends
