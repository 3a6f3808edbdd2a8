"""A Flower app's code: its ClientApp, which is called in this process, and its ServerApp."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from edgefl.errors import UserError, needs
from edgefl.flower.app_folder import AppFolder, Setting

VERSION = "1.42"  # of flwr: other versions have other names inside
RUN_ID, SERVER_NODE, TASK_ID = 1, 1, 1  # of every message: an app sees one run


@dataclass(frozen=True, slots=True)
class ClientReply:
    """What a client returned: its records, and its state afterwards."""

    content: Any
    state: Any


class FlowerApp:
    """An app with its run config, for ``clients`` clients.

    Its code is imported once, when the first client is called. UserError for a wrong version of
    flwr.
    """

    def __init__(self, folder: AppFolder, run_config: Mapping[str, Setting], clients: int) -> None:
        check_version()
        self.folder, self.run_config, self.clients = folder, dict(run_config), clients

    @property
    def module(self) -> str:
        """The module of its ClientApp."""
        return self.folder.client.partition(":")[0]

    def context(self, node_id: int, node_config: Mapping[str, Setting], state: Any = None) -> Any:
        """Return a Context of this app."""
        from flwr.app import Context, RecordDict

        kept = RecordDict() if state is None else state
        return Context(RUN_ID, node_id, dict(node_config), kept, dict(self.run_config))

    def client(self, kind: str, partition: int, content: Any, state: Any = None) -> ClientReply:
        """Call the ClientApp as client ``partition`` with a message, and return its reply.

        ``kind``: the type of the message, such as "train". UserError if it returns no message. An
        exception of the app goes on to the caller.
        """
        from flwr.app import Message
        from flwr.clientapp import ClientApp

        app = self.component(self.folder.client, ClientApp)
        node = {"partition-id": partition, "num-partitions": self.clients}
        context = self.context(node_id_of(partition), node, state)
        identify()
        message = Message(content, dst_node_id=context.node_id, message_type=kind)
        reply = app(message, context)
        if not isinstance(reply, Message):
            raise UserError(
                f"returned {_named(reply)} for a {kind!r} message, expected a flwr.app.Message"
            )
        if reply.has_error():
            raise UserError(f"returned an error for a {kind!r} message: {reply.error.reason}")
        return ClientReply(reply.content, context.state)

    def component(self, name: str, kind: type[Any]) -> Any:
        """Import a component, "module:attribute"; UserError unless it is a ``kind``."""
        from flwr.supercore.object_ref import load_app

        what = f"{self.folder.path}: {name!r}"
        try:
            found = load_app(name, LookupError, self.folder.path)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(f"{what} cannot be imported: {said}") from error
        module = sys.modules[name.partition(":")[0]]
        file = getattr(module, "__file__", None)
        if file is not None and not Path(file).resolve().is_relative_to(self.folder.path):
            raise UserError(
                f"{what} is not this app's: a module of that name is at {file}; rename its package"
            )
        if not isinstance(found, kind):
            raise UserError(f"{what} is {_named(found)}, expected a flwr {kind.__name__}")
        return found


def node_id_of(partition: int) -> int:
    """The id of a client's node, which is not the server's."""
    return SERVER_NODE + 1 + partition


def identify() -> None:
    """Say who makes the messages in this process: Flower needs it for each of them."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id = TASK_ID, RUN_ID
    TaskIdentity.node_id = SERVER_NODE


def check_version() -> None:
    """UserError unless flwr is installed in a version whose apps this package can run."""
    with needs("flower", "a Flower app"):
        import_module("flwr.clientapp")
    try:
        found = version("flwr")
    except PackageNotFoundError:
        found = "unknown"
    if not f"{found}.".startswith(f"{VERSION}."):
        raise UserError(
            f"a Flower app needs flwr {VERSION}, found {found}: pip install 'flwr=={VERSION}.*'"
        )


def _named(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
