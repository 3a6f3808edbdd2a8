"""The data of edges on other hosts: the host's own data set, or files with the edges' shares.

A host without ``data`` in the inventory gets the shares of its edges, and those of no other host.
A host with ``data`` is asked whether it has the same data set; if not, it gets the shares too.
The coordinator's config stays as it is: an edge reads its file with ``edgefl edge --shards``.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.filesize import decimal

from edgefl.config.experiment import Experiment
from edgefl.data import edge_data, shards
from edgefl.data.edge_data import EdgeData
from edgefl.data.paths import data_dir
from edgefl.errors import printable
from edgefl.loading.file import to_json
from edgefl.loading.names import own_names
from edgefl.plugins.launch.connections.connection import HostConnection, HostError
from edgefl.plugins.launch.installer import missing_files
from edgefl.plugins.launch.inventory import Host

PROBE_S = 600.0  # the first look at a large data set parses it
STANDARD = {"scale": "standard"}  # of the samples in the files; an edge scales them


@dataclass(frozen=True, slots=True)
class HostData:
    """What the edges of a host read. ``shards``: the folder on the host with the files, or None.

    ``reason``: why, in words. ``size_bytes``: of all files; ``sent_bytes``: of those sent now.
    """

    shards: str | None
    reason: str
    size_bytes: int = 0
    sent_bytes: int = 0

    def text(self, host: Host) -> str:
        """Say in words what was done."""
        if self.shards is None:
            return self.reason
        size = decimal(self.sent_bytes)
        sent = f"shares sent ({size})" if self.sent_bytes else "shares are there"
        return sent if host.data is None else f"{sent}, because: {self.reason}"


def own_data(experiment: Experiment) -> str | None:
    """Return why no host needs shares of this experiment; None if they may."""
    if experiment.task is not None:
        return "its task brings the data"
    if experiment.data.source == "local":
        return "every edge has a data set of its own"
    return None


@dataclass(slots=True)
class DataSync:
    """Gives each host what its edges need of an experiment's data.

    ``sent(host, bytes)`` is called while files are sent. The data are loaded here, once.
    """

    experiment: Experiment
    base: Path | None
    sent: Callable[[str, int], None] = lambda host, size: None
    _loaded: dict[int, EdgeData] = field(default_factory=dict, repr=False)  # by seed
    _digests: dict[int, dict[str, str]] = field(default_factory=dict, repr=False)  # by scale
    _key: str = ""  # name of a folder for these data: different data never share one

    def load(self) -> None:
        """Load the data of all seeds. UserError if this machine does not have them."""
        if own_data(self.experiment) is not None:
            return
        if self.experiment.data.source == "shard":
            edge, *_ = self.experiment.edges.ids()
            name = self.experiment.data.name
            self._key = shards.read(self._cut_here(), name, [edge], False)[2]["standard"]
            return
        for one in self.experiment.by_seed():
            found = edge_data.edge_data(_standard(one), self.base)
            self._loaded[one.seed] = found
            self._digests[one.seed] = edge_data.digests(found.dataset, found.shares)
            self._key = self._key or self._digests[one.seed]["standard"]

    def share_bytes(self, host: Host) -> int:
        """Return the size of the samples in the files of a host, once the data are loaded."""
        if self.experiment.data.source == "shard":
            return sum(path.stat().st_size for path in self._cut_files(host).values())
        return sum(
            found.dataset.train_x[:1].nbytes * len(rows) + 8 * len(rows)
            for found in self._loaded.values()
            for rows in (found.shares[edge] for edge in host.edges)
        )

    async def run(
        self, connections: Mapping[str, HostConnection], pythons: Mapping[str, str]
    ) -> dict[str, HostData | HostError]:
        """Serve all hosts at the same time; ``pythons``: the interpreter on each.

        UserError if the data cannot be loaded here; nothing is sent then.
        """
        if not self._key:
            await asyncio.to_thread(self.load)
        results = await asyncio.gather(
            *(self._serve(each, pythons[name]) for name, each in connections.items())
        )
        return dict(zip(connections, results))

    async def _serve(self, connection: HostConnection, python: str) -> HostData | HostError:
        host = connection.host
        try:
            reason = own_data(self.experiment)
            if reason is not None:
                return HostData(None, reason)
            reason = "the inventory names no data for it"
            if host.data is not None:
                problem = await self._problem(connection, python)
                if problem is None:
                    return HostData(None, f"it has the data in {host.data}")
                reason = problem
            if self.experiment.data.source == "shard":
                return await self._send(connection, python, self._cut_files(host), reason)
            with tempfile.TemporaryDirectory(prefix="edgefl-shards-") as folder:
                files = await asyncio.to_thread(self._written, Path(folder), host)
                return await self._send(connection, python, files, reason)
        except HostError as error:
            return error

    async def _problem(self, connection: HostConnection, python: str) -> str | None:
        """Ask the host for its data; return why it cannot use them, or None."""
        host, one = connection.host, self.experiment.by_seed()[0]
        asked = {
            "config": to_json(one, one.strategies[0]),
            "data": host.data,
            "edges": list(host.edges),
            "env": dict(host.env),
            "allowed": own_names(self.experiment) if host.allow_code else [],
        }
        done = await connection.run(
            [python, "-m", "edgefl.plugins.launch.data_probe"],
            stdin=json.dumps(asked).encode(),
            timeout_s=PROBE_S,
        )
        try:
            told = json.loads(done.out)
        except ValueError:
            told = None
        if not isinstance(told, dict) or "digest" not in told:
            reason = told.get("error") if isinstance(told, dict) else done.said()
            return printable(str(reason), 200)
        expected = self._digests.get(one.seed, {}).get(one.data.scale, told["digest"])
        if told["digest"] != expected:
            return f"its data in {host.data} differ from those here"
        return None

    def _cut_here(self) -> Path:
        """The folder with files of `edgefl data shard`, if the config names one."""
        return data_dir(self.experiment.data.dir, os.environ)

    def _cut_files(self, host: Host) -> dict[str, Path]:
        names = [f"{edge}{shards.SUFFIX}" for edge in host.edges]
        return {f"{self._key}/{name}": self._cut_here() / name for name in names}

    def _written(self, folder: Path, host: Host) -> dict[str, Path]:
        """Write the host's files to ``folder``; return them by their path in its folder there."""
        files: dict[str, Path] = {}
        several = len(self._loaded) > 1
        for seed, found in self._loaded.items():
            whole = self._digests[seed]
            within = f"{self._key}/seed{seed}" if several else self._key
            mine = {edge: found.shares[edge] for edge in host.edges}
            name = self.experiment.data.name
            written = shards.write(folder / within, name, found.dataset, mine, whole, test=False)
            files |= {f"{within}/{path.name}": path for path in written}
        return files

    async def _send(
        self, connection: HostConnection, python: str, files: Mapping[str, Path], reason: str
    ) -> HostData:
        host = connection.host
        place = f"{host.folder}/shards"
        targets = {f"{place}/{name}": path for name, path in files.items()}
        sizes = {target: path.stat().st_size for target, path in targets.items()}
        missing = await missing_files(connection, python, targets)
        for target in missing:
            await connection.put(
                targets[target], target, 0o600, sent=lambda size: self.sent(host.name, size)
            )
        return HostData(
            f"{place}/{self._key}",
            reason,
            sum(sizes.values()),
            sum(sizes[target] for target in missing),
        )


def _standard(experiment: Experiment) -> Experiment:
    data = experiment.data.model_copy(update=STANDARD)
    return experiment.model_copy(update={"data": data})
