"""What other machines reach of a service whose engines are vLLM's."""

import pytest

from tests.service import Service

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


def test_other_machines_reach_no_port_of_the_service(service: Service) -> None:
    assert service.running("ingress")
    assert service.open_to_others() == {}
