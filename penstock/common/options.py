"""The table of options: all keys that Penstock reads, with their types, ranges, defaults and meanings.

Flink's key where Flink has the option, `penstock.` otherwise. Nothing else knows a key as text: settings are read, written and
named in messages through this table, and docs/reference/configuration.md is made from it (`make reference`).
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from penstock.common.config_options import ConfigOption
from penstock.common.implementations import RUNTIMES, STATE_BACKENDS
from penstock.common.option_types import (
    BOOLEAN,
    Choice,
    DurationMs,
    MemoryBytes,
    Number,
    Pairs,
    Path,
    Text,
    Texts,
    Whole,
    each,
)

CheckpointMode: TypeAlias = Literal["EXACTLY_ONCE", "AT_LEAST_ONCE", "AT_MOST_ONCE"]
MAX_PARALLELISM: Final = 32_768

# A table, so not for the formatter: key, type, default, meaning.
# fmt: off


class JobOptions:
    """The job as a whole, and its epochs."""

    PARALLELISM = ConfigOption(
        "parallelism.default", Whole(1, MAX_PARALLELISM), None,
        "parallelism of operators that set none. `env.set_parallelism` changes it", otherwise="1")
    KEY_GROUPS = ConfigOption(
        "pipeline.max-parallelism", Whole(1, MAX_PARALLELISM), None,
        "the number of key groups, fixed for the life of the job's state: a restored job must keep it. `env.set_max_parallelism` "
        "goes over it", otherwise="128, or the next power of 2 above the widest operator")
    RUNTIME_MODE = ConfigOption(
        "execution.runtime-mode", Choice(each("STREAMING", "BATCH", "AUTOMATIC")), "STREAMING",
        "`BATCH`: final results only, from bounded sources; `AUTOMATIC`: `BATCH` if all sources are bounded. "
        "`env.set_runtime_mode` goes over it")
    CHAINING = ConfigOption(
        "pipeline.operator-chaining.enabled", BOOLEAN, True,
        "`false`: every operator is a vertex of its own. `env.disable_operator_chaining()` sets it",
        older=("pipeline.operator-chaining",))
    CHAIN_UNEQUAL = ConfigOption(
        "pipeline.operator-chaining.chain-operators-with-different-max-parallelism", BOOLEAN, True,
        "`false`: operators whose `set_max_parallelism` differs are not chained")
    OBJECT_REUSE = ConfigOption(
        "pipeline.object-reuse", BOOLEAN, False,
        "`true`: where a stream goes to several operators of one chain, they are given the same objects instead of copies. "
        "`get_config().enable_object_reuse()` sets it")
    JOB_PARAMETERS = ConfigOption(
        "pipeline.global-job-parameters", Pairs(), {},
        "what functions read with `RuntimeContext.get_job_parameter`, as `key:value,other:value`. "
        "`get_config().set_global_job_parameters` goes over it", otherwise="none")
    GENERIC_TYPES = ConfigOption(
        "pipeline.generic-types", BOOLEAN, True,
        "`false`: operators that declare no output type are refused. `get_config().disable_generic_types()` does the same")
    GENERATED_UIDS = ConfigOption(
        "pipeline.auto-generate-uids", BOOLEAN, True,
        "`false`: operators without a uid are refused. `get_config().disable_auto_generated_uids()` does the same")
    RUNTIME = ConfigOption(
        "penstock.execution.mode", RUNTIMES, "auto",
        "`pipelined`: all tasks at work at once, on Spark's streaming shuffle; `epochs`: one Spark job an epoch; `auto`: pipelined "
        "where sources and free task slots allow it, else epochs; `embedded`: in this process, without Spark, for tests. Also "
        "`PENSTOCK_EXECUTION_MODE`", older=("penstock.runtime",))
    EPOCH_INTERVAL = ConfigOption(
        "penstock.epoch.interval", DurationMs(), 200,
        "the trigger interval: an epoch starts this long after the start of the one before, or when that has ended if it took "
        "longer")
    EPOCH_MAX_RECORDS = ConfigOption(
        "penstock.epoch.max-records", Whole(1), None,
        "the most records each source may plan for an epoch, where it can tell (text, CSV and NDJSON files bound bytes instead)",
        otherwise="no limit")
    EPOCH_TARGET = ConfigOption(
        "penstock.epoch.target", DurationMs(1), None,
        "how long an epoch should take: the number of records each source may plan is adapted to it, from 10,000 on, never "
        "above `penstock.epoch.max-records`", otherwise="not adapted")
    QUIET_INTERVAL = ConfigOption(
        "penstock.epoch.quiet-interval", DurationMs(), 1000,
        "with no data and nothing due, an epoch runs this often; it is how idleness is noticed")
    EPOCH_TIMEOUT = ConfigOption(
        "penstock.epoch.timeout", DurationMs(1), 600_000,
        "an epoch that takes longer is given up, and the job goes back to its last checkpoint")
    BLOCK_SIZE = ConfigOption(
        "penstock.block.size", Whole(1), 10_000,
        "the most records in a block; it has fewer if they are more than 16 MiB, and up to eight times as many where operators "
        "work on columns")
    WATERMARK_INTERVAL = ConfigOption(
        "pipeline.auto-watermark-interval", DurationMs(), 200,
        "pipelined: how often periodic watermarks are made and idleness is looked for; 0: never. "
        "`get_config().set_auto_watermark_interval` sets it")
    LATENCY_INTERVAL = ConfigOption(
        "metrics.latency.interval", DurationMs(), 0,
        "pipelined: how often sources send a latency marker; 0: never. `get_config().set_latency_tracking_interval` sets it",
        otherwise="off")
    BUFFER_TIMEOUT = ConfigOption(
        "execution.buffer-timeout.interval", DurationMs(), None,
        "pipelined: what tasks have made leaves after this long at the latest; 0: at once. `env.set_buffer_timeout` sets it, and "
        "`DataStream.set_buffer_timeout` goes over it for one operator",
        otherwise="as soon as a task host has nothing else to do, see `penstock.pipelined.flush-gap`",
        older=("execution.buffer-timeout",))
    BUFFER_TIMEOUT_ENABLED = ConfigOption(
        "execution.buffer-timeout.enabled", BOOLEAN, True,
        "pipelined: `false`: what tasks have made leaves when it is a frame of 1 MiB, or a barrier or the end of the input "
        "follows it. `env.set_buffer_timeout(-1)` sets it")
    FLUSH_GAP = ConfigOption(
        "penstock.pipelined.flush-gap", DurationMs(), None,
        "pipelined: a task host sends what its tasks have made at once when nothing else has come, but no more often than this; "
        "four times as rarely while it is busy",
        otherwise="such that the rows of all hosts take no more than two fifths of the cores")
    GRANT_INTERVAL = ConfigOption(
        "penstock.pipelined.grant-interval", DurationMs(1), None, "pipelined: how often sources are asked what is new",
        otherwise="1.7 times the flush gap, at least 5 ms")
    SLOTS_TIMEOUT = ConfigOption(
        "penstock.pipelined.slots-timeout", DurationMs(), None,
        "pipelined: a job that has run before, and for which Spark has too few free task slots now, waits so long for them, then "
        "fails. Waiting is no failure for its restart strategy",
        otherwise="as long as it takes; with `penstock.rescale.auto.enabled` it goes on at a smaller parallelism after 20 s")
    RECORD_SIZE = ConfigOption(
        "penstock.record.max-size", MemoryBytes(1 << 20), 64 << 20,
        "the bytes of one record on its way to another subtask, pickled: a larger one is an error, because Spark's exchange copies "
        "it several times in the heap of a JVM. More needs more of `spark.driver.memory` and `spark.executor.memory`")
    IN_FLIGHT = ConfigOption(
        "penstock.pipelined.in-flight-memory", MemoryBytes(64 << 10), 8 << 20,
        "pipelined: bytes that have come to a task host and wait for its tasks; beyond that Spark holds the senders back")
    ALIGNMENT = ConfigOption(
        "penstock.pipelined.alignment-memory", MemoryBytes(0), 32 << 20,
        "pipelined: bytes that wait behind an aligned barrier in the memory of a subtask; what comes beyond that waits in a file",)
    CACHE_DIR = ConfigOption(
        "penstock.cache.dir", Path(), None, "where cached streams are kept: driver and slots must reach it",
        otherwise="temporary folder")
    PYTHON_FILES = ConfigOption(
        "python.files", Texts(), (),
        "modules, zip files and folders that Spark's workers import from; `penstock run --py-files` sets it")
    PYTHON_ARCHIVES = ConfigOption(
        "python.archives", Texts(), (), "archives that Spark unpacks on the workers; `penstock run --archives` sets it")
    SPARK_LOG_LEVEL = ConfigOption(
        "penstock.spark.log-level", Choice(each("ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")), "ERROR",
        "log level of the JVM of a session that Penstock makes")


class ControlOptions:
    """How a job is watched and steered."""

    HOME = ConfigOption(
        "penstock.job.home", Path(), None,
        "a local folder in which this job tells about itself and can be steered (`jobs/<job id>/`); `penstock run` sets it to "
        "`PENSTOCK_HOME`. Checkpoints go there too if nothing else says where")
    JOB_ID = ConfigOption(
        "penstock.job.id", Text("32 hexadecimal digits", "[0-9a-f]{32}"), None,
        "the id the job is known by, and by which it resumes in its home", otherwise="a new one")
    LOG_MAX_SIZE = ConfigOption(
        "penstock.driver.log.max-size", MemoryBytes(), 64 << 20,
        "of a job that was started with `--detached` or by a dispatcher: when its log is longer, its last quarter of that is "
        "kept")
    ENABLED = ConfigOption(
        "penstock.control.enabled", BOOLEAN, False,
        "`true`: without a home, control endpoint and facts are in the job folder, if that is a local path")


class CheckpointingOptions:
    """Checkpoints, savepoints, and starting from them."""

    INTERVAL = ConfigOption(
        "execution.checkpointing.interval", DurationMs(), None,
        "the least time between two checkpoints; `0 ms`: every epoch. `env.enable_checkpointing(ms)` sets it", otherwise="off")
    JOB_DIR = ConfigOption(
        "penstock.job.dir", Path(), None,
        "the folder of this job ([object stores](../howto/checkpoints-and-recovery.md#object-stores) are set up with "
        "environment variables). A checkpoint found there is resumed. Goes over the next key")
    DIR = ConfigOption(
        "execution.checkpointing.dir", Path(), None,
        "a folder for all jobs, one job folder for each start. One of the two is required when checkpointing is on",
        older=("state.checkpoints.dir", "state.backend.fs.checkpointdir"))
    SAVEPOINT_DIR = ConfigOption(
        "execution.checkpointing.savepoint-dir", Path(), None,
        "where savepoints go that are asked for without a folder. `env.set_default_savepoint_directory` sets it",
        otherwise="the job folder's `savepoints`", older=("state.savepoints.dir", "savepoints.state.backend.fs.dir"))
    NUM_RETAINED = ConfigOption(
        "execution.checkpointing.num-retained", Whole(1), 1, "completed checkpoints to keep",
        older=("state.checkpoints.num-retained",))
    MODE: ConfigOption[CheckpointMode] = ConfigOption(
        "execution.checkpointing.mode", Choice(each("EXACTLY_ONCE", "AT_LEAST_ONCE", "AT_MOST_ONCE")), "EXACTLY_ONCE",
        "`AT_LEAST_ONCE`: sinks emit at the end of every epoch, and again after a failure; `AT_MOST_ONCE`: after a failure "
        "nothing is read again and state starts empty")
    UNALIGNED = ConfigOption(
        "execution.checkpointing.unaligned.enabled", BOOLEAN, False,
        "pipelined: barriers overtake records, which become part of the checkpoint. `enable_unaligned_checkpoints` sets it",
        older=("execution.checkpointing.unaligned",))
    TIMEOUT = ConfigOption(
        "execution.checkpointing.timeout", DurationMs(1), 600_000,
        "a checkpoint whose snapshots are not stored by then is declined; pipelined: counted from its trigger")
    MIN_PAUSE = ConfigOption(
        "execution.checkpointing.min-pause", DurationMs(), 0,
        "the least time between the end of a checkpoint and the start of the next")
    MAX_CONCURRENT = ConfigOption(
        "execution.checkpointing.max-concurrent-checkpoints", Whole(1), 1,
        "checkpoints that may be waiting for storage at once")
    TOLERABLE_FAILURES = ConfigOption(
        "execution.checkpointing.tolerable-failed-checkpoints", Whole(0), 0,
        "declined checkpoints in a row before the job goes back to its last one")
    INCREMENTAL = ConfigOption(
        "execution.checkpointing.incremental", BOOLEAN, True, "`false`: every checkpoint is full",
        older=("state.backend.incremental",))
    COMPRESSION = ConfigOption(
        "execution.checkpointing.snapshot-compression", Choice({"false": None, "true": "lz4"}), None,
        "`true`: snapshots are compressed (LZ4)", otherwise="`false`")
    DELETE_ON_CANCEL = ConfigOption(
        "execution.checkpointing.externalized-checkpoint-retention",
        Choice({"RETAIN_ON_CANCELLATION": False, "DELETE_ON_CANCELLATION": True, "NO_EXTERNALIZED_CHECKPOINTS": True}), False,
        "when the job is cancelled: its checkpoints are kept, or (both others) deleted")
    ASYNCHRONOUS = ConfigOption(
        "penstock.checkpoint.asynchronous", BOOLEAN, True,
        "`false`: an epoch does not end before its snapshots are stored")
    INLINE_THRESHOLD = ConfigOption(
        "penstock.checkpoint.inline-threshold", MemoryBytes(), 20 << 10,
        "snapshots of at most this size are kept in the manifest; 0: never")
    COMPACT_AFTER = ConfigOption(
        "penstock.checkpoint.compact-after", Whole(1), 10,
        "increments after which a subtask writes a full snapshot, if together they are as large as the last one")
    FALL_BACK = ConfigOption(
        "penstock.checkpoint.fall-back", BOOLEAN, False,
        "`true`: if the newest checkpoint is damaged, use an older one; output committed since is produced again")
    STORAGE = ConfigOption(
        "execution.checkpointing.storage", Choice(each("filesystem", "jobmanager")), "filesystem",
        "`jobmanager`: checkpoints in the driver's memory", older=("state.checkpoint-storage",))
    DRIVER_MAX_STATE_SIZE = ConfigOption(
        "penstock.checkpoint.driver.max-state-size", MemoryBytes(), 5 << 20, "with `jobmanager`: the largest file")
    RECOVERY_PATH = ConfigOption(
        "execution.state-recovery.path", Path(), None,
        "start from this savepoint, or from a checkpoint's folder; see [savepoints](../howto/savepoints.md)",
        older=("execution.savepoint.path",))
    FROM_LOCAL = ConfigOption(
        "execution.state-recovery.from-local", BOOLEAN, False,
        "pipelined: workers keep copies of the last checkpoint's state files on their machine, and restore from these; what is "
        "missing or damaged there is read from the job folder. For checkpoints in an object store, or on a network's disk",
        older=("state.backend.local-recovery",))
    LOCAL_DIR = ConfigOption(
        "taskmanager.state.local.root-dirs", Path(), None, "where local copies of state are kept: one folder",
        otherwise="temporary folder")
    LOCAL_SIZE = ConfigOption(
        "penstock.state-recovery.local-size", MemoryBytes(1), 4 << 30,
        "local copies of state that a job keeps on one machine; beyond that its storage is read")
    CLAIM = ConfigOption(
        "execution.state-recovery.claim-mode", Choice({"NO_CLAIM": False, "CLAIM": True}), False,
        "`NO_CLAIM`: the savepoint stays as it is; `CLAIM`: it becomes the job's, which deletes it when it is not needed any "
        "more", older=("execution.savepoint-restore-mode",))
    IGNORE_UNCLAIMED = ConfigOption(
        "execution.state-recovery.ignore-unclaimed-state", BOOLEAN, False,
        "`true`: a checkpoint may hold state of operators this job does not have; that state is dropped",
        older=("execution.savepoint.ignore-unclaimed-state",))
    ALLOW_CHANGED_WINDOWS = ConfigOption(
        "execution.state-recovery.allow-changed-windows", BOOLEAN, False,
        "`true`: windows over rows and sessions may be of another size, offset, slide or gap than those in the checkpoint; see "
        "[savepoints](../howto/savepoints.md#windows-and-aggregates)")


class StateBackendOptions:
    """Where working state lives."""

    BACKEND = ConfigOption(
        "state.backend.type", STATE_BACKENDS, "hashmap",
        "`env.set_state_backend` goes over it. `jobmanager`, `memory` and `filesystem`, older names, mean `hashmap`",
        older=("state.backend",))
    ROCKSDB_MEMORY = ConfigOption(
        "state.backend.rocksdb.memory.fixed-per-slot", MemoryBytes(8 << 20), 256 << 20,
        "block cache and write buffers of all databases of a slot")
    ROCKSDB_WRITE_BUFFER_RATIO = ConfigOption(
        "state.backend.rocksdb.memory.write-buffer-ratio", Number(0.01, 0.9), 0.5,
        "the share of it that write buffers may take")
    ROCKSDB_LOCAL_DIRS = ConfigOption(
        "state.backend.rocksdb.localdir", Texts(",;:|"), (), "local folders for databases; slots are dealt out over them",
        otherwise="temporary folder", older=("state.backend.rocksdb.checkpointdir",))
    ROCKSDB_TIMER_CACHE = ConfigOption(
        "state.backend.rocksdb.timer-service.cache-size", Whole(1), 20_000,
        "timers held in memory, per operator and time domain; the others are in RocksDB")
    ROCKSDB_CACHED_OBJECTS = ConfigOption(
        "state.backend.rocksdb.cached-objects", Whole(1), 20_000,
        "decoded values (numbers, text, tuples of them) held in memory, per state")
    ROCKSDB_THREADS = ConfigOption(
        "state.backend.rocksdb.thread.num", Whole(1), 2, "background threads for flushes and compactions, per slot")


class RescaleOptions:
    """A job that changes its parallelism with its load."""

    ENABLED = ConfigOption(
        "penstock.rescale.auto.enabled", BOOLEAN, False, "`true`: the job changes its parallelism with its load")
    MIN = ConfigOption("penstock.rescale.auto.min", Whole(1, MAX_PARALLELISM), 1, "the least parallelism")
    MAX = ConfigOption(
        "penstock.rescale.auto.max", Whole(1, MAX_PARALLELISM), None, "the most", otherwise="cores of the driver's host")
    TARGET = ConfigOption(
        "penstock.rescale.auto.target", DurationMs(1), None, "what an epoch should take",
        otherwise="`penstock.epoch.interval`")
    UP_AFTER = ConfigOption(
        "penstock.rescale.auto.up-after", Whole(1), 5, "epochs in a row that took longer before the job is scaled up")
    DOWN_AFTER = ConfigOption(
        "penstock.rescale.auto.down-after", Whole(1), 30,
        "epochs in a row that took less than 30 % of it before the job is scaled down")
    COOLDOWN = ConfigOption(
        "penstock.rescale.auto.cooldown", Whole(0), 10, "epochs after a change in which nothing is decided")


class RestartStrategyOptions:
    """What happens after a failure."""

    TYPE = ConfigOption(
        "restart-strategy.type",
        Choice(each("none", "fixed-delay", "failure-rate", "exponential-delay"), {
            "off": "none", "disable": "none", "fixeddelay": "fixed-delay", "failurerate": "failure-rate",
            "exponentialdelay": "exponential-delay"}), None,
        "`off` and `disable` mean `none`", otherwise="exponential-delay with checkpointing, else none",
        older=("restart-strategy",))
    ATTEMPTS = ConfigOption("restart-strategy.fixed-delay.attempts", Whole(0), 1, "restarts before the job fails")
    FIXED_DELAY = ConfigOption("restart-strategy.fixed-delay.delay", DurationMs(), 1000, "pause before each")
    MAX_FAILURES = ConfigOption(
        "restart-strategy.failure-rate.max-failures-per-interval", Whole(1), 1, "failures allowed in an interval")
    FAILURE_INTERVAL = ConfigOption("restart-strategy.failure-rate.failure-rate-interval", DurationMs(), 60_000, "the interval")
    FAILURE_DELAY = ConfigOption("restart-strategy.failure-rate.delay", DurationMs(), 1000, "pause before each restart")
    INITIAL_BACKOFF = ConfigOption("restart-strategy.exponential-delay.initial-backoff", DurationMs(1), 1000, "first pause")
    MAX_BACKOFF = ConfigOption("restart-strategy.exponential-delay.max-backoff", DurationMs(1), 60_000, "longest pause")
    MULTIPLIER = ConfigOption(
        "restart-strategy.exponential-delay.backoff-multiplier", Number(1.0), 1.5, "growth of the pause")
    RESET_THRESHOLD = ConfigOption(
        "restart-strategy.exponential-delay.reset-backoff-threshold", DurationMs(), 3_600_000,
        "this long without a failure starts again at the first pause")
    JITTER = ConfigOption(
        "restart-strategy.exponential-delay.jitter-factor", Number(0.0, 1.0), 0.1, "random part of the pause, each way")


class InternalOptions:
    """Not for users, and not on the page."""

    PLAN_ONLY = ConfigOption("penstock.job.plan-only", BOOLEAN, False)  # for a planner's own process


SECTIONS: Final = (
    JobOptions, ControlOptions, CheckpointingOptions, StateBackendOptions, RescaleOptions, RestartStrategyOptions,
    InternalOptions)
# fmt: on


def options_of(section: type) -> tuple[ConfigOption[Any], ...]:
    """In the order of the table."""
    return tuple(option for option in vars(section).values() if isinstance(option, ConfigOption))
