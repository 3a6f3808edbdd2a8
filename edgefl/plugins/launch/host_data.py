"""The data of edges on other hosts: the host's own data set, or files with the edges' shares.

A host without ``data`` in the inventory gets the shares of its edges, and those of no other host.
A host with ``data`` is asked whether it has the same data set; if not, it gets the shares too.
The coordinator's config stays as it is: an edge reads its file with ``edgefl edge --shards``.

The question runs on the host as ``python -m edgefl.plugins.launch.host_data``, see ``probe``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from edgefl.config.experiment import Experiment
from edgefl.config.file import from_json, own_names, to_json
from edgefl.data import edge_data, shards
from edgefl.data.dataset import data_dir
from edgefl.data.edge_data import EdgeData
from edgefl.errors import UserError, printable
from edgefl.plugins.launch.connections import HostConnection
from edgefl.plugins.launch.installer import missing_files
from edgefl.plugins.launch.inventory import Host

PROBE_S = 600.0  # the first look at a large data set parses it


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
        sent = (
            f"shares sent ({decimal(self.sent_bytes)})" if self.sent_bytes else "shares are there"
        )
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
    """Gives each host what its edges need of an experiment's data; ``load`` comes first."""

    experiment: Experiment
    base: Path | None
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
            # samples as in the files: an edge scales them
            part = edge_data.edge_data(_with_data(one, scale="standard"), self.base)
            self._loaded[one.seed] = part
            self._digests[one.seed] = edge_data.digests(part.dataset, part.shares)
            self._key = self._key or self._digests[one.seed]["standard"]

    def share_bytes(self, host: Host) -> int:
        """Return the size of the samples in the files of a host."""
        if self.experiment.data.source == "shard":
            return sum(path.stat().st_size for path in self._cut_files(host).values())
        return sum(
            part.dataset.train_x[:1].nbytes * len(rows) + 8 * len(rows)
            for part in self._loaded.values()
            for rows in (part.shares[edge] for edge in host.edges)
        )

    async def serve(
        self,
        connection: HostConnection,
        python: str,
        sent: Callable[[int], None] = lambda size: None,
    ) -> HostData:
        """Serve one host, whose interpreter is ``python``. HostError if that fails.

        ``sent`` is called with the bytes of each part that was sent.
        """
        host = connection.host
        reason = own_data(self.experiment)
        if reason is not None:
            return HostData(None, reason)
        reason = "the inventory names no data for it"
        if host.data is not None:
            problem = await self._problem(connection, python)
            if problem is None:
                return HostData(None, f"it has the data in {host.data}")
            reason = problem
        with tempfile.TemporaryDirectory(prefix="edgefl-shards-") as folder:
            if self.experiment.data.source == "shard":
                files = self._cut_files(host)
            else:
                files = await asyncio.to_thread(self._written, Path(folder), host)
            place = f"{host.folder}/shards"
            targets = {f"{place}/{name}": path for name, path in files.items()}
            sizes = {target: path.stat().st_size for target, path in targets.items()}
            missing = await missing_files(connection, python, targets)
            for target in missing:
                await connection.put(targets[target], target, 0o600, sent)
        sent_bytes = sum(sizes[target] for target in missing)
        return HostData(f"{place}/{self._key}", reason, sum(sizes.values()), sent_bytes)

    async def _problem(self, connection: HostConnection, python: str) -> str | None:
        """Ask the host for its data; return why it cannot use them, or None."""
        host, one = connection.host, self.experiment.by_seed()[0]
        question = {
            "config": to_json(one, one.strategies[0]),
            "data": host.data,
            "edges": list(host.edges),
            "env": dict(host.env),
            "allowed": own_names(self.experiment) if host.allow_code else [],
        }
        done = await connection.run(
            [python, "-m", "edgefl.plugins.launch.host_data"],
            stdin=json.dumps(question).encode(),
            timeout_s=PROBE_S,
        )
        try:
            answer = json.loads(done.out)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or "digest" not in answer:
            reason = answer.get("error") if isinstance(answer, dict) else done.last_line()
            return printable(str(reason), 200)
        expected = self._digests.get(one.seed, {}).get(one.data.scale, answer["digest"])
        if answer["digest"] != expected:
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
        for seed, part in self._loaded.items():
            within = f"{self._key}/seed{seed}" if several else self._key
            mine = {edge: part.shares[edge] for edge in host.edges}
            name, digests = self.experiment.data.name, self._digests[seed]
            written = shards.write(folder / within, name, part.dataset, mine, digests, test=False)
            files |= {f"{within}/{path.name}": path for path in written}
        return files


def _with_data(experiment: Experiment, **changes: str) -> Experiment:
    data = experiment.data.model_copy(update=changes)
    return experiment.model_copy(update={"data": data})


def probe(question: dict[str, Any]) -> dict[str, str]:
    """Return the digest of the data of these edges on this machine, or why there is none.

    ``question``: ``config`` (as an edge gets it), ``data`` (the data directory), ``edges`` (ids),
    ``env`` (environment variables), ``allowed`` (names of the user's own code).
    """
    os.environ.update({key: os.path.expanduser(value) for key, value in question["env"].items()})
    try:
        experiment = from_json(question["config"], question["allowed"])
        experiment = _with_data(experiment, dir=question["data"])
        part = edge_data.edge_data(experiment, Path.cwd(), question["edges"])
    except UserError as error:
        return {"error": str(error)}
    return {"digest": part.own_digest or edge_data.digest(part.dataset, part.shares)}


if __name__ == "__main__":
    print(json.dumps(probe(json.load(sys.stdin))))
