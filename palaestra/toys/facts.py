"""Short questions of common knowledge, of which a small real model knows some, and questions about
countries that do not exist, where the right answer is to say that it is unknown.

The list of facts is the project's own; names of countries that do not exist are syllables put together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.types import Task, stage

CAPITALS = """Afghanistan Kabul; Albania Tirana; Algeria Algiers; Armenia Yerevan; Australia Canberra; Austria Vienna;
Azerbaijan Baku; Bangladesh Dhaka; Belarus Minsk; Belgium Brussels; Bulgaria Sofia; Cambodia Phnom_Penh; Canada Ottawa;
Chile Santiago; China Beijing; Colombia Bogota; Croatia Zagreb; Cuba Havana; Denmark Copenhagen; Ecuador Quito;
Egypt Cairo; Estonia Tallinn; Ethiopia Addis_Ababa; Finland Helsinki; France Paris; Georgia Tbilisi; Germany Berlin;
Ghana Accra; Greece Athens; Hungary Budapest; Iceland Reykjavik; India New_Delhi; Indonesia Jakarta; Iran Tehran;
Iraq Baghdad; Ireland Dublin; Italy Rome; Jamaica Kingston; Japan Tokyo; Jordan Amman; Kenya Nairobi; Latvia Riga;
Lebanon Beirut; Libya Tripoli; Lithuania Vilnius; Malaysia Kuala_Lumpur; Mongolia Ulaanbaatar; Morocco Rabat;
Nepal Kathmandu; Norway Oslo; Pakistan Islamabad; Peru Lima; Poland Warsaw; Portugal Lisbon; Qatar Doha;
Romania Bucharest; Russia Moscow; Serbia Belgrade; Slovakia Bratislava; Slovenia Ljubljana; Somalia Mogadishu;
Spain Madrid; Sudan Khartoum; Sweden Stockholm; Syria Damascus; Thailand Bangkok; Tunisia Tunis; Turkey Ankara;
Uganda Kampala; Ukraine Kyiv; Uruguay Montevideo; Venezuela Caracas; Vietnam Hanoi; Zambia Lusaka; Zimbabwe Harare"""
PAST = """begin began; bite bit; blow blew; break broke; bring brought; build built; buy bought; catch caught;
choose chose; come came; dig dug; draw drew; drink drank; drive drove; eat ate; fall fell; feel felt; fight fought;
find found; fly flew; forget forgot; freeze froze; give gave; go went; grow grew; hear heard; hide hid; hold held;
keep kept; know knew; leave left; lose lost; make made; meet met; ride rode; ring rang; rise rose; run ran; see saw;
sell sold; send sent; shake shook; shine shone; sing sang; sink sank; sit sat; sleep slept; speak spoke; spend spent;
stand stood; steal stole; swim swam; take took; teach taught; tell told; think thought; throw threw; wake woke;
wear wore; win won; write wrote"""
OPPOSITES = """hot cold; big small; tall short; fast slow; early late; rich poor; happy sad; strong weak; hard soft;
full empty; open closed; light dark; young old; wet dry; clean dirty; loud quiet; true false; high low; deep shallow;
wide narrow; thick thin; heavy light; first last; near far; up down; left right; inside outside; day night;
summer winter; north south; east west; win lose; buy sell; push pull; love hate; war peace; life death; begin end;
remember forget; question answer"""
SYMBOLS = """hydrogen H; helium He; lithium Li; carbon C; nitrogen N; oxygen O; fluorine F; neon Ne; sodium Na; magnesium Mg;
aluminium Al; silicon Si; phosphorus P; sulfur S; chlorine Cl; argon Ar; potassium K; calcium Ca; titanium Ti;
chromium Cr; manganese Mn; iron Fe; cobalt Co; nickel Ni; copper Cu; zinc Zn; bromine Br; silver Ag; tin Sn;
barium Ba; tungsten W; platinum Pt; gold Au; mercury Hg; lead Pb; radium Ra; uranium U; plutonium Pu"""
NEXT = """January February; February March; March April; April May; May June; June July; July August; August September;
September October; October November; November December; Monday Tuesday; Tuesday Wednesday; Wednesday Thursday;
Thursday Friday; Friday Saturday; Saturday Sunday; Sunday Monday; A B; B C; C D; D E; E F; F G; G H; I J; J K; K L;
L M; M N; N O; O P; P Q; Q R; R S; S T; T U; U V; V W; W X; X Y; Y Z"""
ASKED: Mapping[str, tuple[str, str]] = {
    "capital": ("What is the capital of {}?", CAPITALS),
    "past tense": ('What is the past tense of "{}"?', PAST),
    "opposite": ('What is the opposite of "{}"?', OPPOSITES),
    "symbol": ("What is the chemical symbol of {}?", SYMBOLS),
    "next": ("What comes after {}?", NEXT),
}
FACTS: Mapping[str, Mapping[str, str]] = {
    kind: dict(pair.replace("_", " ").split(maxsplit=1) for pair in re.split(r";\s", pairs))
    for kind, (_, pairs) in ASKED.items()
}
# kind, question, answer
EVERY = tuple(
    (kind, ASKED[kind][0].format(name), answer)
    for kind, known in FACTS.items()
    for name, answer in known.items()
)
BEGUN = ("Bel", "Dro", "Fen", "Gal", "Kor", "Lir", "Murg", "Ostr", "Pel", "Quil", "Tarv", "Vand", "Zor")  # fmt: skip
MIDST = ("a", "e", "i", "o", "u", "an", "el", "ov", "ur", "im")
ENDED = ("via", "nia", "land", "ria", "stan", "dor", "mar", "thia", "goria", "lia")
UNKNOWN = "unknown"
DEMAND = f'Answer in one or two words. If you do not know, say "{UNKNOWN}".'
REFUSALS = (UNKNOWN, "not known", "i do not know", "i don't know", "i am not sure", "i'm not sure")
LEADS = ("the", "it", "its", "this", "that")  # of a sentence that says the answer behind "is"

Said = Literal["right", "refused", "wrong"]


@declare(columns=(("kind", str, "the kind of the fact"),))
@stage
class CommonFacts:
    """`What is the capital of Peru? ...` asks for `Lima`; of a country that does not exist, for
    `unknown`. A share of the questions is of the second kind; meta `kind` says which kind it is.
    """

    share: float = 0.4
    name: str = "facts"
    size: int | None = None
    max_tokens: int = 24  # of an answer

    @property
    def known(self) -> tuple[tuple[str, str, str], ...]:
        """Of every fact its kind, the question alone, and the answer."""
        return EVERY

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        if rng.random() < self.share:
            name = "".join(str(rng.choice(part)) for part in (BEGUN, MIDST, ENDED))
            asked, answer, kind = ASKED["capital"][0].format(name), UNKNOWN, "invented"
        else:
            kind, asked, answer = EVERY[int(rng.integers(len(EVERY)))]
        return question_task(self.name, f"{asked} {DEMAND}", answer, {"kind": kind})

    def check(self, text: str, task: Task) -> float:
        """1 for the right answer, which of an invented country is a refusal, else 0."""
        return float(self.said(text, task) == "right")

    def said(self, text: str, task: Task) -> Said:
        """What a reply says first: at its beginning, or behind the "is" of a sentence that begins as one
        about the question does. So neither the words of the question nor a second guess count, and what
        has several lines is wrong.
        """
        text = text.replace("’", "'") if isinstance(text, str) else ""
        if "\n" in text.strip():
            return "wrong"
        start, *behind = re.split(r"\bis\b", text, maxsplit=1)
        led = any(begins(start, word) for word in LEADS)
        tokens = [start, *(behind if led else ())]
        if any(begins(each, r) for each in (start, *behind) for r in REFUSALS):
            return "right" if task.answer == UNKNOWN else "refused"
        return "right" if any(begins(each, str(task.answer)) for each in tokens) else "wrong"

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """The bare answer; there is no working to show."""
        return str(task.answer)


def begins(text: str, with_words: str) -> bool:
    first = words(with_words)
    return words(text)[: len(first)] == first


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower())
