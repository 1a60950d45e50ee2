"""Common English words: each is a token or a few, and the model has copied all of them. So a prompt
of a user's own is not spelled letter by letter.
"""

NOUNS = """
apple bag ball bank bell bird boat book bottle bowl box bread bridge brush bus butter button cake
camera candle car card cat chair cheese clock cloud coat coffee corn cup desk dog door dress drum
egg engine eye farm fish floor flower fork forest fruit garden gate glass glove gold grass hammer
hand hat hill home horse house island jacket kettle key kitchen knife ladder lake lamp leaf letter
lock map market milk mirror money moon mountain nail needle number ocean office onion orange oven
page paint paper park pen pencil picture pillow plane plant plate pocket pot potato radio rain ring
river road rock roof room rope rose salt sand school shelf ship shirt shoe shop silver snow soap
sock spoon star stone street sugar sun table tea ticket toy train tree umbrella village wall watch
water wheel window winter wood wool yard
"""
MORE = """
able above after against all almost along already also always among another answer because been
before began behind being below best better between big black blue both bring brown build but buy
came cannot change cheap clean clear close cold color could count country cut dark day days deep did
different does each early easy eight either else empty enough even every everything example fact
false family far fast few fifty fill final find first five four free friend full gave give given
good great green group grow had half happy hard has have her high him his hour however hundred idea
into just keep kind know known large last late learn least less let light little long look lost low
made main making man maximum mean might minimum minute missing month more morning most move much
must name near need never next night nine noon nothing number often old once only open order other
our over own part past pay people person place plan please point price problem question quick quiet
read ready real reason red rest said same say second see seems seven several she short should show
side simple since six size slow small some something soon still stop story such sure take talk task
ten test than thank them then these they thing third thirty this those though thousand three through
today together told tomorrow too total toward travel true twelve twenty two type under until upon
user using very want week well went were when whether white who whole why will word work world would
year yellow yes yesterday yet young your zero
"""
THINGS = tuple(NOUNS.split())
WORDS = (*THINGS, *MORE.split())
