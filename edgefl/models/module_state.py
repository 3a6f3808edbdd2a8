"""What a module holds beside the flat vector, and its return to what it held when it was built.

The module of a process trains the tasks of many devices. A device that runs on a machine of its own
begins each task with what it has received, so nothing else may pass from one task to the next. A
task may replace a buffer (``self.mean = new``) or change a plain attribute (``self.seen += 1``, a
cache). ``ModuleState`` finds both by comparing with what the module held when it was built.

Found are numbers, texts, tensors, numpy arrays, generators of random numbers, lists, dicts and sets
of these, and attributes of other objects. Not found are changes in place of tensors and arrays
above MOST_BYTES through ``.data``, containers above MOST_ITEMS of the same length, and what is not
in the module at all: globals, class attributes, closures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
import xxhash
from torch import nn

from edgefl.errors import UserError

MOST_BYTES = 1 << 18  # of a tensor or an array whose content is compared
MOST_ITEMS = 1000  # of a container whose items are compared
MOST_DEPTH = 6  # of containers and objects in each other
OF_TORCH = frozenset(vars(nn.Module())) - {"training"}  # such as hooks, and the tables of tensors
PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
CODE = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
CONTAINERS = (list, tuple, dict, set, frozenset)
COMPARED = (torch.Tensor, np.ndarray, np.random.Generator, torch.Generator)


GONE = object()  # the value of a deleted attribute


@dataclass(slots=True, eq=False)
class Changes:
    """What a task has changed in a module, so that the task can go on with it.

    Each row: the module (or an object in it), the attribute or buffer, and its value.
    """

    rows: list[tuple[Any, str, Any]]

    def __bool__(self) -> bool:
        return bool(self.rows)


@dataclass(slots=True, eq=False)
class _Attribute:
    value: Any
    kept: Any  # a copy, from which containers and tensors are made as they were
    print: Any  # see ``ModuleState._print``
    fixed: bool  # the same object has the same content


@dataclass(slots=True, eq=False)
class _Home:
    """A module, or another object in it, and what it held when it was built."""

    owner: Any
    name: str
    attributes: dict[str, _Attribute]
    parameters: dict[str, Any]
    buffers: dict[str, Any]  # those whose content travels
    children: dict[str, Any]
    sizes: tuple[int, int] = (0, 0)  # of the tables of attributes and buffers
    fixed: list[tuple[str, Any]] = field(default_factory=list)  # attributes compared by identity
    others: list[tuple[str, _Attribute]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sizes = _sizes(self.owner)
        for key, old in self.attributes.items():
            if old.fixed:
                self.fixed.append((key, old.value))
            else:
                self.others.append((key, old))

    def place(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key


class ModuleState:
    """Compares ``model`` with its state at the time of this call, and takes it back there.

    ``travels``: the tensors whose content belongs to a task (of the flat vector, and counters).
    Only their identity is compared.
    """

    def __init__(self, model: nn.Module, travels: Sequence[torch.Tensor]) -> None:
        self._own = {id(part): part for part in (*travels, *model.modules())}
        self._objects: list[tuple[str, Any]] = []  # found and not looked into yet
        self._homes = [self._home_of(name, module) for name, module in model.named_modules()]
        while self._objects and len(self._homes) < MOST_ITEMS:
            name, found = self._objects.pop()
            self._homes.append(_Home(found, name, self._attributes(name, vars(found)), {}, {}, {}))

    def _home_of(self, name: str, module: nn.Module) -> _Home:
        buffers = {key: value for key, value in module._buffers.items() if id(value) in self._own}
        return _Home(
            module,
            name,
            self._attributes(name, _held(module, buffers)),
            dict(module._parameters.items()),
            buffers,
            dict(module._modules.items()),
        )

    def _attributes(self, name: str, held: Mapping[str, Any]) -> dict[str, _Attribute]:
        for key, value in held.items():
            self._find_objects(f"{name}.{key}" if name else key, value)
        return {
            key: _Attribute(value, self.copied(value), self._print(value), _is_fixed(value))
            for key, value in held.items()
        }

    def _find_objects(self, place: str, value: Any, depth: int = 0) -> None:
        """Note objects with attributes of their own, which are looked into once."""
        if id(value) in self._own or isinstance(value, (*PLAIN, *CODE, *COMPARED)):
            return
        if isinstance(value, CONTAINERS):
            if len(value) <= MOST_ITEMS and depth < MOST_DEPTH:
                for part in value.values() if isinstance(value, dict) else value:
                    self._find_objects(place, part, depth + 1)
        elif isinstance(getattr(value, "__dict__", None), dict) and not _is_of_torch(value):
            self._own[id(value)] = value
            self._objects.append((place, value))

    # ------------------------------------------------------------------ replaced buffers
    def settle(self) -> None:
        """Copy the values of replaced buffers into the module's own tensors, and bind these again.

        UserError if a value does not fit.
        """
        for home, key, value in list(self._replaced()):
            own = home.buffers[key]
            _bind(home.owner, key, own)
            if not isinstance(value, torch.Tensor) or value.shape != own.shape:
                found = tuple(value.shape) if isinstance(value, torch.Tensor) else value
                raise UserError(
                    f"the model's buffer {home.place(key)!r} was replaced in training: expected a"
                    f" tensor of shape {tuple(own.shape)}, found {found}"
                )
            with torch.no_grad():
                own.copy_(value)

    def _replaced(self) -> Iterator[tuple[_Home, str, Any]]:
        for home in self._homes:
            if home.buffers:
                now = home.owner._buffers
                for key, own in home.buffers.items():
                    value = now.get(key)
                    if value is not own:
                        yield home, key, value

    # ------------------------------------------------------------------ other state
    def take(self) -> Changes:
        """Return what was changed, and take the module back to what it held when it was built.

        UserError that names what cannot be taken back exactly.
        """
        changes = Changes([])
        for home, key, value in list(self._replaced()):
            changes.rows.append((home.owner, key, value))
            _bind(home.owner, key, home.buffers[key])
        wrong: list[str] = []
        for home in self._homes:
            self._take(home, changes, wrong)
        if wrong:
            raise UserError(
                f"the model keeps state in {wrong[0]!r} that changes with use and cannot be taken"
                " back: expected a tensor of a fixed shape, made with register_buffer, which"
                " travels with the model"
            )
        return changes

    def _take(self, home: _Home, changes: Changes, wrong: list[str]) -> None:
        if self._is_unchanged(home):  # nearly always
            return
        owner, now = home.owner, _held(home.owner, home.buffers)
        for key, old in home.attributes.items():
            value = now.pop(key, GONE)
            if value is old.value and old.fixed:
                continue
            if value is not GONE and self._print(value) == old.print:
                continue
            # the module's own object becomes what it was: the task goes on with another one
            same = value is old.value
            changes.rows.append((owner, key, self.copied(value) if same else value))
            self._restore(owner, key, old)
            if self._print(old.value) != old.print:
                wrong.append(home.place(key))
        for key, value in now.items():
            changes.rows.append((owner, key, value))
            delattr(owner, key)
        if isinstance(owner, nn.Module) and not isinstance(owner, torch.jit.ScriptModule):
            for table, own in (
                (owner._parameters, home.parameters),
                (owner._modules, home.children),
            ):
                _keep_table(home, table, own, wrong)

    def _is_unchanged(self, home: _Home) -> bool:
        owner, held = home.owner, vars(home.owner)
        if _sizes(owner) != home.sizes or isinstance(owner, torch.jit.ScriptModule):
            return False
        buffers = owner._buffers if isinstance(owner, nn.Module) else {}
        for key, value in home.fixed:
            if held.get(key, GONE) is not value and buffers.get(key, GONE) is not value:
                return False
        for key, old in home.others:
            value = held.get(key, GONE)
            if self._print(buffers.get(key) if value is GONE else value) != old.print:
                return False
        return not isinstance(owner, nn.Module) or (
            _is_same(owner._parameters, home.parameters) and _is_same(owner._modules, home.children)
        )

    def put(self, changes: Changes) -> None:
        """Let a task go on with what ``take`` has returned."""
        for owner, key, value in changes.rows:
            if value is GONE:
                delattr(owner, key)
            else:
                _bind(owner, key, value)

    def copy_of(self, changes: Changes) -> Changes:
        """Return a copy that does not change when the task goes on."""
        return Changes([(owner, key, self.copied(value)) for owner, key, value in changes.rows])

    def _restore(self, owner: Any, key: str, old: _Attribute) -> None:
        value = old.value
        if self._print(value) != old.print:
            kept = self.copied(old.kept)
            match value:
                case list():
                    value[:] = kept
                case dict() | set():
                    value.clear()
                    value.update(kept)
                case torch.Tensor() if value.shape == kept.shape:
                    value.data.copy_(kept)
                case np.ndarray() if value.shape == kept.shape and value.flags.writeable:
                    value[...] = kept
        _bind(owner, key, value)

    # ------------------------------------------------------------------ values
    def copied(self, value: Any, depth: int = 0) -> Any:
        """Return a copy of containers, tensors and arrays, but not of what the module has itself.

        Large ones are not copied: a change of them in place is refused.
        """
        if id(value) in self._own or depth > MOST_DEPTH:
            return value
        if isinstance(value, CONTAINERS) and len(value) > MOST_ITEMS:
            return value
        match value:
            case torch.Tensor() if _is_small(value):
                made = value.detach().clone()
                return made.requires_grad_() if value.is_leaf and value.requires_grad else made
            case np.ndarray() if value.nbytes <= MOST_BYTES:
                return value.copy()
            case list():
                return [self.copied(part, depth + 1) for part in value]
            case set():
                return copy(value)
            case dict():
                held = copy(value)
                held.update({key: self.copied(part, depth + 1) for key, part in value.items()})
                return held
            case tuple() if type(value) is tuple:
                return tuple(self.copied(part, depth + 1) for part in value)
        return value

    def _print(self, value: Any, depth: int = 0) -> Any:
        """Return something that is equal as long as the value is equal."""
        if isinstance(value, PLAIN):
            return (type(value), value if value == value else "nan")
        if id(value) in self._own or depth > MOST_DEPTH:
            return id(value)
        if isinstance(value, CONTAINERS) and len(value) > MOST_ITEMS:
            return (id(value), len(value))
        match value:
            case torch.Tensor():
                return _tensor_print(value)
            case np.ndarray():
                small = value.nbytes <= MOST_BYTES and not value.dtype.hasobject
                return (
                    value.dtype.str,
                    value.shape,
                    _digest(value) if small else value.ctypes.data,
                )
            case np.random.Generator():
                return (id(value), repr(value.bit_generator.state))
            case torch.Generator():
                return (id(value), _digest(value.get_state().numpy()))
            case dict():
                parts = [(key, self._print(part, depth + 1)) for key, part in value.items()]
                return (type(value), *parts)
            case set() | frozenset():
                return (type(value), frozenset(value))
            case list() | tuple():
                return (type(value), *(self._print(part, depth + 1) for part in value))
        return (id(value), value.getstate()) if _is_python_random(value) else id(value)


def _held(owner: Any, travels: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes, and buffers that do not travel, as a new dict."""
    if not isinstance(owner, nn.Module):
        return dict(vars(owner))
    held = {key: value for key, value in vars(owner).items() if key not in OF_TORCH}
    held.update((key, value) for key, value in owner._buffers.items() if key not in travels)
    return held


def _bind(owner: Any, key: str, value: Any) -> None:
    if isinstance(owner, torch.jit.ScriptModule):
        setattr(owner, key, value)
    elif isinstance(owner, nn.Module) and key in owner._buffers:
        owner._buffers[key] = value
    else:
        vars(owner)[key] = value


def _keep_table(home: _Home, table: Any, own: dict[str, Any], wrong: list[str]) -> None:
    """Undo the replacement of parameters or modules, and note it."""
    if _is_same(table, own):
        return
    wrong += [home.place(key) for key in {**table, **own} if table.get(key) is not own.get(key)]
    table.clear()
    table.update(own)


def _is_same(table: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    return len(table) == len(own) and all(map(is_, table.values(), own.values()))


def _sizes(owner: Any) -> tuple[int, int]:
    return len(vars(owner)), len(owner._buffers) if isinstance(owner, nn.Module) else 0


def _is_fixed(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_fixed, value))
    return not isinstance(value, (*CONTAINERS, *COMPARED)) and not _is_python_random(value)


def _is_python_random(value: Any) -> bool:
    return type(value).__module__ == "random" and hasattr(value, "getstate")


def _is_of_torch(value: Any) -> bool:
    """Whether an object belongs to torch, whose compiled graphs and hooks change with use."""
    return type(value).__module__.partition(".")[0] in ("torch", "numpy")


def _is_small(tensor: torch.Tensor) -> bool:
    plain = tensor.layout == torch.strided and tensor.device.type != "meta"
    return plain and tensor.numel() * tensor.element_size() <= MOST_BYTES


def _tensor_print(tensor: torch.Tensor) -> Any:
    what = (tensor.dtype, tensor.shape, tensor.device)
    if _is_small(tensor):
        raw = tensor.detach().contiguous().view(-1).view(torch.uint8)
        return (*what, _digest(raw.numpy(force=True)))
    version = 0 if tensor.is_inference() else tensor._version
    return (*what, id(tensor), version)


def _digest(array: np.ndarray) -> int:
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
