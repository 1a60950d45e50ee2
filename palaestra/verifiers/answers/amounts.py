"""Words beside a number: units, which leave it as it is, and words that make another number of it.

Units are an allow-list. Behind a number stands nothing, a unit, a thing of the question, or a word
that goes on with the sentence; a number beside any other word is not read, because `7 lakh` and
`7 tens` are not 7.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence

from palaestra.verifiers.answers.script import (
    follows_number,
    is_han,
    is_negative,
    leads_to_number,
)
from palaestra.verifiers.answers.withdrawal import excludes


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


SCALES: Mapping[str, int] = {
    "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
    "dozen": 12,
}  # fmt: skip
PERCENT = r"(?:percents?|per[ -]?cent|pct\.?)(?!\w)"
# words that make another number, or none, of what stands beside them
CHANGING = """
or not no never neither nor to times plus minus negative over by percent percentage pct point
points base bases squared cubed square cube squares cubes root roots power powers factorial
inverse reciprocal opposite mod modulo log logarithm ln logarithms sine cosine tangent sqrt exp
exponent dozen dozens score scores gross couple couples pair pairs lakh lakhs crore crores
million millions billion billions trillion trillions hundred hundreds thousand thousands ten
tens k m bn mn kilo mega giga milli micro half halves third thirds quarter quarters fourth
fourths fifth fifths sixth sixths seventh sevenths eighth eighths ninth ninths tenth tenths
hundredth hundredths thousandth thousandths millionth millionths zero one two three four five
six seven eight nine eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety twice thrice double triple quadruple
doubled tripled halved doubles triples less fewer least most beyond above below under exceeding
nearly almost barely within between except without isn't aren't wasn't cannot can't don't
doesn't false wrong incorrect unlike instead
"""
CHANGES = word_set(CHANGING) - {"points", "squares", "score", "scores", "square"}
# those of them that do so behind a few more words: 7 (in millions), 12 in hexadecimal
SIZES = word_set("""
percent percentage pct permil permille squared cubed factorial base hex hexadecimal octal binary
dozen dozens gross pairs lakh lakhs crore crores million millions billion billions trillion
trillions hundred hundreds thousand thousands tens half halves third thirds quarters fourths
fifths sixths sevenths eighths ninths tenths hundredths thousandths millionths
""")
# in front of a number these change it even where another of LINKS stands between: half of the 7
LINKS = word_set("of the a an than as many much its it's number value from to for exactly by")
BEFORE = (
    CHANGES - word_set("by to point one two three four five six seven eight nine ten")
) | word_set("""
square squares score scores more greater larger smaller bigger higher divided multiplied raised
hex hexadecimal octal binary multiple multiples factor factors divisor divisors divisible modulo
choose before after near beyond past until till toward towards versus vs besides
maybe perhaps possibly probably exceed exceeds
page step method question problem example chapter section figure table equation eq exercise theorem
lemma footnote
""")
# of which a number may be the amount: `a total of 7`, but not `the successor of 7`
AMOUNTS = word_set("""
total totals answer result value values amount amounts number numbers count counts length width
height depth area perimeter volume distance radius diameter circumference age score price cost
profit loss income salary wage fee tax discount change balance debt budget rate speed pace
probability chance odds percentage share temperature weight mass time duration period population
size altitude elevation force pressure voltage current energy power density concentration dose
capacity order degree rank dimension maximum minimum max min mean average median mode range sum
difference product quotient remainder ratio grand consist consists consisting out made full
""")
# names of operations and functions, which a colon makes the name of a result: `sum of 7`, `sum: 7`
OPERATIONS = word_set("""
sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh
max min maximum minimum floor ceil ceiling abs gcd lcm det lim limit mean average sum difference
product quotient absolute
""")
UNIT_WORDS = """
mm cm dm km nm m in ft yd mi ms s sec min h hr hrs kg g mg lb lbs oz l L ml khz hz pa kpa J kj W
kw V A ev N mol mph rad K kph kmh kwh bit bits byte bytes deg C F usd eur gbp inr jpy cny rs sq
cu ohm ohms volt volts watt watts amp amps ampere amperes joule joules newton newtons pascal
pascals hertz kelvin celsius fahrenheit calorie calories meter meters metre metres centimeter
centimeters centimetre centimetres millimeter millimeters millimetre millimetres kilometer
kilometers kilometre kilometres inch inches foot feet yard yards mile miles acre acres hectare
hectares gram grams gramme grammes kilogram kilograms milligram milligrams pound pounds ounce
ounces ton tons tonne tonnes liter liters litre litres milliliter milliliters millilitre gallon
gallons quart quarts pint pints cup cups tablespoon tablespoons teaspoon teaspoons barrel
barrels bushel bushels second seconds minute minutes hour hours day days week weeks month months
year years decade decades century centuries degree degrees radian radians circ dollar dollars
cent cents euro euros pence penny pennies nickel nickels dime dimes quid rupee rupees yen yuan
peso pesos franc francs shilling shillings buck bucks coin coins bill bills note notes unit
units square squares sq cubic cube cubes people person persons student students child children
boy boys girl girls man men woman women friend friends player players team teams adult adults
worker workers employee employees teacher teachers passenger passengers guest guests member
members customer customers visitor visitors kid kids apple apples orange oranges banana bananas
pear pears peach peaches lemon lemons grape grapes cherry cherries strawberry strawberries mango
mangoes tomato tomatoes potato potatoes carrot carrots egg eggs cookie cookies cake cakes
cupcake cupcakes candy candies chocolate chocolates pizza pizzas slice slices piece pieces
sandwich sandwiches donut donuts muffin muffins loaf loaves bottle bottles can cans glass
glasses jar jars book books page pages pencil pencils pen pens crayon crayons marker markers
eraser erasers notebook notebooks sticker stickers stamp stamps card cards marble marbles ball
balls balloon balloons toy toys doll dolls car cars truck trucks bus buses train trains boat
boats ship ships plane planes bike bikes bicycle bicycles wheel wheels tire tires box boxes bag
bags basket baskets bucket buckets bin bins packet packets pack packs package packages crate
crates carton cartons tray trays shelf shelves drawer drawers dog dogs cat cats bird birds fish
fishes cow cows pig pigs horse horses sheep chicken chickens duck ducks hen hens rabbit rabbits
goat goats animal animals pet pets legs leg eyes hands fingers tree trees flower flowers plant
plants seed seeds leaf leaves rose roses petal petals house houses room rooms door doors window
windows chair chairs table tables bed beds desk desks seat seats floor floors ticket tickets
game games match matches goal goals points lap laps round rounds turn turns step steps jump
jumps shirt shirts shoe shoes sock socks hat hats dress dresses button buttons bead beads
bracelet bracelets word words letter letters digit digits number numbers item items object
objects thing things way ways time solution solutions root roots side sides edge edges vertex
vertices face faces diagonal diagonals triangle triangles circle circles line lines segment
segments angle angles path paths set sets subset subsets element elements term terms factor
factors divisor divisors multiple multiples integer integers primes value values handshake
handshakes outcome outcomes combination combinations permutation permutations arrangement
arrangements tile tiles brick bricks block blocks stone stones rock rocks stick sticks rope
ropes board boards question questions problem problems test tests class classes lesson lessons
school schools vote votes call calls message messages email emails song songs movie movies photo
photos picture pictures video videos sale sales order orders trip trips visit visits
"""
UNITS = word_set(UNIT_WORDS)
GOING_ON = word_set("""
is are was were be been in on at for per each every of a an the left remaining total altogether
overall all together more because since as so which that who whom whose when where while if it
he she they we you i this these those has have had can will would should must and with from away
apart remain remains still now then there here also too again only just before after during until his her their
our my your its them him us did does do makes make gives given equals today tomorrow yesterday
tonight later ago long wide tall high deep old extra different possible distinct such hope i'm
i've final correct right respectively exactly onwards but saved spent sold bought needed used
""")
# plural in form, but a scale, a digit or a verb that makes the number something else
NO_THINGS = word_set("""
quadrillion quadrillions quintillion quintillions sextillion sextillions septillion septillions
zillion zillions googol googols myriad myriads lots loads tons times fold twos threes fours fives
sixes sevens eights nines tens teens zeros zeroes zeroth ones odds evens exceeds divides fails
differs misses lacks contradicts violates overshoots undershoots overestimates underestimates
overstates understates disagrees bps goes comes seems appears looks becomes needs ends starts begins
raised multiplied divided added subtracted choose modulus factorials integral derivative grand
double scores choices options
""")
# of a letter the units that it stands for, where the question names one
LETTER_NAMES = {
    "m": {"meter", "metre", "mètre", "metro"}, "g": {"gram", "gramme"}, "s": {"second", "seconde"},
    "h": {"hour", "heure"}, "l": {"liter", "litre"},
}  # fmt: skip
DEGREES = re.compile(r"°[cfk]?|℃|℉")
EDGE = re.compile(r"^[(\[{\"“‘'*`$]+|[)\]}\"”’'*`$,.;:!?]+$")
SIGNS = {"-": "-", "−": "-", "–": "-", "minus": "-", "negative": "-", "+": "+", "plus": "+"}
# commands that only shape what they stand before
LAYOUT = re.compile(
    r"\\(?:q?quad|(?:display|text)style|left|right|[Bb]ig+[lr]?|bf|rm|it|therefore|(?:math(?:bf|rm)|text(?:bf)?"
    r"|boldsymbol)(?![a-zA-Z{])|(?:math(?:bf|rm)|text(?:bf)?|boldsymbol)\{)(?![a-zA-Z])|\\[,;:! ()\[\]$]|~"
)
ARROW = re.compile(r"[-=]+>|[→⇒⟹➜➡]\ufe0f?|\\(?:to|Rightarrow|rightarrow|implies|Longrightarrow)")
BRACKET = re.compile(r":|[(\[{|#•—>]+|--+|\*\*+")
CLAUSE_ENDS = (",", ";", ":", ".", "!", "?", ")", "—", "–")


def singular(word: str) -> str:
    return word[:-1] if len(word) > 2 and word.endswith("s") else word


def bare(word: str) -> str:
    """A word without the marks around it, in lower case."""
    return EDGE.sub("", word.replace("’", "'")).casefold()


def words_of(text: str) -> frozenset[str]:
    """The things a question names, in the singular: what its answer may count."""
    words = re.findall(r"[^\W\d_]{3,}", text[-20_000:].casefold())
    words += [w.casefold() for w in re.findall(r"\b[A-Z]{2}\b", text[-20_000:])]  # XP
    return frozenset(singular(w) for w in words if w not in CHANGES)


def is_unit(words: Sequence[str], known: Collection[str] = ()) -> bool:
    """Whether these words, e.g. of `\\text{ square feet}`, are units or things of the question.

    Args:
        words: in lower case, at most three.
        known: what `words_of` found in the question.
    """
    joins = {"per", "of", "a", "an", "each", "the"}
    return (
        len(words) <= 3
        and not joins.issuperset(words)
        and re.search(r"\bper cents?\b", " ".join(words)) is None
        and all(
            w in UNITS or w in joins or (w not in CHANGES and singular(w) in known) for w in words
        )
    )


def amount_at(words: Sequence[str], at: int, known: Collection[str] = ()) -> str | None:
    """The number that stands at a place, with its sign, scale and percent in words.

    Args:
        words: a line.
        at: the place of the word that holds the digits.
        known: what `words_of` found in the question.

    Returns:
        e.g. `minus 7 million`; None where a word beside it makes another number of it (half of 7,
        7 squared), or is none that may stand there.
    """
    sign = sign_before(words[max(0, at - 8) : at])
    if sign is None:
        return None
    number, after = words[at], list(words[at + 1 : at + 9])
    scales: list[str] = []
    while after and not number.endswith(CLAUSE_ENDS) and bare(after[0]) in SCALES:
        scales.append(after.pop(0))
    spoken = re.match(rf"\$?\s*{PERCENT}\$?[.,;:!?]*", " ".join(after[:2]), re.IGNORECASE)
    if spoken and not number.endswith(CLAUSE_ENDS):
        scales.append("percent")
        after = " ".join(after)[spoken.end() :].split()
        if after[:1] and bare(after[0]).startswith("point"):
            return None
    last = scales[-1] if scales else number
    if not last.endswith(CLAUSE_ENDS) and not goes_on([*after], known):
        return None
    return sign + " ".join([number, *map(bare, scales)])


def sign_before(before: Sequence[str]) -> str | None:
    """The sign that the words in front of a number give it, "-" or ""; None where they make another
    number of it, or none.

    In front of a number stands a sign (behind a word or mark that leads to a result, or nothing),
    a word, a mark that only leads to it (`=`, `:`, an arrow, a bracket), or a command of LaTeX
    that only shapes it. Every other mark or command is a relation, a function or an operation.
    """
    before = [rest for word in before if (rest := LAYOUT.sub("", word))]
    last = before[-1] if before else ""
    sign = SIGNS.get(bare(last) or last)
    if sign is None and is_han(last) and is_negative(last):
        return "-" if leads_to_number(last[:-1]) else None
    if sign is not None:
        before = before[:-1]
        # `10 minus 7` is an operation left to be done
        if before and not leads_to_sign(before[-1]):
            return None
    words, linked = list(before), ""
    while words and bare(words[-1]) in LINKS and leads_to(words[-1]):
        linked = bare(words.pop())
    if linked == "of" and words and bare(words[-1]) not in AMOUNTS:
        return None
    if words and (not leads_to(words[-1]) or changes_number(words[-1])):
        return None
    if excludes(" ".join(map(bare, before))):
        return None
    return "-" if sign == "-" else "" if sign is None or sign == "+" else None


def changes_number(word: str) -> bool:
    """Whether a word in front of a number makes another of it."""
    return bare(word) in BEFORE or (bare(word) in OPERATIONS and not word.endswith((":", "=")))


def leads_to_sign(word: str) -> bool:
    """Whether a sign behind this word or mark is that of a number: `x = - 7`, `it is minus 7`."""
    return (
        word.endswith(("=", ":", "("))
        or ARROW.fullmatch(word) is not None
        or bare(word) in GOING_ON | {"answer", "to", "or"}
        or (is_han(word) and word.endswith(tuple("是为為到得有")))
    )


def leads_to(word: str) -> bool:
    """Whether a number may stand behind this word or mark and be the result."""
    text = word.rstrip("*_\"'`$“”‘’")  # emphasis and quotes around a word
    if is_han(word):
        return leads_to_number(word)
    if "\\" in word or (len(text) == 1 and text.isalpha() and text not in "aAI"):
        return False
    closes = len(text) > 1 and text[-1] in ".,;:?!)]}%"
    if not text or text[-1].isalnum() or closes or ARROW.fullmatch(text):
        return word != "*"
    if text[-1] == "=":
        return text[-2:-1] not in ("!", "<", ">", "~", "≠")
    return BRACKET.fullmatch(text) is not None or (  # an emoji, but no cross
        text[0] not in "❌✗✘❎🚫⛔"
        and text[-1] > "\u2300"
        and unicodedata.category(text[-1]) == "So"
    )


def is_plural(text: str) -> bool:
    """Whether a word looks like the name of several things: neither a scale nor a verb."""
    return (
        re.fullmatch(r"[a-z]{2,}s", text) is not None
        and not text.endswith(("ss", "us", "is"))
        and text not in CHANGES | NO_THINGS
    )


def counts_things(after: Sequence[str], text: str) -> bool:
    """Whether the words behind a number are things that it counts, though no list holds them: `8
    arms`, `8 wooden spoons`.
    """
    if is_plural(text):
        return True
    described = re.fullmatch(r"[a-z]{3,}", text) and text not in CHANGES | NO_THINGS
    if not described or after[0].endswith(CLAUSE_ENDS) or len(after) < 2:
        return False
    thing = bare(after[1])
    return is_plural(thing) or (thing in UNITS and thing not in CHANGES and len(thing) > 1)


def leads_to_verb(following: str) -> bool:
    """Whether the word behind `to` is a verb, as far as can be told: no number, no article."""
    return following.isalpha() and following not in CHANGES | {"the", "a", "an", "about", "around"}


def goes_on(after: Sequence[str], known: Collection[str]) -> bool:
    """Whether the words behind a number leave it as it is."""
    for place, word in enumerate(after):
        text, following = bare(word), bare(after[place + 1]) if place + 1 < len(after) else ""
        ends = word.endswith(CLAUSE_ENDS)
        if place == 0 and is_han(word):
            return follows_number(word)
        if not text and place == 0:  # a mark alone
            return re.search(r"\w|[-+*/^×·÷=<>!]", word) is None
        article = text in ("and", "a", "an", "&")
        if article and (following in CHANGES or following in ("a", "an")):
            return False
        denied = text in ("is", "are", "was", "were") and following in CHANGES
        sized = text in ("in", "per", "of", "as") and following in SIZES
        if denied or sized or (text == "more" and following == "than"):
            return False
        parts = [p for p in re.split(r"[/\-^·²³]|\d+", text) if p]
        # a letter alone may be a variable
        unit = bool(parts) and len("".join(parts)) > 1 and is_unit(parts, known)
        unit = unit or not LETTER_NAMES.get(text, frozenset[str]()).isdisjoint(known)
        if (
            text in CHANGES
            and not unit
            and not (place and text == "to" and leads_to_verb(following))
        ):
            return False
        unit = unit or DEGREES.fullmatch(text) is not None
        if place == 0 and not unit and text not in GOING_ON and not counts_things(after, text):
            return False
        if place and text == "to" and leads_to_verb(following):  # 36 minutes to finish
            return True
        if ends or text in GOING_ON - {"and", "a", "an", "more", "of", "the"}:
            return True
    return True
