"""The names that Serve's controller gives to what it lists: replicas and proxies must be told apart by them."""

import pytest

from serve_app.front.asking import REPLICA_NAME


def test_names_of_replicas_begin_as_expected_and_those_of_proxies_do_not() -> None:
    common = pytest.importorskip("ray.serve._private.common")
    constants = pytest.importorskip("ray.serve._private.constants")
    deployment = common.DeploymentID(name="ingress", app_name="manta")
    assert common.ReplicaID(unique_id="one", deployment_id=deployment).to_full_id_str().startswith(REPLICA_NAME)
    assert not constants.SERVE_PROXY_NAME.startswith(REPLICA_NAME)
