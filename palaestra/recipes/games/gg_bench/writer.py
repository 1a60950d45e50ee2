"""Games that a language model writes: rules, then a class, then what the numbers of moves mean."""

import palaestra as pl

TOKENS = 8192  # of a reply: rules, or a class

RULES = """Write the rules of a new game for two players who move in turn, to be played in text. It should be no
known game such as Nim, tic-tac-toe, Go or chess; have no dice, no cards and nothing that one player sees and
the other does not; end after at most some twenty moves with a winner, never in a draw; and a careful
player should beat a careless one. Say what a player wants, how the game begins, what a player may do in a turn, and when it
ends. Write the rules alone, as players will read them. This is game number {number}; make it unlike others."""
CODE = """{rules}

Write this game as one Python class `CustomEnv` in a fence ```python. Use the standard library and numpy alone.

- `self.action_space = spaces.Discrete(n)` from gymnasium may be set; every action is a whole number from 0.
- `self.current_player` is 1 for the player who opens and -1 for the other one; the class changes it by itself.
- `reset(self, seed=None, options=None)` returns (observation, {{}}). Nothing is random.
- `step(self, action)` returns (observation, reward, done, False, {{}}). The reward is 1 if the move wins the game
  for the player who made it, -1 if it loses it, -10 with done=True for a move that is not legal, and else 0.
- `valid_moves(self)` returns the list of legal actions, never empty before the end.
- `render(self)` returns the whole state as a text, with whose turn it is.

Write nothing behind the class that creates or tests it."""
MOVES = """{rules}

```python
{code}
```

Say in a few sentences what each number that a player may pass to `step` means in the game, for a player who does
not see the code."""


async def write_game(
    ctx: pl.Context, writer: pl.Source, number: int
) -> pl.worlds.WrittenRules | pl.worlds.GameVerdict:
    """The game that the model writes, which nobody has run yet; a verdict where its reply has no class.

    Raises:
        Fault: the model cannot be asked.
    """
    ask = lambda text: ctx.ask(
        writer,
        pl.ChatRequest(messages=pl.services.question_messages(text), max_tokens=TOKENS),
        seed=number,
    )
    rules = pl.verifiers.strip_thinking(await ask(RULES.format(number=number + 1))).strip()
    if not rules:
        return pl.worlds.GameVerdict(verdict="unwritten", why="the reply has no rules")
    reply = pl.verifiers.strip_thinking(await ask(CODE.format(rules=rules)))
    blocks = [b for b in pl.verifiers.code_blocks(reply) if "class " in b]
    if not blocks:
        return pl.worlds.GameVerdict(verdict="unwritten", why="the reply has no fence with a class")
    moves = await ask(MOVES.format(rules=rules, code=blocks[-1]))
    return pl.worlds.WrittenRules(
        title=f"game {number + 1}",
        rules=rules,
        moves=pl.verifiers.strip_thinking(moves).strip(),
        code=blocks[-1],
    )
