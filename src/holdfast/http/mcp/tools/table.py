"""All tools, in the order in which clients see them."""

from typing import Final

from holdfast.http.mcp.tools.agents import LIST_AGENTS
from holdfast.http.mcp.tools.approvals import DECIDE_APPROVAL, LIST_APPROVALS
from holdfast.http.mcp.tools.memory import SEARCH_MEMORY
from holdfast.http.mcp.tools.messages import SEND_MESSAGE
from holdfast.http.mcp.tools.runs import CANCEL_RUN, GET_RUN, LIST_RUNS

TOOLS: Final = {
    tool.name: tool
    for tool in (
        LIST_AGENTS,
        SEND_MESSAGE,
        SEARCH_MEMORY,
        GET_RUN,
        LIST_RUNS,
        CANCEL_RUN,
        LIST_APPROVALS,
        DECIDE_APPROVAL,
    )
}
