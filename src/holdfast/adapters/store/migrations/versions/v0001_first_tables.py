"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _agents()
    _threads()
    _blocks()
    _providers()
    _tools()
    _agent_blocks()
    _agent_secrets()
    _agent_tags()
    _agent_tools()
    _block_tags()
    _calls()
    _messages()
    _runs()
    _context()
    _shared_messages()
    _events()
    _run_requests()
    _callbacks()
    _run_tools()
    _steps()
    _step_tags()
    _provider_traces()


def _agents() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("hidden", sa.Boolean(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("template_id", sa.Text(), nullable=True),
        sa.Column("base_template_id", sa.Text(), nullable=True),
        sa.Column("created_by_id", sa.Text(), nullable=True),
        sa.Column("last_stop_reason", sa.Text(), nullable=True),
        sa.Column("last_run_completion", sa.BigInteger(), nullable=True),
        sa.Column("last_run_duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
    )
    op.create_index(
        op.f("ix_agents_organization_id_created_at_id"),
        "agents",
        ["organization_id", "created_at", "id"],
    )


def _blocks() -> None:
    op.create_table(
        "blocks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("is_template", sa.Boolean(), nullable=False),
        sa.Column("template_name", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("thread_id", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("fk_blocks_thread_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blocks")),
        sa.UniqueConstraint("id", "label", name=op.f("uq_blocks_id_label")),
    )
    op.create_index(
        op.f("ix_blocks_organization_id_created_at_id"),
        "blocks",
        ["organization_id", "created_at", "id"],
    )
    op.create_index(op.f("ix_blocks_thread_id"), "blocks", ["thread_id"])


def _tools() -> None:
    op.create_table(
        "tools",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tools")),
        sa.UniqueConstraint("organization_id", "name", name=op.f("uq_tools_organization_id_name")),
    )


def _providers() -> None:
    op.create_table(
        "providers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("provider_type", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("encrypted_keys", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_providers")),
        sa.UniqueConstraint(
            "organization_id", "name", name=op.f("uq_providers_organization_id_name")
        ),
    )


def _agent_blocks() -> None:
    op.create_table(
        "agent_blocks",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("block_id", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_blocks_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["block_id", "label"],
            ["blocks.id", "blocks.label"],
            name=op.f("fk_agent_blocks_block_id_label"),
            onupdate="CASCADE",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("agent_id", "block_id", name=op.f("pk_agent_blocks")),
        sa.UniqueConstraint("agent_id", "label", name=op.f("uq_agent_blocks_agent_id_label")),
    )
    op.create_index(op.f("ix_agent_blocks_block_id_label"), "agent_blocks", ["block_id", "label"])


def _agent_secrets() -> None:
    op.create_table(
        "agent_secrets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("encrypted_value", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_secrets_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_secrets")),
        sa.UniqueConstraint("agent_id", "key", name=op.f("uq_agent_secrets_agent_id_key")),
    )


def _agent_tags() -> None:
    op.create_table(
        "agent_tags",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_tags_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "tag", name=op.f("pk_agent_tags")),
    )
    op.create_index(op.f("ix_agent_tags_tag"), "agent_tags", ["tag"])


def _agent_tools() -> None:
    op.create_table(
        "agent_tools",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("tool_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_tools_agent_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["tool_id"], ["tools.id"], name=op.f("fk_agent_tools_tool_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "tool_id", name=op.f("pk_agent_tools")),
    )
    op.create_index(op.f("ix_agent_tools_tool_id"), "agent_tools", ["tool_id"])


def _block_tags() -> None:
    op.create_table(
        "block_tags",
        sa.Column("block_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["block_id"], ["blocks.id"], name=op.f("fk_block_tags_block_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("block_id", "tag", name=op.f("pk_block_tags")),
    )
    op.create_index(op.f("ix_block_tags_tag"), "block_tags", ["tag"])


def _threads() -> None:
    op.create_table(
        "threads",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.Column("hidden", sa.Boolean(), nullable=True),
        sa.Column("archived_at", sa.BigInteger(), nullable=True),
        sa.Column("last_message_at", sa.BigInteger(), nullable=True),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_threads_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_threads")),
    )
    op.create_index(
        op.f("ix_threads_organization_id_created_at_id"),
        "threads",
        ["organization_id", "created_at", "id"],
    )
    op.create_index(
        op.f("ix_threads_agent_id_created_at_id"), "threads", ["agent_id", "created_at", "id"]
    )


def _calls() -> None:
    op.create_table(
        "calls",
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("call", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("on_timeout", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("fk_calls_thread_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("thread_id", "call_id", name=op.f("pk_calls")),
    )


def _messages() -> None:
    op.create_table(
        "messages",
        sa.Column(
            "position",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.Identity(always=True),
            nullable=False,
        ),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("step_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("fk_messages_thread_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_messages")),
        sa.UniqueConstraint("id", name=op.f("uq_messages_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_messages_agent_id_position"), "messages", ["agent_id", "position"])
    op.create_index(
        op.f("ix_messages_organization_id_position"), "messages", ["organization_id", "position"]
    )
    op.create_index(op.f("ix_messages_run_id"), "messages", ["run_id"])
    op.create_index(op.f("ix_messages_step_id"), "messages", ["step_id"])
    op.create_index(op.f("ix_messages_thread_id_position"), "messages", ["thread_id", "position"])


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("background", sa.Boolean(), nullable=False),
        sa.Column("request_key", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.Column("total_duration_ns", sa.BigInteger(), nullable=True),
        sa.Column("num_steps", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("base_template_id", sa.Text(), nullable=True),
        sa.Column("approval_id", sa.Text(), nullable=True),
        sa.Column("asked_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("reserved_seq", sa.BigInteger(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("fk_runs_thread_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    _run_indices()
    _run_lists()
    _inbox()


def _inbox() -> None:
    op.create_index(
        "ix_runs_asked",
        "runs",
        ["organization_id", "asked_at", "approval_id", "agent_id", "expires_at"],
        sqlite_where=sa.text("status = 'paused'"),
        postgresql_where=sa.text("status = 'paused'"),
    )
    op.create_index(
        "ix_runs_deadlines",
        "runs",
        ["expires_at"],
        sqlite_where=sa.text("status = 'paused' AND expires_at IS NOT NULL"),
        postgresql_where=sa.text("status = 'paused' AND expires_at IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_runs_approval_id"),
        "runs",
        ["approval_id"],
        sqlite_where=sa.text("approval_id IS NOT NULL"),
        postgresql_where=sa.text("approval_id IS NOT NULL"),
    )


def _run_indices() -> None:
    op.create_index(
        "ix_runs_live",
        "runs",
        ["created_at"],
        sqlite_where=sa.text("status IN ('cancelling', 'queued', 'running')"),
        postgresql_where=sa.text("status IN ('cancelling', 'queued', 'running')"),
    )
    op.create_index(
        "uq_runs_holder",
        "runs",
        ["thread_id"],
        unique=True,
        sqlite_where=sa.text("status IN ('cancelling', 'running')"),
        postgresql_where=sa.text("status IN ('cancelling', 'running')"),
    )
    op.create_index(
        "uq_runs_paused",
        "runs",
        ["thread_id", "organization_id"],
        unique=True,
        sqlite_where=sa.text("status = 'paused'"),
        postgresql_where=sa.text("status = 'paused'"),
    )
    op.create_index(
        "uq_runs_request",
        "runs",
        ["thread_id", "request_key"],
        unique=True,
        sqlite_where=sa.text("request_key IS NOT NULL"),
        postgresql_where=sa.text("request_key IS NOT NULL"),
    )


def _run_lists() -> None:
    asked_for = [
        "status",
        "stop_reason",
        "background",
        "project_id",
        "base_template_id",
        "num_steps",
    ]
    newest = ["created_at", "id", *asked_for, "total_duration_ns"]
    op.create_index("ix_runs_page", "runs", ["organization_id", *newest, "agent_id"])
    op.create_index("ix_runs_agent", "runs", ["agent_id", *newest, "organization_id"])
    op.create_index("ix_runs_thread", "runs", ["thread_id", *newest, "agent_id", "organization_id"])
    longest = ["total_duration_ns", "id", *asked_for, "created_at"]
    op.create_index(
        "ix_runs_thread_duration",
        "runs",
        ["thread_id", *longest, "agent_id", "organization_id"],
        sqlite_where=sa.text("total_duration_ns IS NOT NULL"),
        postgresql_where=sa.text("total_duration_ns IS NOT NULL"),
    )
    op.create_index(
        "ix_runs_duration",
        "runs",
        ["organization_id", *longest, "agent_id"],
        sqlite_where=sa.text("total_duration_ns IS NOT NULL"),
        postgresql_where=sa.text("total_duration_ns IS NOT NULL"),
    )
    op.create_index(
        "ix_runs_went_wrong",
        "runs",
        [*newest, "agent_id", "organization_id"],
        sqlite_where=sa.text("status IN ('cancelled', 'failed')"),
        postgresql_where=sa.text("status IN ('cancelled', 'failed')"),
    )


def _run_tools() -> None:
    op.create_table(
        "run_tools",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("tool_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_run_tools_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "tool_id", name=op.f("pk_run_tools")),
    )
    op.create_index(op.f("ix_run_tools_tool_id_run_id"), "run_tools", ["tool_id", "run_id"])


def _context() -> None:
    op.create_table(
        "context",
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["message_id"], ["messages.id"], name=op.f("fk_context_message_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("fk_context_thread_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("thread_id", "place", name=op.f("pk_context")),
    )
    op.create_index(op.f("ix_context_message_id"), "context", ["message_id"])


def _shared_messages() -> None:
    op.create_table(
        "shared",
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["message_id"], ["messages.id"], name=op.f("fk_shared_message_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("fk_shared_thread_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("thread_id", "message_id", name=op.f("pk_shared")),
    )
    op.create_index(op.f("ix_shared_message_id"), "shared", ["message_id"])


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_events_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_events")),
    )


def _run_requests() -> None:
    op.create_table(
        "run_requests",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_run_requests_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_run_requests")),
    )


def _callbacks() -> None:
    op.create_table(
        "callbacks",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("sent_at", sa.BigInteger(), nullable=True),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_callbacks_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_callbacks")),
    )
    op.create_index(
        "ix_callbacks_due",
        "callbacks",
        ["due_at", "run_id", "host", "attempts"],
        sqlite_where=sa.text("due_at IS NOT NULL"),
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )


def _steps() -> None:
    op.create_table(
        "steps",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("model_handle", sa.Text(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=True),
        sa.Column("feedback", sa.Text(), nullable=True),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("transaction_id", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("trace_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_steps_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_steps")),
    )
    op.create_index(
        "ix_steps_agent",
        "steps",
        ["agent_id", "created_at", "id", "organization_id", "status", "cost"],
    )
    op.create_index(
        "ix_steps_page",
        "steps",
        [
            "organization_id",
            "created_at",
            "id",
            "model_handle",
            "feedback",
            "project_id",
            "agent_id",
        ],
    )
    op.create_index(op.f("ix_steps_run_id_created_at_id"), "steps", ["run_id", "created_at", "id"])
    followed = sa.text("trace_id IS NOT NULL")
    op.create_index(
        "ix_steps_trace", "steps", ["trace_id"], sqlite_where=followed, postgresql_where=followed
    )


def _step_tags() -> None:
    op.create_table(
        "step_tags",
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["step_id"], ["steps.id"], name=op.f("fk_step_tags_step_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("step_id", "tag", name=op.f("pk_step_tags")),
    )
    op.create_index(op.f("ix_step_tags_tag"), "step_tags", ["tag"])


def _provider_traces() -> None:
    op.create_table(
        "provider_traces",
        sa.Column(
            "position",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.Identity(always=True),
            nullable=False,
        ),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["step_id"], ["steps.id"], name=op.f("fk_provider_traces_step_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_provider_traces")),
    )
    op.create_index(op.f("ix_provider_traces_step_id"), "provider_traces", ["step_id"])
