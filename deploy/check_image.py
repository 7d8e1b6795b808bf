"""What can be checked of the image without a container engine: the packages it holds, and that they do their work.

    python deploy/check_image.py [--root CHECKOUT] [--keep FOLDER]

Follows deploy/Dockerfile: the files that its build stage copies make the wheel, the wheel and its extra are installed
into an empty environment, what the Dockerfile removes is removed. Then: less than 400 MB, neither torch nor pyarrow,
`swarmx endpoint-picker` picks and `swarmx external-scaler` answers from that environment. Run it with the Python of the
image (3.11) and grpcio for the questions. Exit status 1 names what is wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_BYTES = 400e6
ABSENT = ("torch", "pyarrow", "sklearn", "transformers", "ray", "mlflow")
HERE = Path(__file__).resolve().parent


def build_stage(root: Path, out: Path) -> Path:
    """The wheel of what the Dockerfile copies, and of nothing else."""
    source = out / "src"
    source.mkdir()
    stage = (HERE / "Dockerfile").read_text().split("\nFROM ")[1]  # text before the first FROM is a comment
    for line in re.findall(r"^COPY (?!--from)(.+)$", stage, re.MULTILINE):
        *names, target = line.split()
        for name in names:
            if (root / name).is_dir():
                shutil.copytree(root / name, source / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(root / name, source / target)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", out / "wheels", source)
    return next((out / "wheels").glob("*.whl"))


def runtime_stage(wheel: Path, out: Path) -> tuple[Path, Path]:
    """(python, site-packages) of the run-time stage."""
    venv.create(out / "env", with_pip=False)
    python = out / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    run(*pip, "install", "-q", "--no-cache-dir", "--no-compile", f"{wheel}[k8s]")
    run(*pip, "uninstall", "-q", "-y", "hf-xet")
    site = next((out / "env" / "lib").glob("python3*")) / "site-packages"
    for removal in re.findall(r"^    && (find \. .+) \\$", (HERE / "Dockerfile").read_text(), re.MULTILINE):
        subprocess.run(removal, shell=True, check=True, cwd=site)
    return python, site


def run(*command: Any) -> None:
    subprocess.run([str(word) for word in command], check=True)


def size_of(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@contextmanager
def verb(python: Path, name: str, config: dict[str, Any], folder: Path) -> Iterator[None]:
    """`swarmx NAME CONFIG` of the environment, for the length of the block."""
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(config))
    process = subprocess.Popen([python.parent / "swarmx", name, path, "--log-level", "warning"], cwd=folder)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def within(seconds: float, ask: Callable[[], Any]) -> Any:
    """The answer, asked again while there is none."""
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def a_pick(port: int) -> str:
    """The endpoint that the picker names for a request, asked as Envoy does."""
    import grpc

    from swarmx.adapters.envoy.messages import FULL_DUPLEX, PROCESS, pb

    modes = pb.ProtocolConfiguration(request_body_mode=FULL_DUPLEX, response_body_mode=FULL_DUPLEX)
    body = pb.HttpBody(body=b'{"model": "m", "prompt": "hi"}', end_of_stream=True)
    asked = (pb.ProcessingRequest(request_headers=pb.HttpHeaders(), protocol_config=modes),
             pb.ProcessingRequest(request_body=body))  # fmt: skip
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream(f"/{PROCESS[0]}/{PROCESS[1]}", lambda m: m.SerializeToString(),
                                     pb.ProcessingResponse.FromString)  # fmt: skip
        answer = next(call(iter(asked), timeout=10))
    return str(answer.dynamic_metadata["envoy.lb"]["x-gateway-destination-endpoint"])


def wanted(port: int) -> float:
    """Replicas that the scaler tells KEDA."""
    import grpc

    from swarmx.adapters.keda.messages import SERVICE, pb

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_unary(f"/{SERVICE}/GetMetrics", lambda m: m.SerializeToString(),
                                  pb.GetMetricsResponse.FromString)  # fmt: skip
        values = ask(pb.GetMetricsRequest(scaledObjectRef=pb.ScaledObjectRef(name="x")), timeout=10).metricValues
    return float(values[0].metricValueFloat)


def check(root: Path, out: Path) -> list[str]:
    """Everything that is wrong."""
    wheel = build_stage(root, out)
    python, site = runtime_stage(wheel, out)
    took = size_of(site) / 1e6
    print(f"{took:.0f} MB of packages", *(f"{p.name} {size_of(p) / 1e6:.0f}" for p in largest(site)), sep=", ")
    wrong = [] if took * 1e6 < MOST_BYTES else [f"{took:.0f} MB of packages; at most {MOST_BYTES / 1e6:.0f}"]
    wrong += [f"{name} is in the image" for name in ABSENT if (site / name).exists()]
    run(python, "-c", "from swarmx.adapters.envoy.warm import warm_up; warm_up()")
    run(python, "-c", "from swarmx.predict.bundle import shipped; from swarmx.predict.runtime import Predictor;"
        "Predictor.load(shipped())")  # fmt: skip
    grpc_port, pages, scaler = free_ports(3)
    picker = {"model": "m", "replicas": [{"url": "http://10.0.0.1:8000"}], "listen": f"127.0.0.1:{grpc_port}",
              "metrics_listen": f"127.0.0.1:{pages}", "scrape": {"every_s": 0}, "notice_s": 0}  # fmt: skip
    source = {"sources": [f"http://127.0.0.1:{pages}/state"], "minimum": 1, "maximum": 4, "cold_s": 90}
    config = {"mode": "keda", "listen": f"127.0.0.1:{scaler}", "metrics_listen": "127.0.0.1:0", "pools": {"m": source}}
    with verb(python, "endpoint-picker", picker, out), verb(python, "external-scaler", config, out):
        within(120, lambda: urllib.request.urlopen(f"http://127.0.0.1:{pages}/healthz"))
        if (named := within(10, lambda: a_pick(grpc_port))) != "10.0.0.1:8000":
            wrong.append(f"the picker names {named!r}")
        if not 1 <= (replicas := within(60, lambda: wanted(scaler))) <= 4:
            wrong.append(f"the scaler wants {replicas} replicas")
    return wrong


def largest(site: Path, count: int = 5) -> list[Path]:
    return sorted((p for p in site.iterdir() if p.is_dir()), key=size_of)[: -count - 1 : -1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=HERE.parent, help="checkout to build from")
    parser.add_argument("--keep", type=Path, help="empty folder to work in, kept")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = check(arguments.root, arguments.keep or Path(folder))
    for line in wrong:
        print(line, file=sys.stderr)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
