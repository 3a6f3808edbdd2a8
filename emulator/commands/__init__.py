"""The commands, one file each: a typer function that `emulator.cli` registers."""
