"""vLLM accepts the engine options of every shipped configuration, and Ray places the models where we say.

In a process of its own, since importing vLLM takes long and changes much. Ray's part asks for placement groups of the
cluster that the environment names.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray

ROOT = Path(__file__).parents[3]

CHECK = """
import dataclasses, sys
from pathlib import Path
import yaml
from vllm.config import StructuredOutputsConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import FrontendArgs
from ray.serve.llm.deployment import LLMServer
from deployments.replica.server import deployment_options
from deployments.replica.engine import llm_config_of
from serve_app.config import ServiceConfig

known = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
for file in sys.argv[1:]:
    document = yaml.safe_load(Path(file).read_text())
    for model in ServiceConfig.model_validate(document["applications"][0]["args"]).models:
        unknown = set(model.engine_kwargs) - known - {field.name for field in dataclasses.fields(FrontendArgs)}
        if unknown:
            sys.exit(f"{file}: {model.id}: vLLM has no option {sorted(unknown)}")
        config, ours = llm_config_of(model), deployment_options(model)
        if model.task == "generate" and not config.engine_kwargs["structured_outputs_config"]["disable_any_whitespace"]:
            sys.exit(f"{file}: {model.id}: guided answers may be filled with white space")
        config.deployment_config["ray_actor_options"] = {"num_cpus": 0, **model.ray_actor_options}
        rays = LLMServer.get_deployment_options(config)
        for name in ("placement_group_bundles", "placement_group_strategy"):
            if rays[name] != ours[name]:
                sys.exit(f"{file}: {model.id}: {name} is {ours[name]}, Ray says {rays[name]}")
        if model.device == "cpu":
            kwargs = {name: value for name, value in config.engine_kwargs.items() if name in known}
            kwargs["structured_outputs_config"] = StructuredOutputsConfig(**kwargs.get("structured_outputs_config", {}))
            options = AsyncEngineArgs(model=config.model_loading_config.model_source, **kwargs)
            created = options.create_engine_config()
            print(model.id, created.model_config.max_model_len)
"""


@pytest.mark.serve
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ray_cluster")
def test_vllm_accepts_the_options_of_every_configuration() -> None:
    files = sorted(str(path) for path in (ROOT / "configs").glob("*.yaml"))
    address = ray.get_runtime_context().gcs_address
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    environment |= {"RAY_ADDRESS": address, "RAY_AUTH_MODE": "disabled"}
    command = [sys.executable, "-W", "ignore", "-c", CHECK, *files]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    lines = [line for line in ran.stdout.splitlines() if line.startswith(("manta/", "all-minilm"))]
    expected = {"manta/demo-chat 4096", "manta/demo-small 4096", "manta/demo-long 1048576", "all-minilm-l6-v2 256"}
    assert expected <= set(lines)
