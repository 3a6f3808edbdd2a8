"""Connections to hosts: by ssh, into a network namespace, or to this machine."""
