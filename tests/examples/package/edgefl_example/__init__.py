"""Parts for edgefl from a package of its own: docs/how-to/plug-ins.md."""
