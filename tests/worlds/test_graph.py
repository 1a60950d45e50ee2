"""Questions over a graph: actions, rules, facts that documents have, and what is paid."""

import pytest
from palaestra.errors import UserError
from palaestra.services.index import BM25
from palaestra.services.triples import TripleGraph
from palaestra.tasks.triples import read_triples
from palaestra.toys.graph import GraphTasks
from palaestra.types import Act, Episode, Message, Task
from palaestra.worlds.graph import GraphQuestions, call_text, join_names, read_action
from palaestra.worlds.rules import RulePlanner, SolvedQuestions
from palaestra.worlds.tools import tool_numbers

FACTS = (
    ("Bako", "boss", "Tiru"),
    ("Bako", "boss", "Lamo"),
    ("Tiru", "host", "Mema"),
    ("Lamo", "host", "Mema"),
    ("Mema", "heir", "Bako"),
)
GRAPH = TripleGraph(FACTS)
SOLVED = SolvedQuestions(
    (
        ("Who is host of the boss of Bako?", ("Bako",), ("Mema",)),
        ("Who is boss of Bako?", ("Bako",), ("Tiru", "Lamo")),
        ("Who is the heir of Tiru?", ("Tiru",), ("nobody",)),
    )
)
PLANNER = RulePlanner(GRAPH, SOLVED, hops=2)
PAGES = BM25((("p", "Lamo: twin of Lamo is Peca."), ("q", "Something else.")))


def task(question="Who is the host of the boss of Bako?", answer="Mema", **meta):
    return Task(id="t", prompt=(Message(role="user", content=question),), answer=answer, meta=meta)


def play(world, texts, given=None):
    """The last frame, and what was said to the policy by turn."""
    frame, heard = world.reset(given or task(), ("k",)), []
    for n, text in enumerate(texts):
        heard.append(frame.asks[0].say[-1].content)
        act = Act(ask=frame.asks[0], text=text, call=None, finish="eos", n_tokens=1)
        frame = world.step(frame.state, (act,), ("k", n))
    return frame, heard + [a.say[-1].content for a in frame.asks]


def paid(names, answer, **options):
    frame, _ = play(
        GraphQuestions(PLANNER, plan="nobody", **options), [call_text("finish", names)], task(answer=answer)
    )
    return frame.pay["policy", ""]


def test_neighbours_paths_and_ends_of_paths():
    assert GRAPH.neighbours("bako", "BOSS") == ("Tiru", "Lamo")
    assert GRAPH.neighbours("Mema", "host^-1") == ("Tiru", "Lamo")
    assert GRAPH.neighbours("Bako", "twin") == () == GRAPH.neighbours("nobody", "boss")
    assert GRAPH.neighbours("Bako", "boss", [("bako", "boss", "Vime")]) == ("Tiru", "Lamo", "Vime")
    assert GRAPH.paths(["Bako"], ["Mema"], hops=2) == (("heir^-1",), ("boss", "host"))
    assert GRAPH.paths(["Bako"], ["Mema"], hops=2, most=1) == (("heir^-1",),)
    assert GRAPH.paths(["Bako"], ["nobody"]) == () == GRAPH.paths(["nobody"], ["Bako"])
    assert GRAPH.follow(["Bako"], ("boss", "host")) == {"mema"} and not GRAPH.follow(["Bako"], ("host",))


def test_rules_are_those_of_similar_questions_without_the_question_itself():
    (first, paths), (second, one) = PLANNER.examples("Who is the host of the boss of Bako?")
    assert (first, paths) == (SOLVED.rows[0][0], (("heir^-1",), ("boss", "host")))
    assert (second, one) == (SOLVED.rows[1][0], (("boss",), ("heir^-1", "host^-1")))
    own = PLANNER.examples("who is host of the  boss of Bako?")
    assert [q for q, _ in own] == [SOLVED.rows[1][0]], "the same question in other case is left out"
    assert PLANNER.induce("Who is host of the boss of Bako?") == (("boss",), ("heir^-1", "host^-1"))
    assert RulePlanner(GRAPH).induce("Who is boss of Bako?") == () and not RulePlanner(GRAPH).request("Who?")


@pytest.mark.parametrize("asked", ["heir of acme-7 ?", "Heir of acme-7", "heir of acme", "acme-7?"])
@pytest.mark.parametrize("plan", ["graph", "model"])
def test_no_call_gives_the_chain_of_the_tasks_own_answer(asked, plan):
    """Its question is solved in the data; only `host` leads from acme-7 to its answer."""
    graph = TripleGraph((("acme-7", "host", "Mema"), ("Bako", "heir", "Tiru")))
    solved = SolvedQuestions((("Heir of acme-7?", ("acme-7",), ("Mema",)), ("The heir of Bako?", ("Bako",), ("Tiru",))))
    world = GraphQuestions(RulePlanner(graph, solved), plan=plan, told=False)
    first = ["none"] if plan == "model" else []
    frame, heard = play(world, [*first, f"getReasoningPath({asked})", *first], task("Heir of acme-7?", "Mema"))
    assert not any("host" in x for x in heard) and frame.facts["rules"] in (("heir",), ())


@pytest.mark.parametrize(
    ("text", "chains"),
    [
        ("boss -> host", [("boss", "host")]),
        ("r(q) <- boss(x, z) & HOST(z, y)\n- heir", [("boss", "host"), ("heir",)]),
        ("[boss, host^-1]\nboss -> friend", [("boss", "host^-1")]),
        ("boss -> host -> heir", []),  # longer than two hops
        ("I think that the boss is asked for.", []),
        ("", []),
    ],
)
def test_chains_are_read_in_any_form_and_only_with_relations_of_the_graph(text, chains):
    assert list(PLANNER.read(text)) == chains


def test_entities_are_found_by_their_longest_names():
    planner = RulePlanner(TripleGraph((("New York", "state of", "USA"), ("York", "in", "England"))))
    assert planner.entities_in("Is new york in England, or York?") == ("New York", "England", "York")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Thought 1: look.\nAction 1: searchNeighbor(Bako, boss)", ("searchNeighbor", ("Bako", "boss"))),
        ("searchneighbor(Washington, D.C., mayor).", ("searchNeighbor", ("Washington, D.C.", "mayor"))),
        ('finish("Washington, D.C.", Mema)', ("finish", ("Washington, D.C.", "Mema"))),
        ("getReasoningPath(Who, then?)", ("getReasoningPath", ("Who, then?",))),
        ("finish()", ("finish", ())),
        ("<think>finish(Mema)</think>\nwikiSearch(Lamo, twin)", ("wikiSearch", ("Lamo", "twin"))),
        ("finish(a)\nfinish(b)", ("", ())),  # two
        ("**Action:** finish(a)", ("finish", ("a",))),
        ("**Action**: `finish(a)`", ("finish", ("a",))),
        ("- finish(a)", ("finish", ("a",))),
        ("* **finish(New York (city), M*A*S*H)**", ("finish", ("New York (city)", "M*A*S*H"))),
        ("```\nfinish(a)\n```", ("finish", ("a",))),
        ("finish(a)  # the boss (of Bako)", ("finish", ("a",))),
        ("searchNeighbor(Bako, boss)\n**Observation:** Tiru\nfinish(Tiru)", ("searchNeighbor", ("Bako", "boss"))),
        ("Observation: Tiru\nfinish(Tiru)", ("finish", ("Tiru",))),
        ("finish(a)\nfinish(b)\nObservation: none", ("", ())),
        ('finish(answer="Ulm")', ("finish", ("Ulm",))),
        ("searchNeighbor(entity=Bako, relation='boss')", ("searchNeighbor", ("Bako", "boss"))),
        ('finish("a, name = b")', ("finish", ("a, name = b",))),
        ("getReasoningPath(question='Who, then?')", ("getReasoningPath", ("Who, then?",))),
        ("I could call finish(a) now.", ("", ())),
        ("I will do searchNeighbor(Bako, boss)", ("searchNeighbor", ("Bako", "boss"))),
        ("Tiru is it. Let me call finish(a).", ("finish", ("a",))),
        ("SearchNeighbor[Bako, boss]", ("searchNeighbor", ("Bako", "boss"))),
        ("I will not call finish(a)", ("", ())),
        ("I could call finish(a)", ("", ())),
        ("I will call finish(a) or finish(b)", ("", ())),
        ("", ("", ())),
    ],
)
def test_one_action_is_read_on_a_line_of_its_own(text, action):
    assert read_action(text) == action


@pytest.mark.parametrize("names", [("Mema",), ("Washington, D.C.", "x"), ('the "old" one', "y")])
def test_an_action_that_is_written_is_read_as_it_was(names):
    assert read_action(call_text("finish", names)) == ("finish", names)


def test_neighbours_that_are_one_entity_are_one_name():
    entities = TripleGraph((("O'Neill, Jean-Luc", "age", "1,000"), ("Bako", "boss", "Tiru"))).entities
    assert join_names(("O'Neill", "Jean-Luc", "Bako"), entities) == ("O'Neill, Jean-Luc", "Bako")
    assert join_names(("1", "000"), entities) == ("1,000",)
    assert join_names(("Bako", "Tiru"), entities) == ("Bako", "Tiru") and join_names((), entities) == ()


def test_recall_is_paid_and_any_number_of_names_does_not_pay():
    gold = ["a1", "b1", "c1"]
    assert paid(("a1", "b1", "x1"), gold) == pytest.approx(2 / 3), "of the catalogue"
    assert paid((*tuple(f"n{i}" for i in range(20)), "a1"), gold) == 0, "the first ten count"
    assert paid((*tuple(f"n{i}" for i in range(9)), "a1"), gold) == pytest.approx(1 / 3), "recall alone"
    assert paid((*tuple(f"n{i}" for i in range(9)), "a1"), gold, measure="f1") == pytest.approx(2 / 13)
    assert paid(("The MEMA!",), "mema") == 1 and paid((), "mema") == 0


def test_an_episode_without_finish_is_paid_nothing():
    world = GraphQuestions(PLANNER, plan="nobody", turns=2, told=True)
    frame, heard = play(world, ["what?", "searchNeighbor(Bako, twin)"])
    assert frame.status == "truncated:turns" and frame.pay["policy", ""] == 0
    assert "searchNeighbor(entity, relation)" in heard[1], "what could not be read is told the actions"
    assert (frame.facts["tool_malformed"], frame.facts["tool_errors"], frame.facts["answered"]) == (1, 1, False)
    assert frame.facts["tool_log"] == ((1, "", "malformed"), (2, "searchNeighbor", "error"))


def test_calls_are_logged_by_action_and_the_last_answer_is_none():
    frame, _ = play(GraphQuestions(PLANNER, plan="nobody"), ["searchNeighbor(Bako, boss)", "finish(Mema)"])
    assert frame.facts["tool_log"] == ((1, "searchNeighbor", "result"),) and frame.facts["tool_calls"] == 1
    numbers = tool_numbers([Episode(status="finished", facts=frame.facts)])
    assert numbers["tools/calls/searchNeighbor"] == 1 and numbers["tools/calls/getReasoningPath"] == 0
    assert not [n for n in numbers if n.startswith(("tools/seconds", "tools/useful"))]  # nobody took or told them


def test_the_planner_is_a_thread_of_its_own_and_its_chains_are_shown():
    world = GraphQuestions(PLANNER, told=True)
    frame, heard = play(world, ["Boss -> host", "searchNeighbor(Bako, boss)", "finish(Mema)"])
    assert "Question: Who is boss of Bako?\nboss\nheir^-1 -> host^-1" in heard[0]
    assert heard[1].startswith("Who is the host of the boss of Bako?\n\nAnswer by") and heard[1].endswith(
        "paths:\nboss -> host"
    )
    assert heard[2] == "Tiru, Lamo" and frame.facts["rules"] == ("boss -> host",)
    assert (frame.facts["reach"], frame.facts["written"], frame.pay["policy", ""]) == (1.0, 1, 1.0)
    assert world.reset(task(), ("k",)).asks[0].thread == "planner"


def test_chains_that_nobody_wrote_are_those_of_the_examples():
    frame, heard = play(GraphQuestions(PLANNER), ["I do not know."])
    assert heard[1].endswith("paths:\nheir^-1\nboss\nboss -> host\nheir^-1 -> host^-1") and frame.facts["written"] == 0
    _, heard = play(GraphQuestions(PLANNER, plan="nobody"), [])
    assert heard == ["Who is the host of the boss of Bako?"]
    _, heard = play(GraphQuestions(PLANNER, plan="graph"), ["getReasoningPath(Who is boss of Tiru?)"])
    assert heard[1].startswith("paths:\nboss")


def test_facts_that_documents_have_are_kept_apart_from_the_graph():
    world = GraphQuestions(PLANNER, PAGES, plan="nobody", k=1)
    said = ["wikiSearch(Lamo, twin)", "Lamo | twin | Peca\nLamo | twin | Invented\nMema | host | Peca",
            "searchNeighbor(lamo, twin)", "finish(Peca)"]  # fmt: skip
    frame, heard = play(world, said, task(answer="Peca"))
    assert "Write the facts about Lamo and twin" in heard[1]
    assert heard[2] == "Lamo: twin of Lamo is Peca.\nLamo | twin | Peca" and heard[3] == "Peca"
    assert frame.facts["added"] == (("Lamo", "twin", "Peca"),)
    assert GRAPH.neighbours("Lamo", "twin") == (), "another episode does not have it"


def test_a_fact_is_read_off_what_the_next_action_uses():
    world = GraphQuestions(PLANNER, PAGES, plan="nobody", extract="use")
    frame, _ = play(world, ["wikiSearch(Lamo, twin)", "finish(Peca, Mema)"])
    assert frame.facts["added"] == (("Lamo", "twin", "Peca"),), "Mema does not stand there"
    frame, _ = play(world, ["wikiSearch(Lamo, twin)", "searchNeighbor(Lamo, host)", "finish(Peca)"])
    assert frame.facts["added"] == ()
    frame, heard = play(world, ["wikiSearch(zzz, yyy)"])
    assert heard[1] == "No document found." and frame.facts["tool_errors"] == 1


def test_the_oracle_is_right_on_the_built_in_graph_and_finds_what_is_missing():
    tasks = GraphTasks()
    world = GraphQuestions(
        RulePlanner(TripleGraph(tasks.triples())), BM25(tasks.documents()), plan="nobody", extract="use"
    )
    lacking = set()
    for i in range(30):
        frame = world.reset(tasks.task("test", i), ("k",))
        while frame.asks:
            act = Act(ask=frame.asks[0], text=world.oracle(frame.state), call=None, finish="eos", n_tokens=1)
            frame = world.step(frame.state, (act,), ("k",))
        assert frame.pay["policy", ""] == 1
        lacking |= set(frame.facts["added"])
    assert lacking and lacking <= set(tasks.missing_triples())


def test_triples_are_read_from_lines_and_records(tmp_path):
    lines, records = tmp_path / "a.tsv", tmp_path / "b.jsonl"
    lines.write_text("head\trelation\ttail\nBako\tboss\tTiru\n\nBako\tboss\tTiru\n")
    records.write_text('{"subject": "Bako", "predicate": "boss", "object": "Tiru"}\n')
    assert read_triples(str(lines)) == read_triples(str(records)) == (("Bako", "boss", "Tiru"),)
    lines.write_text("Bako\tboss\n")
    with pytest.raises(UserError, match=r"a\.tsv:1: 'Bako\\tboss' is no fact; write three names with tabs"):
        read_triples(str(lines))
    records.write_text('{"head": "Bako"}\n')
    with pytest.raises(UserError, match=r'no fact; write \{"head": "Bako"'):
        read_triples(str(records))
    lines.write_text("\n")
    with pytest.raises(UserError, match="no facts; write a line each"):
        read_triples(str(lines))


def test_settings_and_tasks_that_are_none_are_refused():
    with pytest.raises(UserError, match="plan is model or graph or nobody, not 'x'"):
        GraphQuestions(PLANNER, plan="x")
    with pytest.raises(UserError, match="needs a question and an answer"):
        GraphQuestions(PLANNER).reset(task(answer=None), ("k",))
    with pytest.raises(UserError, match="with no empty name"):
        TripleGraph(())
