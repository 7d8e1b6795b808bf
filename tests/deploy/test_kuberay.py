"""The KubeRay manifests are valid, and what they configure is what the example and Ray Serve accept."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from swarmx.adapters.ray_serve.external_settings import read_serve_scaler_settings
from swarmx.adapters.ray_serve.versions import check_ray

ROOT = Path(__file__).parents[2]
KUBERAY = ROOT / "deploy" / "kuberay"
SERVICE = yaml.safe_load((KUBERAY / "rayservice.yaml").read_text())
CLUSTER = SERVICE["spec"]["rayClusterConfig"]
SCALER = list(yaml.safe_load_all((KUBERAY / "serve-scaler.yaml").read_text()))


def _pods() -> list[dict[str, Any]]:
    return [group["template"]["spec"] for group in (CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"])]


def test_the_service_keeps_to_the_schema_of_its_kind() -> None:
    schema = yaml.safe_load((Path(__file__).parent / "kuberay_kinds.yaml").read_text())
    jsonschema.validate(SERVICE, schema)
    with pytest.raises(jsonschema.ValidationError, match="rayStartParams"):
        jsonschema.validate(yaml.safe_load(yaml.safe_dump(SERVICE).replace("rayStartParams", "startParams")), schema)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pods_and_built_in_kinds_are_valid() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate").validate
    for spec in _pods():
        validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, "spec": spec}, "1.35", strict=True)
    for document in SCALER:
        validate(document, "1.35", strict=True)


def test_serve_accepts_the_configuration_and_it_is_that_of_the_example() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schema = pytest.importorskip("ray.serve.schema", reason="needs the extra ray")
    config = yaml.safe_load(SERVICE["spec"]["serveConfigV2"])
    schema.ServeDeploySchema.model_validate(config)
    (ours,) = config["applications"]
    (example,) = yaml.safe_load((ROOT / "examples" / "ray" / "serve.yaml").read_text())["applications"]
    del ours["autoscaling_policy"]["policy_kwargs"]["cold_s"], example["autoscaling_policy"]["policy_kwargs"]["cold_s"]
    assert ours == example


def test_the_policy_takes_its_arguments_and_reports_come_every_second() -> None:
    from swarmx.adapters.ray_serve.autoscaling import SwarmXApplicationPolicy

    (application,) = yaml.safe_load(SERVICE["spec"]["serveConfigV2"])["applications"]
    assert SwarmXApplicationPolicy(**application["autoscaling_policy"]["policy_kwargs"]).problem == ""
    for pod in _pods():
        (container,) = pod["containers"]
        given = {variable["name"]: variable["value"] for variable in container["env"]}
        assert set(given.values()) == {"1"} and len(given) == 2


def test_image_and_cluster_run_a_supported_ray() -> None:
    assert check_ray(CLUSTER["rayVersion"]) == CLUSTER["rayVersion"]
    assert f"rayproject/ray:{CLUSTER['rayVersion']}" in (KUBERAY / "Dockerfile").read_text()


def test_the_external_scaler_knows_the_same_deployments_and_gets_the_token_from_the_secret(tmp_path: Path) -> None:
    config, deployment = SCALER
    (tmp_path / "scaler.yaml").write_text(config["data"]["scaler.yaml"])
    settings = read_serve_scaler_settings(tmp_path / "scaler.yaml")
    (application,) = yaml.safe_load(SERVICE["spec"]["serveConfigV2"])["applications"]
    (name,) = settings.applications
    kwargs = application["autoscaling_policy"]["policy_kwargs"]
    assert name == application["name"] and settings.applications[name].budget == kwargs["budget"]
    assert settings.applications[name].deployments.keys() == kwargs["deployments"].keys()
    volumes = {v["name"]: v for v in deployment["spec"]["template"]["spec"]["volumes"]}
    assert volumes["token"]["secret"]["secretName"] == CLUSTER["authOptions"]["secretName"]


def test_containers_run_without_privileges() -> None:
    for pod in (*_pods(), SCALER[1]["spec"]["template"]["spec"]):
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
