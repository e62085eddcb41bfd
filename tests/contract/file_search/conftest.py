"""An S3 server, as the tests of the object store have it."""

from tests.contract.objects.conftest import bucket, s3_endpoint

__all__ = ["bucket", "s3_endpoint"]
