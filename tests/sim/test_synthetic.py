"""Made-up workloads have the properties that their parameters promise, and arms say what they may."""

import numpy as np
import pytest

from swarmx.sim import SimCall, SimWorkflow
from swarmx.sim.arms import Biased, Calibrated, Inverted, Noisy, Oracle, PerType, Recorded, cut_tokens
from swarmx.sim.synthetic import Sessions, Sizes, agents, giants, mix, single


def lengths(flows):
    return np.array([c.output_tokens for f in flows for c in f.calls])


def test_single_calls_have_mean_cv_and_predictable_share():
    flows = single(40_000, Sizes(mean_tokens=500, cv=2.0, rho2=0.6), np.random.default_rng(1))
    x = lengths(flows)
    # the mean of 40,000 draws at cv 2 has a standard error of 1 %; log moments are known better than that
    assert x.mean() == pytest.approx(500, rel=0.04)
    assert np.log(x).var() == pytest.approx(np.log(5), rel=0.04)
    medians = np.array([f.calls[0].median_tokens for f in flows])
    assert np.corrcoef(np.log(medians), np.log(x))[0, 1] ** 2 == pytest.approx(0.6, abs=0.02)


@pytest.mark.parametrize("rho2", [0.0, 0.6, 1.0])
def test_what_is_known_of_a_call_is_calibrated(rho2):
    flows = single(20_000, Sizes(rho2=rho2), np.random.default_rng(2))
    arm = Calibrated(flows, rho2)
    covered = np.mean([arm.predict(f, 0).tokens.at(0.9) >= f.calls[0].output_tokens - 1e-9 for f in flows[:4000]])
    # 4,000 draws: 3 standard errors are 0.014; with rho2 = 1 everything is known
    assert covered == pytest.approx(1.0 if rho2 == 1.0 else 0.9, abs=0.015)


def test_mix_is_half_and_half_and_its_graphs_fan_out_and_in():
    flows = mix(2000, Sizes(), np.random.default_rng(3))
    kinds = np.array([f.kind for f in flows])
    assert np.mean(kinds == "codegen") == pytest.approx(0.5, abs=0.035)
    sizes = np.array([len(f.calls) for f in flows])
    assert 6 < sizes.mean() < 16
    for flow in flows[:50]:
        calls = flow.calls
        assert calls[0].parents == ()
        assert sum(not c.parents for c in calls) == 1
        reached = {p for c in calls for p in c.parents}
        assert reached == set(range(len(calls) - 1))  # everything but the last call is waited for


def test_wide_workflows_have_longer_calls():
    flows = mix(3000, Sizes(), np.random.default_rng(4))
    width = np.array([len(f.calls) for f in flows])
    plan = np.array([f.calls[0].median_tokens for f in flows])
    assert np.corrcoef(np.log(plan), width)[0, 1] > 0.1


def test_giants_are_few_and_hold_much_of_the_work():
    flows = giants(4000, Sizes(), np.random.default_rng(5))
    big = [f for f in flows if f.id.startswith("g")]
    assert len(big) / len(flows) == pytest.approx(0.015, abs=0.006)
    assert 120 < np.mean([len(f.calls) for f in big]) < 280
    share = lengths(big).sum() / lengths(flows).sum()
    assert 0.1 < share < 0.5


def test_a_sessions_prompt_grows_by_what_was_said_and_keeps_its_blocks():
    shape = Sessions(fork_share=0.3)
    flows = agents(200, Sizes(mean_tokens=150), np.random.default_rng(6), shape)
    firsts = {f.calls[0].prefix_blocks[: shape.system_tokens // shape.block_tokens] for f in flows}
    assert len(firsts) == shape.systems
    forks = 0
    for flow in flows:
        for call in flow.calls:
            assert len(call.prefix_blocks) == call.prompt_tokens // shape.block_tokens
            if call.parents:
                before = flow.calls[call.parents[0]]
                known = (*before.prefix_blocks, *before.output_blocks)
                assert call.prefix_blocks[: len(known)] == known
                assert call.prompt_tokens > before.prompt_tokens
                forks += len(call.parents) == 3
    assert forks > 50


def test_same_seed_same_workflows():
    make = [mix(50, Sizes(), np.random.default_rng(7)) for _ in range(2)]
    assert make[0] == make[1]


def test_sizes_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="rho2"):
        Sizes(rho2=1.5)


FLOW = SimWorkflow("w", 0.0, (SimCall("a", 10.0, type="plan"), SimCall("b", 30.0, (0,), type="code", max_tokens=20)))


def test_the_oracle_knows_limits_and_what_follows():
    said = Oracle().predict(FLOW, 0)
    assert float(said.tokens.mean()) == pytest.approx(10.0)
    assert float(said.remaining_tokens.mean()) == pytest.approx(20.0)
    assert cut_tokens(FLOW.calls[1]) == 20.0


def test_types_are_their_own_quantiles_and_an_unknown_type_is_nothing():
    arm = PerType([FLOW])
    assert float(arm.predict(FLOW, 1).tokens.at(0.5)) == 20.0
    assert float(arm.predict(FLOW, 0).remaining_tokens.at(0.5)) == 20.0
    assert arm.predict(SimWorkflow("v", 0.0, (SimCall("c", 1.0, type="other"),)), 0) is None


def test_noise_is_the_same_for_every_policy_and_leaves_the_mean():
    arm = Noisy(Oracle(), 0.5)
    assert arm.predict(FLOW, 0) == arm.predict(FLOW, 0) or np.array_equal(
        arm.predict(FLOW, 0).tokens.values, arm.predict(FLOW, 0).tokens.values
    )
    flows = [SimWorkflow(f"w{i}", 0.0, FLOW.calls) for i in range(4000)]
    factors = np.array([float(arm.predict(f, 0).tokens.mean()) / 10 for f in flows])
    assert np.log(factors).std() == pytest.approx(0.5, rel=0.05)
    assert factors.mean() == pytest.approx(1.0, abs=0.03)


def test_bias_and_inversion_do_what_they_say():
    assert float(Biased(Oracle(), {"plan": 4.0}).predict(FLOW, 0).tokens.mean()) == pytest.approx(40.0)
    assert float(Biased(Oracle(), {"plan": 4.0}).predict(FLOW, 1).tokens.mean()) == pytest.approx(20.0)
    assert float(Inverted(Oracle(), 20.0).predict(FLOW, 0).tokens.mean()) == pytest.approx(40.0)


def test_a_calibrated_arm_refuses_calls_of_which_nothing_is_known():
    with pytest.raises(ValueError, match="no known distribution"):
        Calibrated([FLOW]).predict(FLOW, 0)


def test_recorded_predictions_are_found_by_row():
    said = Oracle().predict(FLOW, 0)
    flow = SimWorkflow("w", 0.0, (SimCall("a", 1.0, record_index=1), SimCall("b", 1.0)))
    arm = Recorded([None, said])
    assert arm.predict(flow, 0) is said
    assert arm.predict(flow, 1) is None
