"""From a call to what it will cost: quantiles of output tokens, of the calls it causes, of the work its workflow holds.

text, reading, features   what is read of a call    targets, split      what is learned from a log, and on which rows
embed, runtime      the predictor that runs         bundle              its directory on disk
cache, budget       what keeps it cheap and on time
baselines           quantiles per type: fallback    calibrate, metrics  honesty
encoder, neural, semantic       the text encoder    ridge, start, network, fit, heads   the heads (train extra)
export, train, evaluate, card, tracking             from a log to a model directory
workflow_state, state_features, downstream, downstream_fit   what a workflow will still ask for, after each call
situations, seconds, seconds_fit    seconds on each candidate replica
packed, further     arrays in JSON; what training learns beside the heads
explain, expectation, show          what `swarmx predict` shows; picture: what `swarmx train` ends with
"""
