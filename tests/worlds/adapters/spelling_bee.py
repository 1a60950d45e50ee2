"""Two environments of verifiers as its users write them: one question, and a talk of several turns.

`spell` is a taskset as an installed package would have it; `Hangman` has a `run` of its own.
"""

import verifiers.v1 as vf

WORDS = ("cat", "dog", "bird", "fish", "frog", "duck", "goat", "hare", "wolf", "bear")


class WordData(vf.TaskData):
    word: str


class Spell(vf.Task[WordData]):
    @vf.reward
    async def exact(self, task, trace):
        return float(trace.last_reply.strip() == " ".join(task.word))

    @vf.reward(weight=0.5)
    async def brief(self, trace):
        return float(len(trace.last_reply) < 20)


class SpellSet(vf.Taskset[Spell, vf.TasksetConfig]):
    def load(self):
        for word in WORDS:
            yield Spell(WordData(word=word, prompt=f"Spell {word}.", system_prompt="Letters only."), self.config.task)


class Hangman(vf.Task[WordData]):
    pass


class HangmanSet(vf.Taskset[Hangman, vf.TasksetConfig]):
    def load(self):
        for word in WORDS:
            yield Hangman(WordData(word=word, prompt=f"{len(word)} letters"), self.config.task)


class HangmanConfig(vf.EnvConfig):
    guesser: vf.AgentConfig = vf.AgentConfig()


class HangmanEnv(vf.Env[HangmanConfig]):
    """Four guesses; each right letter is worth the same."""

    async def run(self, task, agents):
        found = set()
        async with agents.guesser.interaction(task) as talk:
            segment = await talk.turn()
            for _ in range(3):
                found |= set(segment.last_reply) & set(task.data.word)
                shown = "".join(c if c in found else "_" for c in task.data.word)
                segment = await talk.turn(shown)
            found |= set(segment.last_reply) & set(task.data.word)
        talk.trace.record_reward("found", len(found) / len(set(task.data.word)))


class Dug(Hangman):
    NEEDS_CONTAINER = True


class DugSet(vf.Taskset[Dug, vf.TasksetConfig]):
    def load(self):
        yield Dug(WordData(word="x", prompt="?"), self.config.task)


__all__ = ["SpellSet"]
