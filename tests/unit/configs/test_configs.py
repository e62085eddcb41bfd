"""Every configuration that the project ships can be deployed, and says what its comments say."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from deployments.models.demo.sources import DEMO_MODELS
from serve_app.config import ServiceConfig
from tests.tools.drills.configuration import FOR_NODES
from tests.tools.pages.blocks import programs

CONFIGS = Path(__file__).parents[3] / "configs"
SERVE_FILES = sorted(CONFIGS.glob("*.yaml"))
MANIFESTS = sorted((CONFIGS / "kubernetes").glob("*.yaml"))


def serve_documents() -> dict[str, dict[str, Any]]:
    documents = {path.name: yaml.safe_load(path.read_text()) for path in SERVE_FILES}
    service = yaml.safe_load((CONFIGS / "kubernetes" / "rayservice.yaml").read_text())
    return documents | {"rayservice.yaml": yaml.safe_load(service["spec"]["serveConfigV2"])}


def config_of(document: dict[str, Any]) -> ServiceConfig:
    return ServiceConfig.model_validate(document["applications"][0]["args"])


@pytest.mark.parametrize("name", sorted(serve_documents()))
def test_ray_serve_accepts_the_file(name: str) -> None:
    schema = ServeDeploySchema.model_validate(serve_documents()[name])
    assert [application.import_path for application in schema.applications] == ["serve_app.app:build"]


@pytest.mark.parametrize("name", sorted(serve_documents()))
def test_service_accepts_the_arguments(name: str) -> None:
    assert config_of(serve_documents()[name]).models


@pytest.mark.parametrize("name", ["local.yaml", "long_context.yaml", "two_chat_models.yaml"])
def test_local_configuration_needs_no_network_and_fits_two_cores(name: str) -> None:
    config = config_of(serve_documents()[name])
    assert all(model.source.startswith(("demo:", "package:")) for model in config.models)
    demos = [model.source.removeprefix("demo:") for model in config.models if model.source.startswith("demo:")]
    assert set(demos) <= {"trained", *DEMO_MODELS}
    assert {model.device for model in config.models} == {"cpu"}
    bundles = [(model.placement_group_config or {})["bundles"][0]["CPU"] for model in config.models]
    assert sum(bundles) + config.ingress.num_cpus <= 2


def test_local_configuration_allows_the_server_of_the_guide() -> None:
    (client,) = programs("mcp")
    allowed = config_of(serve_documents()["local.yaml"]).tools.mcp
    assert allowed is not None
    assert allowed.allowed_servers is not None
    assert re.findall(r"http://[^\"]+/mcp", client.code) == [*map(str, allowed.allowed_servers)]


def test_local_configuration_has_a_price_so_that_a_first_try_shows_costs() -> None:
    price = config_of(serve_documents()["local.yaml"]).models[0].price
    assert price is not None
    assert price.input
    assert price.output
    text = (CONFIGS / "local.yaml").read_text()
    assert re.search(r"price: \{.*\} # An example", text)


def test_long_context_is_a_million_tokens() -> None:
    config = config_of(serve_documents()["long_context.yaml"])
    assert config.models[0].card.max_model_len == 1_048_576 == DEMO_MODELS["long"].max_model_len


def test_second_configuration_has_two_chat_models_and_an_embedding_model() -> None:
    config = config_of(serve_documents()["two_chat_models.yaml"])
    assert [model.task for model in config.models] == ["generate", "generate", "embed"]


@pytest.mark.parametrize(("name", "num_gpus"), [("gpu.yaml", 1), ("production.yaml", 2)])
def test_models_fit_the_gpus_and_leave_a_tenth_of_their_memory(name: str, num_gpus: int) -> None:
    replicas = [
        (model.placement_group_config["bundles"][0]["GPU"], model.engine_kwargs["gpu_memory_utilization"])
        for model in config_of(serve_documents()[name]).models
        for _ in range(model.autoscaling_config["max_replicas"])
        if model.placement_group_config
    ]
    shares, memory = [0.0] * num_gpus, [0.0] * num_gpus
    for share, part in sorted(replicas, reverse=True):  # As Ray does: the first GPU with room.
        assert part <= share
        gpu = next(gpu for gpu in range(num_gpus) if shares[gpu] + share <= 1)
        shares[gpu] += share
        memory[gpu] += part
    assert 0 < max(memory) <= 0.9


def test_production_configuration_is_complete_and_its_comments_name_what_it_needs() -> None:
    text = (CONFIGS / "production.yaml").read_text()
    config = config_of(serve_documents()["production.yaml"])
    assert config.http.tls is not None
    assert config.telemetry.traces is not None
    assert all(model.price and (model.price.input or model.price.output) for model in config.models)
    assert {"standard", "premium"} <= set(config.state.tiers.names)
    introduction, _, settings = text.partition("proxy_location")
    assert set(re.findall(r"\{env: (\w+)\}", settings)) == {*re.findall(r"\bMANTA_\w+", introduction)}
    assert config.batches.max_lines_in_flight < config.models[0].max_concurrent_requests


def test_no_configuration_holds_a_secret() -> None:
    secret = re.compile(r"sk-[A-Za-z0-9]{8}|hf_[A-Za-z0-9]{20}|postgresql://[^:]+:(?!REPLACE_ME|PASSWORD)[^@]+@")
    for path in [*SERVE_FILES, *MANIFESTS]:
        assert secret.search(path.read_text()) is None, path.name


def test_manifests_agree_with_each_other() -> None:
    documents = [document for path in MANIFESTS for document in yaml.safe_load_all(path.read_text())]
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        assert document["metadata"]["namespace"] == "manta"
        by_kind.setdefault(document["kind"], []).append(document)
    secrets = {secret["metadata"]["name"]: set(secret["stringData"]) for secret in by_kind["Secret"]}
    cluster = by_kind["RayService"][0]["spec"]["rayClusterConfig"]
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        for container in group["template"]["spec"]["containers"]:
            for variable in container["env"]:
                if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                    assert reference["key"] in secrets[reference["name"]]
    assert cluster["authOptions"] == {"mode": "token"}


def test_manifest_names_the_locked_version_of_ray() -> None:
    service = yaml.safe_load((CONFIGS / "kubernetes" / "rayservice.yaml").read_text())
    version = service["spec"]["rayClusterConfig"]["rayVersion"]
    assert f"\nray=={version} " in (CONFIGS / "locks" / "gpu.txt").read_text()


def test_only_sandboxes_are_placed_on_the_pods_that_run_them() -> None:
    service = yaml.safe_load((CONFIGS / "kubernetes" / "rayservice.yaml").read_text())
    interpreter = config_of(serve_documents()["rayservice.yaml"]).tools.code_interpreter
    assert interpreter is not None
    assert interpreter.ray_actor_options == {"num_cpus": 0, "resources": {"sandboxes": 1}}
    cluster = service["spec"]["rayClusterConfig"]
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        pod, params = group["template"]["spec"], group["rayStartParams"]
        is_theirs = group.get("groupName") == "sandboxes"
        assert (pod.get("runtimeClassName") == "gvisor") is is_theirs
        assert ("sandboxes" in params.get("resources", "")) is is_theirs
        assert ("readinessProbe" in pod["containers"][0]) is is_theirs  # KubeRay's own looks for the proxy.
        if is_theirs:
            assert yaml.safe_load(yaml.safe_load(params["resources"])) == {"sandboxes": 1}
            assert params["num-cpus"] == "0"
            assert not [variable for variable in pod["containers"][0]["env"] if "valueFrom" in variable]
            assert pod["containers"][0]["readinessProbe"]["exec"] == {"command": ["false"]}
            memory = int(pod["containers"][0]["resources"]["limits"]["memory"].removesuffix("Gi"))
            assert interpreter.max_containers * interpreter.limits.memory_bytes < memory * 1024**3


def test_front_stands_on_the_pods_that_clients_reach_and_serves_proxy_on_another_port() -> None:
    service = yaml.safe_load((CONFIGS / "kubernetes" / "rayservice.yaml").read_text())
    document = serve_documents()["rayservice.yaml"]
    assert document["http_options"] == {"host": "0.0.0.0", "port": 8500}
    cluster = service["spec"]["rayClusterConfig"]
    assert service["spec"]["excludeHeadPodFromServeSvc"] is True
    for group in cluster["workerGroupSpecs"]:
        pod = group["template"]["spec"]
        fronts = [container for container in pod["containers"] if container["name"] == "front"]
        assert len(fronts) == (group["groupName"] != "sandboxes")
        for front in fronts:
            assert front["command"][:5] == ["manta", "front", "--plain-http", "--port", "8000"]
            assert {"containerPort": 8000, "name": "serve"} in pod["containers"][0]["ports"]
            (mount,) = front["volumeMounts"]
            assert {"name": mount["name"], "emptyDir": {}} in pod["volumes"]
            names = {variable["name"] for variable in front["env"]}
            assert names == {"MANTA_STATE_DIR", "MANTA_PEPPER", "MANTA_FRONT_STATS_HOST"}
        ray = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
        assert ray["RAY_SERVE_ENABLE_DIRECT_INGRESS"] == "1"


def test_prometheus_reaches_all_metrics_and_nothing_else() -> None:
    service = yaml.safe_load((CONFIGS / "kubernetes" / "rayservice.yaml").read_text())
    policy = next(yaml.safe_load_all((CONFIGS / "kubernetes" / "network.yaml").read_text()))
    (rule,) = [
        rule
        for rule in policy["spec"]["ingress"]
        if {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}} in rule.get("from", ())
    ]
    cluster = service["spec"]["rayClusterConfig"]
    named = {
        port["name"]: port["containerPort"]
        for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
        for container in group["template"]["spec"]["containers"]
        for port in container["ports"]
        if "metrics" in port["name"]
    }
    assert sorted(named.values()) == sorted(port["port"] for port in rule["ports"]) == [8080, 8404, 8405]
    page = (CONFIGS.parent / "docs" / "operate" / "kubernetes.md").read_text()
    assert all(f"{{port: {name}" in page for name in named)


def test_a_lost_head_is_replaced_and_the_other_pods_wait_for_it() -> None:
    service = yaml.safe_load((CONFIGS / "kubernetes" / "rayservice.yaml").read_text())
    cluster = service["spec"]["rayClusterConfig"]
    password = cluster["gcsFaultToleranceOptions"]["redisPassword"]["valueFrom"]["secretKeyRef"]
    secrets = yaml.safe_load_all((CONFIGS / "kubernetes" / "secrets.example.yaml").read_text())
    assert password["key"] in next(one["stringData"] for one in secrets if one["metadata"]["name"] == password["name"])
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        environment = {one["name"]: one.get("value") for one in group["template"]["spec"]["containers"][0]["env"]}
        assert environment["RAY_gcs_rpc_server_reconnect_timeout_s"] == "120"
    head = {
        one["name"]: one.get("value") for one in cluster["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert {name: head[name] for name in FOR_NODES} == FOR_NODES  # With these the drills have been run.
