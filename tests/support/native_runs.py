"""A run directory with native links and devices, written by hand."""

from __future__ import annotations

from pathlib import Path

import orjson

from edgefl.config.file import dump, load

CONFIG = """
name = "pis"
{seeds}
[data]
name = "digits"
{more}
[edges]
names = [{names}]
[links]
kind = "{links}"
[devices]
kind = "{devices}"
{of_devices}
[stop]
versions = 5
[[strategies]]
strategy = "fedavg"
"""


def write_run(
    folder: Path,
    *,
    edges: tuple[str, ...] = ("pi-1", "pi-2"),
    links: str = "native",
    devices: str = "native",
    of_devices: str = "",
    more: str = "",
    clock: str = "wall",
    rounds: int = 5,
    slower: float = 1.0,
) -> Path:
    """Write ``rounds`` tasks per edge: 1 s down at 1 Mbit/s, 2 s training, 2 s up at 0.5 Mbit/s.

    Round trips take 40 ms. The last edge is ``slower`` in all of these. Nothing is left over: what
    latency, rate and training explain is all there is.
    """
    folder.mkdir(parents=True)
    text = CONFIG.format(
        seeds="seed = 3",
        names=", ".join(f'"{edge}"' for edge in edges),
        links=links,
        devices=devices,
        of_devices=of_devices,
        more=more,
    )
    (folder / "given.toml").write_text(text)
    facts = {"run": {"strategy": "fedavg", "clock": clock}}
    (folder / "config.toml").write_text(dump(load(folder / "given.toml"), facts))
    (folder / "given.toml").unlink()
    measured = ["what,edge,number,began_s,ended_s,amount"]
    moved = ["edge,direction,kind,bytes,offered_s,scheduled_s,finished_s"]
    for edge in edges:
        pace = slower if edge == edges[-1] else 1.0
        for number in range(rounds):
            at_s = 10.0 * number
            down_s, up_s = at_s + 0.02 + pace, at_s + 6.0
            end_s = up_s + 0.02 + 2 * pace
            trained_s = down_s + 2.0 * pace
            moved += [
                f"{edge},down,task,125000,{at_s},{at_s},{down_s}",
                f"{edge},up,update,125000,{up_s},{up_s},{end_s}",
            ]
            if links == "native":
                measured += [
                    f"down,{edge},{number},{down_s - pace},{down_s},125000",
                    f"up,{edge},{number},{end_s - 2 * pace},{end_s},125000",
                    f"ping,{edge},,{at_s + 9.5},{at_s + 9.54},0",
                ]
            if devices == "native":
                measured.append(f"training,{edge},{number},{down_s},{trained_s},640")
    (folder / "measured.csv").write_text("\n".join([*measured, ""]))
    (folder / "links.csv").write_text("\n".join([*moved, ""]))
    events = [{"t": 0.0, "event": "run_started"}, {"t": 10.0 * rounds, "fact": "finished"}]
    (folder / "events.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in events))
    return folder
