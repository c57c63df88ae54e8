"""A server that uses no MCP server does not import the SDK, which takes a second and 20 MB."""

import subprocess
import sys

SCRIPT = """
import sys
import holdfast.assembly.server
import holdfast.adapters.mcp.client
print([name for name in sys.modules if name == "mcp" or name.startswith(("mcp.", "mcp_types"))])
"""


def test_the_sdk_is_not_imported_with_the_server() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
