"""The list of idle edges is updated, not computed again: it must equal a computed one."""

from __future__ import annotations

from builders import make
from hypothesis import given
from hypothesis import strategies as st

from edgefl.strategies.base.events_and_decisions import EdgeJoined, EdgeLost
from edgefl.strategies.base.strategy import Strategy

CHANGES = ("set", "delete", "update", "merge", "default", "last", "replace")
EDGES = [f"e{number}" for number in range(6)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["join", "lose", "run", "end", "clear", "look", *CHANGES]),
            st.sampled_from(EDGES),
        ),
        max_size=40,
    )
)
def test_idle_is_who_is_there_and_does_not_run(moves: list[tuple[str, str]]) -> None:
    strategy = make(Strategy)
    for move, edge in moves:
        match move:
            case "join":
                strategy.handle(EdgeJoined(edge, 1), 0)
            case "lose":
                strategy.handle(EdgeLost(edge), 0)
            case "run":
                strategy.mark_running([edge])
            case "end":
                strategy.running.pop(edge, None)
            case "clear":
                strategy.running.clear()
            case "set":
                strategy.running[edge] = 1
            case "delete" if edge in strategy.running:
                del strategy.running[edge]
            case "update":
                strategy.running.update({edge: 2})
            case "merge":
                strategy.running |= {edge: 3}
            case "default":
                strategy.running.setdefault(edge, 4)
            case "last" if strategy.running:
                strategy.running.popitem()
            case "replace":
                strategy.running = {edge: 5}
            case "look":
                assert strategy.idle == sorted(
                    edge for edge in strategy.samples if edge not in strategy.running
                )
    assert strategy.idle == sorted(
        edge for edge in strategy.samples if edge not in strategy.running
    )
    assert strategy.select(99, 0) is not strategy.idle
