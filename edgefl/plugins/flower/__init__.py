"""Flower's ClientApps as tasks: an app's folder, its code, its arrays and its records.

Only functions import flwr, because it is optional.
"""
