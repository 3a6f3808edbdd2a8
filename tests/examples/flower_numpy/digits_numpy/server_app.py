"""The server: FedAvg of Flower's former API."""

import numpy as np
from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp


def server_fn(context: Context):
    first = [np.zeros((64, 10), np.float32), np.zeros(10, np.float32)]
    strategy = FedAvg(initial_parameters=ndarrays_to_parameters(first))
    rounds = ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    return ServerAppComponents(strategy=strategy, config=rounds)


app = ServerApp(server_fn=server_fn)
