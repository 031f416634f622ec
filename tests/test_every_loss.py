"""Every tensor that was to be captured is a record or a loss, none of them both, also where the disk gives out."""

import json

import pytest
from conftest import Launch

CODE = """
import json, os, resource, numpy as np, tpcapture
tpcapture.capture("a", np.zeros(1000, np.uint8))
tpcapture.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["LIMIT"]), resource.RLIM_INFINITY))
tpcapture.capture("b", np.zeros(int(os.environ["SIZE"]), np.uint8))
tpcapture.flush()
status = tpcapture.status()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(json.dumps([status["counters"]["records"], status["losses"], status["end_reason"]]))
"""


@pytest.mark.parametrize(
    ("limit", "size", "what"),
    [
        (10, 1000, "begin a segment"),  # The journal's first line is longer.
        (1 << 17, 1 << 17, "write a record"),  # The header's room is in front.
        (1 << 17, 3 << 20, "write a record"),  # In pieces, most of which find no place in the ring.
    ],
)
def test_a_record_that_the_disk_refuses_is_counted_once(
    rank: Launch, limit: int, size: int, what: str
) -> None:
    done = rank(CODE, TPCAPTURE="1", TPCAPTURE_RING="1MiB", LIMIT=str(limit), SIZE=str(size))
    records, losses, end_reason = json.loads(done.stdout)
    assert records == 1
    assert [(loss["tap"], loss["count"]) for loss in losses] == [("b", 1)]
    assert what in end_reason
