"""Continuous batching: where placement, look-ahead and prediction win against counts, and where nothing can be won."""

from __future__ import annotations

from dataclasses import replace

from swarmx.sim.suites.cells import LED
from swarmx.sim.suites.made import HET, HOM, MILD, Made, Regime
from swarmx.sim.synthetic import Sizes, single
from swarmx.sim.workload import GammaGaps, OnOffGaps

LONG = Sizes(prompt_tokens=4000.0)
SINGLES = 8
KV_TOKENS = 30_000  # with long prompts, memory for some seven calls

REGIMES = (
    Regime("hom_b32", (0.8, 0.5), HOM),
    Regime("hom_b8", (0.8,), HOM, slots=8),
    Regime("hom_b32_bursty", (1.0,), HOM, gaps=GammaGaps(4.0)),
    Regime("hom_kv", (0.8, 0.95), HOM, kv_tokens=KV_TOKENS, sizes=LONG),
    Regime("het_b32", (0.8, 0.4, 0.95)),
    Regime("mild_het_b32", (0.8,), MILD),
    Regime("het_b32_bursty", (0.9,), gaps=GammaGaps(4.0)),
    Regime("het_b32_onoff", (0.8,), gaps=OnOffGaps()),
    Regime("het_b8", (0.92, 0.8), slots=8),
    Regime("het_kv", (0.8, 0.5, 0.95), kv_tokens=KV_TOKENS, sizes=LONG),
    Regime("het_single", (0.9,), make=single, per_workflow=SINGLES),
    Regime("hom_single", (0.9,), HOM, make=single, per_workflow=SINGLES),
    Regime("het_r4", (0.8,), (1.0, 1.0, 0.6, 0.35)),
    Regime("het_r48", (0.8,), tuple(s for s in HET for _ in range(4))),
)
JOBS = tuple(
    replace(r, slots=0, sizes=Sizes(prompt_tokens=0.0))
    for r in (Regime("job_het", (0.8, 0.7, 0.9, 0.5, 0.6, 1.05)), Regime("job_hom", (0.8, 0.7, 0.9, 0.5), HOM))
)

BATCHED = Made(
    "batched",
    "agent workflows on batched engines: equal and mixed speeds, bursts, little memory, 4 to 48 replicas",
    REGIMES,
    (
        "power_of_two", "weighted_round_robin", LED, "least_kv_tokens", "prequal", "central_fcfs", "beyond_prediction",
        "murakkab", "psc", "llmd_predicted", "least_expected", "swarmx", "push", "push_steal", "late", "clairvoyant",
    ),
    ("power_of_two", LED, "push", "late"),
    short_share=0.3,
)  # fmt: skip

JOB_MODEL = Made(
    "job",
    "agent workflows where a replica serves one call at a time: mixed and equal speeds, from half load to overload",
    JOBS,
    (
        "power_of_two", LED, "central_fcfs", "beyond_prediction", "murakkab", "least_expected", "swarmx", "push",
        "late", "late_c0", "clairvoyant", "late_clairvoyant",
    ),
    ("power_of_two", LED, "swarmx", "late"),
)  # fmt: skip
