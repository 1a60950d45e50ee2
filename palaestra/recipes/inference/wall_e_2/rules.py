"""Rules of a world: induced from logged transitions, pruned, and written as Python.

A rule says when an action fails, and never that one succeeds. It looks at the features of a situation:
the pieces of what the world shows ("at b2"), its words, what the scene graph still knows of what was
shown before, and which two entries of that have one value ("at = box").
"""

import inspect
import json
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

import palaestra as pl

MOST_FEATURES = 24  # of which pairs are formed


@pl.value_class
class LoggedAction:
    """What was done in a world, and whether it worked.

    Args:
        state: what the world showed before.
        action: as it was said.
        success: whether it worked.
        scene: the scene graph before: places or values by what they belong to.
        expected: what the world model without rules expected.
    """

    state: str
    action: str
    success: bool
    scene: dict[str, str]
    expected: bool = True


@pl.value_class
class VetoRule:
    """An action of a kind fails where all of `present` are features and none of `absent` is."""

    kind: str
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    def applies(self, action: str, features: Collection[str]) -> bool:
        return (
            action_kind(action) == self.kind
            and all(f in features for f in self.present)
            and not any(f in features for f in self.absent)
        )

    @property
    def feedback(self) -> str:
        """Why the action fails."""
        parts = [f"it needs [{f}]" for f in self.absent]
        parts += [f"it does not work with [{f}]" for f in self.present]
        return f"{self.kind} fails: {', '.join(parts) or 'it never worked'}."

    @property
    def suggestion(self) -> str:
        return f"First reach [{self.absent[0]}]." if self.absent else "Choose another action."


def said_action(text: str) -> str:
    """The action of a message: its last line that says something, without thinking, markdown and
    "Action:"; "" = there is none.
    """
    for line in reversed(pl.verifiers.strip_thinking(text).splitlines()):
        bare = re.sub(r"^\s*[-+>#*]+\s+|(?<!\w)[*`]+|[*`]+(?!\w)", "", line).strip()
        bare = re.sub(r"^(?:next\s+)?action\s*\d*\s*:\s*", "", bare, flags=re.IGNORECASE)
        if bare:
            return bare
    return ""


# These four functions are also written into the file of the rules, which runs alone.


def action_kind(action: str) -> str:
    """The first word of an action."""
    return (action.lower().split() or [""])[0]


def scene_pieces(text: str) -> list[str]:
    """What a text says, in pieces: split at commas, semicolons, full stops and lines."""
    pieces = [" ".join(p.lower().split()) for p in re.split(r"[,;\n]|\.(?:\s|$)", text)]
    return [p for p in pieces if p]


def scene_facts(text: str) -> dict[str, str]:
    """Entries of the scene graph: "box c1" is {"box": "c1"}, "the cup is on shelf 2" {"the cup": "shelf 2"}."""
    facts: dict[str, str] = {}
    for piece in scene_pieces(text):
        match = re.fullmatch(r"(.+?) (?:is|are) (?:in|on|at|inside|under) (.+)", piece)
        name, _, value = piece.rpartition(" ")
        if match:
            facts[match[1]] = match[2]
        elif name:
            facts[name] = value
    return facts


def scene_features(state: str, scene: dict[str, str]) -> set[str]:
    """The features of a situation; what is only remembered is marked "known"."""
    present = scene_facts(state)
    known = {**scene, **present}
    features = set(scene_pieces(state)) | set(re.findall(r"[a-z]+", state.lower()))
    features |= {f"known: {name} {value}" for name, value in scene.items() if name not in present}
    names = sorted(known)
    return features | {f"{a} = {b}" for a in names for b in names if a < b and known[a] == known[b]}


def failure_pieces(text: str, before: str, blamed: Sequence[str], failure: str) -> tuple[str, ...]:
    """The pieces of a text that match `failure` and did not stand in the text before; also those by which
    the action before failed (`blamed`), where but for numbers all pieces are the same ("Nothing happens. Turn
    3").
    """
    after, old = scene_pieces(text), scene_pieces(before)
    same = {re.sub(r"\d+", "", p) for p in after} == {re.sub(r"\d+", "", p) for p in old}
    known = set(old) - set(blamed if same else ())
    return tuple(p for p in after if p not in known and re.search(failure, p, re.IGNORECASE))


def induce_rules(batch: Sequence[LoggedAction], least: int = 2) -> list[VetoRule]:
    """The rules that veto no success of a batch and at least `least` of its unexpected failures: of one
    condition each, and for failures that these leave, of two features that are present. What an action
    requires is what all of at least `least` successes had.
    """
    rules = list[VetoRule]()
    for kind in dict.fromkeys(action_kind(t.action) for t in batch):
        own = [t for t in batch if action_kind(t.action) == kind]
        good = [scene_features(t.state, t.scene) for t in own if t.success]
        bad = [scene_features(t.state, t.scene) for t in own if not t.success and t.expected]
        rules += _of_kind(kind, good, bad, least)
    return rules


def _of_kind(
    kind: str, good: Sequence[set[str]], bad: Sequence[set[str]], least: int
) -> list[VetoRule]:
    if len(bad) < least:
        return []
    if not good:
        return [VetoRule(kind=kind)]
    counts: dict[str, int] = {}
    for features in bad:
        for f in sorted(features):
            counts[f] = counts.get(f, 0) + 1
    always = sorted(set.intersection(*map(set, good))) if len(good) >= least else []
    absent = [f for f in always if len(bad) - counts.get(f, 0) >= least]
    single = [f for f, n in counts.items() if n >= least and not any(f in g for g in good)]
    rules = [VetoRule(kind=kind, absent=(f,)) for f in absent]
    rules += [VetoRule(kind=kind, present=(f,)) for f in single]
    left = [b for b in bad if not any(r.applies(kind, b) for r in rules)]
    common = sorted({f for b in left for f in b}, key=lambda f: (-counts[f], f))[:MOST_FEATURES]
    for f, g in combinations(common, 2):
        of_both = sum(f in b and g in b for b in left)
        if of_both >= least and not any(f in x and g in x for x in good):
            rules.append(VetoRule(kind=kind, present=(f, g)))
    return rules


def greedy_cover(sets: Sequence[Collection[int]]) -> list[int]:
    """Greedy maximum coverage: again and again the set with most elements that are not covered, of a
    tie the first, until none adds one.
    """
    chosen, covered = list[int](), set[int]()
    while sets:
        gains = [len(set(s) - covered) for s in sets]
        best = int(np.argmax(gains))
        if not gains[best]:
            break
        chosen.append(best)
        covered |= set(sets[best])
    return chosen


@pl.value_class
class PrunedRules:
    """Which of some rules are kept, by number: `chosen` by coverage, `reserve` valid beside them, and
    `dropped`, which veto a success or break.
    """

    chosen: tuple[int, ...] = ()
    reserve: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


def prune_rules(
    vetoes: Sequence[Sequence[bool | None]], log: Sequence[LoggedAction]
) -> PrunedRules:
    """Drops each rule that vetoes a success or breaks; of the others those are chosen, greedily, that
    together veto most of the failures that were not expected.

    Args:
        vetoes: by rule, whether it vetoes each transition; None = it broke there.
    """
    valid = [
        r
        for r, row in enumerate(vetoes)
        if not any(v is None or (v and t.success) for v, t in zip(row, log, strict=True))
    ]
    failures = [i for i, t in enumerate(log) if not t.success and t.expected]
    chosen = [
        valid[i] for i in greedy_cover([[i for i in failures if vetoes[r][i]] for r in valid])
    ]
    return PrunedRules(
        chosen=tuple(chosen),
        reserve=tuple(r for r in valid if r not in chosen),
        dropped=tuple(r for r in range(len(vetoes)) if r not in valid),
    )


def rules_as_code(rules: Sequence[VetoRule]) -> str:
    """The rules as a Python module: RULES, functions (state, action, scene) -> (feedback, success,
    suggestion), of which success is False where the action fails and True where nothing is known.
    """
    helpers = (action_kind, scene_pieces, scene_facts, scene_features)
    parts = ['"""When actions fail, learned from transitions."""\n\nimport re\n']
    parts += [inspect.getsource(f) for f in helpers]
    for i, r in enumerate(rules):
        tests = [f"action_kind(action) == {r.kind!r}"]
        tests += [f"{f!r} in found" for f in r.present] + [f"{f!r} not in found" for f in r.absent]
        parts.append(
            f"def rule_{i}(state, action, scene):\n"
            f"    found = scene_features(state, scene)\n"
            f"    if {' and '.join(tests)}:\n"
            f"        return ({r.feedback!r}, False, {r.suggestion!r})\n"
            f"    return ('', True, '')\n"
        )
    names = ", ".join(f"rule_{i}" for i in range(len(rules)))
    return "\n\n".join([*parts, f"RULES = [{names}]\n"])


def knowledge_graph(rules: Sequence[VetoRule]) -> list[tuple[str, str, str]]:
    """Edges (action, relation, feature) that the rules stand for."""
    edges = [(r.kind, "requires", f) for r in rules for f in r.absent]
    return edges + [(r.kind, "fails with", " and ".join(r.present)) for r in rules if r.present]


def read_log(path: str) -> list[LoggedAction]:
    """Transitions of a file: rows with state, action, success and perhaps scene.

    Raises:
        UserError: a row has something else.
    """
    log = list[LoggedAction]()
    rows = [row for records in pl.tasks.open_records(path).values() for row in records]
    for i, row in enumerate(rows):
        state, action, success = (row.get(k) for k in ("state", "action", "success"))
        scene: Any = row.get("scene") or {}
        if not (isinstance(state, str) and isinstance(action, str) and action.strip()):
            raise pl.UserError(
                f"{path}, row {i + 1}: state and action must be texts: {json.dumps(row)[:80]}"
            )
        if success not in (True, False) or not isinstance(scene, Mapping):
            raise pl.UserError(
                f"{path}, row {i + 1}: success is true or false, and scene an object of texts"
            )
        log.append(
            LoggedAction(state=state, action=action, success=bool(success), scene=dict(scene))
        )
    if not log:
        raise pl.UserError(f"{path} has no rows; write state, action and success in each")
    return log
