"""What a language model is asked: an act of its own choice, for the arm without a policy, and words for an
act that the policy chose. Nothing that is written here is advice for anybody.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

import palaestra as pl
from palaestra.recipes.llm4rl.mi_dialogue.clients import ACTS, CLIENT_ACTS

ActName = Literal[
    "open question",
    "closed question",
    "reflection",
    "affirmation",
    "summary",
    "information",
    "new view",
    "plan",
]
MEANT: Mapping[str, str] = {
    "open question": "asks what cannot be answered with yes or no",
    "closed question": "asks for one fact, or for yes or no",
    "reflection": "says back what the client said",
    "affirmation": "names something that the client does well",
    "summary": "puts together what was said",
    "information": "offers a fact, after asking whether it is welcome",
    "new view": "invites the client to see it in another way",
    "plan": "asks for a first small step",
}
TEMPLATES: Mapping[str, str] = {
    "open question": "What would you like to talk about?",
    "closed question": "Is that so every day?",
    "reflection": "So that is how it is for you.",
    "affirmation": "You have given this much thought.",
    "summary": "Let me put together what you said.",
    "information": "May I tell you what others found?",
    "new view": "How might a friend of yours see it?",
    "plan": "What could be a first small step?",
}
CLIENT_WORDS: Mapping[str, str] = {
    "fact": "I do it most evenings.",
    "feeling": "It makes me uneasy.",
    "new perspective": "I had not seen it like that.",
    "change talk": "I would like to change that.",
    "sustain talk": "I see no reason to change.",
    "question": "Why do you ask?",
    "short answer": "Maybe.",
    "other topic": "It rains a lot this week.",
}
RETRIES, LONGEST = 3, 400  # tries to write an act, and characters of what is written
CRISIS = re.compile(
    r"\b(suicid\w*|kill (?:my|your)self|self[- ]harm\w*|end my life|overdose\w*)\b", re.IGNORECASE
)
REFERRAL = (
    "This dialogue is a simulation and ends here. Whoever is in danger should call the local emergency "
    "number or talk to a professional."
)
CHOOSE = """A counsellor and a client of a motivational interview, by their dialogue acts so far:
{history}

The counsellor's acts are:
{acts}

Which act comes next, so that the client moves towards change? This is a simulation."""
WRITE = """A simulated motivational interview so far:
{history}

Write the counsellor's next utterance, one or two sentences. Its dialogue act is "{act}": it {meant}. Give \
no medical advice."""
NAME = """An utterance of a counsellor: "{said}"

Which of these dialogue acts is it?
{acts}"""


class ChosenAct(BaseModel):
    """An act of a counsellor."""

    act: ActName


class WrittenUtterance(BaseModel):
    """What a counsellor says."""

    utterance: str


def spelled_acts() -> str:
    return "\n".join(f"- {act}: {MEANT[act]}" for act in ACTS)


def spell_history(said: Sequence[int], heard: Sequence[int]) -> str:
    lines = [
        f"Counsellor: {ACTS[a]}\nClient: {CLIENT_ACTS[u]}" for a, u in zip(said, heard, strict=True)
    ]
    return "\n".join(lines) or "(nothing yet)"


async def choose_acts(
    ctx: pl.Context, source: pl.Source, sim: Any, games: int, key: pl.Key
) -> tuple[np.ndarray, int]:
    """The returns [n] of dialogues in which the model chooses every act; and replies that did not fit,
    in whose place stands an open question.
    """
    fallback = ChosenAct(act="open question")
    rng = pl.rng_of((*key, "play"))
    state, alive, paid = sim.reset(rng, games), np.ones(games, bool), np.zeros(games)
    said, heard = [list[int]() for _ in range(games)], [list[int]() for _ in range(games)]
    unread = 0
    for _ in range(sim.horizon):
        rows = np.flatnonzero(alive)
        if not len(rows):
            break
        questions = [
            CHOOSE.format(history=spell_history(said[i], heard[i]), acts=spelled_acts())
            for i in rows
        ]
        given = await asyncio.gather(
            *(ctx.ask_for(source, q, ChosenAct, asks=2, fallback=fallback) for q in questions)
        )
        unread += sum(answer is fallback for answer in given)
        act = np.zeros((games, 1), int)
        act[rows, 0] = [ACTS.index(answer.act) for answer in given]
        state, reward, over = sim.step(state, act, rng)
        paid += reward[:, 0] * alive
        for i in rows:
            said[i].append(int(act[i, 0]))
            heard[i].append(int(state.heard[i, -1]))
        alive = alive & ~over
    return paid, unread


async def write_dialogue(
    ctx: pl.Context, source: pl.Source, said: Sequence[int], heard: Sequence[int]
) -> tuple[list[dict[str, str]], int]:
    """The turns of a dialogue in words: the model writes each act of the agent, and is asked which act
    that is; after three tries that are empty, too long or another act the act's template stands. The
    client's words are templates. Words of a crisis end the dialogue with a fixed text.

    Returns the turns, and how many the model wrote as they were chosen.
    """
    turns, written = list[dict[str, str]](), 0
    for a, u in zip(said, heard, strict=True):
        act = ACTS[a]
        history = "\n".join(f"{t['speaker']}: {t['text']}" for t in turns) or "(nothing yet)"
        text = await write_act(ctx, source, act, history)
        if text and CRISIS.search(text):
            return [*turns, {"speaker": "Counsellor", "act": "referral", "text": REFERRAL}], written
        written += bool(text)
        turns.append({"speaker": "Counsellor", "act": act, "text": text or TEMPLATES[act]})
        name = CLIENT_ACTS[u]
        turns.append({"speaker": "Client", "act": name, "text": CLIENT_WORDS[name]})
    return turns, written


async def write_act(ctx: pl.Context, source: pl.Source, act: str, history: str) -> str:
    """An utterance that is this act, by the model's own reading of it; "" = three tries gave none."""
    for at in range(RETRIES):
        question = WRITE.format(history=history, act=act, meant=MEANT[act])
        request = pl.ChatRequest(messages=pl.services.question_messages(question), seed=at)
        nothing = WrittenUtterance(utterance="")
        given = await ctx.ask_for(source, request, WrittenUtterance, asks=1, fallback=nothing)
        text = given.utterance.strip()
        if CRISIS.search(text):
            return text
        if not text or len(text) > LONGEST:
            continue
        naming = NAME.format(said=text, acts=spelled_acts())
        other = ChosenAct(act="plan" if act != "plan" else "summary")
        if (await ctx.ask_for(source, naming, ChosenAct, asks=2, fallback=other)).act == act:
            return text
    return ""


def written_replies(request: pl.ChatRequest) -> dict[str, Any]:
    """Replies by a rule that a large model wrote while this file was written: it chooses acts as a
    textbook's phases would, by the turn alone, and writes and names the templates.
    """
    text = request.messages[0].content
    if match := re.search(r'Its dialogue act is "([\w ]+)"', text):
        return {"utterance": TEMPLATES[match[1]]}
    if match := re.search(r'^An utterance of a counsellor: "(.*)"$', text, re.MULTILINE):
        names = {said: act for act, said in TEMPLATES.items()}
        return {"act": names.get(match[1], "summary")}
    turn = text.count("\nClient: ")
    return {
        "act": ("open question", "reflection", "summary", "new view", "plan")[min(4, turn // 3)]
    }
