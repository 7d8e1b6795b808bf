"""Online adaptation: notice the drift, retrain the heads beside the request path, swap only what is proven better.

example, workflows, packing   what is kept of a finished call, without its text
reservoir                     which calls are kept: recent ones, every group, the tails
retrain, worker               a new model from them, in a process of its own
contest                       champion against challenger on live records, with a bound on the error
registry, registry_mlflow     versions, roles and history: a plain directory, or MLflow
model, watching, loop         the loop itself: no clock, no files; events: what it is told and tells
watch                         the trainer that follows a record directory: `swarmx adapt --watch`
replay, shift, picture        a log through the loop, with made-up shifts, drawn: `swarmx adapt LOG`
"""
