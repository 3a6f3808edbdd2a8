"""Tells whether this machine has the data of an experiment: its digest, or what is missing.

It runs on a host as ``python -m edgefl.plugins.launch.data_probe``, with JSON on stdin: ``config``
(as an edge gets it), ``data`` (the data directory), ``edges`` (ids), ``env`` (environment
variables), ``allowed`` (names of the user's own code). It prints one JSON object with ``digest`` or
``error``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from edgefl.data import edge_data
from edgefl.errors import UserError
from edgefl.loading.file import from_json


def answer(asked: dict[str, Any]) -> dict[str, str]:
    """Return the digest of the data of the edges, or why there is none."""
    try:
        experiment = from_json(asked["config"], asked["allowed"])
        here = experiment.data.model_copy(update={"dir": asked["data"]})
        experiment = experiment.model_copy(update={"data": here})
        found = edge_data.edge_data(experiment, Path.cwd(), asked["edges"])
    except UserError as error:
        return {"error": str(error)}
    return {"digest": found.own_digest or edge_data.digest(found.dataset, found.shares)}


if __name__ == "__main__":
    question = json.load(sys.stdin)
    os.environ.update({key: os.path.expanduser(value) for key, value in question["env"].items()})
    print(json.dumps(answer(question)))
