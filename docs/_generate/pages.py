"""The generated reference pages, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import typer
from pydantic import BaseModel
from typer.cli import get_docs_for_click

from edgefl import catalog
from edgefl import cli as edgefl_cli
from edgefl.commands.lists import about as plugin_about
from edgefl.config.experiment import Experiment
from edgefl.config.keys import Key, about, is_basic, keys, sections
from edgefl.plugins.launch.inventory import InventoryFile
from edgefl.strategies.base.catalog import load as load_strategy
from emulator import cli as emulator_cli
from emulator.energy.power import DEVICE_POWER, POWER_SOURCES, RADIOS
from emulator.profiles import ProfileFigure

CATALOGS = {  # title of a page -> which of ``catalog.PARTS`` it lists
    "Models": "model",
    "Data sets": "data",
    "Selections": "strategies",
    "Partitions": "partition",
    "Compressions": "compression",
}


def texts() -> dict[str, str]:
    """Map the name of each page to its text."""
    return {
        "config.md": config_page(),
        "inventory.md": inventory_page(),
        **{
            f"{title.lower().replace(' ', '-')}.md": catalog_page(title, part)
            for title, part in CATALOGS.items()
        },
        "cli-edgefl.md": cli_page(edgefl_cli.app, "edgefl"),
        "cli-emulator.md": cli_page(emulator_cli.app, "emulator"),
        "power.md": power_page(),
    }


# ---------------------------------------------------------------------- config keys
def config_page() -> str:
    """The page of config keys, with a table of keys for each table of the file."""
    intro = [
        "# Config keys",
        "Generated from the code. A key's unit is part of its name. The options of strategies,"
        " models, data sets and partitions are on their own pages.",
        "Only `[stop]` and `[[strategies]]` are required. A table that is left out has the defaults"
        " below. Keys that few experiments need are folded. `edgefl configs --keys` lists the rest"
        " in the terminal, and [editors complete and check](../../how-to/editors.md) all of them.",
        "Paths of your own code and of traces are relative to the folder of the file; `data.dir` is"
        " relative to the directory in which you start edgefl. `key=value` on the command line"
        " changes one key: `stop.emulated_s=10`, `strategies.fedasync.alpha=0.4`,"
        " `groups.NAME.links.profile=wifi`, or a whole table: `'model={name = \"cnn\"}'`.",
        'A file may begin with `extends = "other.toml"` (relative to its own folder). It then has'
        " only the keys that differ. Tables are merged; arrays such as `[[strategies]]` are"
        " replaced. The file needs its own `name`.",
    ]
    return _tables_page(intro, Experiment)


def inventory_page() -> str:
    """The page of an inventory's keys, with a table of keys for each table of the file."""
    intro = [
        "# Inventory keys",
        "Generated from the code. An inventory is a TOML file with the hosts of a run;"
        " [Run on several machines](../../how-to/several-machines.md) shows one.",
        "Only `[[hosts]]` with `host` is required. The edges of the run are those of the inventory,"
        " whatever `edges.count` of the config says. Where the config has `edges.names`, the"
        " inventory must have exactly these edges; their order is that of the config.",
        "Where hosts have `links` or `devices`, their edges become `[[groups]]` of the experiment."
        " What a host has replaces that part of the config's group; what it does not have stays."
        " Groups of the config stay as they are if no host has either, and their counts add up to"
        " the edges of the inventory.",
    ]
    return _tables_page(intro, InventoryFile)


def _tables_page(intro: Iterable[str], file: type[BaseModel]) -> str:
    parts = list(intro)
    for place, model in sections(file):
        found = keys(model)
        basic = [key for key in found if file is InventoryFile or is_basic(place, key.name)]
        advanced = [key for key in found if key not in basic]
        path = f"[{place.removesuffix('[]')}]" if place.endswith("[]") else place
        title = f"`[{path}]`" if path else "Top level"
        parts += [f"## {title}{'' if basic else ' (advanced)'}", about(model)]
        if basic:
            parts.append(key_table(basic, place))
        if advanced:
            count = f"{len(advanced)} advanced key{'s' * (len(advanced) > 1)}"
            table = key_table(advanced, place)
            parts.append(f"<details><summary>{count}</summary>\n\n{table}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def key_table(found: Iterable[Key], place: str = "") -> str:
    rows = ["| key | type | default | bounds | meaning |", "|---|---|---|---|---|"]
    for key in found:
        unit = f", {key.unit}" if key.unit else ""
        name = f"{place}.{key.name}" if place else key.name
        cells = [f"`{name}`", key.kind + unit, key.default, key.bounds, key.meaning]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


# ---------------------------------------------------------------------- catalogs
def options_table(name: str) -> str:
    """The table of a strategy's options; the page of strategies includes it."""
    return key_table(keys(load_strategy(name).Options)) + "\n"


def catalog_page(title: str, part: str) -> str:
    package, attribute, _ = catalog.PARTS[part]
    parts = [
        f"# {title}",
        f"Generated from the code. Each name is one file in `{package.replace('.', '/')}`.",
    ]
    for name in catalog.names(package, attribute):
        found = catalog.find(package, name, attribute)
        options = catalog.options_of(found)
        table = key_table(keys(options)) if options is not None and options.model_fields else ""
        parts += [f"## {name}", plugin_about(found), table]
    return "\n\n".join(part for part in parts if part) + "\n"


# ---------------------------------------------------------------------- energy
def power_page() -> str:
    """The page of named devices and radios: each number, how it follows, and its source."""
    parts = [
        "# Power of devices and radios",
        "Generated from the code. The profiles of `[devices.energy]` and `[links.radio]`; what the"
        " numbers mean: [Energy of a run](../../how-to/energy.md). `emulator profiles NAME` prints"
        " one, to paste into a config.",
        "## Devices",
        _figures_table(DEVICE_POWER),
        "## Radios",
        _figures_table(RADIOS),
        "## Sources",
        "\n".join(f"- **{key}**: {text}" for key, text in POWER_SOURCES.items()),
    ]
    return "\n\n".join(parts) + "\n"


def _figures_table(table: Mapping[str, Mapping[str, ProfileFigure]]) -> str:
    rows = ["| profile | key | value | how it follows | source |", "|---|---|---|---|---|"]
    for name, figures in table.items():
        for key, figure in figures.items():
            cells = [f"`{name}`", f"`{key}`", figure.value, figure.remark, figure.source]
            rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


# ---------------------------------------------------------------------- command line
def cli_page(app: typer.Typer, name: str) -> str:
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name=name)
    _keep_whole_sentences(command, context)
    text: str = get_docs_for_click(obj=command, ctx=context, name=name, title=f"`{name}`")
    return text


def _keep_whole_sentences(group: Any, context: typer.Context) -> None:
    """Give each command a short help: without one, click cuts its help at 45 characters."""
    names = group.list_commands(context) if hasattr(group, "list_commands") else ()
    for name in names:
        command = group.get_command(context, name)  # those of edgefl are loaded by this
        command.short_help = " ".join((command.help or "").partition("\n\n")[0].split())
        _keep_whole_sentences(command, context)
