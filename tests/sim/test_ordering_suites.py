"""The suites of disciplines give what the documentation says of them, on short runs with fixed seeds."""

from __future__ import annotations

import pytest

from swarmx.sim.suites import (
    ordering_agentrm,
    ordering_aios,
    ordering_giants,
    ordering_inversion,
    ordering_justitia,
    ordering_spoq,
)

SEEDS = (0,)


@pytest.mark.slow
def test_urgent_calls_do_as_well_as_alone_and_batch_keeps_its_floor() -> None:
    found = ordering_inversion.claims(SEEDS, True)
    assert found["urgent_p99_over_empty"] <= 1.2
    assert found["batch_share_over_floor"] >= 1.0
    assert found["urgent_p99_over_empty_without_preemption"] > 2.0
    assert found["urgent_run_p99_without_over_with_inheritance"] > 10.0


@pytest.mark.slow
def test_shares_follow_weights_and_nobody_overtakes_a_due_call() -> None:
    found = ordering_aios.claims(SEEDS, True)
    assert found["jain_124"] >= 0.99
    assert found["jain_124_fcfs"] < 0.9
    assert found["bound_broken"] == 0
    assert found["worst_low_wait_s"] < found["worst_low_wait_s_without_aging"] / 2


@pytest.mark.slow
def test_hung_turns_are_reaped_and_their_lanes_come_back() -> None:
    found = ordering_agentrm.claims(SEEDS, True)
    assert found["hung_calls_left"] == 0
    assert found["hung_calls_left_without_reaping"] > 0
    assert found["turn_p95_ratio"] < 0.14
    assert found["throughput_ratio"] > 2.68


@pytest.mark.slow
def test_a_ready_list_is_nearer_to_the_bound_than_waves() -> None:
    found = ordering_spoq.claims(SEEDS, True)
    assert found["ready_list"]["makespan_over_bound"] <= 1.03
    assert found["spoq_waves"]["makespan_over_bound"] > found["ready_list"]["makespan_over_bound"]
    assert found["ready_list"]["speedup_on_2_slots"] >= 1.4


@pytest.mark.slow
def test_virtual_finish_beats_token_counters_and_keeps_its_bound() -> None:
    found = ordering_justitia.claims(SEEDS, True)
    assert found["jct_ratio_vs_vtc"] < 0.7
    assert found["worst_delay_over_bound"] <= 1.0


@pytest.mark.slow
def test_the_oldest_workflow_goes_first_even_beside_giants() -> None:
    found = ordering_giants.claims(SEEDS, True)
    assert found["p99_oldest_vs_led"] < 0.75
    assert found["p99_oldest_vs_fcfs"] < 1.0
