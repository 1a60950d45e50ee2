"""The checks of the released reward as they are: by substrings, whatever is said of them.

From Jesse-zjx/MPPReasoner, rl/rlpgr.py at feabfac ("correctness gating"), which cannot be imported (RDKit has
no `GetElementCounts`) and would stop at the word "indole" (RDKit counts none). What a reader of the rules does
not expect, and the other checks of this package do not do:

- keywords are substrings: "cn", "f", "-o-" and "ether" stand in most texts, "polar" in "nonpolar";
- what is denied counts as said, and so do opposites in one text;
- a molecule in the middle of a range passes at the mention of "size", "polar" or "lipophilic";
- neighbours are looked for in lower case, in which benzene and cyclohexane are the same text;
- the first <think> and the first <answer> count, wherever they stand.
"""

import re

import palaestra as pl
from palaestra.recipes.domains.mppreasoner import claims

WEIGHING = ("weighing", "balancing", "overall", "dominant", "outweighs", "on balance", "considering",
            "based on the above", "therefore", "in conclusion", "ultimately", "the net effect is",
            "consequently", "taking all into account")  # fmt: skip
CONFIRMING = {
    True: ("affirmative", "prevails", "stronger case", "supports the property", "likely true",
           "is predicted to be true", "judged as true", "consequently is", "therefore has"),
    False: ("negative", "counter-argument", "more compelling", "lacks the property", "likely false",
            "is predicted to be false", "judged as false", "consequently is not", "therefore lacks"),
}  # fmt: skip
# keywords; what must be said above the higher limit, below the lower one; the descriptor and both limits
RANGES = {
    "logp": ("logp,log p,lipophil,hydrophob,partition coefficient", "hydrophobic,lipophilic,high logp,lipid soluble",
             "hydrophilic,polar,water soluble,low logp", "MolLogP", 1.0, 3.0),
    "weight": ("molecular weight,mw,heavy,bulky,size,steric bulk", "large,heavy,high molecular weight,bulky",
               "small,light,low molecular weight", "MolWt", 200.0, 500.0),
    "polarity": ("polar,dipole,electronegativity", "polar,high polarity,hydrophilic",
                 "nonpolar,low polarity,hydrophobic", "TPSA", 60.0, 140.0),
    "steric": ("steric,hindrance,crowded,bulky group", "steric,hindrance,crowded,bulky", "", "HeavyAtomCount",
               -1.0, 30.0),
    "flexibility": ("flexib,rotatable,conformational", "flexible,flexibility,rotatable,conformational freedom",
                    "rigid,inflexible,constrained", "NumRotatableBonds", 1.0, 5.0),
}  # fmt: skip
LIPINSKI = "lipinski,rule of five,ro5,drug-like,drug likeness"
VIOLATES = "violate,violation,exceed,above,beyond,not comply,fail"
COMPLIES = "comply,satisfy,within,pass,meet,acceptable"
BONDS = "hydrogen bond,h-bond,donor,acceptor"
AROMATIC = "aromatic,benzene,phenyl,pi-pi,\u03c0-\u03c0"
GROUPS = {
    "hydroxyl": "hydroxy,oh group,-oh,alcohol", "carboxyl": "carboxyl,cooh", "amino": "amino,amine,nh2",
    "nitro": "nitro,no2", "ester": "ester,coo", "amide": "amide,conh,peptide bond", "ether": "ether,-o-,alkoxy",
    "ketone": "ketone,carbonyl,c=o,keto", "aldehyde": "aldehyde,cho", "cyano": "cyano,nitrile,cn",
    "benzene": "benzene,phenyl,aromatic ring", "pyridine": "pyridin", "indole": "indol,tryptophan",
    "quinoline": "quinolin", "naphthalene": "naphthalene,naphthyl",
    "cyclohexane": "cyclohex,six-membered ring,6-membered ring",
    "cyclopentane": "cyclopent,five-membered ring,5-membered ring",
    "heterocycle": "heterocycl,heteroatom ring", "fluorine": "f", "chlorine": "cl,chlor", "bromine": "br",
    "chiral": "chiral,stereocenter,asymmetric,stereogenic",
    "branched": "branched,tert-butyl,isopropyl,tertiary,quaternary",
    "linear": "linear,straight chain,unbranched,n-alkyl",
}  # fmt: skip


def says(text: str, words: str) -> bool:
    return any(w in text for w in words.split(",")) if words else False


def thought_and_answer(text: str) -> tuple[str | None, bool | None]:
    """The first thought, and the first answer where it is True or False."""
    thought = re.search(r"<think>(.*?)</think>", text, re.DOTALL | re.IGNORECASE)
    answer = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL | re.IGNORECASE)
    word = answer[1].strip().lower() if answer else ""
    return (thought[1].strip() if thought else None), {"true": True, "false": False}.get(word)


def is_consistent(thought: str, answer: bool) -> bool:
    low = thought.lower()
    return any(w in low for w in WEIGHING) and any(w in low for w in CONFIRMING[answer])


def quotes(thought: str, neighbours: tuple[str, ...]) -> bool:
    return any(s.lower() in thought.lower() for s in neighbours)


def names_principle(thought: str, smiles: str) -> bool:
    """Whether one of the principles that are mentioned passes its test."""
    low, of = thought.lower(), claims.value
    broken = claims.lipinski_violations(smiles) >= 2
    if says(low, LIPINSKI) and says(low, VIOLATES if broken else COMPLIES):
        return True
    bonds = of(smiles, "NumHDonors") + of(smiles, "NumHAcceptors") > 0
    if says(low, BONDS + ",hbd,hba,polar interaction") and says(low, BONDS) == bonds:
        return True
    ring = of(smiles, "NumAromaticRings") > 0
    if says(low, AROMATIC + ",conjugated") and says(low, AROMATIC) == ring:
        return True
    for words, above, below, name, lowest, highest in RANGES.values():
        x = of(smiles, name)
        wanted = above if x > highest else below if x < lowest else None
        if says(low, words) and (wanted is None or says(low, wanted)):
            return True
    return False


def is_mostly_linear(smiles: str) -> bool:
    """Whether more than 0.7 of the carbons have two heavy neighbours at most, as most of neopentane's do."""
    atoms = pl.tasks.read_molecule(smiles).GetAtoms()
    carbons = [a.GetDegree() <= 2 for a in atoms if a.GetSymbol() == "C"]
    return bool(carbons) and sum(carbons) / len(carbons) > 0.7


def names_structure(thought: str, smiles: str) -> bool:
    low = thought.lower()
    tests = {name: holds for name, (_, holds) in claims.GROUPS.items()} | {
        "linear": is_mostly_linear
    }
    return any(says(low, words) and tests[name](smiles) for name, words in GROUPS.items())
