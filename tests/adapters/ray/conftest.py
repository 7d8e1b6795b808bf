"""One local Ray for all tests of this folder.

Importing Ray takes seconds and warns, so it happens inside the fixture: no test module here imports ray, or a swarmx
module that does, at its top. Classes that run inside Ray live in plain modules beside this file, which Ray's workers
can import.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SETTINGS = {
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # sixteen fictitious CPUs are no reason for sixteen idle workers
    "RAY_worker_niceness": "0",  # the default is 15: replicas would starve beside other tests
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and "ray_serve" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.ray)
            item.add_marker(pytest.mark.xdist_group("ray"))
            # Ray leaves pipes and sockets of its processes to the garbage collector
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def ray_serve() -> Iterator[Any]:
    """The module `ray.serve` with a local Ray of sixteen fictitious CPUs, without HTTP."""
    os.environ.update(SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own use of pydantic, at import
        import ray
        from ray import serve
    ray.init(
        num_cpus=16, include_dashboard=False, object_store_memory=200_000_000, log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(HERE), **SETTINGS}},
    )  # fmt: skip
    try:
        serve.start(proxy_location="Disabled")
        yield serve
    finally:
        serve.shutdown()
        ray.shutdown()


@pytest.fixture
def app_name(request: pytest.FixtureRequest, ray_serve: Any) -> Iterator[str]:
    """A name for the test's application, which is deleted afterwards."""
    name = request.node.name.split("[")[0]
    yield name
    ray_serve.delete(name)
