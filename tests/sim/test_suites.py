"""Suites: cells are paired, cached and repeatable, and the figures that come out of them add up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_log import KINDS, SLOTS, made_log

from swarmx.errors import BadInput
from swarmx.presets import PRESETS, preset
from swarmx.sim import simulate
from swarmx.sim.report import Meta, write_report
from swarmx.sim.suites import QUICK, Material, Plan, material_of, suite
from swarmx.sim.suites.cells import REFERENCES, Cell
from swarmx.sim.suites.engines import recorded_cluster
from swarmx.sim.suites.evaluation import evaluate, fidelity_of
from swarmx.sim.suites.outcome import Outcome, critical_parts, run_cell
from swarmx.sim.suites.run import run_cells
from swarmx.sim.suites.summary import Group, max_loads, rows_of
from swarmx.sim.suites.worlds import no_queue_s
