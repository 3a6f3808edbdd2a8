"""The published formats, one file each."""
