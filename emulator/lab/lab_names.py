"""What the parts of a lab are called on this machine; its number determines all names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from emulator.kernel.claims import LOCKS

LABS = 256
HOSTS_FILES = Path("/etc/netns")
"""``ip netns exec`` shows a file of /etc/netns/NAMESPACE in place of that of /etc."""


@dataclass(frozen=True, slots=True)
class LabNames:
    """The names of everything that lab ``number`` makes.

    Interfaces of this machine begin with ``prefix``; inside namespaces they have short names.
    """

    number: int

    @property
    def prefix(self) -> str:
        return f"lab{self.number}-"

    @property
    def namespace_prefix(self) -> str:
        return f"emulator-lab{self.number}-"

    @property
    def folder(self) -> Path:
        """Where the lab keeps its state while it runs."""
        return LOCKS / f"emulator-lab-{self.number}"

    @property
    def state_file(self) -> Path:
        return self.folder / "lab.json"

    @property
    def relay_socket(self) -> Path:
        return self.folder / "relay.sock"

    def counts_file(self, number: int, end: str) -> Path:
        """What the sender ("sent") or receiver ("arrived") of a background flow has counted."""
        return self.folder / f"traffic-{number}-{end}.json"

    def namespace(self, node: str) -> str:
        return f"{self.namespace_prefix}{node}"

    def hosts_file(self, node: str) -> Path:
        return HOSTS_FILES / self.namespace(node) / "hosts"

    def address(self, index: int) -> str:
        """The address of host ``index``; 198.18.0.0/15 is reserved for measurements (RFC 2544)."""
        return f"198.18.{self.number}.{index + 1}"

    def mac(self, link: int, side: int) -> str:
        """The MAC of an end of link ``link``; the first byte says that it is local."""
        return f"02:65:{self.number:02x}:{link >> 8:02x}:{link & 255:02x}:{side + 1:02x}"

    def interface(self, link: int, side: int) -> str:
        """The name of an end of link ``link`` on this machine; at most 15 characters."""
        return f"{self.prefix}{link}{'ab'[side]}"
