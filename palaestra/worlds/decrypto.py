"""Decrypto: an encoder and a decoder share four secret keywords, and an interceptor listens.

    a turn   a code of three different digits of 1 to 4 is drawn, none twice in a game; the encoder alone sees
             it and says a hint word for each digit; decoder and interceptor guess the code, neither hears
             the other; then code and guesses are told, and each hint is filed under its digit for all
    end      two miscommunications (the decoder is wrong) or two interceptions (the interceptor is right):
             the encoder and the decoder are paid -1, the interceptor 1; after `turns` turns the reverse

The interceptor never sees the keywords. A hint may not be or contain a keyword, nor have been said before.
A reply that cannot be read is asked for again `retries` times; then the encoder's turn is lost as a
miscommunication, and a guess is wrong. The 24 codes: an interceptor who guesses at random against a
perfect decoder wins with probability 0.041 within eight turns (Lupu et al., "The Decrypto Benchmark for
Multi-Agent Reasoning and Theory of Mind", 2025).

`reply` is the players made of word vectors: the encoder says an unused word that is among the `NEAREST`
nearest to the keyword, one more with each use of it; the others take the code of the greatest sum of
cosines, the decoder with the keywords, the interceptor with the mean vector of the hints of each digit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import permutations
from typing import Any, ClassVar, Literal

import numpy as np

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.suggest import no_setting
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.tasks.spec import parse_alone
from palaestra.types import Act, Ask, Frame, Key, Message, Task, need_at_least, stage, value_class
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.decrypto_words import Lexicon, lexicon_of

ENCODER, DECODER, INTERCEPTOR = SEATS = ("encoder", "decoder", "interceptor")
Code = tuple[int, ...]
CODES: tuple[Code, ...] = tuple(permutations((1, 2, 3, 4), 3))
LOSES = 2  # miscommunications, or interceptions
NEAREST = 16
GAP = r"(?:[^\w\n.]|and|then){0,8}"
READS = re.compile(rf"(?<!\d)(?=([1-4]){GAP}([1-4]){GAP}([1-4])(?!\d))")
WORD = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*")


@value_class
class DecryptoTurn:
    """A turn that is over. No hints = the encoder said none that could be read; no guess likewise."""

    code: Code
    hints: tuple[str, ...] = ()
    decoded: Code = ()
    intercepted: Code = ()


@value_class
class DecryptoState:
    """Where a game stands. `hints` are those of the turn under way, `guesses` what was said of them.

    `refused` counts replies of the turn that could not be read, `illegal` those of the game, by seat.
    """

    keywords: tuple[str, ...]
    codes: tuple[Code, ...]
    log: tuple[DecryptoTurn, ...] = ()
    hints: tuple[str, ...] = ()
    guesses: tuple[Code | None, Code | None] = (None, None)
    refused: tuple[int, int, int] = (0, 0, 0)
    illegal: tuple[int, int, int] = (0, 0, 0)

    @property
    def code(self) -> Code:
        return self.codes[len(self.log)]

    @property
    def miscommunications(self) -> int:
        return sum(t.decoded != t.code for t in self.log)

    @property
    def interceptions(self) -> int:
        return sum(t.intercepted == t.code for t in self.log)

    def filed(self) -> tuple[tuple[str, ...], ...]:
        """The hints of each digit, in the order of the turns."""
        own: list[list[str]] = [[] for _ in range(4)]
        for t in self.log:
            for digit, hint in zip(t.code, t.hints, strict=False):
                own[digit - 1].append(hint)
        return tuple(map(tuple, own))


@declare(
    columns=(
        ("keywords", tuple, "the four secret words, in the order of their digits"),
        ("codes", tuple, "the codes of the turns"),
    )
)
@stage
class DecryptoTasks:
    """Deals: four keywords of the lexicon and the codes of all turns."""

    words: str = ""
    vectors: str = ""
    keywords: int = 0
    turns: int = 8
    name: str = "decrypto"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        known = lexicon_of(self.words, self.vectors, self.keywords).keywords
        keywords = tuple(known[i] for i in rng.permutation(len(known))[:4].tolist())
        codes = tuple(CODES[i] for i in rng.permutation(len(CODES))[: self.turns].tolist())
        question = f"{' '.join(keywords)}: {' '.join(map(code_text, codes))}"
        return question_task(self.name, question, None, {"keywords": keywords, "codes": codes})


@declare(
    facts=(
        ("miscommunications", int, "turns of which the decoder guessed wrong"),
        ("interceptions", int, "turns of which the interceptor guessed right"),
        ("illegal:encoder", int, "replies of the encoder that could not be read"),
        ("illegal:decoder", int, "replies of the decoder that could not be read"),
        ("illegal:interceptor", int, "replies of the interceptor that could not be read"),
        ("turns_played", tuple, "the turns of a game of Decrypto"),
        "result",
    ),
)
@stage
class Decrypto:
    """The world; see the module.

    Args:
        words: a file of keywords; "" = 36 built-in ones.
        vectors: a file of word vectors for the players made of them.
        keywords: the first so many of the words; 0 = all.
        turns: that the team must survive.
        illegal: a guess that cannot be read is asked for "again", or cannot be said ("never").
        retries: of a reply that cannot be read.
        brief: the state alone is shown, without the rules, for models with a short context.
    """

    words: str = ""
    vectors: str = ""
    keywords: int = 0
    turns: int = 8
    illegal: Literal["again", "never"] = "again"
    retries: int = 2
    brief: bool = False
    seats: tuple[str, ...] = SEATS
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, turns=1, retries=0, keywords=0)
        if self.turns > len(CODES):
            raise UserError(f"decrypto has {len(CODES)} codes, so at most as many turns")

    @property
    def lexicon(self) -> Lexicon:
        return lexicon_of(self.words, self.vectors, self.keywords)

    @property
    def most_turns(self) -> int:
        """Replies of a game, refused ones included."""
        return 3 * self.turns * (1 + self.retries)

    def reset(self, task: Task, key: Key) -> Frame:
        codes = tuple(map(tuple, task.meta["codes"]))[: self.turns]
        return self._ask(DecryptoState(keywords=tuple(task.meta["keywords"]), codes=codes))

    def step(self, state: DecryptoState, acts: tuple[Act, ...], key: Key) -> Frame:
        for act in acts:
            state = self._heard(state, act.ask.seat, act.text)
        if state.hints or state.refused[0] > self.retries:
            lost = not state.hints
            decoded, intercepted = ((), ()) if lost else state.guesses
            if decoded is None or intercepted is None:
                return self._ask(state)
            turn = DecryptoTurn(
                code=state.code, hints=state.hints, decoded=decoded, intercepted=intercepted
            )
            state = replace(
                state, log=(*state.log, turn), hints=(), guesses=(None, None), refused=(0, 0, 0)
            )
        return self._go_on(state)

    def _heard(self, state: DecryptoState, seat: str, text: str) -> DecryptoState:
        """The state with a reply read, or counted as refused; a guess that was refused too often is no
        code.
        """
        at = SEATS.index(seat)
        read = self.read_hints(state, text) if at == 0 else read_code(text)
        if not read:
            count = lambda n: tuple(x + (i == at) for i, x in enumerate(n))
            state = replace(state, refused=count(state.refused), illegal=count(state.illegal))
            if at == 0 or state.refused[at] <= self.retries:
                return state
        if at == 0:
            return replace(state, hints=read)
        guesses = tuple(read if i == at - 1 else g for i, g in enumerate(state.guesses))
        return replace(state, guesses=guesses)

    def read_hints(self, state: DecryptoState, text: str) -> tuple[str, ...]:
        """Three hints of a reply, in lower case; () where it has no such, or one may not be said."""
        hints = three_words(text)
        used = {h for own in state.filed() for h in own}
        names_keyword = any(k in h for h in hints for k in state.keywords)
        return () if names_keyword or len(set(hints)) < 3 or used.intersection(hints) else hints

    def legal(self, state: DecryptoState) -> tuple[str, ...]:
        """The codes where one is to be guessed; there is no list of hints."""
        return tuple(map(code_text, CODES)) if state.hints else ()

    def reply(self, state: DecryptoState, seat: str, rng: np.random.Generator) -> str:
        """What the player made of word vectors says in a seat."""
        if seat == ENCODER:
            return ", ".join(self._near_words(state, rng))
        return code_text(self.best_code(state, seat, rng))

    def best_code(self, state: DecryptoState, seat: str, rng: np.random.Generator) -> Code:
        """The code of the greatest sum of cosines; of equal ones, one drawn."""
        vector = self.lexicon.vector
        if seat == DECODER:
            own_4D = [vector(k) for k in state.keywords]
        else:
            filed = state.filed()
            own_4D = [
                np.mean([vector(h) for h in hints], 0) if hints else 0 * vector(state.hints[0])
                for hints in filed
            ]
        cosine = [[_cosine(vector(h), x) for x in own_4D] for h in state.hints]
        sums = [sum(cosine[i][d - 1] for i, d in enumerate(code)) for code in CODES]
        best = [code for code, s in zip(CODES, sums, strict=True) if s > max(sums) - 1e-9]
        return best[int(rng.integers(len(best)))]

    def guessed_keywords(self, state: DecryptoState) -> tuple[str, ...]:
        """What the interceptor of word vectors takes the keywords for: of each digit the keyword of the
        lexicon that is nearest to the mean of its hints, none twice; without hints the first left.
        """
        lexicon, chosen = self.lexicon, dict[int, str]()
        pairs = list[tuple[float, int, str]]()
        for d, hints in enumerate(state.filed()):
            mean = np.mean([lexicon.vector(h) for h in hints], 0) if hints else None
            pairs += [
                (2.0 if mean is None else -_cosine(mean, lexicon.vector(k)), d, k)
                for k in lexicon.keywords
            ]
        for _, d, keyword in sorted(pairs, key=lambda p: p[:2]):
            if d not in chosen and keyword not in chosen.values():
                chosen[d] = keyword
        return tuple(chosen[d] for d in range(4))

    def _near_words(self, state: DecryptoState, rng: np.random.Generator) -> list[str]:
        lexicon, filed = self.lexicon, state.filed()
        used = {h for own in filed for h in own}
        words = [w for w in lexicon.hints if not any(k in w for k in state.keywords)]
        chosen = list[str]()
        for digit in state.code:
            v, k = lexicon.vector(state.keywords[digit - 1]), NEAREST + len(filed[digit - 1])
            near = sorted(words, key=lambda w: -_cosine(v, lexicon.vector(w)))
            # past the nearest where all of them were said
            left = [w for w in near if w not in used and w not in chosen]
            free = [w for w in near[:k] if w in left] or left[:1]
            chosen.append(free[int(rng.integers(len(free)))])
        return chosen

    # ---- what is asked

    def _go_on(self, state: DecryptoState) -> Frame:
        missed, caught = state.miscommunications >= LOSES, state.interceptions >= LOSES
        if missed or caught:
            both = "both" if missed and caught else ""
            return self._end(
                state, -1.0, both or ("miscommunication" if missed else "interception")
            )
        if len(state.log) == len(state.codes):
            return self._end(state, 1.0, "survived")
        return self._ask(state)

    def _ask(self, state: DecryptoState) -> Frame:
        if not state.hints:
            asks = [self._turn(state, ENCODER)]
        else:
            open_ = zip((DECODER, INTERCEPTOR), state.guesses, strict=True)
            asks = [self._turn(state, seat) for seat, guess in open_ if guess is None]
        return Frame(state=state, asks=tuple(asks), facts=facts_of(state))

    def _turn(self, state: DecryptoState, seat: str) -> Ask:
        say = (Message(role="user", content=self.shown(state, seat)),)
        choices = self.legal(state) if self.illegal == "never" and seat != ENCODER else None
        return Ask(seat=seat, say=say, new_row=True, choices=choices)

    def _end(self, state: DecryptoState, team: float, result: str) -> Frame:
        pay = {(ENCODER, ""): team, (DECODER, ""): team, (INTERCEPTOR, ""): -team}
        facts = facts_of(state) | {"result": result, "turns_played": state.log}
        return Frame(state=state, pay=pay, facts=facts)

    def shown(self, state: DecryptoState, seat: str) -> str:
        """The prompt of a seat."""
        lines = [seat if self.brief else RULES[seat].format(turns=self.turns)]
        lines += self.public(state, () if seat == INTERCEPTOR else state.keywords)
        if seat == ENCODER:
            return "\n".join([*lines, f"code {code_text(state.code)}", *self._ending("hints")])
        return "\n".join([*lines, f"hints {', '.join(state.hints)}", *self._ending("code")])

    def public(self, state: DecryptoState, keywords: Sequence[str] = ()) -> list[str]:
        """The keywords, if they are given, and the hints that were filed under each digit; where the
        text is not brief also the codes that were told, with the guesses.
        """
        lines = list[str]()
        for d, hints in enumerate(state.filed()):
            name = f" {keywords[d]}" if keywords else ""
            lines.append(f"{d + 1}{name}{':' if hints else ''} {' '.join(hints)}".rstrip())
        if state.log and not self.brief:
            codes = [
                f"{code_text(t.code)} (decoder {code_text(t.decoded) or 'none'}, "
                f"interceptor {code_text(t.intercepted) or 'none'})"
                for t in state.log
            ]
            lines.append(f"codes so far: {'; '.join(codes)}")
        return lines

    def _ending(self, what: str) -> list[str]:
        return [] if self.brief else [ENDINGS[what]]


RULES = {
    ENCODER: "You are the encoder in a game of Decrypto. You and the decoder know the four keywords below; the "
    "interceptor hears all hints and does not know the keywords. Hint at the digits of the code so that the "
    "decoder finds it and the interceptor does not. Your team wins if it survives {turns} turns, and loses "
    "with two wrong guesses of the decoder, or two right ones of the interceptor. After each digit stand its "
    "keyword and the hints that were given for it.",
    DECODER: "You are the decoder in a game of Decrypto. You and the encoder know the four keywords below. The "
    "encoder gave a hint for each of the three different digits of a secret code, in their order. Guess the "
    "code. After each digit stand its keyword and the hints that were given for it before.",
    INTERCEPTOR: "You are the interceptor in a game of Decrypto. The encoder and the decoder share four secret "
    "keywords, numbered 1 to 4. The encoder gave a hint for each of the three different digits of a secret "
    "code, in their order. Guess the code. After each digit stand the hints that were given for it before.",
}
ENDINGS = {
    "hints": "Reply with three hint words, one for each digit of the code in its order, with commas between "
    "them. A hint is one word; it may not contain a keyword, nor have been given before.",
    "code": "Reply with three different digits of 1 to 4, such as 3-1-4.",
}


def facts_of(state: DecryptoState) -> dict[str, Any]:
    counts = {f"illegal:{seat}": n for seat, n in zip(SEATS, state.illegal, strict=True)}
    return {
        "miscommunications": state.miscommunications,
        "interceptions": state.interceptions,
        **counts,
    }


def code_text(code: Sequence[int]) -> str:
    return "-".join(map(str, code))


def read_code(text: str) -> Code:
    """The code that a reply names last, as "3-1-4", "314" or "3, 1, 4"; () = none of three different digits."""
    reply = strip_thinking(text)
    named = [tuple(map(int, m.groups())) for m in READS.finditer(reply)]
    digits = tuple(map(int, re.findall(r"\d+", reply)))
    code = named[-1] if named else digits
    return code if code in CODES else ()


def three_words(text: str, n: int = 3) -> tuple[str, ...]:
    """The `n` single words of a reply, in lower case: of its last line that is a list of so many, else of
    its last `n` lines of one word each; () = there are none.

    >>> three_words("The hints are: **Flame**, river, toast.")
    ('flame', 'river', 'toast')
    """
    lines = [x for x in strip_thinking(text).lower().splitlines() if WORD.search(x)]
    for line in reversed(lines):
        parts = [x for p in re.split(r"[,;/|]", line) if (x := WORD.findall(p.rpartition(":")[2]))]
        if [len(p) for p in parts] == [1] * n:
            return tuple(p[0] for p in parts)
        if len(parts) == 1 and len(parts[0]) == n:
            return tuple(parts[0])
    single = [WORD.findall(x.rpartition(":")[2] or x) for x in lines[-n:]]
    return tuple(w[0] for w in single) if [len(w) for w in single] == [1] * n else ()


def _cosine(a_D: np.ndarray, b_D: np.ndarray) -> float:
    length = float(np.linalg.norm(a_D) * np.linalg.norm(b_D))
    return float(a_D @ b_D) / length if length else 0.0


def decrypto_by_name(spec: str) -> tuple[DecryptoTasks, Decrypto]:
    """The world of `decrypto(words='FILE',turns=N,...)`, and its deals. Raises UserError for other
    settings.
    """
    given = parse_alone(spec, "decrypto(words='FILE',turns=N)").settings
    kinds: dict[str, Any] = {f.name: type(f.default) for f in fields(Decrypto) if f.name != "seats"}
    for key, value in given.items():
        if key not in kinds:
            raise UserError(no_setting("decrypto", key, list(kinds)))
        if type(value) is not kinds[key] or (key == "illegal" and value not in ("again", "never")):
            ways = {int: "a whole number", bool: "true or false"}.get(kinds[key], "a file")
            raise UserError(
                f"{spec}: {key} is {value!r}; it takes {'again, never' if key == 'illegal' else ways}"
            )
    world = Decrypto(**given)
    same = {k: getattr(world, k) for k in ("words", "vectors", "keywords", "turns")}
    return DecryptoTasks(**same, name=spec), world
