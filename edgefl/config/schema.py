"""The JSON schema of the experiment file, by which editors complete and check it.

``edgefl schema`` prints it; ``configs/experiment.schema.json`` is a copy, which the shipped files
name in their first line. It has the types, bounds and texts of all keys, and the options of each
plug-in where the file names it. What depends on several keys is left to ``edgefl check``.

Editors that follow neither ``if`` nor ``allOf`` complete from ``properties`` alone: so a table has
the options of all plug-ins there, with their texts, and its ``if`` allows those of its own name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from edgefl import catalog
from edgefl.config.experiment import Experiment
from edgefl.config.file import FACTS
from edgefl.config.keys import about, is_basic, keys, sections
from edgefl.config.packaged import EXTENDS
from edgefl.entry_points import entries, one_line
from edgefl.errors import UserError
from edgefl.strategies.base import catalog as strategies
from edgefl.strategies.base.strategy import StrategyOptions
from emulator import profiles
from emulator.energy import power

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ADVANCED = "x-advanced"  # true at a key that few experiments need
TABLES = ("data", "partition", "model")  # those that choose a plug-in
OWN = {"type": "string", "pattern": ":", "description": "Your own, such as FILE.py:NAME."}
PROFILES = {  # section -> the names of its profiles
    "Links": profiles.LINKS,
    "Devices": profiles.DEVICES,
    "DeviceEnergy": power.DEVICE_POWER,
    "RadioEnergy": power.RADIOS,
}
WIDTH = 100  # of a line of the committed file, where a key fits into it
Node = dict[str, Any]


def text(others: bool = False) -> str:
    """Return the schema as JSON; ``others`` as for ``schema``."""
    return f"{_json(schema(others), 0)}\n"


def schema(others: bool = False) -> Node:
    """Return the schema. ``others``: with the plug-ins of other packages that are installed."""
    root = _tidy(Experiment.model_json_schema(schema_generator=_Texts))
    properties, defs = root["properties"], root["$defs"]
    _mark(root)
    whole = _required(root)
    for table in TABLES:
        own = defs[_place(properties[table])]
        plugins = _plugins(table, others)
        properties[table] = {
            **{key: value for key, value in properties[table].items() if key != "$ref"},
            **_choice("name", own["properties"], plugins),
        }
        whole["properties"].setdefault(table, {}).update(_needed("name", plugins))
    packed = _name_or_table("compression", others)
    for way in ("up", "down"):
        defs["Compression"]["properties"][way] |= {"anyOf": packed["anyOf"]}
        defs["Compression"]["properties"][way].pop("$ref")
    entry = defs["StrategyEntry"]
    defs["StrategyEntry"] = {
        "description": entry["description"],
        "required": entry["required"],
        **_choice("strategy", entry["properties"], _strategies(others)),
    }
    defs["Selection"] = _name_or_table("strategies", others)
    for way, section in (("links", "Links"), ("devices", "Devices")):
        defs["Group"]["properties"][way] = {"$ref": f"#/$defs/{section}"}
    known = [*catalog.names("edgefl.data", "load"), "held_out"]
    defs["Unlabelled"]["properties"]["data"]["anyOf"] = [{"enum": known}, OWN]
    for unused in ("Data", "Named"):
        del defs[unused]
    properties[EXTENDS] = {
        "type": "string",
        "description": "Another config, relative to this file's folder; only the keys that differ"
        " are here.",
    }
    properties[FACTS] = {
        "type": "object",
        "description": "Facts in the config.toml that a run leaves; ignored when it is read again.",
    }
    return {
        "$schema": DIALECT,
        "title": "Experiment file of edgefl",
        "description": root["description"],
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "if": {"required": [EXTENDS]},
        "then": {"required": ["name"]},
        "else": whole,
        "$defs": dict(sorted(defs.items())),
    }


class _Texts(GenerateJsonSchema):
    """Describes tables and keys by their texts in the code, and knows the old names of options."""

    def model_schema(self, schema: Any) -> Node:
        made, model = super().model_schema(schema), schema["cls"]
        made["description"] = about(model)
        for key in keys(model):
            if key.text:
                made["properties"][key.name]["description"] = key.text
        if issubclass(model, StrategyOptions):
            for old, name in model.old_keys().items():
                said = {"description": f"The old name of {name}.", "deprecated": True}
                made["properties"][old] = {**made["properties"][name], **said}
        return made


def _tidy(node: Any) -> Any:
    """Remove titles, which repeat the keys, null, which TOML lacks, and the defaults of tables."""
    if isinstance(node, list):
        return [_tidy(each) for each in node]
    if not isinstance(node, dict):
        return node
    found: Node = {}
    for key, value in node.items():
        is_title = key == "title" and isinstance(value, str)
        if not (is_title or (key == "default" and (value is None or isinstance(value, dict)))):
            found[key] = _tidy(value)
    choices = [each for each in found.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) == 1:
        del found["anyOf"]
        return {**choices[0], **found}
    return {**found, "anyOf": choices} if choices else found


def _place(node: Node) -> str:
    """Return the name of the definition that a node refers to."""
    return str(node["$ref"]).rpartition("/")[2]


def _mark(root: Node) -> None:
    """Mark the advanced keys, and list the names of profiles."""
    for place, model in sections():
        node = root if not place else root["$defs"][model.__name__]
        for name, key in node["properties"].items():
            if not is_basic(place, name):
                key[ADVANCED] = True
        if model.__name__ in PROFILES:
            node["properties"]["profile"]["enum"] = sorted(PROFILES[model.__name__])


def _required(root: Node) -> Node:
    """Take the required keys out of all tables; return a schema that requires them.

    A file that extends another one may leave them out, but not those of an array's entries.
    """
    whole: Node = {"required": root.pop("required"), "properties": {}}
    tables = {
        place: root["$defs"][model.__name__]
        for place, model in sections()
        if place and "[" not in place
    }
    for place, table in tables.items():
        if "required" in table:
            node = whole
            for part in place.split("."):
                node = node.setdefault("properties", {}).setdefault(part, {})
            node["required"] = table["required"]
    for table in tables.values():  # several may be of one definition
        table.pop("required", None)
    return whole


# ---------------------------------------------------------------------- tables with a plug-in
# name of a plug-in -> a line about it, and the schema of its options; None: any options
Plugins = dict[str, tuple[str, Node | None]]


def _plugins(table: str, others: bool) -> Plugins:
    package, attribute, _ = catalog.PARTS[table]
    made: Plugins = {
        name: (catalog.one_line(package, name), _options(catalog.find(package, name, attribute)))
        for name in catalog.names(package, attribute)
    }
    return _others(package, others) | made


def _strategies(others: bool) -> Plugins:
    made: Plugins = {
        name: (catalog.one_line(catalog.STRATEGIES, name), _options(found))
        for name in strategies.strategy_names()
        for found in [strategies.load(name)]
    }
    return _others(catalog.STRATEGIES, others) | made


def _others(package: str, others: bool) -> Plugins:
    found: Plugins = {}
    group = entries(catalog.GROUPS.get(package, package)) if others else {}
    for name, entry in group.items():
        try:
            found[name] = one_line(entry), None
        except UserError as error:  # a plug-in that cannot be loaded is still one of the names
            found[name] = str(error), None
    return found


def _options(plugin: Any) -> Node:
    model = catalog.options_of(plugin)
    if model is None:
        return {"properties": {}}
    made = _tidy(model.model_json_schema(schema_generator=_Texts))
    return {key: made[key] for key in ("properties", "required") if key in made}


def _named(plugins: Plugins) -> Node:
    """Return the schema of a name. ``x-taplo`` has what editors show beside each."""
    lines = {"docs": {"enumValues": [line for line, _ in plugins.values()]}}
    return {"anyOf": [{"enum": [*plugins], "x-taplo": lines}, OWN]}


def _choice(key: str, own: Mapping[str, Node], plugins: Plugins) -> Node:
    """Return the schema of a table that chooses a plug-in by ``key`` and has its options.

    ``own``: the keys of the table itself.
    """
    named = {name: value for name, value in own[key].items() if name != "type"} | _named(plugins)
    texts: dict[str, dict[str, list[str]]] = {}  # option -> its texts -> of which plug-ins
    rules: list[Node] = []
    for name, (_, options) in plugins.items():
        if options is None:
            continue
        allowed: Node = {}
        for option, node in options["properties"].items():
            allowed[option] = {**node}
            said = allowed[option].pop("description", "")
            texts.setdefault(option, {}).setdefault(said, []).append(name)
        then = {"properties": {**dict.fromkeys(own, True), **allowed}}
        rules.append(_if(key, name, {**then, "additionalProperties": False}))
    described = {
        option: {"description": " | ".join(f"{', '.join(of)}: {said}" for said, of in by.items())}
        for option, by in texts.items()
    }
    return {
        "type": "object",
        "properties": {**own, key: named, **described},
        "if": {"required": [key]},
        "then": {"allOf": rules},
        "else": {"properties": dict.fromkeys([*own, *texts], True), "additionalProperties": False},
    }


def _needed(key: str, plugins: Plugins) -> Node:
    """Return the options that a table must have, by its ``key``."""
    rules = [
        _if(key, name, {"required": options["required"]})
        for name, (_, options) in plugins.items()
        if options is not None and "required" in options
    ]
    return {"allOf": rules} if rules else {}


def _if(key: str, value: str, then: Node) -> Node:
    return {"if": {"properties": {key: {"const": value}}, "required": [key]}, "then": then}


def _name_or_table(part: str, others: bool) -> Node:
    plugins = _plugins(part, others)
    table = _choice("name", {"name": {"description": "Its name."}}, plugins)
    return {"anyOf": [*_named(plugins)["anyOf"], {**table, "required": ["name"]}]}


def _json(node: Any, depth: int) -> str:
    """Return JSON with a line for each key of the file, so that a change of one is one line."""
    flat = json.dumps(node, ensure_ascii=False)
    many = isinstance(node, dict) or (isinstance(node, list) and isinstance(node[0], dict))
    if not many or len(flat) + depth <= WIDTH or _is_line(node, flat):
        return flat
    if isinstance(node, dict):
        inner = [f"{json.dumps(key)}: {_json(value, depth + 1)}" for key, value in node.items()]
    else:
        inner = [_json(value, depth + 1) for value in node]
    pad = "\n" + " " * depth
    begin, end = "{}" if isinstance(node, dict) else "[]"
    return begin + ",".join(f"{pad} {each}" for each in inner) + pad + end


def _is_line(node: Any, flat: str) -> bool:
    """Whether a node is that of one key, or what one plug-in allows."""
    is_key = "description" in node and '"properties"' not in flat
    return isinstance(node, dict) and (is_key or ("if" in node and "else" not in node))
