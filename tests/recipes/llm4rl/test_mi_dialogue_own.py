"""The dialogue manager with a user's own dialogues: acts with words, and a saved manager that adapts to one user."""

import asyncio
import json
from dataclasses import replace
from typing import ClassVar

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.recipes.llm4rl import mi_dialogue
from palaestra.recipes.llm4rl.mi_dialogue.agent import adapt_agent, draw_agent
from palaestra.recipes.llm4rl.mi_dialogue.clients import ACTS, CLIENT_ACTS, ClientFamily, ClientSimulator
from palaestra.recipes.llm4rl.mi_dialogue.live import read_manager, save_manager
from palaestra.recipes.llm4rl.mi_dialogue.words import INTERVIEW, DialogueWords

KEY = ("test",)
LEARNER = pl.control.PPO(games=2, gamma=0.5, lr=3e-3)


class Shop:
    """A buyer who buys after one right act of two."""

    agents, horizon, observation, actions = 1, 3, 2, 2
    about = "A seller talks with a buyer of shoes."
    acts: ClassVar = {"ask": "asks what is wanted", "offer": "names a pair of shoes"}
    client_acts = ("says nothing", "wants boots", "buys")

    def __init__(self, best=0):
        self.best = best

    def reset(self, rng, n):
        return np.zeros(n, int)

    def observe(self, state):
        return np.stack([state == 0, state > 0], -1).astype(float)[:, None]

    def legal(self, state):
        return None

    def facts(self, state):
        return {"client_act": state[:, None]}

    def step(self, state, act, rng):
        right = act[:, 0] == self.best
        return np.where(right, 2, 1), right[:, None].astype(float), right


def program(sims, **settings):
    made = mi_dialogue.build(steps=12, games=4, talks=1)
    return replace(made, **{"clients": ClientFamily(sims, sims[:1]), "learner": LEARNER, **settings})


def test_acts_of_ones_own_are_chosen_and_written_by_the_model(context, tmp_path):
    asked = []

    def answer(request):
        asked.append(text := request.messages[0].content)
        if "Write the agent's next" in text:
            return {"utterance": "Which size?"}
        if 'utterance of the agent: "Which size?"' in text:
            return {"act": "ask"}
        return {"act": "ask" if "(nothing yet)" in text else "haggle"}

    own = program((Shop(1), Shop(0)), asked=pl.Scripted(answer))
    found = asyncio.run(own.run(context(out=tmp_path))).metrics
    first = next(text for text in asked if "Which act comes next" in text)
    assert first.startswith("A seller talks with a buyer of shoes.") and "- offer: names a pair of shoes" in first
    # the one that it was asked again about has no such act, so the first one stands
    model = found["arms"]["language model"]
    assert model["return"] == 0 and model["fallbacks"] == 2
    assert any("Agent: ask\nUser: wants boots" in text for text in asked)
    (line,) = [json.loads(x) for x in (tmp_path / "dialogues.jsonl").read_text().splitlines()]
    said = [t for t in line["turns"] if t["speaker"] == "Agent"]
    assert all(t["text"] == ("Which size?" if t["act"] == "ask" else "(offer)") for t in said)
    assert {t["text"] for t in line["turns"] if t["speaker"] == "User"} <= set(Shop.client_acts)
    assert found["arms"]["guide"]["realised"] == sum(t["act"] == "ask" for t in said) / len(said)
    assert mi_dialogue.load_manager(tmp_path / "policy")([[1.0, 0.0]])["name"] in Shop.acts


def test_words_that_do_not_fit_are_refused_and_none_are_none():
    assert DialogueWords.of(ClientSimulator()) is INTERVIEW and INTERVIEW.acts == list(ACTS)
    assert DialogueWords.of(pl.control.Maze()) is None

    class Few(Shop):
        acts: ClassVar = {"ask": "asks"}

    class Mute(Shop):
        facts = None

        def __getattribute__(self, name):
            if name == "facts":
                raise AttributeError(name)
            return super().__getattribute__(name)

    for sim in (Few(), Mute()):
        with pytest.raises(UserError, match="client_act"):
            DialogueWords.of(sim)
    with pytest.raises(UserError, match="client_acts has 3"):
        DialogueWords.of(Shop()).history([0], [7])


def saved(folder, inner=0.3):
    agent = draw_agent(ClientSimulator(), 2, 4, LEARNER, KEY)
    save_manager(agent, folder, ACTS, {"inner": inner, "gamma": LEARNER.gamma, "lam": LEARNER.lam})
    return agent


def same(a, b):
    pairs = ((a.master, b.master), (a.options, b.options))
    return all(
        torch.allclose(p, q, atol=1e-6) for x, y in pairs for p, q in zip(x.parameters(), y.parameters(), strict=True)
    )


def test_recorded_dialogues_move_a_manager_as_its_own_games_do(tmp_path):
    """The same games, once played and once recorded by name, as a file, rewards those of the client's acts."""
    agent = saved(tmp_path / "policy")
    path = pl.control.play_games(ClientSimulator(), agent.player(greedy=True), 3, KEY)
    rows = []
    for i in range(3):
        T = int(path["alive"][i].sum())
        acts, heard = (path[k][i, 0, :T].astype(int) for k in ("act", "client_act"))
        turns = [(ACTS[a], CLIENT_ACTS[u]) for a, u in zip(acts, heard, strict=True)]
        rows.append({"turns": turns, "rewards": path["reward"][i, 0, :T].tolist()})
    file = tmp_path / "dialogues.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    mi_dialogue.adapt_manager(tmp_path / "policy", file, tmp_path / "anna")
    _, adapted = read_manager(tmp_path / "anna")
    assert same(adapted, adapt_agent(agent, path, LEARNER, 0.3)) and not same(adapted, agent)
    # it acts, and adapts again; the saved one stays, and at rate 0 nothing moves
    assert mi_dialogue.load_manager(tmp_path / "anna")(mi_dialogue.observe_dialogue([]))["name"] in ACTS
    mi_dialogue.adapt_manager(tmp_path / "anna", rows, tmp_path / "again", rate=0.0)
    assert same(read_manager(tmp_path / "again")[1], adapted) and same(read_manager(tmp_path / "policy")[1], agent)


def test_what_paid_becomes_likelier(tmp_path):
    agent, seen = saved(tmp_path / "policy", inner=1.0), np.zeros((2, 40))
    rows = [{"observations": seen.tolist(), "acts": ["plan", 0], "rewards": [1.0, 0.0]}] * 2
    rows += [{"observations": seen.tolist(), "acts": [0, 0], "rewards": [0.0, 0.0]}] * 2
    mi_dialogue.adapt_manager(tmp_path / "policy", rows, tmp_path / "out")
    option = int(agent.master.act(seen[:1, agent.overview], None, None, greedy=True)["act"][0])

    def plan(of):
        columns = {"obs": torch.zeros(1, 1, 40), "act": torch.full((1, 1), ACTS.index("plan"))}
        return float(of.options.each[option](columns)["logp"].detach())

    assert plan(read_manager(tmp_path / "out")[1]) > plan(agent)


def test_dialogues_that_do_not_fit_are_named(tmp_path):
    saved(tmp_path / "policy")
    row = [0.0] * 40
    for bad, why in (
        ([], "no dialogue"),
        ([{}], "dialogue 1: a record is"),
        ([{"turns": [["hypnosis", "fact"]]}], "hypnosis"),
        ([{"turns": []}], "dialogue 1"),
        ([{"observations": [row], "acts": [8], "rewards": [0]}], "acts below 8"),
        ([{"observations": [row[1:]], "acts": [1], "rewards": [0]}], r"\(1, 39\)"),
        ([{"observations": [row], "acts": [1]}], "dialogue 1"),
        ([{"observations": [row], "acts": [1], "rewards": [float("nan")]}], "dialogue 1"),
    ):
        with pytest.raises(UserError, match=why):
            mi_dialogue.adapt_manager(tmp_path / "policy", bad, tmp_path / "out")
    (tmp_path / "bad.jsonl").write_text("{}\nno\n")
    with pytest.raises(UserError, match=r"bad\.jsonl:2"):
        mi_dialogue.adapt_manager(tmp_path / "policy", tmp_path / "bad.jsonl", tmp_path / "out")
    with pytest.raises(UserError, match="holds no dialogue manager"):
        mi_dialogue.adapt_manager(tmp_path, [], tmp_path / "out")
