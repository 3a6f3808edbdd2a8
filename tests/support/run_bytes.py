"""What two runs must have in common: bytes of files, or their story without trained numbers."""

from __future__ import annotations

from pathlib import Path

from edgefl.results.read import read_events

FILES = ("events.jsonl", "links.csv", "model.safetensors")


def bytes_of(directory: Path) -> list[bytes]:
    return [(directory / name).read_bytes() for name in FILES]


def trace(directory: Path) -> str:
    """Times, events and decisions, without trained numbers."""
    lines = []
    for event in read_events(directory / "events.jsonl"):
        words = [f"{event['t']:.9f}", event.get("event") or f"({event['fact']})"]
        words += [
            f"{key}={event[key]}"
            for key in (
                "version",
                "edge",
                "samples",
                "task",
                "base_version",
                "step",
                "name",
                "reason",
            )
            if key in event
        ]
        for decision in event.get("decisions", ()):
            words += [
                "|",
                *(
                    f"{key}={value}" if key != "do" else value
                    for key, value in decision.items()
                    if key != "numbers"
                ),
            ]
        lines.append(" ".join(words))
    return "\n".join(lines) + "\n"
