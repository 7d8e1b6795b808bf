"""Simulation of scaling: the real scaler over replicas that take time to start, fail to, drain and crash.

`run` puts a policy into a `Scenario` (scenario); `ramp`, `agents` and `recorded` make scenarios; `forecasts` says who
foresees what live workflows still hold.
"""
