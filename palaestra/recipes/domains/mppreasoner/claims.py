"""What a chain of thought claims of a molecule, and which claims RDKit confirms."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import palaestra as pl

Holds = Callable[[str], bool]  # of the SMILES of a molecule
SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
BREAK = re.compile(r"[,:;]|\b(?:but|although|while|whereas|and yet)\b")
NEGATIONS = frozenset(["not", "no", "non", "lack", "lacks", "lacking", "without", "absence", "neither", "nor",
                       "never", "cannot", "free", "hardly"])  # fmt: skip
REACH = 4  # words before a phrase in which a negation counts


@dataclass(frozen=True, slots=True)
class Band:
    """What a phrase says of a molecule. `words` are regular expressions."""

    name: str
    words: tuple[str, ...]
    holds: Holds


@dataclass(frozen=True, slots=True)
class MoleculeClaim:
    """One claim of a text. `negated`: the text says that the band does not hold."""

    about: str
    band: str
    negated: bool
    true: bool


def value(smiles: str, name: str) -> float:
    """A descriptor of a molecule. Raises UserError where RDKit reads no molecule."""
    descriptor = pl.tasks.descriptor_value(smiles, name)
    if descriptor is None:
        raise pl.UserError(f"RDKit reads no molecule in {smiles[:60]!r}")
    return descriptor


def over(name: str, least: float) -> Holds:
    return lambda smiles: value(smiles, name) > least


def under(name: str, most: float) -> Holds:
    return lambda smiles: value(smiles, name) < most


def within(name: str, low: float, high: float) -> Holds:
    return lambda smiles: low <= value(smiles, name) <= high


def has(*names: str) -> Holds:
    """Whether one of RDKit's fragment counters finds something."""
    return lambda smiles: any(value(smiles, name) > 0 for name in names)


def is_like(pattern: str) -> Holds:
    """Whether a SMARTS pattern is found."""
    return lambda smiles: _matches(smiles, pattern)


@lru_cache(maxsize=65536)
def _matches(smiles: str, pattern: str) -> bool:
    from rdkit import Chem

    make: Any = Chem.MolFromSmarts
    molecule = pl.tasks.read_molecule(smiles)
    return molecule is not None and molecule.HasSubstructMatch(make(pattern))


def lipinski_violations(smiles: str) -> int:
    """How many of Lipinski's four limits a molecule exceeds: weight 500, logP 5, 5 donors, 10 acceptors."""
    limits = {"MolWt": 500, "MolLogP": 5, "NumHDonors": 5, "NumHAcceptors": 10}
    return sum(value(smiles, name) > most for name, most in limits.items())


def is_branched(smiles: str) -> bool:
    """Whether a carbon outside rings has three heavy neighbours or more."""
    atoms = pl.tasks.read_molecule(smiles).GetAtoms()
    return any(a.GetSymbol() == "C" and a.GetDegree() > 2 and not a.IsInRing() for a in atoms)


def is_linear(smiles: str) -> bool:
    """Whether no carbon branches and there is no ring."""
    return not is_branched(smiles) and not value(smiles, "RingCount")


def is_chiral(smiles: str) -> bool:
    from rdkit import Chem

    find: Any = Chem.FindMolChiralCenters
    return bool(find(pl.tasks.read_molecule(smiles), includeUnassigned=True))


def ring_of(size: int) -> Holds:
    return lambda smiles: size in map(len, pl.tasks.read_molecule(smiles).GetRingInfo().AtomRings())


# the limits of MPPReasoner's released reward, and phrases for the middle, of which it asks nothing
PRINCIPLES: Mapping[str, tuple[Band, ...]] = {
    "lipinski": (
        Band("violates", (r"violat\w*", r"exceeds?", r"fails?", r"breaks?"),
             lambda s: lipinski_violations(s) >= 2),
        Band("complies", (r"compl(?:y|ies)", r"satisf(?:y|ies)", r"meets?", r"pass(?:es)?", r"obeys?",
                          r"within"), lambda s: lipinski_violations(s) < 2),
    ),
    "logp": (
        Band("high", (r"lipophilic", r"hydrophobic", r"high(?:er)? log ?p", r"log ?p is high",
                      r"lipid[- ]soluble"),
             over("MolLogP", 3)),
        Band("low", (r"hydrophilic", r"low(?:er)? log ?p", r"log ?p is low", r"water[- ]soluble"), under("MolLogP", 1)),
        Band("middle", (r"(?:moderate|balanced|medium) log ?p", r"(?:moderate|balanced) lipophilicity"),
             within("MolLogP", 1, 3)),
    ),
    "hydrogen bonds": (
        Band("donor", (r"donors?",), over("NumHDonors", 0)),
        Band("acceptor", (r"acceptors?",), over("NumHAcceptors", 0)),
        Band("bonds", (r"hydrogen[- ]bond(?:s|ing)?(?! (?:donor|acceptor))",
                       r"h[- ]bond(?:s|ing)?(?! (?:donor|acceptor))"),
             lambda s: value(s, "NumHDonors") + value(s, "NumHAcceptors") > 0),
    ),
    "weight": (
        Band("large", (r"large(?! polar)", r"heavy(?! atom)", r"high molecular weight"), over("MolWt", 500)),
        Band("small", (r"small(?! polar)", r"lightweight", r"low molecular weight"), under("MolWt", 200)),
        Band("middle", (r"(?:moderate|medium) (?:molecular )?(?:weight|size)",), within("MolWt", 200, 500)),
    ),
    "aromaticity": (Band("aromatic", (r"aromatic", r"pi-pi", r"\u03c0-\u03c0"), over("NumAromaticRings", 0)),),
    "polarity": (
        Band("high", (r"(?:highly|very|strongly) polar", r"high polarity", r"large polar surface"),
             over("TPSA", 140)),
        Band("low", (r"nonpolar", r"non-polar", r"apolar", r"low polarity", r"small polar surface"),
             under("TPSA", 60)),
        Band("middle", (r"(?:moderate|medium) polarity", r"moderately polar"), within("TPSA", 60, 140)),
    ),
    "steric": (Band("crowded", (r"steric(?:ally)? (?:hindrance|hindered|clash|bulk)", r"crowded", r"bulky"),
                    over("HeavyAtomCount", 30)),),
    "flexibility": (
        Band("high", (r"(?<!in)flexible", r"many rotatable"), over("NumRotatableBonds", 5)),
        Band("none", (r"rigid", r"inflexible", r"no rotatable"), under("NumRotatableBonds", 1)),
        Band("middle", (r"(?:moderate flexibility|moderately flexible|some rotatable)",),
             within("NumRotatableBonds", 1, 5)),
    ),
}  # fmt: skip
LIPINSKI = re.compile(r"\blipinski|\brule of five|\bro5\b", re.IGNORECASE)

GROUPS: Mapping[str, tuple[str, Holds]] = {
    "hydroxyl": (r"hydroxyls?|hydroxy|alcohols?|phenols?", has("fr_Al_OH", "fr_Ar_OH")),
    "carboxyl": (r"carboxyls?|carboxylic acids?|carboxylates?", has("fr_COO", "fr_COO2")),
    "amino": (r"amino|amines?", has("fr_NH2", "fr_NH1", "fr_NH0")),
    "nitro": (r"nitro", has("fr_nitro")),
    "ester": (r"esters?", has("fr_ester")),
    "amide": (r"amides?|peptide bonds?", has("fr_amide")),
    "ether": (r"ethers?|alkoxy|methoxy", has("fr_ether")),
    "ketone": (r"ketones?|keto", has("fr_ketone", "fr_ketone_Topliss")),
    "carbonyl": (r"carbonyls?", has("fr_C_O")),
    "aldehyde": (r"aldehydes?", has("fr_aldehyde")),
    "cyano": (r"cyano|nitriles?", has("fr_nitrile")),
    "benzene": (r"benzenes?|phenyls?", has("fr_benzene")),
    "aromatic ring": (r"aromatic rings?", over("NumAromaticRings", 0)),
    "pyridine": (r"pyridines?|pyridinyl|pyridyl", has("fr_pyridine")),
    "indole": (r"indoles?|indolyl", is_like("c1ccc2[#7]ccc2c1")),
    "quinoline": (r"quinolines?|quinolinyl", is_like("c1ccc2ncccc2c1")),
    "naphthalene": (r"naphthalenes?|naphthyl", is_like("c1ccc2ccccc2c1")),
    "cyclohexane": (r"cyclohexanes?|cyclohexyl", is_like("C1CCCCC1")),
    "cyclopentane": (r"cyclopentanes?|cyclopentyl", is_like("C1CCCC1")),
    "six-membered ring": (r"(?:six|6)-membered rings?", ring_of(6)),
    "five-membered ring": (r"(?:five|5)-membered rings?", ring_of(5)),
    "heterocycle": (r"heterocycles?|heterocyclic", is_like("[!#6;r]")),
    "fluorine": (r"fluorine|fluoro|fluorinated", is_like("F")),
    "chlorine": (r"chlorine|chloro|chlorinated", is_like("Cl")),
    "bromine": (r"bromine|bromo|brominated", is_like("Br")),
    "chiral": (r"chiral|stereocent(?:er|re)s?|stereogenic", is_chiral),
    "branched": (r"branched|tert-butyl|isopropyl", is_branched),
    "linear": (r"linear|straight chain|unbranched", is_linear),
}


@lru_cache(maxsize=512)
def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{words})\b", re.IGNORECASE)


def is_negated(sentence: str, at: int) -> bool:
    """Whether one of the few words before a place of a sentence denies what stands there. A comma, a colon
    and "but" end the reach of a negation.
    """
    *_, near = BREAK.split(sentence[:at])
    words = [w.strip("-\"'`(*").casefold() for w in near.replace("\u2019", "'").split()[-REACH:]]
    return sum(w in NEGATIONS or w.endswith("n't") for w in words) % 2 == 1


def tokens(text: str) -> set[str]:
    """The words of a text without the quotes and marks around them: where a SMILES can stand."""
    words = set[str]()
    for word in text.split():
        bare = word.strip("\"'`*,;:!?").rstrip(".")
        words.add(bare)
        if bare.startswith("(") and bare.endswith(")"):
            words.add(bare[1:-1])
    return words


def sentences_about(text: str, others: Iterable[str]) -> list[str]:
    """The sentences of a text, without those that name another molecule by its SMILES."""
    named = set(others)
    return [s for s in SENTENCE.split(text) if s.strip() and not named & tokens(s)]


def _phrases(sentence: str, words: str) -> set[bool]:
    """Whether each occurrence of a phrase is negated."""
    return {is_negated(sentence, m.start()) for m in _pattern(words).finditer(sentence)}


def principle_claims(text: str, smiles: str, others: Sequence[str] = ()) -> list[MoleculeClaim]:
    """What a text says of a molecule by principles of chemistry, each claim once. `others`: SMILES of the
    molecules that it is compared with, of which sentences that name one are left out.
    """
    claims = dict[tuple[str, str, bool], None]()
    for sentence in sentences_about(text, others):
        for about, bands in PRINCIPLES.items():
            if about == "lipinski" and not LIPINSKI.search(sentence):
                continue
            for band in bands:
                for negated in _phrases(sentence, "|".join(band.words)):
                    claims[about, band.name, negated] = None
    holds = {(about, b.name): b.holds for about, bands in PRINCIPLES.items() for b in bands}
    return [MoleculeClaim(a, b, n, holds[a, b](smiles) != n) for a, b, n in claims]


def structure_claims(text: str, smiles: str, others: Sequence[str] = ()) -> list[MoleculeClaim]:
    """The functional groups, rings and atoms that a text says are there, or are not. See `principle_claims`."""
    claims = dict[tuple[str, bool], None]()
    for sentence in sentences_about(text, others):
        for about, (words, _) in GROUPS.items():
            for negated in _phrases(sentence, words):
                claims[about, negated] = None
    return [MoleculeClaim(a, "there", n, GROUPS[a][1](smiles) != n) for a, n in claims]


def is_sound(
    claims: Sequence[MoleculeClaim], *, positive: bool = False, every: bool = False
) -> bool:
    """Whether more subjects of a text's claims are described rightly than wrongly, or, with `every`, some are and
    none wrongly. A subject of which one claim is wrong is described wrongly, so saying both of two opposites earns
    nothing. `positive`: only claims that something is there make a text sound; a wrong denial counts against it.
    """
    right = dict[str, bool]()
    for c in claims:
        right[c.about] = right.get(c.about, True) and c.true
    claimed = {c.about for c in claims if not c.negated} if positive else set(right)
    wins, losses = (
        sum(r and a in claimed for a, r in right.items()),
        sum(not r for r in right.values()),
    )
    return wins > 0 == losses if every else wins > losses
