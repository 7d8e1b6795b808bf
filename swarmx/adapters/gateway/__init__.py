"""The gateway: an OpenAI-compatible server in front of a pool of model servers, with swarmx's queue in between.

A request's way: `app` reads and checks it, `identity` says whose work it is, `pool` queues it with the scheduler and
says when and where it starts, `exchange` carries it to the replica and the answer back, `records` keeps what happened.
"""

from __future__ import annotations
