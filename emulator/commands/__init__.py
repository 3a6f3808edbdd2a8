"""The commands, one file each, with a typer function that ``emulator.cli`` registers."""
