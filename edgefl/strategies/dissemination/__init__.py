"""What the schemes of timely dissemination share: control parameters, the choice of a refresh
point, the device's merge.
"""
