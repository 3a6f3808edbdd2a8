"""The base class of all parts of the experiment file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from edgefl import catalog
from edgefl.config.errors import Source, validated

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as OneLineErrors
else:

    class OneLineErrors(type(BaseModel)):
        """Makes the call of a class, as in ``Edges(count=0)``, raise UserError of one line.

        What reads a file validates without a call, and names the file.
        """

        def __call__(cls, **values: Any) -> Any:
            return validated(cls, values, Source(cls.__name__))


def _named(value: Any) -> Any:
    return catalog.name_of(value) if callable(value) else value


# The name of a plug-in. In Python it may be the class or the function itself.
PlugInName = Annotated[str, BeforeValidator(_named)]


class Section(BaseModel, metaclass=OneLineErrors):
    """Base of every part of the file: immutable, no unknown keys, no silent conversion.

    For example, "2" is not accepted as 2.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def is_set(section: Section, key: str) -> bool:
    """Whether ``key`` has another value than its default."""
    return bool(getattr(section, key) != type(section).model_fields[key].default)


def refuse_keys_of_other_kinds(section: Section, kinds: Mapping[str, Sequence[str]]) -> None:
    """ValueError for a key that is not of the section's own ``kind``.

    ``kinds``: kind -> its keys. Keys that are in none of them are for every kind.
    """
    own = section.model_dump(include={"kind"})["kind"]
    for key in type(section).model_fields:
        of = [kind for kind, keys in kinds.items() if key in keys]
        if of and own not in of and is_set(section, key):
            expected = " or ".join(f'"{kind}"' for kind in of)
            raise ValueError(f'{key}: expected kind = {expected}, found "{own}"')
