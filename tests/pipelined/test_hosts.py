"""The driver's end of the connections to hosts, without Spark: who comes late misses nothing."""

from __future__ import annotations

import queue

from penstock.engine.uploads import UploadEvent
from penstock.protocol.checkpoint_messages import Uploaded
from penstock.protocol.gate import BarrierMode
from penstock.protocol.ids import TaskId, VertexId
from penstock.runtime.connection.wire import Wire
from penstock.runtime.pipelined.hosts import Hosts
from penstock.runtime.pipelined.messages import Enlist, FeedbackSent, HostId, StartHost

START = StartHost(job=b"", version="1.0", checkpoint=3, epoch=4, processing_time=0, mode=BarrierMode.EXACTLY_ONCE)


def test_records_for_a_host_that_has_not_come_yet_are_the_first_it_hears_after_its_start() -> None:
    """The tail of a loop sends back what its checkpoint holds as soon as it starts; its head may start later."""
    hosts = Hosts("127.0.0.1", None)
    try:
        hosts.begin(0, START)
        back = [FeedbackSent(tail="tail", subtask=0, feedback=(0, 1, 0, bytes([n]))) for n in range(3)]
        for message in back[:2]:
            hosts.tell_one(HostId(1, 0), message)
        wire = Wire.connect(str(hosts.host), hosts.port, hosts.token)
        wire.send_message(Enlist(host=HostId(1, 0), job_attempt=0, name="late"))
        heard = [wire.receive_message() for _ in range(3)]
        hosts.tell_one(HostId(1, 0), back[2])
        assert [*heard, wire.receive_message()] == [START, *back]
        wire.close()
    finally:
        hosts.close()


def test_what_was_meant_for_a_host_of_an_earlier_attempt_is_not_told_to_its_successor() -> None:
    hosts = Hosts("127.0.0.1", None)
    try:
        hosts.begin(0, START)
        hosts.tell_one(HostId(1, 0), FeedbackSent(tail="tail", subtask=0, feedback=(0, 1, 0, b"old")))
        hosts.end()
        hosts.begin(1, START)
        wire = Wire.connect(str(hosts.host), hosts.port, hosts.token)
        wire.send_message(Enlist(host=HostId(1, 0), job_attempt=1, name="next"))
        assert wire.receive_message() == START
        new = FeedbackSent(tail="tail", subtask=0, feedback=(0, 1, 0, b"new"))
        hosts.tell_one(HostId(1, 0), new)
        assert wire.receive_message() == new
        wire.close()
    finally:
        hosts.close()


def test_what_was_stored_is_heard_while_the_drivers_thread_waits_for_it() -> None:
    """At the last barrier of a run the driver waits until all snapshots are stored, and listens to nothing else."""
    stored: queue.SimpleQueue[UploadEvent] = queue.SimpleQueue()
    hosts = Hosts("127.0.0.1", None, stored.put)
    try:
        hosts.begin(0, START)
        wire = Wire.connect(str(hosts.host), hosts.port, hosts.token)
        wire.send_message(Enlist(host=HostId(1, 0), job_attempt=0, name="host"))
        wire.receive_message()
        report = Uploaded(task=TaskId(VertexId(1), 0), epoch=4, attempt="4-1.0")
        wire.send_message(report)
        assert stored.get(timeout=10) == report
        wire.close()
    finally:
        hosts.close()
