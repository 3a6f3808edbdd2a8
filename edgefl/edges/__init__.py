"""What runs on a device.

edge      the edge as an actor: its phases, its requests for fresher models, its updates. Start here
training  local training of one task: plan, run, optimizers, trainer
"""
