"""QWeb: the document model of forms, the factors of Q, dense rewards, curriculum, instructor, and user's files."""

import asyncio
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.recipes.agents.qweb import build
from palaestra.recipes.agents.qweb.games import FormFilling, FormNaming, PageArrays, tree_links, write_goal
from palaestra.recipes.agents.qweb.goals import (
    FieldList,
    FormGoal,
    cut_goal,
    dense_reward,
    draw_goal,
    fill_at_random,
    potential,
    read_goals,
    simulated_size,
    value_for,
    warm_probability,
    warm_start,
)
from palaestra.recipes.agents.qweb.learner import (
    PageLearner,
    PageStep,
    flat_index,
    greedy_action,
    play_pages,
    random_action,
)
from palaestra.recipes.agents.qweb.miniwob import BrowserPage, BrowserProblem, open_browsers
from palaestra.recipes.agents.qweb.network import join_factors, overlap, shallow_encoding, stack_views, words_of
from palaestra.recipes.agents.qweb.page import read_page, read_pages
from palaestra.recipes.agents.qweb.toy import travel_fields, travel_page

HTML = """<form><label for=a>Where from</label> <input id=a name=origin>
Seat <select name=seat><option value=x>any<option value=w>window</select>
<fieldset><legend>Class</legend><input type=radio name=c id=c1><label for=c1>First</label>
<label><input type=radio name=c checked> Second</label></fieldset>
<label><input type=checkbox name=meal> A meal</label> <input type=hidden name=token value=7>
<input name=fixed readonly value=1> <input disabled name=off> <div style="display: none"><input name=trap></div>
<button type=reset>Clear</button><button>Send</button></form><script>x = "<input name=no>"</script>"""
PAGE = read_page("a.html", HTML)
RNG = lambda: np.random.default_rng(0)


def at(tag, text="", kind=None, page=PAGE):
    return next(
        i for i, e in enumerate(page.elements)
        if e.tag == tag and text in e.text and (kind is None or e.kind == kind)
    )  # fmt: skip


def test_a_page_is_read_as_its_controls():
    assert [(c.name, c.kind, c.initial) for c in PAGE.controls] == [
        ("origin", "text", ""), ("seat", "choice", "any"), ("c", "choice", "Second"), ("meal", "check", "no"),
    ]  # fmt: skip
    assert PAGE.controls[1].options == ("any", "window") and PAGE.controls[2].options == ("First", "Second")
    assert [PAGE.control_named(x) for x in ("Where from", "SEAT", "class", "A meal", "trap")] == [0, 1, 2, 3, None]
    assert words_of("departureCity_2") == ("departure", "city", "2")


def test_clicks_and_text_act_as_in_a_browser():
    start, send = PAGE.initial, at("button", "Send")
    assert PAGE.act(start, at("input", kind="text"), "Oslo") == (("Oslo", "any", "Second", "no"), False)
    assert PAGE.act(start, at("option", "window"), None)[0][1] == "window"
    assert PAGE.act(start, at("label", "First"), None)[0][2] == "First"  # a label stands for its button
    assert PAGE.act(start, at("label", "meal"), None)[0][3] == "yes"
    assert PAGE.act(("Oslo", "window", "First", "yes"), at("button", "Clear"), None) == (start, False)
    assert PAGE.act(start, send, None) == (start, True)
    for element in range(len(PAGE.elements)):
        if PAGE.elements[element].kind != "text":
            assert PAGE.act(start, element, "Oslo") == (start, False)  # text into a button or outside
    assert PAGE.act(start, at("fieldset"), None) == (start, False)


def test_dense_rewards_of_the_potential():
    """Right counts 0, 1, 1, 2, 1 of four; shaped with gamma 0.99 from 1 to 2; a run sums to its ends."""
    wanted = {0: "a", 1: "b", 2: "c", 3: "d"}
    states = [("", "", "", ""), ("a", "", "", ""), ("a", "x", "", ""), ("a", "b", "", ""), ("a", "x", "", "")]
    phi = [potential(s, wanted) for s in states]
    assert [dense_reward(x, y) for x, y in pairwise(phi)] == [0.25, 0, 0.25, -0.25]
    assert dense_reward(0.25, 0.5, 0.99) == pytest.approx(0.245)
    assert potential((), {}) == 1.0


def test_curriculum():
    assert [warm_probability(0.5, t, 0.6) for t in (0, 0.3, 0.6, 1)] == pytest.approx([0.5, 0.25, 0, 0])
    assert [simulated_size(6, t, 0.6) for t in (0, 0.099, 0.101, 0.3, 0.59, 0.6, 1)] == [1, 1, 2, 4, 6, 6, 6]
    assert warm_probability(1.0, 0, 0) == 0 and simulated_size(6, 0, 0) == 6
    goal = FormGoal(
        form=0, pairs=(("x", "Oslo"), ("seat", "window"), ("m", "yes")), wanted={0: "Oslo", 1: "window", 3: "yes"}
    )
    cut = cut_goal(goal, 2, RNG())
    assert len(cut.pairs) == 2 and [v for _, v in cut.pairs] == list(cut.wanted.values())
    filled = {warm_start(PAGE, goal.wanted, np.random.default_rng(s)) for s in range(40)}
    assert {n for _, n in filled} == {1, 2, 3}
    assert all(potential(values, goal.wanted) == n / 3 for values, n in filled)
    assert warm_start(PAGE, {1: "any"}, RNG()) == (PAGE.initial, 0)  # nothing is to be done


def test_q_is_the_sum_of_its_factors():
    """Two elements, one field: Q_D 1 and 2, Q_C(click), Q_C(type) = (.1, .2), (.3, .4), Q_T .05 and .06."""
    q = join_factors(
        torch.tensor([[1.0, 2.0]]), torch.tensor([[[0.1, 0.2], [0.3, 0.4]]]), torch.tensor([[[0.05], [0.06]]])
    )
    assert q[0].numpy() == pytest.approx(np.array([[1.1, 1.25], [2.3, 2.46]]))
    legal = np.ones((2, 2), bool)
    assert greedy_action(q[0].numpy(), legal) == (1, 0) and flat_index((1, 0), 1) == 3
    legal[1, 1] = False
    assert greedy_action(q[0].numpy(), legal) == (1, None) and flat_index((1, None), 1) == 2
    assert random_action(np.array([[False, False], [False, True]]), RNG()) == (1, 0)


def test_shallow_encoding():
    assert overlap(("date", "of", "departure"), ("departure", "city")) == pytest.approx(1 / 3)
    assert overlap((), ("a",)) == 0
    given = shallow_encoding([("first", "class"), ("send",)], [("class of seat", "First"), ("name", "Ada")])
    assert given.tolist() == [[[pytest.approx(1 / 3), 1], [0, 0]], [[0, 0], [0, 0]]]
    assert tree_links([-1, 0, 0, 1, 0]).tolist() == [[-1, -1, -1], [0, -1, 2], [0, 1, 4], [1, -1, -1], [0, 2, -1]]


class Fixed(torch.nn.Module):
    def __init__(self, q):
        super().__init__()
        self.q = torch.nn.Parameter(torch.tensor(q))

    def forward(self, columns):
        return self.q[None].expand(len(columns["kind"]), -1, -1)


def test_double_q_target_on_a_page():
    """y = .25 + .9 Q'(argmax Q): Q prefers the text in element 1 (3), which Q' says is worth .5, not 7; |1 - .7| has
    Huber's loss .045. At the end y = r: (1 + 1)^2 / 2 becomes 1.5.
    """
    page = read_page("b.html", "<form><input name=a><button>Send</button></form>")
    game = FormFilling(PageArrays(page), FormGoal(form=0, pairs=(("a", "x"),), wanted={0: "x"}), page.initial)
    view = game.view(game.start())
    elements = len(page.elements)
    learner = PageLearner(pl.control.DoubleQ(gamma=0.9), ("t",))
    q, following = np.zeros((elements, 2), np.float32), np.full((elements, 2), 7, np.float32)
    q[1, 1], q[0, 0], following[1, 1] = 3, 1, 0.5
    learner.net, learner.following = Fixed(q), Fixed(following)
    loss = lambda reward, over: float(learner.loss([PageStep(view, (0, None), reward, view, over)]).detach())
    assert loss(0.25, False) == pytest.approx(0.5 * (1 - (0.25 + 0.9 * 0.5)) ** 2, abs=1e-6)
    assert loss(-1.0, True) == pytest.approx(1.5)
    with pytest.raises(UserError, match="cql"):
        PageLearner(pl.control.DoubleQ(cql=1.0), ("t",))


def test_padding_changes_no_value_and_the_tree_is_read():
    """A page alone and beside a larger one; a legend's word changes what its radio buttons are worth."""
    small, large = PAGE, travel_page(12)
    views = []
    for page in (small, large):
        pairs = tuple((c.name, "x") for c in page.controls)
        game = FormFilling(PageArrays(page), FormGoal(form=0, pairs=pairs, wanted={0: "x"}), page.initial)
        views.append(game.view(game.start()))
    net = PageLearner(pl.control.DoubleQ(width=16), ("n",)).net
    with torch.no_grad():
        alone, both = net(stack_views(views[:1]))[0], net(stack_views(views))[0]
        assert torch.allclose(alone, both[: alone.shape[0], : alone.shape[1]], atol=1e-5)
        legend, words = at("fieldset"), views[0].words.copy()
        words[legend, 0] = 99
        other = net(stack_views([replace(views[0], words=words)]))[0]
    inside = at("label", "First")
    assert not torch.allclose(other[inside], alone[inside], atol=1e-6)


def filling(pairs, wanted, page=PAGE, **more):
    return FormFilling(PageArrays(page), FormGoal(form=0, pairs=pairs, wanted=wanted), page.initial, **more)


def test_an_episode_pays_at_its_submission():
    game = filling((("from", "Oslo"), ("meal", "yes")), {0: "Oslo", 3: "yes"})
    send, state = at("button", "Send"), game.start()
    assert game.step(state, (send, None))[1:] == (-1.0, True)
    state, paid, over = game.step(state, (at("input", kind="text"), 0))
    assert game.step(state, (send, None))[1:] == (-1.0, True)  # half of it is right
    assert (paid, over) == (0.5, False) and game.view(state).holds[at("input", kind="text")].tolist() == [1, 0]
    state, paid, _ = game.step(state, (at("label", "meal"), None))
    assert paid == 0.5
    view = game.view(state)
    assert view.marks[at("label", "meal"), 1] and view.holds[at("label", "meal")].tolist() == [0, 1]
    state, paid, over = game.step(state, (send, None))
    assert (paid, over) == (1.0, True) and game.solved(state)
    assert replace(game, dense=False).step(game.start(), (at("input", kind="text"), 0))[1] == 0
    assert game.describe(state, (send, None)) == "click button Send"


class Never(torch.nn.Module):
    """Clicks on the first element, for ever."""

    def forward(self, columns):
        q = torch.zeros(columns["legal"].shape)
        q[:, 0, 0] = 1
        return q


def test_the_limit_is_a_failure():
    (played,) = play_pages(Never(), [filling((("from", "Oslo"),), {0: "Oslo"})], 0.0, RNG())
    assert len(played.steps) == 5 and [s.reward for s in played.steps] == [0, 0, 0, 0, -1]
    assert played.steps[-1].over and not played.solved


def toy(size=6):
    page = travel_page(size)
    return FieldList([page], RNG()).forms([("toy", row) for row in travel_fields(page)])


def test_the_oracle_earns_the_full_reward():
    (form,) = toy(12)
    for seed in range(10):
        goal = draw_goal([form], np.random.default_rng(seed))
        game = FormFilling(PageArrays(form.page), goal, form.page.initial)
        state, total = game.start(), 0.0
        steps = [*form.page.oracle(state[0], goal.wanted), (at("button", "Book", page=form.page), None)]
        first = game.progress(state)
        for element, text in steps:
            typed = None if text is None else [v for _, v in goal.pairs].index(text)
            state, paid, over = game.step(state, (element, typed))
            total += paid
        assert over and game.solved(state) and total == pytest.approx(1 + 1 - first)


def test_the_instructor_is_paid_for_right_names():
    (form,) = toy()
    names = tuple(sorted({n for f in form.fields for n in f.names}))
    values = fill_at_random(form, RNG())
    game = FormNaming(PageArrays(form.page), form, values, names)
    right = {e: min(ids) for e, ids in game.right.items()}
    assert len(right) == 6
    state, paid = game.start(), []
    for element, name in right.items():
        assert not game.view(state).legal[element, 0] and game.view(state).legal[element, 1:].all()
        state, reward, over = game.step(state, (element, name))
        paid.append(reward)
    assert paid == pytest.approx([1 / 6] * 5 + [1 / 6 + 1]) and over and game.solved(state)
    goal = write_goal(game, state, 0)
    assert goal.wanted == values and dict(goal.pairs).keys() == {names[i] for i in right.values()}
    element = next(iter(right))
    wrong = next(i for i in range(len(names)) if i not in game.right[element])
    assert game.step((), (element, wrong))[1] == 0


def test_values_of_tests_are_never_trained_on():
    (form,) = toy()
    assert all(f.held_out and not {*f.held_out} & {*f.values} for f in form.fields if f.control < 3)
    for seed in range(30):
        goal = draw_goal([form], np.random.default_rng(seed), held_out=True)
        assert goal.wanted[0] in form.fields[0].held_out
        assert draw_goal([form], np.random.default_rng(seed)).wanted[0] in form.fields[0].values


# ---- a user's files


def write(folder, name, rows):
    (folder / name).write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(folder / name)


FIELDS = [
    {"control": "Where from", "field": ["leaving from", "start"], "values": ["Oslo", "Riga", "Bonn"]},
    {"control": "seat"},
    {"control": "meal", "field": "food"},
]


def own(folder, **more):
    (folder / "forms").mkdir()
    (folder / "forms" / "a.html").write_text(HTML)
    words = {"forms": str(folder / "forms"), "fields": write(folder, "fields.jsonl", FIELDS), **more}
    return build(**words)


def test_a_users_form_list_and_instructions(tmp_path, context):
    tests = [
        {"instruction": {"start": "Paris", "seat": "w"}},
        {"page": "a.html", "instruction": {"by way of": "Oslo"}, "goal": {"origin": "Oslo"}},
    ]
    program = own(tmp_path, tests=write(tmp_path, "tests.jsonl", tests), steps=60)
    small = replace(program, learner=replace(program.learner, games=4, updates=1, batch=8))
    said = []
    ctx = context(out=tmp_path / "run")
    ctx.say = said.append
    metrics = asyncio.run(small.run(ctx)).metrics
    assert metrics["tests"] == 2 and metrics["instructions"] == 3 * 2 * 2 and metrics["env_steps"] >= 60
    lines = [json.loads(x) for x in (tmp_path / "run" / "actions.jsonl").read_text().splitlines()]
    assert [x["instruction"] for x in lines] == [{"start": "Paris", "seat": "window"}, {"by way of": "Oslo"}]
    assert all(x["actions"] for x in lines)
    again = replace(small, fields="", tests="", start=str(tmp_path / "run"), steps=1, exam=2)
    assert asyncio.run(again.run(context(out=tmp_path / "two"))).metrics["tests"] == 2
    with pytest.raises(UserError, match="holds no qweb network"):
        asyncio.run(replace(again, start=str(tmp_path)).run(context(out=tmp_path / "three")))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"control": "sea"}, "no one control 'sea'; there are origin, seat, c, meal"),
        ({"control": "origin"}, 'give some to draw from: "values"'),
        ({"control": "seat", "values": ["floor"]}, "offers 'any', 'window', not 'floor'"),
        ({"control": "meal", "values": ["fish"]}, "write yes or no"),
        ({"control": "seat", "page": "z.html"}, "write one of a.html"),
    ],
)
def test_lines_that_do_not_fit_say_what_to_do(row, message):
    with pytest.raises(UserError, match=message):
        FieldList([PAGE], RNG()).forms([("fields.jsonl, line 1", row)])


def test_instructions_that_do_not_fit_say_what_to_do():
    forms = FieldList([PAGE], RNG()).forms([("f", r) for r in FIELDS])
    for row, message in (
        ({"instruction": "from Oslo"}, "an instruction is a record"),
        ({"instruction": {"via": "Oslo"}}, "no one control 'via'"),
        ({"instruction": {"food": "soup"}}, "write yes or no"),
    ):
        with pytest.raises(UserError, match=message):
            read_goals(forms, [("tests.jsonl, line 1", row)])
    with pytest.raises(UserError, match="has a line already"):
        FieldList([PAGE], RNG()).forms([("f", FIELDS[1]), ("f", FIELDS[1])])
    with pytest.raises(UserError, match="list of fields is empty"):
        FieldList([PAGE], RNG()).forms([])


@pytest.mark.parametrize(
    ("html", "message"),
    [("<p>Hello", "nothing can be filled in"), ("<input name=a>", "nothing submits this form")],
)
def test_pages_that_are_no_form(html, message):
    with pytest.raises(UserError, match=message):
        read_page("p.html", html)


def test_folders_without_a_form_and_arguments_that_do_nothing(tmp_path):
    with pytest.raises(UserError, match="name an HTML file"):
        read_pages(str(tmp_path))
    for given, message in (
        ({"fields": "f.jsonl"}, "forms=FOLDER"),
        ({"miniwob": "book-flight", "meta": True}, "leave out forms, meta"),
        ({"warm": 2.0}, "a probability"),
    ):
        with pytest.raises(UserError, match=message):
            build(**given)
    with pytest.raises(UserError, match="size is 6 or 12"):
        travel_page(7)


def test_meta_training_writes_its_own_instructions(tmp_path, context):
    program = build(meta=True, steps=20, naming=20, exam=4)
    small = replace(program, learner=replace(program.learner, games=4, updates=1, batch=8))
    metrics = asyncio.run(small.run(context(out=tmp_path))).metrics
    assert {"inet/success", "success", "success/start"} <= metrics.keys() and (tmp_path / "inet.safetensors").is_file()


# ---- MiniWoB++


class Browser:
    """An environment as MiniWoB++ has it: one field of text and a button."""

    unwrapped = property(lambda self: self)

    def seen(self):
        plain = {"text": "", "value": "", "id": "", "classes": ""}
        return {
            "fields": (("target", "Ada"),),
            "dom_elements": (
                plain | {"ref": 1, "parent": 0, "tag": "body"},
                plain | {"ref": 2, "parent": 1, "tag": "input_text", "id": "name", "value": self.value},
                plain | {"ref": 3, "parent": 1, "tag": "button", "text": "Submit"},
                plain | {"ref": -1, "parent": 3, "tag": "t", "text": "Submit"},
            ),
        }

    def reset(self, seed):
        self.value = ""
        return self.seen(), {}

    def create_action(self, kind, **rest):
        return kind, rest

    def step(self, action):
        kind, rest = action
        if kind == "FOCUS_ELEMENT_AND_TYPE_FIELD" and rest["ref"] == 2:
            self.value = ("Ada",)[rest["field"]]
        over = kind == "CLICK_ELEMENT" and rest["ref"] == 3
        return self.seen(), (1.0 if self.value == "Ada" else -1.0) if over else 0.0, over, False, {}


def test_a_browser_is_played_through_the_same_games():
    game = BrowserPage(Browser(), 3)
    state = game.start()
    view = game.view(state)
    assert view.legal.shape == (3, 2) and view.links[2].tolist() == [0, 1, -1] and not view.holds.any()
    state, paid, over = game.step(state, (1, 0))
    assert (paid, over) == (0.0, False) and game.view(state).holds.tolist() == [[0], [1], [0]]
    assert game.describe(state, (1, 0)) == "type 'Ada' into input_text name"
    state, paid, over = game.step(state, (2, None))
    assert (paid, over) == (1.0, True) and game.solved(state)
    problem = BrowserProblem([Browser(), Browser()], exam=3)
    assert len(problem.tests()) == 3 and all(g.seed >= 3 for g in problem.deal(0, RNG()))


def test_a_task_of_miniwob_in_chromium():
    """Smoke: one episode of a task in a browser that is not shown."""
    pytest.importorskip("miniwob", reason="pip install 'palaestra[miniwob]'")
    try:
        (env,) = open_browsers("click-test", 1)
    except UserError as error:
        pytest.skip(str(error))
    (played,) = play_pages(Never(), [BrowserPage(env, 0)], 0.0, RNG())
    env.close()
    assert played.steps and played.states[0].elements


def test_pages_as_people_write_them():
    """A head that only the body ends, and a radio group of which one member cannot be chosen."""
    page = read_page(
        "b.html",
        "<head><title>x</title><body><form><input type=radio name=c id=p><label for=p>Air</label>"
        "<input type=radio name=c id=q disabled><label for=q>Sea</label><button>Go</button></form>",
    )
    (control,) = page.controls
    assert control.options == ("Air",)


@pytest.mark.parametrize("value", [None, ["A", "B"]])
def test_a_cell_that_is_no_value_is_no_text(value):
    with pytest.raises(UserError, match="write one value, or leave the field out"):
        value_for(PAGE.controls[0], value, "row 1")
