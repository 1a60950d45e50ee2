"""The viewer without a browser: what is read of a run folder, what is computed, and who is answered."""

import base64
import hashlib
import http.client
import io
import json
import re
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.made_up import write_run
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.store.columns import SCHEMA, path
from palaestra.view.answers import PageAnswers
from palaestra.view.cache import TableCache
from palaestra.view.export import by_worth, export, write
from palaestra.view.in_text import show
from palaestra.view.pixels import data_address
from palaestra.view.problems import fates
from palaestra.view.reader import RunReader, open_runs
from palaestra.view.server import ViewerServer, page_files, policy
from palaestra.view.signs import judges, pieces, rise, signs, thirds, within
from palaestra.view.versus import differing, versus
from PIL import Image
from rich.console import Console

from tests.synthetic import run_folder

STEPS, HOSTILE = 12, "</script><img src=x onerror=window.stolen=1>"


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("view") / "run", STEPS, groups=8, samples=4, problems=40, tokens=20)


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))


@contextmanager
def served(*folders, host="127.0.0.1"):
    with ViewerServer(open_runs(folders), host) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield server
        server.shutdown()


def get(server, address, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", address, headers=headers)
    reply = connection.getresponse()
    return reply.status, reply.read(), dict(reply.getheaders())


def index_table(rows):
    """A table of episodes as the reader makes it, of (step, group, reward, more)."""
    lines = [
        {"step": s, "group": g, "reward": r, "status": "finished", "n_tokens": 5, "task_id": "t", "domain": "", **more}
        for s, g, r, more in rows
    ]
    table = pa.Table.from_pylist(lines)
    for name in ("task_id", "domain", "status"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table[name].combine_chunks().dictionary_encode())
    return table.set_column(table.schema.get_field_index("reward"), "reward", table["reward"].cast(pa.float32()))


# ---- reading


def test_the_index_has_every_episode_and_a_group_its_tokens(made):
    run = RunReader(made)
    table = run.table("training")
    assert table.index.num_rows == STEPS * 32 and "part/right" in table.index.column_names
    found = table.group(3, 2)
    line = next(x for x in pq.ParquetFile(path(made, 3)).read().to_pylist() if x["group"] == 2)
    assert len(found) == 4 and found[0]["rows"][0]["tokens"] == line["rows"][0]["tokens"]
    assert found[0]["reward_parts"] == {"right": line["reward"]} and found[0]["rows"][0]["weight"][-1] is not None
    assert table.group(999, 0) == [] and table.group(3, 99) == []


def test_search_finds_what_python_finds(made):
    table = RunReader(made).table("training")
    texts = [(t["prompt"], t["text"]) for t in table.texts.to_pylist()]
    words = "So The Answer"
    wanted = [i for i, t in enumerate(texts) if any(words.lower() in x.lower() for x in t)]
    assert wanted and table.search(words) == wanted
    assert table.search("/so the\\s+answer/") == wanted and table.search("no such words") == []
    with pytest.raises(UserError, match="no regular expression"):
        table.search("/(/")
    assert table.excerpts([0, -1, 10**9]) == [{k: (v or "")[:200] for k, v in table.texts.to_pylist()[0].items()}]


def test_the_cache_follows_the_files_and_the_run_folder_stays_as_it_is(made, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(made, folder)
    last = path(folder, STEPS)
    content = last.read_bytes()
    last.unlink()
    run = RunReader(folder, tmp_path / "cache")
    n = run.table("training").index.num_rows
    last.write_bytes(content)
    run.refresh()
    assert run.table("training").index.num_rows == n + 32
    read = []
    cache = TableCache(folder, tmp_path / "cache")
    files = sorted((folder / "rollouts").iterdir())
    known = cache.table("training-index", files, lambda new: read.append(new) or pa.table({}))
    assert not read and known.num_rows == n + 32  # nothing is read twice
    path(folder, 1).unlink()
    assert RunReader(folder, tmp_path / "cache").table("training").index.num_rows == n
    assert {p.name for p in folder.iterdir()} == {p.name for p in made.iterdir()}
    (next((tmp_path / "cache").rglob("*.json"))).write_text("cut off")
    assert RunReader(folder, tmp_path / "cache").table("training").index.num_rows == n


def test_files_of_older_versions_damaged_ones_and_parts_of_a_line_are_read_as_far_as_they_go(tmp_path):
    folder = run_folder(tmp_path / "older", steps=6, groups=2, samples=3, files=6)  # version 1, few columns
    path(folder, 2).write_bytes(b"PAR1 cut off")
    with (folder / "metrics.jsonl").open("a") as log:
        log.write('{"step": 7, "rew')
    later = pq.ParquetFile(path(folder, 3)).read()
    later = later.append_column("of a later version", pa.array(["x"] * later.num_rows))
    pq.write_table(later, path(folder, 3))
    run = RunReader(folder)
    index = run.table("training").index
    assert (
        index.num_rows == 5 * 6 and set(index["kept"].to_pylist()) == {""} and index["oldest_version"].null_count == 30
    )
    assert run.table("training").group(3, 1)[0]["rows"][0]["weight"] is None
    assert max(r["step"] for r in run.metrics) == 6
    for name in ("signs", "judges", "verdict", "settings", "rise"):
        PageAnswers([run]).get(["run", "0", name], {})


def test_folders_of_runs_and_pipelines_are_opened_by_their_parts(made, tmp_path):
    for name in ("runs/a", "runs/whole/first", "runs/whole/second"):
        shutil.copytree(made, tmp_path / name)
    for name in ("runs/whole/first", "runs/whole/second"):
        (tmp_path / name / "config.toml").unlink()
    shutil.copy(made / "config.toml", tmp_path / "runs/whole/config.toml")
    assert [r.name for r in open_runs([tmp_path / "runs"])] == ["a", "whole/first", "whole/second"]
    with pytest.raises(UserError, match="is not a run folder and holds none"):
        open_runs([tmp_path])


def test_row_groups_are_read_alone(made, tmp_path, monkeypatch):
    from palaestra.view import reader

    table = pq.ParquetFile(path(made, 1)).read()
    file = tmp_path / "step-000001.parquet"
    with pq.ParquetWriter(file, table.schema) as out:
        for g in range(8):
            out.write_table(table.slice(4 * g, 4))
    taken = []
    whole = pq.ParquetFile.read_row_group
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda f, i: taken.append(i) or whole(f, i))
    assert reader.read_group(file, 5) == table.slice(20, 4).to_pylist() and taken == [5]


def test_pictures_become_png():
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    address = data_address({"height": 2, "width": 3, "channels": 3, "data": pixels.tobytes()})
    found = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))
    assert (found == pixels).all()
    assert data_address({"height": 2, "width": 3, "channels": 3, "data": b"short"}) == ""


# ---- what is computed


def test_problems_by_chance_are_not_named(made):
    """Among problems whose chance never changes hardly one is called forgotten; one that is lost is."""
    rng = np.random.default_rng(0)
    right = rng.random((300, 9, 4)) < 0.5
    lines = [
        {"task_id": f"p{p}", "step": s, "status": "finished", "reward": float(right[p, s, i])}
        for p in range(300)
        for s in range(9)
        for i in range(4)
    ]
    lost = [
        {"task_id": "lost", "step": s, "status": "finished", "reward": float(s < 3)} for s in range(9) for _ in range(8)
    ]
    found = {p["task_id"]: p["fate"] for p in fates(pa.Table.from_pylist(lines + lost))}
    assert found.pop("lost") == "forgotten" and sum(f in ("learned", "forgotten") for f in found.values()) <= 2
    assert sum(p["episodes"] for p in fates(RunReader(made).table("training").index)) > STEPS * 30


def test_the_prompt_of_a_problem_is_the_one_without_a_hint():
    lines = [
        {"task_id": t, "step": 1, "status": "finished", "reward": 1.0, "prompt": f"{t}?{hint}"}
        for hint in (" hint: a", "", " hint: b")
        for t in ("x", "y")
    ]
    found = {p["task_id"]: (p["prompt"], p["episodes"], p["at"]) for p in fates(pa.Table.from_pylist(lines))}
    assert found == {"x": ("x?", 3, 0), "y": ("y?", 3, 1)}


def test_length_that_is_paid_and_pieces_that_spread_are_told():
    assert within(np.array([0, 0, 1, 1]), np.array([1.0, 2, 5, 6]), np.array([0.0, 1, 0, 1])) == pytest.approx(1.0)
    assert within(np.array([0, 0, 1, 1]), np.array([1.0, 1, 9, 9]), np.array([0.0, 1, 0, 1])) == 0.0
    rows, said = [], []
    for step in range(1, 10):
        for i in range(60):
            hacks = step > 6 and i % 2 == 0
            rows.append((step, 0, 1.0 if hacks else 0.0, {}))
            said.append(f"{'great question' if hacks else 'well'} the answer is {i}")
    index = index_table(rows)
    found = pieces(index, pa.table({"text": said}), thirds(index))
    assert found["stands_out"] and {"great", "question", "great question"} <= {p["piece"] for p in found["pieces"]}
    assert not any(p["piece"] in ("answer", "the answer", "answer is") for p in found["pieces"])
    first = next(p for p in found["pieces"] if p["piece"] == "great question")
    assert first["share"] == [0.0, 0.5] and first["reward"] == 1.0


def test_reward_that_rises_alone_stands_out(tmp_path):
    folder = run_folder(tmp_path / "hacked", steps=30, groups=2, samples=3, files=30)
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    lines[-1]["evaluation"] = lines[0]["evaluation"]
    for i, line in enumerate(lines[1:-1]):
        line["part/gold"] = 0.5 - i / 100
    (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    found = {s["name"]: s["stands_out"] for s in signs(RunReader(folder))}
    assert found["reward against held-out problems"] and found["reward against gold"] and found["parts of the reward"]
    honest = run_folder(tmp_path / "honest", steps=30, groups=2, samples=3, files=30)
    assert not {s["name"]: s["stands_out"] for s in signs(RunReader(honest))}["reward against held-out problems"]


def test_the_rise_is_split_into_parts_that_add_up(made):
    found = rise(RunReader(made))
    assert found["by"] == "problems" and found["same"] + found["drawn"] == pytest.approx(found["change"])
    index = RunReader(made).table("training").index
    reward, step = index["reward"].to_numpy(), index["step"].to_numpy()
    assert found["change"] == pytest.approx(reward[step > 6].mean() - reward[step <= 6].mean(), abs=0.02)
    assert rise(RunReader(made), 3, 3) == {}


def test_judges_are_ordered_by_how_little_they_agree(made):
    run = RunReader(made)
    n = run.table("training").index.num_rows
    agreement = np.ones(n, np.float32)
    agreement[[7, 9]] = 0.5, 0.25
    index = run.table("training").index.append_column("part/j/agreement", pa.array(agreement))
    index = index.append_column("part/j", index["reward"])
    run.table("training").index = index
    (found,) = judges(run)
    assert found["rows"] == [9, 7] and found["each"] == [0.25, 0.5] and found["with_gold"] == pytest.approx(1.0)


def test_where_two_runs_part(made, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(made, other)
    (other / "config.toml").write_text('recipe = "rloo"\ntask = "made-up"\nmodel = "tiny"\nseed = 0\n')
    lines = [json.loads(x) for x in (other / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["reward"] += 0.001 * (line["step"] % 2) + 0.3 * (line["step"] > 6)
    (other / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    found = versus(RunReader(made), RunReader(other))
    assert found["settings"] == [("recipe", '"grpo"', '"rloo"')] and found["parts_at"] == 7
    assert found["counts"]["left"] == found["counts"]["right"] == 0 and sum(found["counts"].values()) > 20
    same = versus(RunReader(made), RunReader(made))
    assert same["parts_at"] is None and all(w["low"] == w["high"] == 0 for w in same["windows"])
    assert differing({"a": 1}, {"a": 1, "set": {"b": 2}}) == [("b", "", "2")]


# ---- who is answered


def test_only_its_own_page_is_answered(made):
    with served(made) as server:
        assert get(server, "/api/runs")[0] == 200
        assert get(server, "/api/runs", Host="evil.example")[0] == 400
        assert get(server, "/", Host="localhost.evil.example:80")[0] == 400
        assert get(server, "/api/runs", Host=f"localhost:{server.server_port}")[0] == 200
        assert get(server, "/api/runs", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
        assert get(server, "/api/run/0/explain/rloo/1/1")[0] == 403  # a header that other origins cannot set
        assert get(server, "/api/runs", Host="192.168.0.5")[0] == 400
    with served(made, host="0.0.0.0") as server:
        assert get(server, "/api/runs", Host="192.168.0.5:80")[0] == 200
        assert get(server, "/api/runs", Host="evil.example")[0] == 400


@pytest.mark.parametrize(
    "address",
    [
        "/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/vendor/../server.py", "/vendor%2flit-html.js/..",
        "/api/run/9/metrics",
        "/api/run/0/table/..%2f..%2fetc/index", "/api/run/0/table/training/group/x/1", "/api/nothing", "/api/run/-1/metrics",
        "/api",
    ],
)  # fmt: skip
def test_nothing_beside_the_runs_is_answered(made, address):
    with served(made) as server:
        status, body, _ = get(server, address)
        assert status in (404, 422) and b"root:" not in body and b"import" not in body


def test_another_method_is_one_of_the_catalogue(made, tmp_path):
    evil = tmp_path / "evil.py"
    evil.write_text("raise SystemExit('it ran')")
    answers = PageAnswers([RunReader(made)])
    with pytest.raises(UserError, match="no built method of the catalogue"):
        answers.get(["run", "0", "explain", str(evil), "1", "1"], {})
    assert "rloo" in json.loads(answers.get(["methods"], {}).data)


def test_the_page_allows_itself_alone(made):
    with served(made) as server:
        headers = get(server, "/")[2]
        rule = headers["Content-Security-Policy"]
        assert rule == policy() and "default-src 'none'" in rule and "unsafe" not in rule and "http" not in rule
        assert headers["X-Content-Type-Options"] == "nosniff"
    own = [p.data.decode() for n, p in page_files().items() if "/" not in n]
    assert not [u for text in own for u in re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text)]
    assert not any(
        re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|unsafeHTML|eval\(", t) for t in own
    )


def test_what_others_wrote_is_as_they_published_it():
    place = Path(__file__).parents[2] / "palaestra/view/page/vendor"
    told = dict(re.findall(r"^\| (\S+\.(?:js|css)) \|.*\| ([0-9a-f]{64}) \|$", (place / "README.md").read_text(), re.M))
    there = {p.name for p in place.iterdir() if p.suffix in (".js", ".css")}
    assert told.keys() == there
    assert {n: hashlib.sha256((place / n).read_bytes()).hexdigest() for n in there} == told


# ---- the file and the terminal


def test_a_file_keeps_to_its_size_and_tells_no_place(made, tmp_path):
    run = RunReader(made)
    text, n = export([run], megabytes=64)
    assert n == STEPS * 8 and str(made) not in text and len(by_worth(run)) == n
    small, fewer = export([run], megabytes=0.05)
    assert 0 < fewer < n and len(small) < len(text)
    assert write([run], tmp_path / "x.html") > 0 and (tmp_path / "x.html").read_text().startswith("<!doctype html>")
    held = json.loads(re.search(r'id="held">(.*?)</script>', text)[1])
    ends = {int(a.split("/")[-2]) for a in [a for a in held if "/group/" in a][:16]}
    assert ends == {1, STEPS}  # the groups of both ends come first


def test_the_terminal_shows_texts_as_they_are(tmp_path):
    folder = run_folder(tmp_path / "run", steps=9, groups=2, samples=3, files=9, nasty="[red]x[/red]\x1b[31m")
    console = Console(record=True, width=160, file=io.StringIO())
    show([RunReader(folder)], console)
    told = console.export_text()
    assert "look: read answers of it" in told
    assert (
        "held-out" in told.lower() and "Groups that tell most" in told and "[red]x[/red]" in told and "\x1b" not in told
    )


def test_the_command(made, tmp_path, capsys, monkeypatch):
    assert main(["view", str(made), "--export", str(tmp_path / "x.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == STEPS * 8
    assert main(["view", str(made), "--text"]) == 0 and "Problems" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main(["view"]) == 2 and "name a run" in capsys.readouterr().err
    with served(made) as server:
        assert main(["view", str(made), "--port", str(server.server_port), "--no-open"]) == 2
    assert "already in use" in capsys.readouterr().err


def test_made_up_runs_have_the_columns_of_real_ones(made):
    assert pq.read_schema(path(made, 1)).names == SCHEMA.names
