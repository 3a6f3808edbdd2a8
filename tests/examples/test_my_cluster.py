"""A test of programs on several hosts: a client keeps trying while its link is cut."""

import subprocess
import sys

TOPOLOGY = {
    "hosts": [{"name": "server"}, {"name": "edge-[1-2]"}],
    "bridges": [{"name": "cell", "up": "10mbit", "down": "30mbit"}],
    "links": [
        {"from": "edge-[1-2]", "to": "cell", "profile": "lte"},
        {"from": "cell", "to": "server"},
    ],
}
PYTHON = [sys.executable, "-c"]
SERVER = [sys.executable, "-m", "http.server", "8000"]
CLIENT = """
import time, urllib.request
print("begins", flush=True)
while True:
    try:
        print(urllib.request.urlopen("http://server:8000/", timeout=1).status)
        break
    except OSError:
        time.sleep(0.1)
"""


def test_a_client_waits_until_its_link_is_back(lab, tmp_path):
    net = lab(TOPOLOGY)
    net.link("edge-1").cut()
    net.host("server").start(SERVER, cwd=tmp_path, stderr=subprocess.DEVNULL)
    client = net.host("edge-1").start([*PYTHON, CLIENT], stdout=subprocess.PIPE, text=True)
    assert client.stdout.readline() == "begins\n"
    other = net.host("edge-2").run([*PYTHON, CLIENT], capture_output=True, text=True)
    assert "200" in other.stdout  # the other link of the cell carries data
    assert client.poll() is None
    net.link("edge-1").restore()
    assert client.communicate(timeout=60)[0] == "200\n"
