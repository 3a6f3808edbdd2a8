"""One file per command of ``edgefl``; ``edgefl.cli`` puts them together."""
