"""What a figure must be read with."""

import re
from datetime import datetime

from anaphora.bench.identity import describe_client


def test_the_client_says_version_commit_time_and_machine() -> None:
    """The commit is that of this repository, or none where there is no repository."""
    found = describe_client()
    assert found["client"].startswith("anaphora bench ")
    assert found["git_commit"] is None or re.fullmatch(r"[0-9a-f]{12}\+?", found["git_commit"])
    assert datetime.fromisoformat(found["time"]).utcoffset() is not None
    assert f"{found['cores']} cores" in found["machine"]
