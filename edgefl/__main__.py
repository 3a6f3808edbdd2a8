"""The command ``edgefl``, as ``python -m edgefl``."""

from edgefl_testbed import edgefl

if __name__ == "__main__":
    edgefl()
