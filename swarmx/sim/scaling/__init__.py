"""Simulation of scaling: the real scaler over replicas that take time to start, fail to, drain and crash.

`run` puts a policy into a `Scenario` (scenario); `ramp` and `agents` make scenarios; `frontier` turns a knob and draws
attainment against cost.
"""
