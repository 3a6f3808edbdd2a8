"""Everything that your own strategy, model, data set, partition, task or experiment may import.

The names in ``__all__`` are stable: ``from edgefl.api import Rounds, weighted_sum``. The modules
that define them may move. Importing them loads neither torch nor ZeroMQ. Moments, rates and links
come from ``emulator``: ``from emulator import to_ns``.
"""

from __future__ import annotations

from edgefl.config.experiment import (
    Compression,
    Data,
    Edges,
    EdgeScores,
    Evaluation,
    Experiment,
    FidelityLimits,
    LearningRateDecay,
    LearningRateSchedule,
    Named,
    NetworkSection,
    RecordSection,
    Stop,
    StopTarget,
    StrategyEntry,
    Training,
    Unlabelled,
    UpdatesSection,
)
from edgefl.config.faults import Availability, FaultEntry
from edgefl.config.links import Devices, Group, Links, Medium
from edgefl.config.section import Section
from edgefl.data.dataset import Dataset, Task, cross_entropy, right_answers
from edgefl.errors import UserError, nearest
from edgefl.jobs import Distill, Gradient, Job, Predict, Result, Sensitivity
from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions, Timed
from edgefl.strategies.base.buffered import Adaptive, Buffered, BufferedOptions, Gathered
from edgefl.strategies.base.catalog import load as load_strategy
from edgefl.strategies.base.events_and_decisions import (
    AlarmRang,
    Assign,
    Cancel,
    Decision,
    Discard,
    EdgeJoined,
    EdgeLost,
    Evaluated,
    Event,
    Finish,
    FreshRequested,
    Grant,
    JobDone,
    JobFailed,
    Publish,
    Push,
    Report,
    RunJob,
    RunStarted,
    SendFresh,
    SetAlarm,
    TaskClosed,
    UpdateArrived,
    UpdateReady,
    Urge,
)
from edgefl.strategies.base.gradients import (
    GradientRule,
    Gradients,
    GradientsOptions,
    GradientStep,
    OneGradient,
)
from edgefl.strategies.base.rounds import Rounds, RoundsOptions
from edgefl.strategies.base.slotted import Slotted, SlottedOptions, Timetable
from edgefl.strategies.base.strategy import (
    MOST_FAILED,
    LocalRule,
    ProximalRule,
    SelectingOptions,
    Strategy,
    StrategyOptions,
)
from edgefl.strategies.selection.selector import Ranked, Selector, SelectorOptions
from edgefl.strategies.syncdrop import HiddenLayer, hidden_layers, submodel_mask
from edgefl.streams import Streams
from edgefl.vectors import (
    Layout,
    LayoutEntry,
    Terms,
    VectorStore,
    aligned,
    aligned_copy,
    blocks,
    cosine,
    cosine_of,
    distance,
    inner,
    is_finite,
    mix,
    mix_keeping,
    moments,
    plain_mean,
    products,
    scratch,
    weighted_sum,
    with_changes,
)

__all__ = [
    # the two parts of an algorithm, and the base classes to derive from
    "Strategy",
    "StrategyOptions",
    "SelectingOptions",
    "LocalRule",
    "ProximalRule",
    "Rounds",
    "RoundsOptions",
    "Asynchronous",
    "AsynchronousOptions",
    "Buffered",
    "BufferedOptions",
    "Adaptive",
    "Gathered",
    "Gradients",
    "GradientsOptions",
    "GradientRule",
    "GradientStep",
    "OneGradient",
    "Slotted",
    "SlottedOptions",
    "Timed",
    "Timetable",
    "HiddenLayer",
    "hidden_layers",
    "submodel_mask",
    "Selector",
    "SelectorOptions",
    "Ranked",
    "MOST_FAILED",
    "load_strategy",  # the class of a name of `edgefl strategies`, to derive from it
    # events of a strategy
    "Event",
    "AlarmRang",
    "EdgeJoined",
    "EdgeLost",
    "Evaluated",
    "FreshRequested",
    "JobDone",
    "JobFailed",
    "RunStarted",
    "TaskClosed",
    "UpdateArrived",
    "UpdateReady",
    # its decisions
    "Decision",
    "Assign",
    "Cancel",
    "Discard",
    "Finish",
    "Grant",
    "Publish",
    "Push",
    "Report",
    "RunJob",
    "SendFresh",
    "SetAlarm",
    "Urge",
    # heavy work for RunJob
    "Job",
    "Result",
    "Distill",
    "Gradient",
    "Predict",
    "Sensitivity",
    # flat float32 vectors
    "Layout",
    "LayoutEntry",
    "Terms",
    "VectorStore",
    "aligned",
    "aligned_copy",
    "blocks",
    "cosine",
    "cosine_of",
    "distance",
    "inner",
    "is_finite",
    "mix",
    "mix_keeping",
    "moments",
    "plain_mean",
    "products",
    "scratch",
    "weighted_sum",
    "with_changes",
    # data, tasks, and options next to a name in the config
    "Dataset",
    "Section",  # base of the class ``Options`` in the file of a data set, model or partition
    "Task",
    "cross_entropy",
    "right_answers",
    # the tables of an experiment, for edgefl.run; the class of a table of options is Named
    "Experiment",
    "Availability",
    "Compression",
    "Data",
    "Devices",
    "EdgeScores",
    "Edges",
    "Evaluation",
    "FaultEntry",
    "FidelityLimits",
    "Group",
    "LearningRateDecay",
    "LearningRateSchedule",
    "Links",
    "Medium",
    "Named",
    "NetworkSection",
    "RecordSection",
    "Stop",
    "StopTarget",
    "StrategyEntry",
    "Training",
    "Unlabelled",
    "UpdatesSection",
    # randomness and errors
    "Streams",
    "UserError",
    "nearest",
]
