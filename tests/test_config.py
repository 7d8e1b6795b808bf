"""The configuration file: what is right is read, what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmx.config import load_config, parse_config
from swarmx.errors import BadInput

POOL = "model_pools: {m: {replicas: [{url: 'http://a:1'}]}}\n"


def test_a_small_file_is_enough() -> None:
    config = parse_config(POOL)
    assert config.scheduler.preset == "late" and config.mode == "on" and config.predictor.kind == "none"
    assert config.gateway().pools["m"].replicas[0].name == "a:1"


def test_everything_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "mode: {canary: 0.05}\n"
        "model_pools:\n"
        "  m: {models: [m, alias], replicas: [{url: 'http://a:1/v1', id: x, slots: 8, speed: 0.5}],\n"
        "      discover: {kind: file, path: r.yaml}, scheduler: {preset: push}, engine_priority: true}\n"
        "scheduler: {preset: late, options: {harm_weight: 0.5}}\n"
        "scaling: {kind: tail_demand}\n"
        "log: {directory: logs, prompt: keep}\n"
        "server: {port: 1234, upstream: {budget_s: 60, hedge: {after_s: 3}}}\n"
    )
    config = load_config(tmp_path / "c.yaml")
    assert config.gateway().mode == 0.05
    assert config.log.directory == tmp_path / "logs"
    assert config.model_pools["m"].replicas[0].url == "http://a:1"
    assert config.model_pools["m"].discover.path == tmp_path / "r.yaml"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["must hold keys"]),
        ("model_pools: {}", ["model_pools", "at least 1"]),
        (POOL + "sheduler: {}", ["sheduler: unknown key", "did you mean 'scheduler'", "model_pools"]),
        (POOL + "server: {prot: 1}", ["server.prot: unknown key", "did you mean 'port'"]),
        (POOL + "server: {limits: {body: 1}}", ["server.limits.body", "body_bytes"]),
        ("model_pools: {m: {replicas: [{uri: 'http://a'}]}}", ["model_pools.m.replicas.0.uri", "did you mean 'url'"]),
        ("model_pools: {m: {replicas: [{url: 'a'}]}}", ["model_pools.m.replicas.0.url", "'a'"]),
        ("model_pools: {m: {replicas: [{url: 'http://u:p@a'}]}}", ["scheme, host, port"]),
        (POOL + "scheduler: {preset: lat}", ["scheduler: unknown policy 'lat'", "late"]),
        (POOL + "scheduler: {options: {harm: 1}}", ["scheduler: unknown option", "known are"]),
        (POOL + "mode: half", ["mode: must be on, shadow or {canary: SHARE}", "got 'half'"]),
        (POOL + "log: logs", ["log: must hold keys and values, got 'logs'"]),
        (POOL + "mode: {canary: 2}", ["mode", "less than 1"]),
        (POOL + "predictor: {kind: local}", ["predictor", "needs path"]),
        (POOL + "scaling: {kind: tail}", ["scaling.kind: unknown 'tail'", "tail_demand"]),
        (POOL + "scaling: {options: {levle: 1}}", ["scaling.options: unknown 'levle'", "known are"]),
        (POOL + "server: {host: 0.0.0.0}", ["would serve anyone"]),
        (POOL + "server: {shadow_preset: none}", ["server.shadow_preset: unknown policy 'none'"]),
        (POOL + "log: {}\nlog: {}", ["line 3", "'log' is given twice"]),
        (POOL + "x: [", ["line"]),
        ("model_pools: {a: {models: [m]}, b: {models: [m]}}", ["'m' is served by two pools"]),
        ("model_pools: {a: {discover: {kind: consul}}}", ["model_pools.a.discover", "'dns'", "'file'"]),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_is_known_there(text: str, parts: list[str]) -> None:
    with pytest.raises(BadInput) as problem:
        parse_config(text, "c.yaml")
    assert str(problem.value).startswith("c.yaml:") and "\n" not in str(problem.value)
    for part in parts:
        assert part in str(problem.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        load_config(tmp_path / "none.yaml")


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_config(text)
