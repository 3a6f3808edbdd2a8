"""Facts and a report of a host, for tests."""

from __future__ import annotations

from edgefl.protocol.messages import HostFacts, HostReport

FACTS = HostFacts(
    host="pi-3",
    machine="0123456789abcdef",
    model="Raspberry Pi 4 Model B Rev 1.4",
    cpu="Cortex-A72",
    cores=4,
    memory_bytes=4_000_000_000,
    system="Linux 6.12",
    architecture="aarch64",
    python="3.11.2",
    torch="2.9.1",
    interface="eth0",
)
REPORT = HostReport(
    cpu_permille=422,
    temperature_mk=337_350,
    throttled=0,
    sent_bytes=1000,
    received_bytes=2000,
    edge_cpu_permille=873,
    rss_bytes=350_000_000,
    ran_us=0,
    waited_us=0,
)
