"""What a language model is asked: an act of its own choice, for the arm without a policy, and words for an
act that the policy chose. Nothing that is written here is advice for anybody.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from pydantic import AfterValidator, BaseModel, create_model

import palaestra as pl
from palaestra.recipes.llm4rl.mi_dialogue.clients import CLIENT_ACTS, ClientSimulator

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


OWN_CHOOSE = """{about}

The dialogue so far, by its acts:
{history}

The agent's acts are:
{acts}

Which act comes next? This is a simulation."""
OWN_WRITE = """{about}

The dialogue so far:
{history}

Write the agent's next utterance, one or two sentences. Its dialogue act is "{act}": it {meant}."""
OWN_NAME = """{about}

An utterance of the agent: "{said}"

Which of these dialogue acts is it?
{acts}"""


@runtime_checkable
class TellsActs(Protocol):
    """A simulator of a user's own whose acts have words; its `facts` have "client_act", the number of what the
    user did last.
    """

    @property
    def acts(self) -> Mapping[str, str]:
        """What each act of the agent does, by name, in the order of their numbers."""
        ...

    @property
    def client_acts(self) -> Sequence[str]:
        """What users do or say, in the order of their numbers."""
        ...


@pl.value_class
class DialogueWords:
    """How acts are told, asked for and written.

    Args:
        meant, templates: what each act of the agent does, and what is said where no reply is that act.
        client_acts, client_words: what users do, by name, and in words.
        choose, write, name: the questions.
    """

    agent: str
    client: str
    meant: Mapping[str, str]
    templates: Mapping[str, str]
    client_acts: Sequence[str]
    client_words: Mapping[str, str]
    choose: str
    write: str
    name: str
    about: str = ""

    @classmethod
    def of(cls, sim: pl.control.Simulator) -> "DialogueWords | None":
        """Those of a simulator; None = it has none. Raises UserError for acts that do not fit it."""
        if isinstance(sim, ClientSimulator):
            return INTERVIEW
        if not isinstance(sim, TellsActs):
            return None
        acts, heard = dict(sim.acts), [str(x) for x in sim.client_acts]
        facts = (
            sim.facts(sim.reset(np.random.default_rng(0), 1))
            if isinstance(sim, pl.control.TellsFacts)
            else {}
        )
        if len(acts) != sim.actions or not heard or "client_act" not in facts:
            raise pl.UserError(
                f"mi-dialogue: a simulator whose acts have words has a name for each of its {sim.actions} actions "
                f'(acts has {len(acts)}), client_acts, and "client_act" among its facts, the number of what the user '
                "did last"
            )
        return cls(
            agent="Agent",
            client="User",
            meant=acts,
            templates={name: f"({name})" for name in acts},
            client_acts=heard,
            client_words={x: x for x in heard},
            choose=OWN_CHOOSE,
            write=OWN_WRITE,
            name=OWN_NAME,
            about=str(getattr(sim, "about", "") or "An agent talks with a user."),
        )

    @property
    def acts(self) -> list[str]:
        return list(self.meant)

    def spelled(self) -> str:
        return "\n".join(f"- {act}: {meant}" for act, meant in self.meant.items())

    def history(self, acts: Sequence[int], heard: Sequence[int]) -> str:
        """The acts of both, turn by turn."""
        lines = [
            f"{self.agent}: {self.acts[a]}\n{self.client}: {self.heard(u)}"
            for a, u in zip(acts, heard, strict=True)
        ]
        return "\n".join(lines) or "(nothing yet)"

    def heard(self, number: int) -> str:
        """The name of what a user did. Raises UserError for a number that there is not."""
        if not 0 <= number < len(self.client_acts):
            raise pl.UserError(
                f'mi-dialogue: the fact "client_act" is {number}, and client_acts has {len(self.client_acts)}'
            )
        return self.client_acts[number]

    def form(self) -> type[BaseModel]:
        """{"act": NAME}, an act that there is."""
        names = self.acts

        def known(name: str) -> str:
            if name not in names:
                raise ValueError(f"there is no act {name!r}; there are {', '.join(names)}")
            return name

        item: Any = Annotated[str, AfterValidator(known)]
        return create_model("ChosenAct", act=(item, ...))


class WrittenUtterance(BaseModel):
    """What a counsellor says."""

    utterance: str


async def choose_acts(
    ctx: pl.Context,
    source: pl.Source,
    sim: Any,
    games: int,
    key: pl.Key,
    words: DialogueWords,
) -> tuple[np.ndarray, int, list[list[int]]]:
    """The returns [n] of dialogues in which the model chooses every act; replies that did not fit,
    in whose place stands the first act, an open question of the interview; and the acts.
    """
    form = words.form()
    fallback = form(act=words.acts[0])
    rng = pl.rng_of((*key, "play"))
    state, alive, paid = sim.reset(rng, games), np.ones(games, bool), np.zeros(games)
    acts, heard = [list[int]() for _ in range(games)], [list[int]() for _ in range(games)]
    unread = 0
    for _ in range(sim.horizon):
        rows = np.flatnonzero(alive)
        if not len(rows):
            break
        about_acts = {"acts": words.spelled(), "about": words.about}
        questions = [
            words.choose.format(history=words.history(acts[i], heard[i]), **about_acts)
            for i in rows
        ]
        given: list[Any] = await asyncio.gather(
            *(ctx.ask_for(source, q, form, asks=2, fallback=fallback) for q in questions)
        )
        unread += sum(answer is fallback for answer in given)
        act = np.zeros((games, 1), int)
        act[rows, 0] = [words.acts.index(answer.act) for answer in given]
        state, reward, over = sim.step(state, act, rng)
        paid += reward[:, 0] * alive
        done = np.asarray(sim.facts(state)["client_act"])
        for i in rows:
            acts[i].append(int(act[i, 0]))
            heard[i].append(int(done[i, 0]))
        alive = alive & ~over
    return paid, unread, acts


async def write_dialogue(
    ctx: pl.Context,
    source: pl.Source,
    acts: Sequence[int],
    heard: Sequence[int],
    words: DialogueWords,
) -> tuple[list[dict[str, str]], int]:
    """The turns of a dialogue in words: the model writes each act of the agent, and is asked which act
    that is; after three tries that are empty, too long or another act the act's template stands. The
    client's words are templates. Words of a crisis end the dialogue with a fixed text.

    Returns the turns, and how many the model wrote as they were chosen.
    """
    turns, written = list[dict[str, str]](), 0
    for a, u in zip(acts, heard, strict=True):
        act = words.acts[a]
        history = "\n".join(f"{t['speaker']}: {t['text']}" for t in turns) or "(nothing yet)"
        text = await write_act(ctx, source, act, history, words)
        if text and CRISIS.search(text):
            return [*turns, {"speaker": words.agent, "act": "referral", "text": REFERRAL}], written
        written += bool(text)
        turns.append({"speaker": words.agent, "act": act, "text": text or words.templates[act]})
        name = words.heard(u)
        turns.append({"speaker": words.client, "act": name, "text": words.client_words[name]})
    return turns, written


async def write_act(
    ctx: pl.Context, source: pl.Source, act: str, history: str, words: DialogueWords
) -> str:
    """An utterance that is this act, by the model's own reading of it; "" = three tries gave none."""
    form = words.form()
    other = form(act=next((x for x in words.acts[::-1] if x != act), act))
    for at in range(RETRIES):
        question = words.write.format(
            history=history, act=act, meant=words.meant[act], about=words.about
        )
        request = pl.ChatRequest(messages=pl.services.question_messages(question), seed=at)
        nothing = WrittenUtterance(utterance="")
        given = await ctx.ask_for(source, request, WrittenUtterance, asks=1, fallback=nothing)
        text = given.utterance.strip()
        if CRISIS.search(text):
            return text
        if not text or len(text) > LONGEST:
            continue
        naming = words.name.format(said=text, acts=words.spelled(), about=words.about)
        named: Any = await ctx.ask_for(source, naming, form, asks=2, fallback=other)
        if named is not other and named.act == act:
            return text
    return ""


INTERVIEW = DialogueWords(
    agent="Counsellor",
    client="Client",
    meant=MEANT,
    templates=TEMPLATES,
    client_acts=CLIENT_ACTS,
    client_words=CLIENT_WORDS,
    choose=CHOOSE,
    write=WRITE,
    name=NAME,
)


def written_replies(request: pl.ChatRequest) -> dict[str, Any]:
    """Replies by a rule that a large model wrote while this file was written: it chooses acts as a
    textbook's phases would, by the turn alone, and writes and names the templates.
    """
    text = request.messages[0].content
    if match := re.search(r'Its dialogue act is "([\w ]+)"', text):
        return {"utterance": TEMPLATES[match[1]]}
    if match := re.search(r'^An utterance of a counsellor: "(.*)"$', text, re.MULTILINE):
        names = {template: act for act, template in TEMPLATES.items()}
        return {"act": names.get(match[1], "summary")}
    turn = text.count("\nClient: ")
    return {
        "act": ("open question", "reflection", "summary", "new view", "plan")[min(4, turn // 3)]
    }
