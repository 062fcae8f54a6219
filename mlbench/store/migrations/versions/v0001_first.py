"""The first schema: systems, run sets, runs and what belongs to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

WIDE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "system",
        sa.Column("id", WIDE, nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("round", sa.String(), nullable=True),
        sa.Column("org", sa.String(), nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("submitter", sa.String(), nullable=True),
        sa.Column("system_name", sa.String(), nullable=True),
        sa.Column("division", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=True),
        sa.Column("num_nodes", WIDE, nullable=True),
        sa.Column("accelerators_per_node", WIDE, nullable=True),
        sa.Column("accelerator_model", sa.String(), nullable=True),
        sa.Column("host_processors_per_node", WIDE, nullable=True),
        sa.Column("host_processor_model", sa.String(), nullable=True),
        sa.Column("framework", sa.String(), nullable=True),
        sa.Column("description", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fingerprint"),
    )
    op.create_table(
        "run_set",
        sa.Column("id", WIDE, nullable=False),
        sa.Column("run_set", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("rehearsal", sa.Boolean(), nullable=False),
        sa.Column("round", sa.String(), nullable=True),
        sa.Column("org", sa.String(), nullable=True),
        sa.Column("org_logged", sa.String(), nullable=True),
        sa.Column("system", sa.String(), nullable=True),
        sa.Column("system_id", WIDE, nullable=True),
        sa.Column("division", sa.String(), nullable=True),
        sa.Column("benchmark", sa.String(), nullable=True),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("framework", sa.String(), nullable=True),
        sa.Column("ruleset", sa.String(), nullable=True),
        sa.Column("launcher", sa.String(), nullable=True),
        sa.Column("num_nodes", WIDE, nullable=True),
        sa.Column("num_accelerators", WIDE, nullable=True),
        sa.Column("num_ranks", WIDE, nullable=True),
        sa.Column("global_batch_size", WIDE, nullable=True),
        sa.Column("repeats_asked", WIDE, nullable=True),
        sa.Column("num_runs", WIDE, nullable=False),
        sa.Column("num_converged", WIDE, nullable=False),
        sa.Column("score_s", sa.Double(), nullable=True),
        sa.Column("score_status", sa.String(), nullable=False),
        sa.Column("score_reason", sa.String(), nullable=True),
        sa.Column("olympic_mean_s", sa.Double(), nullable=True),
        sa.Column("scaling_factor", sa.Double(), nullable=True),
        sa.Column("rcp_factor", sa.Double(), nullable=True),
        sa.Column("mean_s", sa.Double(), nullable=True),
        sa.Column("min_s", sa.Double(), nullable=True),
        sa.Column("max_s", sa.Double(), nullable=True),
        sa.Column("cv", sa.Double(), nullable=True),
        sa.Column("samples_per_s", sa.Double(), nullable=True),
        sa.Column("samples_per_s_first_epoch", sa.Double(), nullable=True),
        sa.Column("throughput_method", sa.String(), nullable=True),
        sa.Column("cache", sa.String(), nullable=True),
        sa.Column("started_at", sa.DateTime(), nullable=True),
        sa.Column("finished_at", sa.DateTime(), nullable=True),
        sa.Column("path", sa.String(), nullable=True),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("provenance", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["system_id"],
            ["system.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run_set"),
    )
    op.create_index("ix_run_set_filter", "run_set", ["benchmark", "system", "started_at"], unique=False)
    op.create_index("ix_run_set_started_at", "run_set", ["started_at"], unique=False)
    op.create_table(
        "allreduce",
        sa.Column("id", WIDE, nullable=False),
        sa.Column("run_set_id", WIDE, nullable=False),
        sa.Column("backend", sa.String(), nullable=False),
        sa.Column("transport", sa.String(), nullable=False),
        sa.Column("num_ranks", WIDE, nullable=False),
        sa.Column("hosts", sa.JSON(), nullable=False),
        sa.Column("in_place", sa.Boolean(), nullable=False),
        sa.Column("size_bytes", WIDE, nullable=False),
        sa.Column("time_us", sa.Double(), nullable=False),
        sa.Column("algbw_gb_per_s", sa.Double(), nullable=False),
        sa.Column("busbw_gb_per_s", sa.Double(), nullable=False),
        sa.Column("num_wrong", WIDE, nullable=True),
        sa.ForeignKeyConstraint(["run_set_id"], ["run_set.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_allreduce_run_set_id"), "allreduce", ["run_set_id"], unique=False)
    op.create_table(
        "baseline",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("run_set_id", WIDE, nullable=False),
        sa.Column("pinned_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["run_set_id"], ["run_set.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "host_fact",
        sa.Column("id", WIDE, nullable=False),
        sa.Column("run_set_id", WIDE, nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_set_id"], ["run_set.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_host_fact_run_set_id"), "host_fact", ["run_set_id"], unique=False)
    op.create_table(
        "note",
        sa.Column("id", WIDE, nullable=False),
        sa.Column("run_set_id", WIDE, nullable=False),
        sa.Column("severity", sa.String(), nullable=False),
        sa.Column("rule", sa.String(), nullable=True),
        sa.Column("file", sa.String(), nullable=True),
        sa.Column("line", WIDE, nullable=True),
        sa.Column("text", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_set_id"], ["run_set.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_note_run_set_id"), "note", ["run_set_id"], unique=False)
    op.create_table(
        "run",
        sa.Column("id", WIDE, nullable=False),
        sa.Column("run_set_id", WIDE, nullable=False),
        sa.Column("index", WIDE, nullable=False),
        sa.Column("attempt", WIDE, nullable=False),
        sa.Column("warmup", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.String(), nullable=True),
        sa.Column("converged", sa.Boolean(), nullable=False),
        sa.Column("time_to_train_s", sa.Double(), nullable=True),
        sa.Column("epochs", sa.Double(), nullable=True),
        sa.Column("final_accuracy", sa.Double(), nullable=True),
        sa.Column("best_accuracy", sa.Double(), nullable=True),
        sa.Column("quality_target", sa.Double(), nullable=True),
        sa.Column("seed", WIDE, nullable=True),
        sa.Column("samples_per_s", sa.Double(), nullable=True),
        sa.Column("samples_per_s_first_epoch", sa.Double(), nullable=True),
        sa.Column("samples_per_s_steady", sa.Double(), nullable=True),
        sa.Column("train_samples", WIDE, nullable=True),
        sa.Column("global_batch_size", WIDE, nullable=True),
        sa.Column("cache_clear", sa.Boolean(), nullable=True),
        sa.Column("started_at", sa.DateTime(), nullable=True),
        sa.Column("init_s", sa.Double(), nullable=True),
        sa.Column("exit_status", WIDE, nullable=True),
        sa.Column("log_path", sa.String(), nullable=True),
        sa.Column("log_sha256", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["run_set_id"], ["run_set.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run_set_id", "index", "attempt", "warmup"),
    )
    op.create_index(op.f("ix_run_run_set_id"), "run", ["run_set_id"], unique=False)
    op.create_table(
        "storage",
        sa.Column("id", WIDE, nullable=False),
        sa.Column("run_set_id", WIDE, nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=True),
        sa.Column("endpoint", sa.String(), nullable=True),
        sa.Column("pattern", sa.String(), nullable=False),
        sa.Column("cache", sa.String(), nullable=False),
        sa.Column("block_bytes", WIDE, nullable=False),
        sa.Column("num_readers", WIDE, nullable=False),
        sa.Column("file_set_bytes", WIDE, nullable=True),
        sa.Column("total_bytes", WIDE, nullable=True),
        sa.Column("runtime_s", sa.Double(), nullable=True),
        sa.Column("bandwidth_bytes_per_s", sa.Double(), nullable=True),
        sa.Column("iops", sa.Double(), nullable=True),
        sa.Column("latency_mean_s", sa.Double(), nullable=True),
        sa.Column("latency_p99_s", sa.Double(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["run_set_id"], ["run_set.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_storage_run_set_id"), "storage", ["run_set_id"], unique=False)
    op.create_table(
        "epoch",
        sa.Column("id", WIDE, nullable=False),
        sa.Column("run_id", WIDE, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("epoch_num", sa.Double(), nullable=True),
        sa.Column("num_epochs", sa.Double(), nullable=False),
        sa.Column("start_s", sa.Double(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=False),
        sa.Column("samples_per_s", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_epoch_run_id"), "epoch", ["run_id"], unique=False)
    op.create_table(
        "evaluation",
        sa.Column("id", WIDE, nullable=False),
        sa.Column("run_id", WIDE, nullable=False),
        sa.Column("epoch_num", sa.Double(), nullable=True),
        sa.Column("accuracy", sa.Double(), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_evaluation_run_id"), "evaluation", ["run_id"], unique=False)
    op.create_table(
        "hyperparameter",
        sa.Column("id", WIDE, nullable=False),
        sa.Column("run_id", WIDE, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_hyperparameter_run_id"), "hyperparameter", ["run_id"], unique=False)
    op.create_table(
        "telemetry",
        sa.Column("id", WIDE, nullable=False),
        sa.Column("run_id", WIDE, nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("num_points", WIDE, nullable=False),
        sa.Column("mean", sa.Double(), nullable=True),
        sa.Column("min", sa.Double(), nullable=True),
        sa.Column("max", sa.Double(), nullable=True),
        sa.Column("times_s", sa.JSON(), nullable=False),
        sa.Column("points", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run_id", "host", "metric"),
    )
