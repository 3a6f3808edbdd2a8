"""Strategies: one file per algorithm, with its server side and its edge side.

The folder is the registry: every file in it is a strategy. ``base`` has what they build on,
``selection`` which edges get work, ``dissemination`` what FedASMU's family shares.
"""
