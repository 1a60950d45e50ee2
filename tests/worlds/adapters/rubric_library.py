"""A stand-in for verifiers up to 0.3, as far as an environment with a rubric needs it. It refuses what the library does
not allow: a client that is none, a second question before the first is answered, and any other order than rollout, score,
cleanup.
"""

import inspect
import json
import sys
from copy import deepcopy
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace


class Record(SimpleNamespace):
    def __getitem__(self, name):
        return getattr(self, name)

    def get(self, name, default=None):
        return getattr(self, name, default)


class Client:
    def __init__(self, client):
        self.client = client


class Parser:
    def __init__(self, extract_fn=str.strip):
        self.extract_fn = extract_fn

    def parse_answer(self, completion):
        return self.extract_fn([m for m in completion if m["role"] == "assistant"][-1]["content"])


class Rubric:
    def __init__(self, funcs=None, weights=None, parser=None):
        self.funcs, self.weights = list(funcs or []), list(weights or [1.0] * len(funcs or []))
        self.parser = parser or Parser()

    def add_metric(self, function, weight=0.0):
        self.funcs.append(function)
        self.weights.append(weight)

    async def score_rollout(self, state):
        assert state["is_completed"] and state["done"] == ["rollout"], f"scored after {state['done']}"
        state["done"].append("score")
        given = {k: state[k] for k in ("prompt", "completion", "answer", "info")} | {
            "state": state,
            "parser": self.parser,
        }
        state["reward"], state["metrics"] = 0.0, {}
        for function, weight in zip(self.funcs, self.weights, strict=True):
            parameters = inspect.signature(function).parameters
            everything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
            try:
                value = function(**(given if everything else {k: v for k, v in given.items() if k in parameters}))
                value = float(await value if inspect.isawaitable(value) else value)
            except Exception:  # as the library does
                value = 0.0
            state["metrics"][function.__name__] = value
            state["reward"] += weight * value

    async def cleanup(self, state):
        assert state["done"] == ["rollout", "score"], f"cleaned up after {state['done']}"
        state["done"].append("cleanup")


class MultiTurnEnv:
    def __init__(
        self,
        dataset=None,
        eval_dataset=None,
        rubric=None,
        parser=None,
        system_prompt=None,
        max_turns=-1,
        tool_defs=None,
    ):
        self.rubric, self.parser, self.max_turns, self.tool_defs = (
            rubric or Rubric(),
            parser or Parser(),
            max_turns,
            tool_defs,
        )
        self.dataset, self.eval_dataset = (d and self.with_prompts(d, system_prompt) for d in (dataset, eval_dataset))
        self.rubric.add_metric(self.num_turns)

    async def num_turns(self, state):
        return state["turns"]

    def with_prompts(self, dataset, system):
        before = [{"role": "system", "content": system}] if system else []
        if "prompt" in dataset.column_names:
            return dataset
        return dataset.map(lambda row: {"prompt": [*before, {"role": "user", "content": row["question"]}]})

    def build_dataset(self):
        return self.dataset

    def build_eval_dataset(self):
        return self.eval_dataset

    async def setup_state(self, state):
        return state

    def ended(self, state):
        stops = [f for _, f in inspect.getmembers(self) if getattr(f, "stop", False)]
        return state["turns"] == self.max_turns > 0 or any(f(state) for f in stops)

    async def rollout(self, input, client, model, sampling_args=None):
        assert isinstance(client, Client) and isinstance(input, dict)
        state = {
            "answer": "",
            "info": {},
            **deepcopy(input),
            "is_completed": False,
            "error": None,
            "turns": 0,
            "done": [],
        }
        state = await self.setup_state(state) or state
        talk = [Record(**m) for m in state["prompt"]]
        while not self.ended(state):
            if state["turns"]:
                talk = [*talk, *(Record(**m) for m in await self.env_response(talk, state))]
            response = await client.get_response(
                prompt=talk, model=model, sampling_args={}, tools=self.tool_defs, state=state
            )
            reply = response.message
            talk, state["turns"] = (
                [*talk, Record(role="assistant", content=reply.content, tool_calls=reply.tool_calls)],
                state["turns"] + 1,
            )
            state["calls"] = reply.tool_calls
        state["completion"] = talk[len(state["prompt"]) :]
        state["is_completed"] = True
        state["done"].append("rollout")
        return state


class SingleTurnEnv(MultiTurnEnv):
    def __init__(self, **given):
        super().__init__(max_turns=1, **given)


class ToolEnv(MultiTurnEnv):
    def __init__(self, tools, max_turns=10, **given):
        self.tools = {f.__name__: f for f in tools}
        defs = []
        for name, function in self.tools.items():
            properties = {p: {"type": "integer"} for p in inspect.signature(function).parameters}
            parameters = {"type": "object", "properties": properties}
            defs.append(Record(name=name, description=inspect.getdoc(function), parameters=parameters))
        super().__init__(max_turns=max_turns, tool_defs=defs, **given)

    def ended(self, state):
        return super().ended(state) or (state["turns"] > 0 and not state["calls"])

    async def env_response(self, messages, state):
        calls = messages[-1].tool_calls
        return [
            {"role": "tool", "tool_call_id": c.id, "content": str(self.tools[c.name](**json.loads(c.arguments)))}
            for c in calls
        ]


def stop(function):
    function.stop = True
    return function


def install(monkeypatch):
    """Puts it in the place of the library."""
    parts = {
        "verifiers": [Parser, Rubric, MultiTurnEnv, SingleTurnEnv, ToolEnv, stop],
        "verifiers.rubrics": [Rubric],
        "verifiers.clients": [Client],
        "verifiers.types": [type(name, (Record,), {}) for name in ("ToolCall", "ResponseMessage", "Response")],
    }
    for name, members in parts.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=name == "verifiers")
        vars(module).update({m.__name__: m for m in members})
        monkeypatch.setitem(sys.modules, name, module)
