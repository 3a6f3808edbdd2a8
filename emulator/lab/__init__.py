"""A laboratory in network namespaces: hosts that do not exist, and links shaped by the kernel.

Rates are those of an interface, by tc. The kernel's pacing of a connection (``kernel_pacing``) does
not fit here: a program would have to ask for it on its own sockets, and it limits one connection,
not the link that all programs of a host share.

Start at running.py. ``emulator kernel run`` is a lab of two hosts: this machine and the command's.

    topology.py    hosts, bridges, links and background traffic, from TOML
    wiring.py      from a topology to names, interfaces, neighbours and routes
    commands.py    from a wiring to commands of ip, tc and bridge
    system.py      what this system has for it; it runs the commands
    attached.py    the running labs, from any process: their state, hosts and links
    running.py     a lab that this process owns
    programs.py    what ``emulator lab`` and ``emulator kernel`` do: a lab around a program
    relay.py       the process that delays and drops frames where netem cannot
    background.py  the processes of background traffic
"""
