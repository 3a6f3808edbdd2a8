"""Tests of the server for Prometheus: who may ask, and what it answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from edgefl.errors import UserError
from edgefl.live.metrics_server import metrics_app
from edgefl.live.serve import metrics_page


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9100", "200 OK"),
        ("localhost", "200 OK"),
        ("[::1]:9100", "200 OK"),
        ("evil.example:9100", "403 Forbidden"),
        ("127.0.0.1.evil.example", "403 Forbidden"),
        ("", "403 Forbidden"),
    ],
)
def test_only_names_of_this_machine_are_answered(host: str, status: str, tmp_path: Path) -> None:
    said: list[Any] = []
    environ = {"HTTP_HOST": host, "PATH_INFO": "/metrics", "QUERY_STRING": ""}
    environ |= {"REQUEST_METHOD": "GET"}
    answer = metrics_app(tmp_path)(environ, lambda *words: said.append(words))
    body = b"".join(answer)
    assert said[0][0] == status
    assert (b"# TYPE edgefl_version gauge" in body) == (status == "200 OK")


def test_without_its_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    line = "--metrics-port needs the package 'prometheus_client', which is not installed: pip"
    with pytest.raises(UserError, match=line), metrics_page(tmp_path, 0):
        pass
