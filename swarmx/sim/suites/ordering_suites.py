"""The suites of queue disciplines, one per claim."""

from __future__ import annotations

from swarmx.sim.suites import (
    ordering_agentrm,
    ordering_aios,
    ordering_giants,
    ordering_inversion,
    ordering_justitia,
    ordering_saga,
    ordering_spoq,
)

ORDERING = (
    ordering_saga.SUITE,
    ordering_justitia.SUITE,
    ordering_aios.SUITE,
    ordering_agentrm.SUITE,
    ordering_spoq.SUITE,
    ordering_inversion.SUITE,
    ordering_giants.SUITE,
)
