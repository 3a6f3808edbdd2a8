"""The server: FedAvg over all clients, without federated evaluation."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import first_weights

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run FedAvg; write the moments at which rounds ended, the metrics and the last model."""
    config = context.run_config
    ends_unix_s: list[float] = []
    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_train_nodes=config["num-clients"],
        min_available_nodes=config["num-clients"],
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(first_weights(config["hidden"], config["seed"])),
        num_rounds=config["num-server-rounds"],
        # called before the first round, too
        evaluate_fn=lambda _round, _arrays: ends_unix_s.append(time.time()),
    )
    if config["report"]:
        path = Path(config["report"])
        np.savez(path.with_suffix(".npz"), *result.arrays.to_numpy_ndarrays())
        trained = [dict(result.train_metrics_clientapp[n + 1]) for n in range(len(ends_unix_s) - 1)]
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"ends_unix_s": ends_unix_s, "trained": trained}))
        part.rename(path)
