"""The state of a Flower client between tasks (``context.state``) as a float32 vector.

An edge keeps vectors between its tasks. Each number holds two bytes, which float32 has exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def packed(state: Any) -> np.ndarray:
    """Return a RecordDict as a vector: the number of bytes is odd or even, then the bytes."""
    from flwr.common.serde import recorddict_to_proto

    data = recorddict_to_proto(state).SerializeToString(deterministic=True)
    odd = len(data) % 2
    words = np.frombuffer(data + b"\0" * odd, dtype="<u2")
    return np.concatenate([[odd], words]).astype(np.float32)


def unpacked(vector: np.ndarray) -> Any:
    """Return the RecordDict of a vector."""
    from flwr.common.serde import recorddict_from_proto
    from flwr.proto.recorddict_pb2 import RecordDict

    data = vector[1:].astype("<u2").tobytes()
    return recorddict_from_proto(RecordDict.FromString(data[: len(data) - int(vector[0])]))
