"""A testbed that measures federated-learning strategies on the wall clock, over a real network. ::

    strategies    the algorithms: start here, at strategies/base and one of the files
    coordinator   the server's actor: tasks, deadlines, what it asks the strategy
    exchange      transfers and notes between it and the edges, for both clocks
    edges         what runs on a device: its actor, and the training
    protocol      messages, and how they travel as bytes
    clocks        what drives the actors: virtual, wall, and what both set up
    models, data, compression, compiled    what is learned, from what, and how fast
    config        the experiment file
    record, checkpoints    what a run leaves, and how it continues after an interruption
    results       tables, figures and summaries from these files
    commands      the core's commands; ``cli`` finds those of plug-ins, too
    plugins       what builds on runs: launch, live page, sweeps, reports, exports, Flower
    api           what a user's file may import
    interface     ``edgefl.run``, ``sweep``, ``check``, ``load``: for scripts and notebooks

No room imports one above it; ``pyproject.toml`` has their order. ``emulator`` (links, slots,
devices, clocks, faults) knows nothing of this package.
"""

from edgefl_testbed import VERSION as _VERSION
from edgefl_testbed import refuse_strangers as _refuse_strangers

_refuse_strangers()  # before the first import of emulator

__version__: str = _VERSION

INTERFACE = {  # what a script or a notebook uses -> its module, which is imported at the first use
    "run": "interface.running",
    "sweep": "interface.running",
    "check": "interface.running",
    "ModelScores": "interface.running",
    "load": "interface.runs",
    "Runs": "interface.runs",
    "LoadedRun": "interface.runs",
    "RunComparison": "interface.runs",
    "Experiment": "config.experiment",
    "UserError": "errors",
}


def __getattr__(name: str) -> object:
    if name not in INTERFACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{INTERFACE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *INTERFACE})
