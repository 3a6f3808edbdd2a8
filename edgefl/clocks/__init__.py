"""The two clocks that drive a run. Of the core, only this room uses time, sockets,
threads and processes.

``virtual`` jumps from event to event; ``wall`` runs real processes and sockets in real time;
``setup`` builds what both of them need from an experiment.
"""
