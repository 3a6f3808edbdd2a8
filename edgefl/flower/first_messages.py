"""What a Flower app's server sends in its first round: the first model, and the configs.

The app's ServerApp runs until it has sent its first messages. No client answers them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from edgefl.errors import UserError, own_place
from edgefl.flower.client_app import RUN_ID, SERVER_NODE, FlowerApp, identify, node_id_of

# Nodes that the ServerApp sees: as many as any strategy waits for.
MOST_NODES = 1000
# How often a server may ask for nodes after its first messages to train: it may send none to
# evaluate.
MOST_ASKED = 8
GET_PARAMETERS = "get_parameters"  # a message of Flower's former API: a client makes the model


class FirstRound:
    """A Flower ``Grid`` that keeps the first messages for training and evaluation.

    ``train`` and ``evaluate``: the content of such a message. It ends the ServerApp with the
    exception with which Flower ends one whose run was stopped.
    """

    def __init__(self, app: FlowerApp) -> None:
        from flwr.supercore.run import Run

        self.app = app
        self.train: Any = None
        self.evaluate: Any = None
        self.asked = 0  # for nodes, since it has sent messages to train
        self.over = False
        self.run = Run.create_empty(RUN_ID)

    def set_run(self, run: Any) -> None:
        """Flower's runner calls it."""
        self.run = run

    def create_message(
        self, content: Any, message_type: str, dst_node_id: int, group_id: str, ttl: Any = None
    ) -> Any:
        """Make a message, as Flower's grids do."""
        from flwr.app import Message

        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """The ids of many nodes, until the first round is over."""
        self.asked += self.train is not None
        self.over = self.over or self.evaluate is not None or self.asked > MOST_ASKED
        self._end()
        return [node_id_of(number) for number in range(max(MOST_NODES, self.app.clients))]

    def get_nodes(self) -> Iterable[Any]:
        """The same nodes, described."""
        from flwr.proto.node_pb2 import NodeInfo

        return [NodeInfo(node_id=node_id) for node_id in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
        """Keep what the ServerApp sends."""
        self._keep(messages)
        return []

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        """End the ServerApp: nothing answers."""
        self.over = True
        self._end()
        return []

    def send_and_receive(self, messages: Iterable[Any], *, timeout: Any = None) -> Iterable[Any]:
        """Keep what the ServerApp sends. Only the former API's question for a model is answered."""
        return self._keep(messages)

    def _keep(self, messages: Iterable[Any]) -> list[Any]:
        from flwr.app import Message

        answers = []
        for message in messages:
            kind = message.metadata.message_type
            if kind == GET_PARAMETERS:
                partition = (message.metadata.dst_node_id - node_id_of(0)) % self.app.clients
                reply = self.app.client(kind, partition, message.content)
                answers.append(Message(reply.content, reply_to=message))
            elif kind.startswith("train"):
                self.train = self.train or message.content
            elif kind.startswith("evaluate"):
                self.evaluate = self.evaluate or message.content
        self._end()
        return answers

    def _end(self) -> None:
        from flwr.supercore.run import RunNotRunningException

        if self.over:
            raise RunNotRunningException


def first_round(app: FlowerApp) -> FirstRound:
    """Return the first messages of the app's ServerApp. UserError if it sends none to train."""
    from flwr.serverapp import ServerApp
    from flwr.supercore.run import RunNotRunningException

    if app.folder.server is None:
        raise UserError(
            f"{app.folder.path}: the app has no serverapp, which makes its first model: expected"
            ' serverapp = "module:attribute" in [tool.flwr.app.components]'
        )
    server = app.component(app.folder.server, ServerApp)
    grid, why = FirstRound(app), "it ended"
    identify()
    with _quiet():
        try:
            server(grid, app.context(SERVER_NODE, {}))
        # after the first round it gets no answers
        except (Exception, RunNotRunningException) as error:
            module = app.folder.server.partition(":")[0]
            why = f"{type(error).__name__}: {error}{own_place(error, module)}"
    if grid.train is None:
        raise UserError(f"{app.folder.path}: its ServerApp sent no message to train: {why}")
    return grid


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what Flower's server says about its rounds: they are not this run's."""
    log = logging.getLogger("flwr")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
