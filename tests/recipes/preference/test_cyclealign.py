"""CycleAlign: rankings that are asked for and read, the agreement of two, the loss, and what the judge is shown next."""

import asyncio
import json
from dataclasses import replace

import palaestra as pl
import pytest
import torch
from palaestra.recipes.preference import cyclealign
from palaestra.recipes.preference.cyclealign import ranking, toy

from tests.chat_server import serving
from tests.fake import episode

QUESTION = (pl.Message(role="user", content="q"),)
SMALL = {"evaluate": 0, "quiet": True, "max_tokens": 24}


def batch_of(rows):
    """A batch of one-token rows (list, rank, s)."""
    unit, rank, s = zip(*rows, strict=True)
    ones = torch.ones(len(rows), 1, dtype=torch.float64)
    columns = {"trained": ones, "rank": torch.tensor(rank, dtype=torch.float64), "length": torch.ones(len(rows))}
    batch = pl.Batch(
        columns=columns, unit_B=torch.tensor(unit), n_tokens=len(rows), n_rows=len(rows), n_units=len(set(unit))
    )
    return batch, {"logp": torch.tensor(s, dtype=torch.float64)[:, None].requires_grad_()}


S = {"A": -1.2, "B": -1.0, "C": -2.0, "D": -1.5}


@pytest.mark.parametrize(
    ("order", "rank_loss", "ordered"),
    [("BADC", 0.0, 1.0), ("DABC", 1.0, 0.5), ("CDAB", 0.5 + 0.8 + 1.0 + 0.3 + 0.5 + 0.2, 0.0)],
)
def test_the_loss_of_a_ranking(order, rank_loss, ordered):
    """D > A > B > C costs 0.3 (D, A) + 0.5 (D, B) + 0.2 (A, B); the best answer's s is added."""
    batch, out = batch_of([(0, order.index(x), S[x]) for x in "ABCD"])
    loss, logged = cyclealign.RankedLikelihood(sft=2.0)(out, batch)
    assert loss.item() == pytest.approx(rank_loss - 2 * S[order[0]])
    assert logged["rank_loss"].item() == pytest.approx(rank_loss) and logged["ordered"].item() == pytest.approx(ordered)
    loss, _ = cyclealign.RankedLikelihood(sft=0.0)(out, batch)
    loss.backward()
    ahead = {x: sum(S[y] > S[x] for y in order[i + 1 :]) for i, x in enumerate(order)}
    behind = {x: sum(S[y] < S[x] for y in order[:i]) for i, x in enumerate(order)}
    assert out["logp"].grad[:, 0].tolist() == [behind[x] - ahead[x] for x in "ABCD"]


def test_the_loss_is_a_mean_over_lists_and_per_token():
    one, two = [(0, 0, -2.0), (0, 1, -1.0)], [(1, 0, -1.0), (1, 1, -4.0)]
    batch, out = batch_of([*two, *one])
    loss, logged = cyclealign.RankedLikelihood()(out, batch)
    assert loss.item() == pytest.approx((1.0 + 2.0 + 0.0 + 1.0) / 2) and logged["ordered"].item() == 0.5
    # an answer of two turns is one answer: s = (-3 - 1) / 2
    turns, out = batch_of([(0, 0, -3.0), (0, 0, -1.0), (0, 1, -1.5)])
    loss, _ = cyclealign.RankedLikelihood(sft=0.0)(out, turns)
    assert loss.item() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("first", "second", "agreed"),
    [("BADC", "ABDC", "BDC"), ("ABCD", "DCBA", "A"), ("ABCD", "ABCD", "ABCD"), ("ABCDE", "BACED", "ACD"), ("", "", "")],
)
def test_the_agreement_of_two_rankings(first, second, agreed):
    assert (
        "".join("ABCDE"[i] for i in ranking.agreed_order(*(["ABCDE".index(x) for x in y] for y in (first, second))))
        == agreed
    )


def test_a_ranking_is_read_as_a_permutation():
    shown = [2, 0, 1]  # A is response 2
    assert ranking.read_order("I think [[A > B > C]]? No: [[C > Response A > B]]", shown) == [1, 2, 0]
    assert ranking.read_order("<think>[[A > B > C]]</think>\n[[B, A, C]]", shown) == [0, 2, 1]
    for bad in ("", "A > B > C", "[[A > B]]", "[[A > A > B]]", "[[A > B > C > D]]", "[[A = B > C]]", "[[]]"):
        assert ranking.read_order(bad, shown) is None, bad


def asked(replies, read="order", examples=(), shown=(1, 0), choices=None):
    """The ranking of two responses, and the requests; replies in turn."""
    requests = []

    def say(request):
        requests.append(request)
        return pl.Reply(text=replies[len(requests) - 1], choices=choices)

    client = pl.Scripted(say).open()
    found = asyncio.run(ranking.ask_ranking(client, read, "short", examples, "q?", ("one", "two [[A]]"), list(shown)))
    return found, requests


def test_a_reply_that_is_no_order_is_asked_for_once_more():
    found, requests = asked(["the second", "[[B > A]]"])
    assert found == [0, 1] and len(requests) == 2
    first, said, repair = requests[1].messages
    assert said.text == "the second" and "[[B > A]]" in repair.text and first == requests[0].messages[0]
    found, requests = asked(["no", "no", "[[A > B]]"])
    assert found is None and len(requests) == 2


def test_the_judge_sees_shuffled_defused_responses_and_ranked_examples():
    example = ranking.RankedExample(question="e?", responses=("good", "bad", "worse"))
    _, (request,) = asked(["[[A > B]]"], examples=(example,))
    text = request.messages[0].text
    assert text.index("two [ [A] ]") < text.index("<response>one") and "short" in text
    shown = text.partition("An example:")[2].partition("Ranking: ")
    places = {x: shown[0].index(f"<response>{x}</response>") for x in example.responses}
    letters = {x: "ABC"[sorted(places, key=places.get).index(x)] for x in places}
    assert shown[2].startswith("[[" + " > ".join(letters[x] for x in example.responses) + "]]")


def test_letters_are_ranked_by_their_probability():
    found, (request,) = asked([""], read="letters", choices={"A": -2.0, "B": -0.5})
    assert found == [0, 1] and request.choices == ("A", "B")
    with pytest.raises(pl.UserError, match="read=order"):
        asked([""], read="letters")


def answers_to(ctx, texts, **meta):
    task = pl.Task(id="t", prompt=QUESTION, meta=meta)
    said = tuple(pl.recorded_episode(ctx, "policy", QUESTION, x, 0.0) for x in texts)
    return pl.Group(task=task, episodes=tuple(replace(e, reward=None) for e in said))


def by_length(request):
    """The shortest first; with a demonstration the longest first."""
    text = request.messages[0].text
    last = text.rpartition("<question>")[2]
    lengths = [len(x.partition("</response>")[0]) for x in last.split("<response>")[1:]]
    sign = -1 if "An example" in text else 1
    order = sorted(range(len(lengths)), key=lambda i: sign * lengths[i])
    return f"[[{' > '.join('ABCDEFG'[i] for i in order)}]]"


def test_ranks_rewards_and_the_gate(context):
    """Equal answers share a place; the agreed ones are those of the longest common subsequence."""
    ctx = context()
    judge = cyclealign.RankByJudge(pl.Scripted(by_length), static=(), threshold=0.0, compare=1.0)
    group = answers_to(ctx, ["= 123", "= 1", "= 12", "= 1"])
    rewards = asyncio.run(judge(ctx, group))
    assert [r.total for r in rewards] == [0.0, 1.0, 0.5, 1.0] and all(r.silent == ("changed",) for r in rewards)
    (signals,) = ctx.measure([group], (("policy", "logp"),))
    trained = [e.rows[0].view().trained_T for e in group.episodes]
    means = [float(x[0]["policy_logp"][t].mean()) for x, t in zip(signals, trained, strict=True)]
    assert [r.parts["likelihood"] for r in rewards] == pytest.approx(means)
    own = sorted(range(3), key=lambda i: -means[i])
    agreed = ranking.agreed_order([1, 2, 0], own)
    labels = [r.labels.get("agreed") for r in rewards]
    want = [str(agreed.index(i)) if i in agreed and len(agreed) > 1 else None for i in range(3)]
    assert labels == [*want, None] and rewards[0].parts["agreement"] == len(agreed) / 3
    shut = replace(judge, threshold=1.0)
    if len(agreed) < 3:
        assert all(not r.labels and r.parts["accepted"] == 0 for r in asyncio.run(shut(ctx, group)))


def test_demonstrations_that_change_the_ranking_are_counted(context):
    ctx = context()
    judge = cyclealign.RankByJudge(pl.Scripted(by_length), static=(), compare=1.0)
    shown = (ranking.RankedExample(question="e", responses=("a", "b")),)
    for texts, changed in ((["= 1", "= 12"], 1.0), (["= 1", "= 2"], None)):
        rewards = asyncio.run(judge(ctx, answers_to(ctx, texts, agreed_examples=shown)))
        assert rewards[0].parts["examples"] == 1
        if changed is not None:
            assert [r.total for r in rewards] == [0.0, 1.0] and rewards[0].parts["changed"] == changed
    never = replace(judge, compare=0.0)
    rewards = asyncio.run(never(ctx, answers_to(ctx, ["= 1", "= 12"], agreed_examples=shown)))
    assert "changed" not in rewards[0].parts and rewards[0].silent == ("changed",)


def test_what_cannot_be_ranked_is_an_error_or_teaches_nothing(context):
    ctx = context()
    mute = cyclealign.RankByJudge(pl.Scripted(lambda request: "no idea"))
    faults = asyncio.run(mute(ctx, answers_to(ctx, ["= 1", "= 2"])))
    assert [f.cause for f in faults] == ["judge-unparsed"] * 2
    same = asyncio.run(mute(ctx, answers_to(ctx, ["= 1", "= 1"])))
    assert [r.total for r in same] == [0.5, 0.5] and "likelihood" in same[0].silent
    equal = pl.Group(task=pl.Task(id="t"), episodes=(episode((0,), (1,), 0.5),) * 2)
    assert cyclealign.RankRows()([equal], [[[{}]] * 2], {}) == ([], {})


def test_rows_are_ranked_without_muted_and_equal_answers():
    four = [episode((0,), (1,) * n, r) for n, r in ((1, 0.5), (2, 1.0), (3, 0.5), (4, 0.0))]
    four[1] = replace(four[1], muted=True)
    rows, _ = cyclealign.RankRows()([pl.Group(task=pl.Task(id="t"), episodes=tuple(four))], [[[{}]] * 4], {})
    assert [(len(r.row.segments[-1].ids), r.columns["rank"]) for r in rows] == [(1, 0.0), (4, 1.0)]


def test_answers_that_were_cut_are_not_ranked_and_never_shown(context):
    ctx, shown = context(), []

    def rank(request):
        shown.append(request.messages[0].text)
        return by_length(request)

    judge = cyclealign.RankByJudge(pl.Scripted(rank), static=(), threshold=0.0)
    group = answers_to(ctx, ["= CUT", "= 1", "= 12"])
    first, *others = group.episodes
    cut = replace(first, muted=True, status="truncated:length", facts={"labels": {"agreed": "0"}})
    rewards = asyncio.run(judge(ctx, replace(group, episodes=(cut, *others))))
    assert [r.total for r in rewards] == [0.0, 1.0, 0.0] and "CUT" not in shown[0]
    assert rewards[0].silent == cyclealign.PARTS and not rewards[0].labels and "likelihood" in rewards[2].parts
    assert cyclealign.agreed_example(replace(group, episodes=(cut,))) == []
    alone = asyncio.run(judge(ctx, replace(group, episodes=(cut, others[0]))))
    assert [r.total for r in alone] == [0.0, 0.5] and len(shown) == 1


def test_an_agreed_ranking_becomes_a_demonstration_and_a_batch_comes_again(context):
    recipe = cyclealign.build(judge=pl.Scripted(by_length), rounds=2, dynamic=1)
    ctx, state = context(), {}
    first, state = recipe.draw(ctx, ("a",), 2, state)
    said = answers_to(ctx, ["= 12", "= 1", "= 123"])
    labels = ("1", "0", None)
    agreed = tuple(
        replace(e, reward=pl.Reward(total=0.0), facts={"labels": {"agreed": x} if x else {}})
        for e, x in zip(said.episodes, labels, strict=True)
    )
    state = recipe.observe([replace(said, episodes=agreed), said], {}, state)
    again, state = recipe.draw(ctx, ("b",), 2, state)
    later, state = recipe.draw(ctx, ("c",), 2, state)
    assert [t.id for t in first] == [t.id for t in again] and first[0].meta["agreed_examples"] == ()
    assert not {t.id for t in first} & {t.id for t in later}
    shown = (ranking.RankedExample(question="q", responses=("= 1", "= 12")),)
    assert again[0].meta["agreed_examples"] == later[0].meta["agreed_examples"] == shown
    assert cyclealign.build(judge=pl.Scripted(by_length), dynamic=0).draw == cyclealign.RepeatedBatch(3)


def test_pairs_that_gold_tells_apart():
    assert ranking.pair_accuracy([1.0, 0.5, 0.0], [1, 0, 1]) == 0.5  # the first pair right, the other wrong
    assert ranking.pair_accuracy([0.3, 0.3], [1, 0]) == 0.5 and ranking.pair_accuracy([1, 0], [1, 1]) is None


def test_the_program_that_judges_gains_from_right_demonstrations():
    assert toy.chain_lines("4+7*3-9 mod 10") == ["4+7=1", "1*3=3", "3-9=4"] and toy.chain_lines("why?") == []
    quality = [toy.quality("4+7*3-9 mod 10", x) for x in ("4+7=1\n1*3=3\n3-9=4\n= 4", "= 4", "4+7=1\n= 7", "7")]
    assert quality == pytest.approx([1.5, 1.0, 1 / 6, 0.0])
    good = [ranking.RankedExample(question="4+7*3-9 mod 10", responses=("= 4", f"= {n}")) for n in (1, 2, 3)]
    bad = [replace(e, responses=e.responses[::-1]) for e in good]

    async def right(examples):
        client, hits = pl.Scripted(toy.noisy_judge).open(), 0
        for n in range(60):
            answers = ("= 4", f"= {n % 4} {n}")
            asks = ranking.ask_ranking(client, "order", "r", examples, f"{n}+4-{n} mod 10", answers, [1, 0])
            hits += (await asks) == [0, 1]
        return hits

    none, wrong, three = (asyncio.run(right(x)) for x in ((), bad, good))
    assert none == wrong < 56 and three >= 58


def test_a_users_demonstrations_and_endpoint(tmp_path):
    """A file of ranked examples, an endpoint that writes an order, and prompts alone."""
    rows = [{"prompt": f"{37 * i + 11}*{i + 7}="} for i in range(8)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "d.jsonl").write_text(json.dumps({"prompt": "e?", "chosen": "EXAMPLE", "rejected": "no"}) + "\n")
    seen = []

    def rank(body):
        text = body["messages"][0]["content"]
        seen.append(text)
        n = text.rpartition("<question>")[2].count("<response>")
        return f"[[{' > '.join('ABCD'[:n])}]]"

    words = {"schedule.prompts": 4, "k": 4, "rounds": 1, "threshold": 0.0, "demonstrations": str(tmp_path / "d.jsonl")}
    with serving(rank) as (_, url):
        words["judge"] = f"endpoint(url='{url}',model='m')"
        run = pl.train("cyclealign", data=str(tmp_path / "p.jsonl"), out=tmp_path / "r", set=words, steps=2, **SMALL)
    steps = [json.loads(x) for x in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert all("EXAMPLE" in text for text in seen) and any(text.count("An example") > 1 for text in seen)
    assert [x["part/examples"] for x in steps if "part/examples" in x] == [0, 2]
    assert any("rank_loss" in x for x in steps) and not any("part/judge_right" in x for x in steps)


def test_bad_input_says_what_to_do(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": "q"}\n' * 4)
    with pytest.raises(pl.UserError, match="judge"):
        pl.train("cyclealign", data=str(tmp_path / "p.jsonl"), out=tmp_path / "r", steps=1, **SMALL)
    judge = pl.Scripted(str)
    for name, value in (("k", 1), ("k", 27), ("rounds", 0), ("threshold", 1.5), ("dynamic", -1)):
        with pytest.raises(pl.UserError, match=f"cyclealign: {name}"):
            cyclealign.build(judge=judge, **{name: value})
    file = tmp_path / "d.jsonl"
    for row in ({"prompt": "q"}, {"prompt": "q", "ranked": ["one"]}, {"prompt": "q", "ranked": ["a", 3]}):
        file.write_text(json.dumps(row) + "\n")
        with pytest.raises(pl.UserError, match=r"d\.jsonl.*ranked"):
            cyclealign.build(judge=judge, demonstrations=str(file))
