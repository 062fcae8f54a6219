"""The tables. One row is one thing; SI base units; NULL is "not known", never zero.

The classes double as the records that `ingest` builds and `repository` saves, so a fact has one name everywhere.
Everything here can be rebuilt from the files of runs/ and of imported trees.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, ForeignKey, Index, Integer, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """A moment: aware, UTC. A value without a zone is taken as UTC; both databases keep it without one."""

    impl = DateTime
    cache_ok = True

    @property
    def python_type(self) -> type[datetime]:
        return datetime

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or value.tzinfo is None:
            return value
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


# Sizes and seeds need 64 bits; SQLite numbers its rows only in a column of type INTEGER.
WIDE_INTEGER = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        dict[str, Any]: JSON,
        list[str]: JSON,
        list[float]: JSON,
        list[float | None]: JSON,
        datetime: UtcDateTime,
        int: WIDE_INTEGER,
    }


class System(Base):
    """Hardware and software that one submitter's description names."""

    __tablename__ = "system"
    id: Mapped[int] = mapped_column(primary_key=True)
    origin: Mapped[str]  # run, import
    round: Mapped[str | None]
    org: Mapped[str | None]
    name: Mapped[str]  # the folder's name for imports
    fingerprint: Mapped[str] = mapped_column(unique=True)  # sha256 over the columns above and below; set by repository
    submitter: Mapped[str | None]  # the submitter's own spelling
    system_name: Mapped[str | None]
    division: Mapped[str | None]
    status: Mapped[str | None]
    num_nodes: Mapped[int | None]
    accelerators_per_node: Mapped[int | None]
    accelerator_model: Mapped[str | None]
    host_processors_per_node: Mapped[int | None]
    host_processor_model: Mapped[str | None]
    framework: Mapped[str | None]
    description: Mapped[dict[str, Any]] = mapped_column(default=dict)  # as read


class RunSet(Base):
    """N runs scored together."""

    __tablename__ = "run_set"
    __table_args__ = (
        Index("ix_run_set_filter", "benchmark", "system", "started_at"),
        Index("ix_run_set_started_at", "started_at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_set: Mapped[str] = mapped_column(unique=True)  # public id
    origin: Mapped[str]  # run, import
    rehearsal: Mapped[bool] = mapped_column(default=False)
    round: Mapped[str | None]
    org: Mapped[str | None]  # folder's name, or what was logged
    org_logged: Mapped[str | None]
    system: Mapped[str | None]  # folder's name, or the profile's system name
    system_id: Mapped[int | None] = mapped_column(ForeignKey("system.id"))
    division: Mapped[str | None]
    benchmark: Mapped[str | None]
    model: Mapped[str | None]
    framework: Mapped[str | None]
    ruleset: Mapped[str | None]
    launcher: Mapped[str | None]
    num_nodes: Mapped[int | None]
    num_accelerators: Mapped[int | None]
    num_ranks: Mapped[int | None]
    global_batch_size: Mapped[int | None]
    repeats_asked: Mapped[int | None]
    num_runs: Mapped[int] = mapped_column(default=0)
    num_converged: Mapped[int] = mapped_column(default=0)
    score_s: Mapped[float | None]
    score_status: Mapped[str]  # valid, invalid, raw
    score_reason: Mapped[str | None]
    olympic_mean_s: Mapped[float | None]
    scaling_factor: Mapped[float | None]
    rcp_factor: Mapped[float | None]
    mean_s: Mapped[float | None]
    min_s: Mapped[float | None]
    max_s: Mapped[float | None]
    cv: Mapped[float | None]
    samples_per_s: Mapped[float | None]
    samples_per_s_first_epoch: Mapped[float | None]
    throughput_method: Mapped[str | None]
    cache: Mapped[str | None]  # cold, warm, unknown
    started_at: Mapped[datetime | None]  # UTC
    finished_at: Mapped[datetime | None]  # UTC
    path: Mapped[str | None]  # folder of the files, absolute
    content_hash: Mapped[str]  # sha256 over the files that made this row
    config: Mapped[dict[str, Any]] = mapped_column(default=dict)
    provenance: Mapped[dict[str, Any]] = mapped_column(default=dict)
    runs_folder: Mapped[str | None]  # name of the folder that `path` lies in, collect/runs_marker.py

    runs: Mapped[list[Run]] = relationship(
        back_populates="parent", cascade="all, delete-orphan", order_by="(Run.index, Run.attempt)"
    )
    allreduce: Mapped[list[AllReduceResult]] = relationship(cascade="all, delete-orphan", order_by="AllReduceResult.id")
    storage: Mapped[list[StorageResult]] = relationship(cascade="all, delete-orphan", order_by="StorageResult.id")
    notes: Mapped[list[NoteRow]] = relationship(cascade="all, delete-orphan", order_by="NoteRow.id")
    host_facts: Mapped[list[HostFact]] = relationship(cascade="all, delete-orphan", order_by="HostFact.id")
    description: Mapped[System | None] = relationship()


class Run(Base):
    """One attempt at one repetition; failed attempts stay."""

    __tablename__ = "run"
    __table_args__ = (UniqueConstraint("run_set_id", "index", "attempt", "warmup"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_set_id: Mapped[int] = mapped_column(ForeignKey("run_set.id", ondelete="CASCADE"), index=True)
    index: Mapped[int]  # from 0
    attempt: Mapped[int] = mapped_column(default=0)  # from 0; the last one counts
    warmup: Mapped[bool] = mapped_column(default=False)  # labelled when it ran, never averaged
    status: Mapped[str]  # collect.runlog.RunStatus
    status_reason: Mapped[str | None]
    converged: Mapped[bool]
    time_to_train_s: Mapped[float | None]
    epochs: Mapped[float | None]  # epoch_num of the last evaluation, as logged
    final_accuracy: Mapped[float | None]
    best_accuracy: Mapped[float | None]
    quality_target: Mapped[float | None]
    seed: Mapped[int | None]
    samples_per_s: Mapped[float | None]
    samples_per_s_first_epoch: Mapped[float | None]
    samples_per_s_steady: Mapped[float | None]
    train_samples: Mapped[int | None]
    global_batch_size: Mapped[int | None]
    cache_clear: Mapped[bool | None]
    started_at: Mapped[datetime | None]  # UTC, of run_start
    init_s: Mapped[float | None]
    exit_status: Mapped[int | None]
    log_path: Mapped[str | None]  # relative to the run set's path, or absolute
    log_sha256: Mapped[str | None]

    parent: Mapped[RunSet] = relationship(back_populates="runs")
    epoch_rows: Mapped[list[Epoch]] = relationship(cascade="all, delete-orphan", order_by="Epoch.id")
    evaluations: Mapped[list[EvaluationRow]] = relationship(cascade="all, delete-orphan", order_by="EvaluationRow.id")
    hyperparameters: Mapped[list[Hyperparameter]] = relationship(
        cascade="all, delete-orphan", order_by="Hyperparameter.id"
    )
    telemetry: Mapped[list[TelemetrySeries]] = relationship(cascade="all, delete-orphan", order_by="TelemetrySeries.id")


class Epoch(Base):
    """An epoch, or a block of epochs where the log has no epochs."""

    __tablename__ = "epoch"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str]  # epoch, block
    epoch_num: Mapped[float | None]  # as logged
    num_epochs: Mapped[float]
    start_s: Mapped[float]  # since run_start
    duration_s: Mapped[float]
    samples_per_s: Mapped[float | None]


class EvaluationRow(Base):
    __tablename__ = "evaluation"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), index=True)
    epoch_num: Mapped[float | None]
    accuracy: Mapped[float]
    time_s: Mapped[float | None]  # since run_start


class Hyperparameter(Base):
    __tablename__ = "hyperparameter"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), index=True)
    key: Mapped[str]
    value: Mapped[str]  # JSON text, as logged


class NoteRow(Base):
    """An oddity of a file, or a finding of a stage, that a reader should see."""

    __tablename__ = "note"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_set_id: Mapped[int] = mapped_column(ForeignKey("run_set.id", ondelete="CASCADE"), index=True)
    severity: Mapped[str] = mapped_column(default="note")  # note, warning, error
    rule: Mapped[str | None]
    file: Mapped[str | None]
    line: Mapped[int | None]
    text: Mapped[str]


class AllReduceResult(Base):
    """One size of one all-reduce table."""

    __tablename__ = "allreduce"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_set_id: Mapped[int] = mapped_column(ForeignKey("run_set.id", ondelete="CASCADE"), index=True)
    backend: Mapped[str]  # nccl_tests, horovod, mpi
    transport: Mapped[str]  # NCCL, MPI, Gloo
    num_ranks: Mapped[int]
    hosts: Mapped[list[str]]
    in_place: Mapped[bool]
    size_bytes: Mapped[int]
    time_us: Mapped[float]
    algbw_gb_per_s: Mapped[float]
    busbw_gb_per_s: Mapped[float]
    num_wrong: Mapped[int | None]  # null: not verified


class StorageResult(Base):
    """One access pattern on one host, or summed over hosts when `host` is null."""

    __tablename__ = "storage"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_set_id: Mapped[int] = mapped_column(ForeignKey("run_set.id", ondelete="CASCADE"), index=True)
    tool: Mapped[str]  # fio, s3
    host: Mapped[str | None]
    endpoint: Mapped[str | None]
    pattern: Mapped[str]  # sequential, random, training
    cache: Mapped[str]  # cold, warm, direct
    block_bytes: Mapped[int]
    num_readers: Mapped[int]
    file_set_bytes: Mapped[int | None]
    total_bytes: Mapped[int | None]
    runtime_s: Mapped[float | None]
    bandwidth_bytes_per_s: Mapped[float | None]
    iops: Mapped[float | None]
    latency_mean_s: Mapped[float | None]
    latency_p99_s: Mapped[float | None]
    status: Mapped[str]  # measured, failed
    reason: Mapped[str | None]


class HostFact(Base):
    """What one host said of itself before the runs."""

    __tablename__ = "host_fact"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_set_id: Mapped[int] = mapped_column(ForeignKey("run_set.id", ondelete="CASCADE"), index=True)
    host: Mapped[str]
    key: Mapped[str]
    value: Mapped[str]


class TelemetrySeries(Base):
    """One metric of one host through one run; thinned as docs/reference/telemetry.md says.

    A series is one row, not a row a point: 20 million points then take a few hundred megabytes, and both databases
    still open them in SQL (json_each, json_array_elements). `times_s` and `points` have the same length; a null value
    was asked for and not answered.
    """

    __tablename__ = "telemetry"
    __table_args__ = (UniqueConstraint("run_id", "host", "metric"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    host: Mapped[str]
    metric: Mapped[str]  # cpu_share, gpu0_power_w, net_eth0_rx_bytes_per_s, ...
    num_points: Mapped[int]
    mean: Mapped[float | None]
    min: Mapped[float | None]
    max: Mapped[float | None]
    times_s: Mapped[list[float]]  # since run_start
    points: Mapped[list[float | None]]


class Baseline(Base):
    """A named run set that others are compared with."""

    __tablename__ = "baseline"

    name: Mapped[str] = mapped_column(primary_key=True)
    run_set_id: Mapped[int] = mapped_column(ForeignKey("run_set.id", ondelete="CASCADE"))
    pinned_at: Mapped[datetime]
