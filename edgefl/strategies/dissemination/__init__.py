"""What the schemes of timely dissemination share: control parameters, the choice of a slot, the
device's merge.
"""
