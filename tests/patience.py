"""Other times than the service usually has, for tests."""

from dataclasses import replace
from typing import Final

from deployments.patience import USUAL

PATIENT: Final = USUAL.times(20)
"""For tests of exactness: where a machine is busy, nobody decides alone because an answer is late."""

SOON: Final = replace(USUAL, database_connect_s=1.0, database_answer_s=1.0)
"""For tests of a database that does not answer."""
