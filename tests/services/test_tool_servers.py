"""Tools of a real MCP server, over stdio and over HTTP on the loopback: one session, limits, faults, a clean end."""

import asyncio
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from palaestra.errors import Fault, UserError
from palaestra.services.tools import servers
from palaestra.services.tools.servers import ToolServer
from palaestra.types import Call
from palaestra.worlds.toolbox import Toolbox

mcp = pytest.importorskip("mcp")
FILE = Path(__file__).with_name("mcp_server.py")
PLACES = os.pathsep.join(p for p in sys.path if p)


def command():
    """What starts the server; the client hands it a small environment, so where packages lie is said."""
    return shlex.join(["env", f"PYTHONPATH={PLACES}", sys.executable, str(FILE)])


@contextmanager
def over_http():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, str(FILE), str(port)], stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": PLACES}
    )
    try:
        for _ in range(600):
            with socket.socket() as knock:
                if knock.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.kill()
        server.wait()


def alive(pid):
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


async def use(server):
    """What every kind of server does."""
    names = [t.name for t in await server.tools()]
    assert names[:2] == ["add", "fail"]
    one, two, pid = await asyncio.gather(
        server.call("add", {"a": 1, "b": 2}, 20), server.call("add", {"a": 3, "b": 4}, 20), server.call("who", {}, 20)
    )
    assert (one.text, two.text, one.failed) == ("3", "7", False)
    wrong = await server.call("add", {"a": "x"}, 20)
    assert wrong.failed and "valid integer" in wrong.text
    failed = await server.call("fail", {}, 20)
    assert failed.failed and failed.text.startswith("error: ")
    slow = await server.call("sleep", {"seconds": 30}, 0.5)
    assert slow.failed and slow.text == "error: no result within 0.5 s"
    assert (await server.call("who", {}, 20)).text == pid.text  # one session
    return pid.text


def test_over_stdio():
    server = ToolServer(command())

    async def run():
        pid = await use(server)
        with pytest.raises(Fault, match=r"Connection closed; it wrote: .*goodbye, cruel world"):
            await server.call("die", {}, 20)
        again = (await server.call("who", {}, 20)).text  # the next one that needs it starts it again
        assert again != pid and not alive(pid)
        return again

    pid = asyncio.run(run())
    assert alive(pid)
    server.close()
    assert not alive(pid)
    server.close()


def test_what_a_server_wrote_is_read_while_its_session_ends(monkeypatch):
    """The thread of a session that is over closes the file that is read here."""

    async def serve(session):
        session._log.write("goodbye")
        session._log.flush()
        await session._stop.wait()

    monkeypatch.setattr(servers.ServerSession, "_serve", serve)
    session, read = servers.ServerSession("x", [], False), os.pread

    def slowly(*given):
        if threading.current_thread() is not session._thread:
            session._end()
            session._thread.join(0.3)
        return read(*given)

    while session._written() != "goodbye":
        time.sleep(0.01)
    monkeypatch.setattr(servers.os, "pread", slowly)
    assert session._written() == "goodbye"
    session._thread.join(20)
    assert not session._thread.is_alive() and session._written() == "goodbye"
    session.close()


def test_over_http():
    with over_http() as url:
        server = ToolServer(url)

        async def run():
            await use(server)
            with pytest.raises(Fault, match="mcp"):
                await server.call("die", {}, 20)
            with pytest.raises(Fault, match="mcp"):  # and nobody starts it again
                await server.call("add", {"a": 1, "b": 2}, 20)

        asyncio.run(run())
        server.close()


def test_a_box_of_functions_and_a_servers_tools():
    box = Toolbox((f"mcp:{command()}",))

    async def run():
        assert (await box.schemas())[0].name == "add"
        return await box.answer([Call(name="add", args={"a": 1, "b": 2}), Call(name="nope")], 20, 100)

    (right, failed, _), (wrong, also_failed, _) = asyncio.run(run())
    box.close()
    assert (right.content, right.name, failed) == ("3", "add", False)
    assert "no tool 'nope'" in wrong.content and wrong.name == "" and also_failed


@pytest.mark.parametrize("where", ["http://127.0.0.1:9/mcp", shlex.join([sys.executable, "-c", "print('no server')"])])
def test_a_server_that_is_none_is_named(where):
    server = ToolServer(where)
    with pytest.raises(UserError, match=r"mcp: the server .* failed"):
        asyncio.run(server.tools())
    server.close()


def test_mistakes_are_named(monkeypatch):
    with pytest.raises(UserError, match="no program 'nowhere-at-all' is installed"):
        ToolServer("nowhere-at-all --now")
    with pytest.raises(UserError, match="close the quotes"):
        ToolServer("'oh")
    with pytest.raises(UserError, match="no program ''"):
        ToolServer("")
    monkeypatch.setattr(servers, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs the extra mcp: pip install 'palaestra\[mcp\]'"):
        ToolServer("http://127.0.0.1/mcp")


# ---- servers that lie

LIAR = """
import json, signal, sys, time
mode = sys.argv[1]
if mode == "silent": time.sleep(120)
def send(m, result): print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        info = {"name": "x", "version": "1"}
        send(m, {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info})
    elif m.get("method") == "tools/list":
        if mode == "never lists": time.sleep(120)
        send(m, {"tools": [{"name": "add", "inputSchema": {"type": "object", "properties": {}}}]})
    elif "id" in m: send(m, {})
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(120)
"""


def liar(tmp_path, mode):
    """The server, and a file that will hold its number."""
    file, pid = tmp_path / "liar.py", tmp_path / "pid"
    file.write_text(f"import os\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\n{LIAR}")
    return ToolServer(shlex.join([sys.executable, str(file), mode])), pid


@pytest.mark.parametrize("mode", ["silent", "never lists"])
def test_a_server_that_lists_no_tools_is_told_of_and_ended(tmp_path, mode, monkeypatch, capsys):
    monkeypatch.setattr(servers, "OPENING", 6.0)
    monkeypatch.setattr(servers, "TELLING", 2.0)
    server, pid = liar(tmp_path, mode)
    with pytest.raises(UserError, match="no list of tools in 6 s"):
        asyncio.run(server.tools())
    told = capsys.readouterr().err.splitlines()
    assert "has not listed its tools for 2 s; it has 6 s" in told[0] and len(told) == 2
    begin = time.monotonic()
    server.close()
    assert time.monotonic() - begin < 9 and not alive(pid.read_text())


@pytest.mark.parametrize("mode", ["silent", "never lists", "lingers"])
def test_a_server_does_not_outlive_a_run_that_is_over(tmp_path, mode):
    """Also where it is still being opened, and nobody closes it."""
    _, pid = liar(tmp_path, mode)
    program = f"""
import asyncio, pathlib, time
from palaestra.services.tools.servers import ToolServer
server = ToolServer({shlex.join([sys.executable, str(tmp_path / "liar.py"), mode])!r})
session = server._open()
if {mode == "lingers"}: asyncio.run(server.tools())
while not (pathlib.Path({str(pid)!r}).exists() and pathlib.Path({str(pid)!r}).read_text()): time.sleep(0.05)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=90, env={**os.environ, "PYTHONPATH": PLACES})
    assert not alive(pid.read_text())
