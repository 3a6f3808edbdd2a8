"""The page's server, asked in its own process: no socket is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import small_run

from edgefl.plugins.live import serve as module
from edgefl.plugins.live.feeds import Feeds
from edgefl.plugins.live.serve import Server

pytest.importorskip("starlette")
TestClient = pytest.importorskip("starlette.testclient").TestClient
TOKEN = "secret"


class Client:
    """Asks as a browser on this machine would."""

    def __init__(self, folder: Path) -> None:
        self.over = False
        feeds = Feeds([folder])
        app = Server(feeds, lambda: self.over).app(TOKEN)
        self.client = TestClient(app, base_url="http://127.0.0.1:8050")

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(f"/{TOKEN}/{path}", headers=headers)

    def post(self, body: bytes, kind: str = "application/json") -> Any:
        headers = {"content-type": kind}
        return self.client.post(f"/{TOKEN}/api/runs", content=body, headers=headers)

    def events(self, query: str = "") -> list[tuple[str, dict[str, Any]]]:
        """All events of a stream that ends after its first round."""
        self.over = True
        text = self.get(f"api/stream{query}").text
        self.over = False
        found = []
        for block in filter(None, text.split("\n\n")):
            kind, data = block.split("\n")
            found.append((kind.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))))
        return found


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text("<!doctype html><title>edgefl</title>")
    (tmp_path / "page" / "main.js").write_text("export {};")
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setattr(module, "PAGE", tmp_path / "page")
    runs = tmp_path / "runs" / "small"
    small_run.end(small_run.write(runs / "fedasync"))
    small_run.write(runs / "fedbuff")
    return Client(runs)


def test_the_page_and_its_headers(client: Client) -> None:
    found = client.get("")
    assert found.status_code == 200 and "<!doctype html>" in found.text.lower()
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert found.headers["referrer-policy"] == "no-referrer"
    assert found.headers["cache-control"] == "no-store"
    assert found.headers["cross-origin-resource-policy"] == "same-origin"


def test_only_files_of_the_page(client: Client) -> None:
    script = client.get("page/main.js")
    assert script.status_code == 200 and script.headers["content-type"].startswith("text/javascr")
    for path in ("page/../secret.txt", "page/%2e%2e/secret.txt", "page//etc/passwd", "page/x.js"):
        assert client.get(path).status_code == 404, path


def test_refused_in_one_line(client: Client) -> None:
    found = client.client.get("/")
    assert found.status_code == 403 and found.text.count("\n") == 1 and "token" in found.text
    assert client.get("", origin="http://evil.example").status_code == 403
    assert client.get("api/stream", host="evil.example").status_code == 403
    assert client.client.get(f"/{TOKEN}").status_code == 404


def test_a_stream_of_two_runs(client: Client) -> None:
    events = client.events("?runs=r1,r2,r9")
    assert [kind for kind, _ in events] == ["runs", "update", "update", "bye"]
    assert [data["run"] for kind, data in events if kind == "update"] == ["r1", "r2"]
    assert events[2][1]["head"]["version"] == 0


def test_a_window_of_the_timeline(client: Client) -> None:
    client.events("?runs=r2")
    found = client.get("api/timeline?run=r2&from=0&to=1.5").json()
    assert found["exact"] and found["run"] == "r2" and len(found["slices"]) == 3
    for query, status in (
        ("run=r9&from=0&to=1", 404),
        ("run=r1", 400),
        ("run=r1&from=0&to=inf", 400),
    ):
        answer = client.get(f"api/timeline?{query}")
        assert answer.status_code == status and "error" in answer.json(), query


def test_the_seeds_of_a_run(client: Client) -> None:
    assert client.get("api/seeds?run=r1").json() == {"run": "r1", "seeds": []}
    answer = client.get("api/seeds?run=r9")
    assert answer.status_code == 404 and "expected one of r1, r2" in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (b'{"path": "/nowhere/at/all"}', "application/json", "no such directory"),
        (b"{", "application/json", 'expected {"path": "DIR"}'),
        (b'{"path": "a\\u0000b"}', "application/json", 'expected {"path": "DIR"}'),
        (b'{"path": "."}', "text/plain", "expected application/json"),
        (b" " * 20_000, "application/json", "expected at most 10000 bytes"),
    ],
    ids=["nowhere", "no json", "zero", "form", "long"],
)
def test_a_run_that_cannot_be_added(client: Client, body: bytes, kind: str, says: str) -> None:
    found = client.post(body, kind)
    assert found.status_code == 400 and says in found.json()["error"]


def test_too_many_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STREAMS", 0)
    found = client.get("api/stream")
    assert found.status_code == 503 and "too many" in found.text


def test_a_run_of_the_last_moment_is_sent_before_the_end(client: Client, tmp_path: Path) -> None:
    assert [kind for kind, _ in client.events()] == ["runs", "update", "bye"]
    small_run.end(small_run.write(tmp_path / "runs" / "small" / "fedprox"))
    (runs, *_) = client.events()  # the folders were looked into less than two seconds ago
    assert [row["name"] for row in runs[1]["runs"]] == ["fedasync", "fedbuff", "fedprox"]
