"""Holdfast as an MCP server: a person's other programs talk to their agents at ``/mcp``.

Both generations of the protocol are served, and neither has a session: every request says all that it needs, so any
server of a deployment can answer it. Only ``exchange`` and ``handlers`` know the protocol. They need the MCP SDK, which
is loaded at the first request.
"""
