"""A stand-in for the Hugging Face hub on the loopback interface, to which a model is uploaded."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """`files` are what was committed; `refuse` maps the start of a path to the status it gets."""

    def __init__(self, token, refuse=None):
        self.token, self.refuse = token, refuse or {}
        self.files, self.objects, self.paths, self.created = {}, {}, [], {}
        self.url = ""

    def answer(self, method, path, body, headers):
        """Status and JSON of a request."""
        self.paths.append(f"{method} {path}")
        for start, status in self.refuse.items():
            if path.startswith(start):
                return status, {"error": f"no, {headers.get('authorization')}"}
        if method == "PUT":  # storage is addressed by content, and knows no token
            self.objects[hashlib.sha256(body).hexdigest()] = body
            return 200, {}
        if headers.get("authorization") != f"Bearer {self.token}":
            return 401, {"error": "Invalid credentials in Authorization header"}
        if path == "/api/whoami-v2":
            return 200, {"type": "user", "name": "ada", "orgs": []}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            self.created = json.loads(body)
            owner = self.created.get("organization") or "ada"
            return 200, {"url": f"{self.url}/{owner}/{self.created['name']}"}
        if "/preupload/" in path:
            return 200, {"files": [self.mode(f["path"]) for f in json.loads(body)["files"]]}
        if path.endswith("/info/lfs/objects/batch"):
            return 200, {
                "transfer": "basic",
                "objects": [self.place(o) for o in json.loads(body)["objects"]],
            }
        if "/commit/" in path:
            repo = path.removeprefix("/api/models/").partition("/commit/")[0]
            return 200, self.commit(repo, [json.loads(line) for line in body.splitlines()])
        return 404, {"error": "no such page"}

    def mode(self, path):
        return {
            "path": path,
            "uploadMode": "lfs" if path.endswith(".safetensors") else "regular",
            "shouldIgnore": False,
        }

    def place(self, known):
        upload = {"href": f"{self.url}/storage/{known['oid']}"}
        return {"oid": known["oid"], "size": known["size"], "actions": {"upload": upload}}

    def commit(self, repo, lines):
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.files[value["path"]] = self.objects[value["oid"]]
        return {
            "success": True,
            "commitOid": "0" * 40,
            "commitUrl": f"{self.url}/{repo}/commit/{'0' * 40}",
            "hookOutput": "",
        }


@contextmanager
def hub(token, refuse=None):
    """A running hub."""
    known = Hub(token, refuse)

    class Handler(BaseHTTPRequestHandler):
        def serve(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {k.lower(): v for k, v in self.headers.items()}
            status, found = known.answer(self.command, self.path.partition("?")[0], body, headers)
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = serve

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
