"""The servers of a deployment over real HTTP (wire-v1 §2.16)."""

import httpx
import pytest
from tests.support.server_process import ServerProcess

from holdfast import __version__

pytestmark = pytest.mark.slow


@pytest.mark.both_databases
def test_a_server_lists_itself_in_both_spellings(
    http: httpx.Client, server: ServerProcess, database: str
) -> None:
    for path in ("/v1/servers", "/v1/servers/"):
        answer = http.get(path, follow_redirects=False)

        assert answer.status_code == 200, answer.text
        listed = answer.json()["servers"]
        # On PostgreSQL the tests talk to several servers, each request to any of them.
        assert server.pid in {shown["pid"] for shown in listed}
        (shown,) = [shown for shown in listed if shown["is_this"]]
        assert (shown["version"], shown["role"], shown["is_alive"]) == (__version__, "all", True)
        assert shown["started_at"] <= shown["heartbeat_at"] <= answer.json()["now"]
        # With SQLite nobody else could take its runs over.
        assert (shown["lease_ends_at"] is None) is (database == "sqlite")
