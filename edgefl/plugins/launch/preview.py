"""``edgefl launch --dry-run``: hosts, files, commands, duration and bytes; contacts no host."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.wall.keys import missing
from edgefl.commands import show
from edgefl.commands.check import data_lines, estimate, table
from edgefl.config.experiment import Experiment
from edgefl.config.groups import parts
from edgefl.plugins.launch.host_data import DataSync, own_data
from edgefl.plugins.launch.host_session import MODULE
from edgefl.plugins.launch.inventory import Host
from edgefl.plugins.launch.launch_plan import (
    FileToSend,
    code_files,
    coordinator_files,
    key_files,
    listen_port,
    run_name,
    upper_bounds,
)
from edgefl.plugins.launch.run_places import run_folder
from edgefl.results.pace import clock

if TYPE_CHECKING:
    from edgefl.plugins.launch.command import Launch

MB = 1e6


def preview(task: Launch, overrides: Sequence[str]) -> None:
    """Print what the launch would do."""
    experiment, place, own = (
        task.run.experiment,
        task.inventory.coordinator,
        code_files(task.code()),
    )
    port = listen_port(task.inventory, experiment)
    where = "here" if place.host.via == "local" else f"on {place.host.name} ({place.host.via})"
    show.line(
        f"coordinator: {where}, port {port or 'any free one'}, at"
        f" {place.address or 'the address that is found for each host'}"
    )
    show.line(_keys(task))
    if place.host.via != "local":
        folder = run_folder(place.host.folder, run_name(experiment.name, "TOKEN-coordinator"))
        files = [*coordinator_files(task.keys), *own, *code_files(task.traces())]
        for file in files:
            show.line(f"  copy {file.source} -> {folder}/{file.target}")
    data = DataSync(experiment, task.run.base) if task.sync else None
    if data is not None:
        data.load()
    for host in task.inventory.hosts:
        for line in host_lines(task, host, own, data):
            show.line(line)
    _duration(experiment, task)
    words = ["edgefl", "launch", str(task.inventory.path), str(task.run.config), *overrides]
    found = task.run.found
    again = shlex.join(words) if found is None else found.command
    show.hint(again)


def _keys(task: Launch) -> str:
    new = missing(task.keys, task.run.experiment.edges.ids())
    if not task.keys.is_dir():
        return f"keys: {len(new)} edges would get new ones, in {task.keys}"
    return f"keys: those in {task.keys}" + (f"; new for {', '.join(new)}" if new else "")


def host_lines(
    task: Launch, host: Host, code: Sequence[FileToSend], data: DataSync | None
) -> list[str]:
    """Describe what one host gets, and what is started there."""
    user = f"{host.user}@" if host.user else ""
    lines = [f"{host.name} ({host.via}{f', {user}{host.name}' if host.via == 'ssh' else ''}):"]
    folder = run_folder(host.folder, run_name(task.run.experiment.name, "TOKEN"))
    files = [*key_files(task.keys, host.edges), *code]
    lines += [f"  copy {file.source} -> {folder}/{file.target}" for file in files]
    lines.append(f"  data: {_data(task.run.experiment, host, data)}")
    lines.append(f"  run {host.interpreter} -m {MODULE} {folder}")
    return [*lines, f"  edges: {', '.join(host.edges)}"]


def _data(experiment: Experiment, host: Host, data: DataSync | None) -> str:
    reason = own_data(experiment)
    if reason is not None or data is None:
        return f"none is sent ({reason or '--no-sync'})"
    size = f"the shares of its edges, {data.share_bytes(host) / MB:.3g} MB"
    if host.data is None:
        return f"{size}, unless they are there already"
    return f"its own in {host.data}; if that differs, {size}"


def _duration(experiment: Experiment, task: Launch) -> None:
    """Print how long the run takes, and how many bytes its models are."""
    one, seeds = experiment.by_seed()[0], len(experiment.by_seed())
    learned = learning(one, task.run.base)
    for line in data_lines(learned):
        show.line(line)
    for line in bound_lines(one, learned, seeds):
        show.line(line)
    if any("native" in (part.devices.kind, part.links.kind) for part in parts(one)):
        show.line("no estimate: the times of native devices and links are not known in advance")
        return
    found = [estimate(learned, index) for index in range(len(one.strategies))]
    Console().print(table(found, one.chosen_speed, seeds))


def bound_lines(experiment: Experiment, learned: Learning, seeds: int) -> list[str]:
    """What the config allows at most, in words."""
    bounds = upper_bounds(experiment, 4 * learned.layout.size)
    runs = seeds * len(experiment.strategies)
    lines = ["duration: no upper limit (stop.emulated_s is not given)"]
    if bounds.wall_s is not None:
        lines = [
            f"duration: at most {clock(bounds.wall_s)} for each of {runs} runs,"
            f" {clock(runs * bounds.wall_s)} in all, plus the start and the last evaluations"
        ]
    ways = (("up", bounds.up_bytes), ("down", bounds.down_bytes))
    known = [f"{way} at most {size / MB:.3g} MB" for way, size in ways if size is not None]
    if known:
        lines.append(f"models in each run: {', '.join(known)}")
    return lines
