"""Transfers and notes between coordinator and edges: what both clocks share, without I/O. ::

    machine    the state machine of a run's transfers, the rules of notes, and edges that die, come
               back or freeze by an injected fault: start here
    pacer      which bytes of a transfer may be sent when, on the wall clock

Nothing here reads a clock or sends a byte. Each method gets the emulated moment ``now`` (ns). The
virtual clock jumps to the machine's next moment; the wall clock drives it with real bytes.
"""
