"""The same links shaped by the Linux kernel, around any program."""
