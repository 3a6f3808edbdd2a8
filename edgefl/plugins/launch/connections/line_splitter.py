"""Lines from chunks of bytes; no I/O."""

from __future__ import annotations


class LineSplitter:
    """Lines from chunks of bytes. A line that is too long comes in parts."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._rest = b""

    def split(self, data: bytes) -> list[bytes]:
        """Return the complete lines, without their ends."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self.most_bytes:
            lines, self._rest = [*lines, self._rest], b""
        return [line.removesuffix(b"\r") for line in lines]

    def rest(self) -> list[bytes]:
        """Return the last line if it has no end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []
