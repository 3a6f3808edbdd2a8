"""The coordinator's process: a pacing thread with the sockets and the emulated links, and a logic
thread with the coordinator actor and the record. ::

    process          opens the run, builds all of it, injects its faults, and runs to the end: start
                     here
    pacing           the pacing thread's turns
    sessions         which edge is connected, and what a peer may send
    transfers        models and updates on the wire; edgefl.exchange says which bytes when
    thread_messages  what the threads tell each other, and the journal's rows of it
    logic            the logic thread; outputs wait for the journal; checkpoints
    run_logic        what it does with each input, as a function of its inputs
    workers          evaluation and jobs in other processes
"""
