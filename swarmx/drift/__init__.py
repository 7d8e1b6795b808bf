"""Drift: are the predictions still as good as they were when the predictor was trained?

scores     what is watched of a finished call        reference  the same at training time, per group (drift.json)
evidence   the test and its rate of false alarms     window     sliding-window figures in mergeable sketches
monitor    `DriftMonitor`: records in, alarms out    transport  a monitor as JSON
"""

from swarmx.drift.monitor import Alarm, DriftMonitor
from swarmx.drift.reference import Reference
from swarmx.drift.scores import Group, group_of
from swarmx.drift.window import Figures

__all__ = ["Alarm", "DriftMonitor", "Figures", "Group", "Reference", "group_of"]
