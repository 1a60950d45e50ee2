"""QWeb: deep Q learning that fills in web forms by instructions, helped at first by a curriculum and, where
nobody writes instructions, by an instructor that does.

    Q(s, e, click) = Q_D(e) + Q_C(click | e)      Q(s, e, type f) = Q_D(e) + Q_C(type | e) + Q_T(f | e)
    y = r + gamma (1 - over) Q'(s', argmax_a Q(s', a))                            double DQN with replay
    phi(s) = right fields / fields of the instruction
    r = phi(s') - phi(s),  and at the submission +1 where phi = 1, else -1

(arXiv:1812.09195). An action clicks on an element e of the page or types the value of a field f of the
instruction into it. The network reads the page as a tree, and beside each pair of element and field the
words that they share. Running into the limit, 4 actions more than fields, is a failure. Training is guided for its
first 60%:

    curriculum=warm    with probability p_ws = 0.5 (1 - t / 0.6) an oracle fills a random part of the fields first
    curriculum=goals   the instruction is cut to at most 1 + n t / 0.6 of its n fields
    meta=true          nobody writes instructions: a random policy fills the form in by rules, and an instructor, a
                       second network of the kind (INET), writes the instruction that describes it, pair by
                       pair; it learned that first, from the names that the list of fields allows

    palaestra train qweb forms=FOLDER fields=FIELDS.jsonl tests=TESTS.jsonl

`forms` are HTML files. A line of `fields` is what an instruction may call a control, and its values:
{"page": "a.html", "control": "from", "field": ["from", "leaving from"], "values": ["Oslo", "Riga"]}; without the list
fields are called by their labels and text is made up. `tests` are held-out instructions, {"page": "a.html",
"instruction": {"leaving from": "Oslo"}}; without them as many as `exam` says are drawn, with values of text that training
never has. The run's folder has the network, which `start=FOLDER` goes on from, and actions.jsonl: what was done for
each instruction.

`miniwob=book-flight` plays a task of MiniWoB++ in a browser. There phi is not known and no oracle is there, so
neither dense rewards nor the curriculum act.

Deviations: weights of the heads, sizes, and how long guidance lasts are ours; the published network reads the
elements one after the other with an LSTM, ours in two rounds from parents and siblings.
"""

import palaestra as pl
from palaestra.recipes.agents.qweb.program import Curriculum, FormNavigation

CARD = pl.Card(
    title="Learning to Navigate the Web (QWeb, curriculum, meta-trainer)",
    paper="arXiv:1812.09195",
    claim="A deep Q network learns to fill in forms with very many possible instructions, without demonstrations, where "
    "it is guided by smaller instructions, warm starts, dense rewards, or instructions that a second network writes.",
    source="the abstract, and the catalogue's account of the formulas; sizes, exploration and the range of rewards "
    "are ours",
    size=pl.Size(
        setting="MiniWoB in a browser; forms with up to 100 elements and 14 million instructions"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "forms as HTML, and a list of their fields",
                flag="forms=FOLDER fields=FILE.jsonl",
                otherwise="a form of a travel agency is filled in",
            ),
        ),
        shows="solved_with_help",
        off={"curriculum": "none"},
        own={"steps": 2, "warm": 1.0, "learner.updates": 1, "exam": 2},
    ),
    use="It helps where a form pays at its submission alone and has too many fields to be filled in by chance; a form "
    "of two or three fields is learned without guidance.",
    lacks=(
        "Scripts of a page do not run and styles are not read, so dates are typed as text; nothing is uploaded.",
        "The agent reads an instruction as pairs of a name and a value; sentences are not parsed into pairs.",
        "The instructor learns from the names that the list of fields allows, not from instructions of people.",
        "MiniWoB++ is an extra; its published results were not repeated, and no task of it was trained on.",
        "Forms of 100 elements were not tried. A trial on the built-in one of twelve fields, 50 elements, solved none "
        "of 50 held-out instructions after 6,165 actions; that of six fields is learned in about as many.",
        "A run that is killed while it learns begins that part anew; what is kept is the whole of a part.",
        "The policy is no language model, and no arm with one is compared.",
    ),
    grade="B",
)

LEARNER = pl.control.DoubleQ(
    lr=2e-3,
    gamma=0.95,
    games=16,
    updates=16,
    batch=64,
    keep=10_000,
    explore_steps=0.3,
    follow=0.02,
    width=32,
)


def build(
    forms: str = "",
    fields: str = "",
    tests: str = "",
    miniwob: str = "",
    curriculum: Curriculum = "both",
    meta: bool = False,
    dense: bool = True,
    warm: float = 0.5,
    size: int = 6,
    steps: int = 6_000,
    naming: int = 3_000,
    exam: int = 100,
    start: str = "",
) -> FormNavigation:
    """`forms` is an HTML file or folder, `fields` its list of fields, `tests` held-out instructions; `size` 6 or 12 are the
    fields of the built-in form. `steps` are actions of the agent, `naming` those of the instructor.
    """
    if (fields or tests) and not forms:
        raise pl.UserError(
            "fields and tests are about forms of yours; give these too, forms=FOLDER"
        )
    if miniwob and (forms or meta or start):
        raise pl.UserError("miniwob plays a task in a browser; leave out forms, meta and start")
    if not 0 <= warm <= 1 or min(steps, naming, exam) < 1:
        raise pl.UserError("warm is a probability, 0 to 1; steps, naming and exam are 1 or more")
    return FormNavigation(
        forms=forms,
        fields=fields,
        tests=tests,
        miniwob=miniwob,
        curriculum=curriculum,
        meta=meta,
        dense=dense,
        warm=warm,
        size=size,
        steps=steps,
        naming=naming,
        exam=exam,
        start=start,
        learner=LEARNER,
    )
