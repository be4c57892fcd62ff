"""The SparkSession a job runs in: the user's own if there is one, else a local one made for Penstock.

The connections over which Spark's JVM calls `foreachBatch` functions of this process.

Py4J opens one for each thread of the JVM that calls, and a query is a thread: it keeps a connection after its query has
ended, with a socket on both sides and a thread on ours, so a job that restarts for weeks would collect them.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from penstock.common import terminal
from penstock.common.options import JobOptions
from penstock.common.secrets import hide_secret
from penstock.errors import ConfigurationError
from penstock.runtime import console
from penstock.state.local_folder import LocalFolder

_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
_SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"
_LONGEST = 60  # of a folder for sockets: with a name in it, a path may have 107 bytes

# A session of our own. Every entry has its reason.
_OWN: dict[str, str] = {
    "spark.master": "local[*,4]",  # the second number: a failed task (a killed slot) is tried again, as on a cluster
    "spark.app.name": "penstock",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    _UNIX_SOCKETS: "true",  # TCP's delayed acknowledgements cost 40 ms a stage
    "spark.sql.streaming.numRecentProgressUpdates": "4",
    # Spark's own page and logs hide what ours do.
    "spark.redaction.regex": "(?i)secret|passw|passphrase|token|credential|(access|account|api|private|shared)[._-]?key|jaas",
    "spark.shuffle.compress": "false",  # blocks of one machine never see a network
    "spark.shuffle.streaming.checksum.enabled": "false",  # nor do the rows of a pipelined exchange
    # Local files without .crc companions. Spark writes two log files an epoch, and without Hadoop's native library the JVM
    # starts a `chmod` process for every file it creates: this halves them, 10 to 20 ms less an epoch.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

_TASK_SLOTS = 32  # of a local session, at least: other jobs may follow in it

# What pipelined jobs need of the whole session, which others do not mind. Each has its reason.
PIPELINED_CONF: dict[str, str] = {
    "spark.python.udf.pipelined.enabled": "true",  # a thread for each direction, and a flush after every batch
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",  # by default a row waits 50 ms for company
    # What is in flight between two hosts, in front of a barrier: it bounds how long an aligned checkpoint takes. A writer counts
    # buffers, whatever is in them, so that a frame should fit into one.
    "spark.shuffle.streaming.networkBufferSize": str(256 << 10),
    "spark.shuffle.streaming.readerMaxMemory": str(1 << 20),
    "spark.shuffle.streaming.writerMaxMemory": str(8 << 20),
    "spark.python.daemon.module": "penstock.runtime.pipelined.daemon",  # workers are forked with everything imported
}

# With buffers smaller than any row each row leaves at once, and a writer has two for each target on the way: no time is spent
# waiting for company. Executors of their own would log a warning about it each second.
_PIPELINED_IN_ONE_JVM: dict[str, str] = {
    "spark.shuffle.streaming.networkBufferSize": "32",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1000",
    "spark.shuffle.streaming.writerMaxMemory": "1",
}

# What a Penstock query needs, whoever made the session.
QUERY_CONF: dict[str, str] = {
    "spark.sql.adaptive.enabled": "false",  # partition i must stay partition i, and an epoch must be one job
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),  # exchange rows are blocks, not records
    # Spark's own log is rebuilt from our checkpoints, so it need not be careful: plain files, no checksums.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.codegen.wholeStage": "true",
}


# Right for one machine only: executors on other hosts must reach the driver, and their blocks do see a network. Spark asks
# the local file system for its scheme when it hands files to YARN, which the raw one does not answer.
_ONE_MACHINE = (
    "spark.driver.bindAddress",
    "spark.driver.host",
    "spark.shuffle.compress",
    "spark.shuffle.streaming.checksum.enabled",
    "spark.hadoop.fs.file.impl",
)


# A host that vanishes closes nothing, and Spark believes in its executors for two to three minutes. Of our own connections we
# know after 15 s; tasks that were running there must be known to be lost soon after that, and what was shuffled there too.
_LIVENESS: dict[str, str] = {
    "spark.executor.heartbeatInterval": "5s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "30000",  # no heartbeat for so long: the executor is lost
    "spark.network.timeoutInterval": "5s",  # how often that is looked at
    "spark.executor.heartbeat.maxFailures": "6",  # and an executor that cannot reach its driver ends, and frees its cores
    "spark.shuffle.io.connectionTimeout": "30s",
    "spark.shuffle.io.connectionCreationTimeout": "10s",
}


# A container's own temporary folder has a path that is longer than a Unix socket's name may be.
_ON_YARN = {_SOCKET_FOLDER: "/tmp"}


def _defaults(master: str) -> dict[str, str]:
    if master.startswith("local") or "//127.0.0.1" in master or "//localhost" in master:
        return _OWN
    anywhere = {**{key: value for key, value in _OWN.items() if key not in _ONE_MACHINE}, **_LIVENESS}
    return {**anywhere, **_ON_YARN} if master == "yarn" else anywhere


def _beside(submitted: SparkConf) -> dict[str, str]:
    """Under spark-submit the master and all else come from there. Only how Python workers are reached, and how soon a host is
    known to be gone, is ours, where nobody has said so."""
    on_yarn = submitted.get("spark.master") == "yarn"
    wanted = {_UNIX_SOCKETS: _OWN[_UNIX_SOCKETS], **_LIVENESS, **(_ON_YARN if on_yarn else {})}
    return {key: value for key, value in wanted.items() if not submitted.contains(key)}


def _own_sockets(master: str) -> dict[str, str]:
    """Spark's driver and its Python daemons leave their sockets behind. Where all of them are on this machine they get a folder,
    which goes with this process, or with the next one if this is killed."""
    parent = next((p for p in (tempfile.gettempdir(), "/tmp") if len(p) < _LONGEST and os.path.isdir(p)), None)
    if not master.startswith("local") or parent is None:
        return {}
    folder = LocalFolder((parent,), kind="sockets")
    atexit.register(folder.remove)
    return {_SOCKET_FOLDER: str(folder.path())}


def check_java() -> None:
    """Spark needs Java 17 or later: say so before the JVM's own cryptic failure."""
    home = os.environ.get("JAVA_HOME")
    found = os.path.exists(os.path.join(home, "bin", "java")) if home else shutil.which("java") is not None
    if not found:
        where = f"JAVA_HOME is {home}, but there is no bin/java in it" if home else "there is no `java` on the PATH"
        raise ConfigurationError(
            f"Spark needs a Java runtime, version 17 or later: {where}. Install one (Debian/Ubuntu: apt-get install "
            "openjdk-17-jre-headless; Fedora: dnf install java-17-openjdk-headless; macOS: brew install openjdk@17), or use "
            "the embedded runtime for tests: PENSTOCK_EXECUTION_MODE=embedded"
        )


def spark_session(config: Mapping[str, str], *, task_slots: int = 0) -> SparkSession:
    """The active session, or a new one from `spark.*` keys of the job's configuration over our defaults. A new local one can
    run at least `task_slots` tasks at once."""
    session = SparkSession.getActiveSession() or _new_session(config, task_slots)
    _ship(session, config)
    return session


def _ship(session: SparkSession, config: Mapping[str, str]) -> None:
    """Flink's keys for what the workers need beside the program: modules (.py, .zip, .egg, folders) and archives."""
    for path in JobOptions.PYTHON_FILES.get(config):
        if os.path.isdir(path):
            folder = LocalFolder(kind="modules")
            atexit.register(folder.remove)
            # Spark keeps files by name: each folder, also the same one as it is now, has one of its own.
            path = shutil.make_archive(str(folder.path() / f"modules-{uuid.uuid4().hex[:12]}"), "zip", path)
        session.sparkContext.addPyFile(path)
    for path in JobOptions.PYTHON_ARCHIVES.get(config):
        session.sparkContext.addArchive(path)


def _start_jvm(settings: Mapping[str, str]) -> None:
    """PySpark hands all settings to the JVM as arguments, which every user of the machine can see. So it is started with those
    that are no secret; the others reach it on PySpark's own connection, in time for the session."""
    with console.without_banner():
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))


def _new_session(config: Mapping[str, str], task_slots: int = 0) -> SparkSession:
    check_java()
    terminal.progress("starting Spark…")
    console.quiet_py4j()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers must be this Python, with these packages
    builder = SparkSession.builder
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # set by spark-submit
        SparkContext._ensure_initialized()  # its configuration is in the JVM: without one SparkConf() is empty
        defaults = _beside(SparkConf())
    else:
        master = config.get("spark.master", "local")
        defaults = {**_defaults(master), **_own_sockets(master), **PIPELINED_CONF}
        if re.match(r"local(\[|$)", master):
            defaults |= _PIPELINED_IN_ONE_JVM
        if "spark.master" not in config:
            # Threads, not cores: a pipelined job's tasks mostly wait for each other.
            defaults["spark.master"] = f"local[{max(os.cpu_count() or 1, task_slots, _TASK_SLOTS)},4]"
    settings = {**defaults, **{k: v for k, v in config.items() if k.startswith("spark.")}}
    settings = console.quiet_log(settings, JobOptions.SPARK_LOG_LEVEL.get(config))
    _start_jvm({key: value for key, value in settings.items() if hide_secret(key, value) == value})
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(JobOptions.SPARK_LOG_LEVEL.get(config))
    return session


def close_unused_callbacks(session: SparkSession) -> None:
    """Close the connections that no query has used since this was last called. A query that is alive gets a new one when it
    calls again. There is no public way to the gateway; without one (another kind of session) there is nothing to close."""
    gateway = getattr(session.sparkContext, "_gateway", None)
    if gateway is not None:
        gateway.java_gateway_server.getCallbackClient().periodicCleanup()
