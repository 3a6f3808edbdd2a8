"""Links around any program, shaped by the Linux kernel; needs root."""
