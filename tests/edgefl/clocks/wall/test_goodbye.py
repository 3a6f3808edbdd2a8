"""The coordinator's process ends only when its last messages have left."""

import subprocess
import sys

import pytest
import zmq

from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import RunEnded, StartRun

MODELS = 64  # of 1 MiB: more than the sockets' buffers take
PATIENCE_S = 60.0

# A coordinator that sends models, and then that the run has ended.
ENDING = f"""
import sys
import zmq
from edgefl.clocks.wall.coordinator import process
from edgefl.clocks.wall.wire import Router

class Ending:
    def __init__(self, *given):
        self.itself = self  # as in the real one, whose parts refer to each other
        self.context = zmq.Context()
        self.router = Router(self.context, None)
        print(self.router.bind("127.0.0.1", 0), flush=True)

    def main(self):
        routing, _ = self.router.socket.recv_multipart()
        for _ in range({MODELS}):
            self.router.send(routing, b"model", memoryview(bytes(1 << 20)))
        self.router.send(routing, b"end")
        self.router.close({1000 * round(PATIENCE_S)})
        return {{}}

process.CoordinatorProcess, process.coordinator_task = Ending, lambda start: start
sys.exit(process.main(int(sys.argv[1])))
"""
START = StartRun(
    experiment="",
    index=0,
    directory="",
    base="",
    scratch="/nonexistent/scratch",
    data_digest="",
    keys=None,
    more=False,
    strains=(),
    speed_auto=False,
    resume=False,
    engine="",
)


@pytest.mark.processes
@pytest.mark.parametrize("launcher", ["waits", "has gone"])
def test_an_edge_that_reads_later_gets_all_that_was_sent(launcher: str) -> None:
    control, theirs = Channel.pair()
    with (
        subprocess.Popen(
            [sys.executable, "-c", ENDING, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as edge,
    ):
        theirs.close()
        control.send(START)
        assert process.stdout is not None
        edge.linger, edge.rcvhwm, edge.rcvbuf = 0, 1, 1 << 16
        edge.rcvtimeo = 1000 * round(PATIENCE_S)
        edge.connect(f"tcp://127.0.0.1:{int(process.stdout.readline())}")
        if launcher == "has gone":
            control.close()
        edge.send(b"hello")
        if launcher == "waits":
            assert control.receive(timeout_s=PATIENCE_S) == RunEnded({})
        else:  # the process cannot tell how it ended; what follows takes it a while
            edge.poll(1000 * round(PATIENCE_S))
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1.0)
        heard = [edge.recv_multipart()[0] for _ in range(MODELS + 1)]
        assert heard == [b"model"] * MODELS + [b"end"]
        assert process.wait(PATIENCE_S) == (0 if launcher == "waits" else 1)
    control.close()
