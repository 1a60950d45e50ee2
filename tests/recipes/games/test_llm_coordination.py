"""llm-coordination: the calls of an agent one by one, what a reply means, numbers by hand, and questions."""

import asyncio
import json

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.games.llm_coordination import SMALL, TINY, build, embedded
from palaestra.recipes.games.llm_coordination.agent import TeamOfMinds, ground, is_accepted
from palaestra.recipes.games.llm_coordination.program import TeamGame, game_numbers, team_game, tell
from palaestra.recipes.games.llm_coordination.questions import (
    TYPES,
    RoomQuestions,
    question_numbers,
    questions_of,
    type_of,
)
from palaestra.recipes.games.llm_coordination.toy import ShowCoordination
from palaestra.rollout.play import play
from palaestra.rollout.player import Script

LEGAL = ("wait", "move to room 2", "move to room 8", "fix the generator")
ESCAPE = pl.worlds.CollabEscape(turns=2, brief=True)


@pytest.mark.parametrize(
    "text, move, how",
    [
        ("Action: move to room 8", "move to room 8", "named"),
        ("Room 2 is near.\nAction: **Move to Room 8.**", "move to room 8", "named"),
        ("Action: wait\nNo. Action: fix the generator", "fix the generator", "named"),
        ("I wait or fix the generator?\n\\boxed{move to room 2}", "move to room 2", "named"),
        ("- move to room 8\n\nThat is best.", "move to room 8", "named"),
        ("<think>Action: wait</think>move to room 2", "move to room 2", "named"),
        ("Action: go to room 8", "move to room 8", "similar"),  # 2 * 11 / 24 = .92
        ("Action: fix generator", "fix the generator", "similar"),
        ("Action: move to room 5", None, "drawn"),  # another number is no slip of the pen
        ("Action: sing", None, "drawn"),
        ("", None, "drawn"),
    ],
)
def test_a_reply_is_grounded_to_a_legal_action(text, move, how):
    found = ground(text, LEGAL, pl.rng_of(("g",)))
    assert found[1] == how and (found[0] == move or (move is None and found[0] in LEGAL))


def test_drawn_actions_are_any_legal_ones_and_without_a_list_a_reply_stays():
    assert {ground("?", LEGAL, pl.rng_of(("g", n)))[0] for n in range(60)} == set(LEGAL)
    assert ground("so\nAction: *left*.", (), pl.rng_of(("g",))) == ("left", "free")
    assert ground("(Reveal player +1 rank 2", ("(Play 0)", "(Reveal player +1 rank 2)"), pl.rng_of(("g",))) == (
        "(Reveal player +1 rank 2)", "similar",
    )  # fmt: skip


@pytest.mark.parametrize(
    "text, good",
    [
        ("Okay", True), ("Yes, it is safe.", True), ("okay. Not okay would be room 6.", True), ("fine by me", True),
        ("Not okay", False), ("It is not safe", False), ("No.", False), ("**Unsafe**", False), ("impossible", False),
        ("<think>no</think> ok", True), ("This is not a safe move. Not okay.", False), ("It isn't safe.", False),
        ("Room 3 is legal, but the killer will be there. Not okay.", False), ("There is no danger. Okay.", True),
        ("No problem: okay", True), ("This is not a legal move", False),
    ],
)  # fmt: skip
def test_a_verification_is_read_by_its_verdict(text, good):
    assert is_accepted(text) is good


def replies(world_key=("w",), kinds=("cac", "direct"), says=None, world=ESCAPE, beside=1, **given):
    """An episode of scripted players, and the prompts of alice in their order."""
    prompts = []

    def alice(messages, rng):
        prompts.append(messages[-1].content)
        return says(messages[-1].content, len(prompts))

    cast = {"alice": Script(fn=alice), "bob": Script(fn=lambda m, rng: "wait")}
    team = TeamOfMinds(world, kinds, beside=beside, **given)
    task = pl.Task(id="t")
    return asyncio.run(play(team, cast, task, ("p",), world_key, max_turns=200)), prompts


def scripted(text, n):
    if text.endswith("partner?"):
        return "<think>hm</think>  bob waits\n for me "
    if text.endswith("plan?"):
        return "Action: fix the generator"
    return "okay" if text.endswith("okay?") else "move to room 2"


def test_an_agent_is_asked_of_its_partner_then_plans_and_verifies():
    episode, prompts = replies(says=scripted)
    state = "you alice\nalice 1 bob 2 killer 6\ng1 0/2 g5 0/2\nactions: wait, move to room 2, move to room 8, fix the generator"
    assert prompts[:4] == [
        state,
        f"{state}\npartner?",
        f"{state}\npartner: bob waits for me\nplan?",
        f"{state}\ndo fix the generator, okay?",
    ]
    first, second = (d for d in episode.facts["decisions"] if d.seat == "alice")
    assert (first.move, first.direct, first.belief) == ("fix the generator", "move to room 2", "bob waits for me")
    assert first.partner_did == "wait" and first.replans == 0 and first.grounding == "named"
    assert second.move == "fix the generator" and "g1 1/2" in prompts[4]  # the fix was made
    bob = [d for d in episode.facts["decisions"] if d.seat == "bob"]
    assert [d.direct for d in bob] == ["", ""] and episode.facts["result"] == "out of turns"


def test_the_games_question_is_put_twice_and_a_plan_is_held_to_legal_actions_that_were_not_refused():
    world = pl.worlds.CollabEscape(turns=1, brief=True, illegal="never")
    team = TeamOfMinds(world, ("cac", "cac"))
    frame = asyncio.run(team.reset(pl.Task(id="t"), ("k",)))
    says = {"again": "wait", "partner": "?", "plan": "fix the generator", "verify": "no"}
    stages = []
    while frame.asks:
        stages.append(frame.asks[0].thread)
        choices = {a.seat: a.choices for a in frame.asks}
        if stages[-1] in ("direct", "again"):
            assert choices["alice"] == LEGAL and choices["bob"] == ("wait", "move to room 1", "move to room 3")
        if stages[-1] == "plan":
            left = LEGAL if "verify" not in stages else ("wait", "move to room 2", "move to room 8")
            assert choices["alice"] == left and frame.asks[0].prefix == "Action: "
        acts = [
            pl.Act(ask=a, text=says.get(a.thread, "move to room 3"), call=None, finish="eos", n_tokens=0)
            for a in frame.asks
        ]
        frame = asyncio.run(team.step(frame.state, tuple(acts), ("k", len(stages))))
    assert stages == ["direct", "again", "partner", "plan", "verify", "plan", "verify"]
    alice, bob = frame.facts["decisions"]
    assert (bob.direct, bob.again, alice.direct) == ("move to room 3", "wait", "")  # alice has no room 3
    assert team.calls == 7


def test_a_refused_action_is_planned_again_and_then_done_all_the_same():
    def says(text, n):
        return "Not okay" if text.endswith("okay?") else scripted(text, n)

    episode, prompts = replies(says=says)
    turn = prompts[:6]
    assert turn[4].endswith("plan? not fix the generator") and turn[5].endswith("okay?")
    assert [d.replans for d in episode.facts["decisions"] if d.seat == "alice"] == [1, 1]
    assert len(replies(says=says, replans=0)[1]) == 2 * 4


def test_an_action_that_is_not_legal_is_planned_again_without_a_question():
    def says(text, n):
        return "Action: fly" if text.endswith("plan?") else "wait" if " not " in text else scripted(text, n)

    episode, prompts = replies(says=says)
    assert prompts[3].endswith("plan? not what you wrote") and prompts[4].endswith("do wait, okay?")
    assert next(d for d in episode.facts["decisions"] if d.seat == "alice").move == "wait"


def test_rules_and_own_actions_are_in_the_memory_of_a_long_prompt():
    world = pl.worlds.CollabEscape(turns=3)
    says = lambda text, n: "Action: wait"
    _, prompts = replies(says=says, world=world, beside=0)
    assert "You did so far" not in prompts[0] and "need 2 fixes each" in prompts[0]
    assert "You did so far: wait." in prompts[3] and "You did so far: wait, wait." in prompts[6]
    assert "Okay or Not okay" in prompts[2] and "Reply with one of them" not in prompts[1].split("partner: ")[-1]


def test_partners_that_are_no_models_play_without_being_asked():
    says = lambda text, n: "move to room 2"
    episode, prompts = replies(kinds=("direct", "plan"), says=says)
    assert len(prompts) == 2 and all(d.seat == "alice" for d in episode.facts["decisions"])
    best = ESCAPE.reply(pl.worlds.CollabState(place=ESCAPE.start), "bob", None)
    assert episode.facts["decisions"][0].partner_did == best
    world = pl.worlds.CollabEscape()
    won, _ = replies(kinds=("plan", "plan"), says=says, world=world)
    assert won.facts["result"] == "escaped"
    moves = {replies(kinds=("direct", "random"), says=says, world_key=("w", n))[0].facts["decisions"][0].partner_did
             for n in range(30)}  # fmt: skip
    assert moves == {"wait", "move to room 1", "move to room 3"}


def game(agent, partner, deal, score, made=()):
    return TeamGame(agent, partner, deal, score, "won", 3, ("alice",), tuple(made))


def test_numbers_by_hand():
    """cac: itself 1, 1 and others (0, .5), (1, 0): lost (1 - .25, 1 - .5), mean .625. direct itself 0, 1: gained over
    it 1, 0; with "random" 1 - 0 = 1: mean 2/3. Of two compared actions one changed, of three asked twice one; of
    four, one was drawn.
    """
    d = lambda move, direct, how="named", again="": {"move": move, "direct": direct, "grounding": how, "again": again}
    games = [
        game("cac", "itself", 0, 1.0, [d("a", "b", again="b"), d("a", "a", again="b")]),
        game("cac", "itself", 1, 1.0, [d("b", "a", "drawn", again="a"), d("a", "")]),
        game("cac", "plan", 0, 0.0), game("cac", "plan", 1, 1.0),
        game("cac", "random", 0, 0.5), game("cac", "random", 1, 0.0),
        game("direct", "itself", 0, 0.0), game("direct", "itself", 1, 1.0),
        game("direct", "random", 0, -0.5),
    ]  # fmt: skip
    numbers = game_numbers(games, (-1.0, 1.0))
    mean = {k: getattr(x, "mean", x) for k, x in numbers.items()}
    assert mean["lost_with_others_cac"] == pytest.approx(0.625)
    assert mean["lost_with_others_direct"] == pytest.approx(0.5)
    assert mean["gained_by_cac"] == pytest.approx((1 + 0 + 1) / 3)
    assert (
        mean["moves_changed"] == 0.5
        and mean["moves_changed_by_chance"] == pytest.approx(1 / 3)
        and mean["actions_not_grounded"] == pytest.approx(1 / 4)
    )
    assert mean["score_cac_plan"] == 0.5
    assert mean["partner_spread"] == 1.0  # direct: 0.5 with itself, -0.5 with random; cac: 1, .5, .25
    assert game_numbers([], None) == {"moves_changed": 0.0, "partner_spread": 0.0}
    assert any("50% of the actions; 33% change" in line for line in tell(numbers))
    assert TeamGame.from_json(json.loads(json.dumps(games[0].json()))) == games[0]


def test_questions_have_one_right_option_of_their_type():
    world = pl.worlds.CollabEscape(brief=True)
    tasks = RoomQuestions(world)
    for i in range(60):
        task = tasks.task("test", i)
        options, kind = task.meta["options"], task.meta["type"]
        text = task.prompt[0].content
        right = options["ABCD".index(task.answer)]
        assert (
            kind == TYPES[i % 3] and f"{task.answer}. {right}" in text and 2 <= len(set(options)) == len(options) <= 4
        )
        seat = text.split()[1]
        whose = {"alice": 0, "bob": 1}
        words = text.replace("\n", " ").split()
        rooms = [int(words[words.index("alice", 2) + 1]), int(words[words.index("bob", 2) + 1])]
        fixes = tuple(int(w[0]) for w in words if w.endswith("/2"))
        killer = int(words[words.index("killer") + 1])
        place = pl.worlds.EscapePlace(rooms=tuple(rooms), killer=killer, fixes=fixes)
        asked = seat if kind == TYPES[2] else "bob" if seat == "alice" else "alice"
        able = world.actions(place, asked)
        if kind == TYPES[0]:
            assert [o for o in options if o not in able] == [right]
        else:
            assert set(options) <= set(able)
            best = {m[whose[asked]] for m in world.plan().best(place, world.turns)}
            assert best == {right}
    assert tasks.task("test", 3) == tasks.task("test", 3) != tasks.task("train", 3)
    answers = [tasks.task("test", i).answer for i in range(90)]
    assert max(answers.count(x) for x in "ABCD") < 45  # the place of the right option says nothing


def test_shares_of_questions_by_type_and_at_random():
    """Two questions of one type, 2/3 and 0 right of three trials: 1/3; with 2 and 4 options 3/8 at random."""
    items = [
        {"type": "theory of mind", "options": 2, "right": [True, True, False]},
        {"type": "theory of mind", "options": 4, "right": [False] * 3},
        {"type": "no type", "options": 5, "right": [True]},
    ]
    numbers = question_numbers(items)
    assert numbers["qa_theory_of_mind"].mean == pytest.approx(1 / 3)
    assert numbers["qa_theory_of_mind_chance"] == 0.375 and numbers["qa_no_type_chance"] == 0.2
    assert any("theory of mind" in x for x in tell(numbers))


def test_questions_of_the_users(tmp_path):
    file = tmp_path / "mine.jsonl"
    rows = [
        {"prompt": "Who waits?", "options": ["bob", "alice"], "answer": "A", "type": "Theory_of_Mind"},
        {"prompt": "What is shut?", "options": ["1-2", "3-4", "none"], "answer": "none"},
    ]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    tasks = questions_of(str(file), ESCAPE)
    assert tasks.test_size == 2
    assert {type_of(tasks.task("test", i)) for i in range(2)} == {"theory of mind", "no type"}
    run = pl.train(
        "llm-coordination", task=TINY, out=tmp_path / "run", quiet=True, max_tokens=4,
        set={"games": 0, "questions": str(file), "trials": 2},
    )  # fmt: skip
    lines = [json.loads(x) for x in next(run.folder.rglob("items.jsonl")).read_text().splitlines()]
    assert sorted(x["options"] for x in lines) == [2, 3] and all(len(x["right"]) == 2 for x in lines)
    assert all("A. " in x["prompt"] for x in lines)
    bare = tmp_path / "bare.jsonl"
    bare.write_text(json.dumps({"prompt": "Who?", "answer": "bob"}) + "\n")
    with pytest.raises(UserError, match="has no options"):
        questions_of(str(bare), ESCAPE)


def test_hanabi_is_played_and_its_score_is_that_of_the_fireworks(tmp_path):
    pytest.importorskip("pyspiel")
    small = "players=2,colors=1,ranks=2,hand_size=2,max_information_tokens=2,max_life_tokens=1"
    run = pl.train(
        "llm-coordination", task=f"spiel:hanabi({small})", out=tmp_path / "run", quiet=True, max_tokens=4,
        set={"games": 2, "cac": False},
    )  # fmt: skip
    lines = [json.loads(x) for x in next(run.folder.rglob("items.jsonl")).read_text().splitlines()]
    cells = {(x["agent"], x["partner"]) for x in lines}
    assert cells == {("direct", "itself"), ("direct", "random")} and all(0 <= x["score"] <= 2 for x in lines)


def test_a_game_whose_seats_are_paid_apart_is_refused():
    reward = pl.Reward(total=1.0, parts={"seat:a": 1.0, "seat:b": -1.0})
    with pytest.raises(UserError, match="paid apart"):
        team_game("cac", "itself", 0, ("a",), pl.Episode(reward=reward))


def test_demonstrations_have_the_form_of_the_calls():
    show, rng = ShowCoordination(), pl.rng_of(("s",))
    pairs = [show.pair(rng) for _ in range(100)]
    by_end = {}
    for asked, said in pairs:
        by_end.setdefault(asked.rpartition("\n")[2].split(" ")[0].rstrip("0123456789"), set()).add(said)
    assert by_end["do"] == {"okay", "not okay"} and all(x.startswith("Action: ") for x in by_end["plan?"])
    assert by_end["partner?"] <= set(LEGAL) | {f"move to room {r}" for r in range(1, 9)}
    assert all(len(asked.encode()) < 256 for asked, _ in pairs)


def test_options():
    made = build(games=5, asked=0, cac=False)
    assert (made.tasks, made.problems, made.cac) == (5, 0, False)
    parts = embedded(steps=3, games=2).parts
    assert parts["player"].runnable.schedule.steps == 3 and parts["study"].task == SMALL
    for name in ("games", "trials", "replans"):
        with pytest.raises(UserError, match=name):
            build(**{name: -1})
