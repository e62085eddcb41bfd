"""Runs Ray's own OpenAI app (`ray.serve.llm`) on one model, as a peer to measure against.

`python -m tests.tools.bench.serve_llm_app PORT MODEL_ID MODEL_DIR ENGINE_JSON`. Serve's settings come from the
environment. Its unbounded queues are set to what the other peers have, so that nothing is refused.
"""

import sys
import time

import orjson
import ray
from ray import serve
from ray.serve.llm import LLMConfig, build_openai_app

MAX_ONGOING_REQUESTS = 2048


def main(port: int, model_id: str, model_dir: str, engine: dict[str, object]) -> None:
    """Serve until interrupted."""
    ray.init(address="local", num_cpus=8, include_dashboard=False, logging_level="warning")
    config = LLMConfig(
        model_loading_config={"model_id": model_id, "model_source": model_dir},
        accelerator_config={"kind": "cpu"},
        placement_group_config={"bundles": [{"CPU": 1}]},
        deployment_config={
            "num_replicas": 1,
            "max_ongoing_requests": MAX_ONGOING_REQUESTS,
            "ray_actor_options": {"num_cpus": 1},
        },
        engine_kwargs=engine,
    )
    ingress = {"num_replicas": 1, "max_ongoing_requests": MAX_ONGOING_REQUESTS}
    app = build_openai_app({"llm_configs": [config], "ingress_deployment_config": ingress})
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        serve.run(app)
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], orjson.loads(sys.argv[4]))
