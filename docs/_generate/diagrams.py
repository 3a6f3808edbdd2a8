"""The diagrams of the documentation, as SVG.

This file is their source: change it and build again.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

FONT = "system-ui, sans-serif"
INK, PALE, LINE, BODY = "#1f2933", "#eef2f7", "#52606d", "#2563a8"
STYLE = (
    f"text{{font-family:{FONT};font-size:14px;fill:{INK}}}"
    f".small{{font-size:12px}}.head{{font-weight:600}}"
    f".box{{fill:{PALE};stroke:{LINE};rx:6}}.arrow{{stroke:{LINE};stroke-width:1.5;fill:none}}"
    f".bytes{{stroke:{BODY};stroke-width:5;fill:none}}"
)
HEADS = (
    '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
    f' orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{LINE}"/></marker>'
    '<marker id="wide" viewBox="0 0 10 10" refX="7" refY="5" markerWidth="3" markerHeight="3"'
    f' orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{BODY}"/></marker></defs>'
)


HOSTS = ("edgefl/clocks", "sockets, threads, processes, clocks", "wall, virtual, setup")
EMULATOR = ("emulator", "links, media, slots, devices, faults, clocks, verdict", "no edgefl in it")


def texts() -> dict[str, str]:
    """Map the name of each diagram to its text."""
    return {"one-update.svg": one_update(), "rooms.svg": rooms()}


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, lines: Sequence[str]) -> str:
    """Draw a box of text lines; the first line is the heading."""
    parts = [f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height}"/>']
    first = y + height / 2 - 8.5 * (len(lines) - 1) + 5
    for number, line in enumerate(lines):
        kind = "head" if number == 0 else "small"
        parts.append(text(x + width / 2, first + 17 * number, line, kind))
    return "".join(parts)


def arrow(x1: float, y1: float, x2: float, y2: float, bytes_: bool = False) -> str:
    kind, head = ("bytes", "wide") if bytes_ else ("arrow", "head")
    return f'<path class="{kind}" d="M{x1} {y1}L{x2} {y2}" marker-end="url(#{head})"/>'


def drawing(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>{HEADS}"
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def one_update() -> str:
    """Draw how one update travels.

    Time runs downwards through four threads; thick arrows are the bytes of models.
    """
    logic, pacing, sockets, training = 110, 330, 650, 850
    heads = (
        (logic, "logic thread", "strategy, record"),
        (pacing, "pacing thread", "sockets, links, clock"),
        (sockets, "socket thread", "stamps arrivals"),
        (training, "training thread", "local SGD"),
    )
    parts = [
        text((logic + pacing) / 2, 24, "COORDINATOR (one process, no torch)", "head"),
        text((sockets + training) / 2, 24, "EDGE e004 (its own process, here or far away)", "head"),
    ]
    for x, name, about in heads:
        parts.append(box(x - 95, 38, 190, 46, (name, about)))
        parts.append(f'<path d="M{x} 84V470" stroke="{LINE}" stroke-dasharray="3 4"/>')
    steps = (
        (115, logic, pacing, "1  Assign(e004, w)", False),
        (155, pacing, sockets, "2  pieces of the model, as the downlink carries them", True),
        (190, sockets, pacing, "all arrived, and when", False),
        (220, pacing, logic, "3  task_started", False),
        (220, pacing, sockets, "model and moment", False),
        (245, sockets, training, "train", False),
        (290, training, sockets, "done", False),
        (315, sockets, pacing, "4  offer, ready at 1.93 s (the stamp)", False),
        (345, pacing, logic, "update_ready, at the stamp", False),
        (375, pacing, sockets, "5  credit: bytes that the uplink would carry", False),
        (410, sockets, pacing, "pieces of the update, as credit allows", True),
        (440, pacing, logic, "6  update_arrived", False),
    )
    for y, start, end, words, bytes_ in steps:
        gap = 6 if end > start else -6
        parts.append(arrow(start + gap, y, end - gap, y, bytes_))
        parts.append(text((start + end) / 2, y - 7, words, "small"))
    return drawing(960, 485, "How one update travels", parts)


def rooms() -> str:
    """Draw which package imports which, from top to bottom."""
    boxes = {
        "commands": (330, 20, 300, 46, ("edgefl/cli, commands", "what the user types")),
        "launch": (690, 20, 250, 46, ("edgefl/plugins/launch", "runs on many machines")),
        "hosts": (130, 100, 700, 62, HOSTS),
        "coordinator": (20, 205, 220, 62, ("edgefl/coordinator, record", "actor; files of a run")),
        "edges": (260, 205, 220, 62, ("edgefl/edges, models, data", "actor; trainer (torch)")),
        "results": (500, 205, 220, 62, ("edgefl/results", "tables, figures")),
        "protocol": (740, 205, 200, 62, ("edgefl/protocol", "messages, codec, limits")),
        "strategies": (200, 315, 560, 46, ("edgefl/strategies", "one algorithm per file")),
        "base": (200, 400, 560, 46, ("edgefl/vectors, streams, config, catalog", "")),
        "emulator": (130, 490, 700, 62, EMULATOR),
    }
    parts = [box(*place[:4], [line for line in place[4] if line]) for place in boxes.values()]
    parts += [arrow(480, 66, 480, 98), arrow(630, 43, 688, 43), arrow(770, 66, 770, 98)]
    parts += [arrow(x, 162, x, 203) for x in (160, 370, 610, 790)]
    parts += [arrow(x, 267, x, 313) for x in (225, 370, 610)]
    parts += [arrow(480, 361, 480, 398), arrow(480, 446, 480, 488)]
    return drawing(960, 570, "The packages of edgefl", parts)
