"""The sabotages: the old behaviour of each hole that was closed, and the classics (a timer dropped, a commit too early)."""

from __future__ import annotations

from typing import Final

from tests.mutants.sabotage import Mutant

_SOCKETS: Final = "tests/connectors/test_socket_source.py"
_STRANGERS: Final = "tests/runtime/test_strangers.py"
_CHALLENGE: Final = "tests/service/test_challenge.py"
_CROSSING: Final = "tests/runtime/test_errors_cross.py"
_SPECIFICATION: Final = "tests/embedded/test_changed_specification.py"
_SIMULATED: Final = "tests/testing/test_simulate.py"
_STATE_COLUMNS: Final = "tests/state/test_state_columns.py"
_LAST: Final = "tests/embedded/test_last_checkpoint.py"
_REPLACED: Final = "tests/embedded/test_replaced_driver.py"
_SAVED: Final = "tests/embedded/test_savepoint_output.py"
_SENDERS: Final = "tests/embedded/test_changed_senders.py"
_FLOATS: Final = "tests/embedded/test_float_keys.py"
_VALUES: Final = "tests/embedded/test_values_not_objects.py"
_FUSED: Final = "tests/operators/test_fused.py"
_CAPTURE: Final = "tests/datastream/test_capture.py"
_REGISTRY: Final = "tests/runtime/test_registry.py"
_ATTEMPTS: Final = "tests/runtime/test_attempts.py"
_ONE_ANSWER: Final = "tests/contract/test_one_answer.py"
_COLUMNAR_JOINS: Final = "tests/operators/test_columnar_joins.py"
_JOIN_PATHS: Final = "tests/contract/test_join_paths.py"
_NO_JOINS: Final = "no simulated run joins columns"
_COLUMNAR_WINDOW: Final = "tests/operators/test_columnar_window.py"
_COLUMNAR_SESSIONS: Final = "tests/operators/test_columnar_sessions.py"
_SESSIONS: Final = "tests/contract/test_columnar_sessions.py::test_uneven_streams_give_the_same_at_every_parallelism"
_STAMPS: Final = "tests/operators/test_flinks_timestamps.py"
_STREAM: Final = "tests/engine/test_stream_run.py"
_ABORTED: Final = "tests/engine/test_aborted_barriers.py"
_SPILL: Final = "tests/engine/test_spill.py"
_UNALIGNED: Final = "tests/embedded/test_unaligned_rescale.py"
_LOCAL: Final = "tests/checkpoint/test_local_copies.py"
_LISTS: Final = "tests/state/test_list_table.py"
_KEY_INDEX: Final = "tests/records/test_key_index.py"
_KEYED_ROWS: Final = "tests/state/test_keyed_rows.py"
_BARRIERS: Final = "tests/pipelined/test_barriers.py"
_PIPELINED_CHECKPOINTS: Final = "tests/pipelined/test_checkpoints.py"

# Why a simulated run cannot notice some.
_SOCKETS_ONLY: Final = "sockets between processes: the simulator has one process"
_NOT_SIMULATED: Final = "columnar operators that keep something of each key: simulated jobs have none"
_ROWS_ONLY: Final = "blocks of columns in front of functions: the simulator's sources give rows"
_ROW_SESSIONS: Final = "sessions over columns: those of simulated jobs are of rows"
_SPARK: Final = "Spark itself: the simulator has none"
_SLOTS: Final = "slot processes and their addresses: the simulator's hosts are objects"

_CHECKPOINTS: Final = (
    Mutant(
        name="a declined last checkpoint counts as done",
        file="penstock/protocol/checkpoints.py",
        old="        record.stage = Stage.WAITING\n        self.chains.keep(record.acks, record.stored)\n",
        new=(
            "        if record.last:\n"
            "            return [EndRun(epoch=record.epoch, end=End.FINISHED, asked=record.asked)]\n"
            "        record.stage = Stage.WAITING\n        self.chains.keep(record.acks, record.stored)\n"
        ),
        tests=(f"{_LAST}::test_a_bounded_job_whose_last_checkpoint_is_declined_does_not_end_without_its_output",),
    ),
    Mutant(
        name="a rescale goes on from a declined checkpoint",
        file="penstock/protocol/checkpoints.py",
        old="        if (asked := record.asked) is not None:\n            record.asked = None\n            out.append(\n",
        new=(
            "        if (asked := record.asked) is not None:\n"
            "            if asked.purpose is Purpose.RESCALE:\n"
            "                return [EndRun(epoch=record.epoch, end=End.MOVED, asked=asked)]\n"
            "            record.asked = None\n            out.append(\n"
        ),
        tests=(f"{_LAST}::test_a_rescaling_whose_checkpoint_is_declined_does_not_come_about",),
    ),
    Mutant(
        name="a savepoint is reported before its output is committed",
        file="penstock/driver/checkpoints.py",
        old="        self._ended.append(EndedEpoch(planned=planned, acks=ended.acks))\n",
        new=(
            "        self._ended.append(EndedEpoch(planned=planned, acks=ended.acks))\n"
            "        if ended.asked is not None and isinstance(ended.asked.request, PendingSavepoint):\n"
            "            ended.asked.request.complete()\n"
            "            ended.asked.request.complete = lambda: None\n"
        ),
        tests=(f"{_SAVED}::test_a_savepoint_while_uploads_are_slow_and_then_the_job_dies",),
    ),
    Mutant(
        name="a driver discards before it has said where it starts",
        file="penstock/checkpoint/store.py",
        old='            self._decide(layout.generation_start(ownership.generation, start), b"{}")\n',
        new="",
        tests=(f"{_REPLACED}::test_a_manifest_that_appears_when_the_successor_has_begun_is_never_resumed_from",),
    ),
    Mutant(
        name="a manifest is written with another checkpoint's permit",
        file="penstock/checkpoint/store.py",
        old="        _check_permit(manifest, permit)\n",
        new="",
        tests=("tests/checkpoint/test_permits.py::test_a_permit_is_for_one_checkpoint_and_its_output",),
        out_of_reach="no part of the product offers a wrong permit: the check is for code that is yet to come",
    ),
    Mutant(
        name="a driver that was replaced discards what is staged",
        file="penstock/driver/sink_commits.py",
        old=(
            "        start.check()\n        for committer in self.committers.values():\n"
            "            committer.still_mine = start.check  # type: ignore[method-assign]\n"
        ),
        new="        for committer in self.committers.values():\n",
        tests=("tests/checkpoint/test_permits.py::test_a_driver_that_was_replaced_discards_nothing_staged",),
    ),
    Mutant(
        name="a driver that is replaced before it looks for staged output discards it",
        file="penstock/connectors/staging.py",
        old="    if unneeded:\n        check()\n",
        new="",
        tests=(
            "tests/checkpoint/test_permits.py::test_a_driver_that_is_replaced_before_it_looks_for_what_is_staged_discards_nothing",
        ),
    ),
    Mutant(
        name="one late manifest gives way, and a second ends the job",
        file="penstock/checkpoint/store.py",
        old="            self.storage.delete(path)\n        return Committed(",
        new=(
            "            self.storage.delete(path)\n            if not self._decide(path, data):\n"
            "                return Fenced(checkpoint_id=checkpoint, by_generation=other.generation)\n"
            "            break\n        return Committed("
        ),
        tests=(
            "tests/checkpoint/test_permits.py::test_manifests_of_older_drivers_that_appear_one_after_the_other_all_give_way",
        ),
    ),
    Mutant(
        name="a driver that is replaced before it has begun blames its files",
        file="penstock/driver/job_master.py",
        old="            if (cause := self.cause_of(error)) is error:\n",
        new="            cause = error\n            if True:\n",
        tests=(
            "tests/embedded/test_restart.py::test_a_driver_that_is_replaced_while_it_looks_for_a_checkpoint_says_that_it_was_replaced",
        ),
    ),
    Mutant(
        name="output is committed by a driver replaced while it wrote its manifest",
        file="penstock/driver/checkpoints.py",
        old="                self._start.check()\n            case Fenced",
        new="                pass\n            case Fenced",
        tests=(_REPLACED,),
    ),
    Mutant(
        name="a driver mistakes its own late manifest for its history",
        file="penstock/driver/job_master.py",
        old="if self.store is not None and self.store.in_doubt:",
        new="if False and self.store is not None and self.store.in_doubt:",
        tests=(f"{_REPLACED}::test_a_driver_does_not_mistake_its_own_late_manifest_for_what_it_goes_on_from",),
    ),
    Mutant(
        name="a replaced driver deletes its successor's checkpoints",
        file="penstock/driver/job_master.py",
        old="            kept = self.store.discard_all(self.store.begin(self._renew(), None))\n",
        new=(
            "            later = ownership.acquire(self.storage, ownership.OwnerInfo.current())\n"
            "            kept = self.store.discard_all(self.store.begin(later, None))\n"
        ),
        tests=(f"{_REPLACED}::test_a_replaced_driver_that_is_cancelled_deletes_nothing",),
    ),
    Mutant(
        name="a plan is written over another driver's",
        file="penstock/driver/plan_log.py",
        old="        if self._storage.put_new(path, data) or (present := self._storage.get(path)) == data:\n            return\n",
        new='        self._storage.put(path, data)\n        return\n        present = b""\n',
        tests=(
            "tests/driver/test_planning.py::test_a_plan_of_a_failed_attempt_that_the_store_carries_out_late_is_not_run_again",
        ),
    ),
    Mutant(
        name="plans of a replaced driver count",
        file="penstock/checkpoint/history.py",
        old="return all(epoch <= start.planned for generation, start in starts.items() if generation > by)",
        new="return True",
        tests=(f"{_REPLACED}::test_a_replaced_driver_that_plans_on_does_not_add_to_its_successors_plans",),
    ),
    Mutant(
        name="a stop is reported before the job has ended",
        file="penstock/driver/requests.py",
        old="        if not self.request.stop:\n            self.request.answer",
        new="        if True:\n            self.request.answer",
        tests=(f"{_LAST}::test_a_stop_is_not_reported_when_the_job_goes_on_after_all",),
    ),
    Mutant(
        name="a repeated failure is not noticed",
        file="penstock/driver/failures.py",
        old="        self._in_a_row += 1\n",
        new="        pass\n",
        tests=("tests/driver/test_repeated_failures.py::test_a_job_with_a_bug_says_so_while_it_is_tried_again",),
    ),
    Mutant(
        name="output is committed before its manifest",
        file="penstock/driver/checkpoints.py",
        old='        self._reach("before-manifest", permit.epoch)\n',
        new='        self._sinks.commit(permit.epoch, permit.committables)\n        self._reach("before-manifest", permit.epoch)\n',
        tests=(_SIMULATED,),
    ),
    Mutant(
        name="output of a declined checkpoint is forgotten",
        file="penstock/protocol/checkpoints.py",
        old="        record.stage = Stage.WAITING\n        self.chains.keep",
        new="        record.stage, record.output = Stage.WAITING, {}\n        self.chains.keep",
        tests=(_SIMULATED,),
    ),
    Mutant(
        name="nothing is committed again at a restart",
        file="penstock/driver/job_master.py",
        old="        self._sinks.recover(manifest, self.epoch, self._start)\n",
        new="        pass\n",
        tests=(_SIMULATED,),
    ),
)

_EVENT_TIME: Final = (
    Mutant(
        name="a rescaled edge starts at its fastest sender",
        file="penstock/protocol/input_facts.py",
        old="slowest = min(f.watermark for f in facts)",
        new="slowest = max(f.watermark for f in facts)",
        tests=(f"{_SENDERS}::test_a_live_rescale_makes_nothing_late",),
    ),
    Mutant(
        name="what is known of a channel holds for whoever sends now",
        file="penstock/protocol/input_facts.py",
        old='return stored.get("lineage") == lineage.fingerprint',
        new="return True",
        tests=(f"{_SENDERS}::test_what_stands_between_a_rescaled_source_and_the_windows_starts_at_the_slowest_too",),
    ),
    Mutant(
        name="a restored task does not say where event time is",
        file="penstock/engine/task.py",
        old="self.announces = True",
        new="self.announces = False",
        tests=(f"{_SENDERS}::test_a_split_that_idles_and_one_that_ended_move_to_other_readers",),
    ),
    Mutant(
        name="timers of one key are dropped",
        file="penstock/state/timers.py",
        old="fire(timestamp, key, namespace)",
        new='key == "a" or fire(timestamp, key, namespace)',
        tests=("tests/embedded/test_clocks.py",),
    ),
    Mutant(
        name="a block of any number of bytes",
        file="penstock/records/codec.py",
        old="if len(payload) <= limit or len(block) <= 1:",
        new="if True:",
        tests=("tests/embedded/test_large_records.py::test_no_exchange_row_is_larger_than_a_block_may_be",),
        out_of_reach="the same records in larger rows: no answer changes",
    ),
)

_VALUES_AND_KEYS: Final = (
    Mutant(
        name="32-bit keys are routed by one number and kept under another",
        file="penstock/records/typed.py",
        old="            return _single_floats",
        new="            return _leaf(pa.float32(), float, float)",
        tests=(f"{_FLOATS}::test_keys_of_32_bits_keep_their_state_when_the_job_is_rescaled",),
    ),
    Mutant(
        name="a named tuple is copied by its constructor",
        file="penstock/common/values.py",
        old="tuple.__new__(type(value), _tuple(tuple(value)))",
        new="type(value)(*_tuple(tuple(value)))",
        tests=("tests/common/test_values.py::test_a_named_tuple_is_copied_without_its_constructor",),
    ),
    Mutant(
        name="every NaN is a key of its own",
        file="penstock/state/keys.py",
        old="    return _rebuilt(key, _normal_float)\n",
        new="    return key\n",
        tests=(f"{_FLOATS}::test_count_windows_of_nan_fire_also_inside_of_a_tuple",),
    ),
    Mutant(
        name="0.0 and -0.0 are one key",
        file="penstock/state/keys.py",
        old="if key or math.copysign(1.0, key) > 0 else _NEGATIVE_ZERO",
        new="if True else _NEGATIVE_ZERO",
        tests=(f"{_FLOATS}::test_the_normal_form_survives_pickling_and_users_see_plain_floats",),
    ),
    Mutant(
        name="the zero of an old snapshot is another key",
        file="penstock/state/keys.py",
        old="return 0.0 if key == 0.0 else key  # NEGATIVE_ZERO",
        new="return _normal_float(key)  # NEGATIVE_ZERO",
        tests=(f"{_FLOATS}::test_the_zero_of_an_old_snapshot_is_plain_zero_whichever_came_first",),
        out_of_reach="a snapshot of an earlier release: a run has only its own",
    ),
    Mutant(
        name="branches of a stream share their records",
        file="penstock/operators/wiring.py",
        old="operator.process(0, self._copy(block) if others else block)",
        new="operator.process(0, block)",
        tests=(f"{_VALUES}::test_branches_of_one_stream_do_not_see_what_the_others_do",),
    ),
    Mutant(
        name="what reduce emits is what it goes on changing",
        file="penstock/operators/keyed.py",
        old="out.append(emitted)",
        new="out.append(result)",
        tests=(f"{_VALUES}::test_a_reduce_that_changes_and_returns_its_first_argument",),
    ),
    Mutant(
        name="a value of this epoch is given out as the object that is stored",
        file="penstock/state/states.py",
        old="return None if value is TOMBSTONE else own(value)\n\n    def update(",
        new="return None if value is TOMBSTONE else value\n\n    def update(",
        tests=(f"{_VALUES}::test_state_of_every_kind_holds_values",),
    ),
    Mutant(
        name="a chain emits the object that a map goes on changing",
        file="penstock/operators/fused.py",
        old='        for line in filter(None, (f"{value} = own({value})", yes)):\n',
        new='        for line in filter(None, ("pass", yes)):\n',
        tests=(f"{_FUSED}::test_what_a_map_gives_counts_as_it_is_at_that_moment",),
    ),
    Mutant(
        name="a chain emits the object that a filter goes on changing",
        file="penstock/operators/fused.py",
        old='                    self._add(depth + 2, f"{value} = own({value})")\n',
        new='                    self._add(depth + 2, "pass")\n',
        tests=(f"{_FUSED}::test_what_a_filter_keeps_counts_as_it_is_at_that_moment",),
    ),
    Mutant(
        name="a flat map in a chain holds all that it yields",
        file="penstock/operators/fused.py",
        old="if len(out) >= limit:",
        new="if False:",
        tests=(f"{_FUSED}::test_a_flat_map_has_its_results_taken_away_while_it_still_yields",),
    ),
    Mutant(
        name="what a filter by position keeps leaves the chain as a tuple",
        file="penstock/operators/simple.py",
        old='if lean is not None and set(kinds) == {"filter"}:',
        new="if False:",
        tests=(f"{_FUSED}::test_what_a_filter_by_position_keeps_is_a_row_of_its_own",),
        out_of_reach=_ROWS_ONLY,
    ),
    Mutant(
        name="a function that hands its record on is given a tuple",
        file="penstock/operators/positions.py",
        old="                if field is None:\n                    return None\n",
        new="                if field is None:\n                    continue\n",
        tests=(
            "tests/operators/test_positions.py::test_what_is_not_surely_reading_fields_does_not_count_as_it",
            f"{_FUSED}::test_columns_give_what_rows_give",
        ),
        out_of_reach=_ROWS_ONLY,
    ),
    Mutant(
        name="an error of a process function shows the tuple that it was given",
        file="penstock/operators/keyed.py",
        old="show = partial(shown, lean, block, type_info)",
        new="show = partial(shown, None, block, type_info)",
        tests=("tests/operators/test_process_by_position.py::test_an_error_shows_the_row_that_a_tuple_stands_for",),
        out_of_reach=_ROWS_ONLY,
    ),
    Mutant(
        name="a function that reads beyond its record is given a tuple",
        file="penstock/operators/positions.py",
        old="all(-width <= position < width",
        new="all(-width <= position <= width",
        tests=(f"{_FUSED}::test_a_position_that_rows_do_not_have_is_the_error_of_a_row",),
        out_of_reach=_ROWS_ONLY,
    ),
    Mutant(
        name="a function that looks at its callers' variables is as any other",
        file="penstock/operators/positions.py",
        old="            if _looks_at_callers(known[name]):\n                return False\n",
        new="            pass\n",
        tests=("tests/operators/test_positions.py::test_what_is_not_surely_reading_fields_does_not_count_as_it",),
        out_of_reach=_ROWS_ONLY,
    ),
    Mutant(
        name="a list that a map makes is taken for what cannot be changed",
        file="penstock/operators/positions.py",
        old="    return frozenset(names) if names <= _GIVE_PLAIN",
        new="    return frozenset(names) if True",
        tests=("tests/operators/test_positions.py::test_what_may_be_changed_is_not_known_to_be_otherwise",),
        out_of_reach=_ROWS_ONLY,
    ),
    Mutant(
        name="an error shows None for the fields of its record that nobody has read",
        file="penstock/operators/lean_rows.py",
        old="if record is value), None)",
        new="if False), None)",
        tests=("tests/operators/test_lean_rows.py::test_an_error_shows_the_whole_row_and_the_users_line",),
        out_of_reach=_ROWS_ONLY,
    ),
    Mutant(
        name="routing in bulk takes True for 1 and loses what is no number",
        file="penstock/state/bulk_keys.py",
        old="if kind is None or len(set(map(type, keys))) > 1:",
        new="if kind is None:",
        tests=("tests/state/test_key_groups.py::test_key_groups_in_bulk_are_those_of_each_key_or_none",),
    ),
    Mutant(
        name="state holds objects instead of values",
        file="penstock/state/states.py",
        old="self._table.overlay[entry] = value if type(value) in ATOMS else own(value)",
        new="self._table.overlay[entry] = value",
        tests=(f"{_VALUES}::test_state_of_every_kind_holds_values",),
    ),
    Mutant(
        name="a window function may change the window",
        file="penstock/operators/window_contents.py",
        old="return list(own_all(current))",
        new="return list(current)",
        tests=(f"{_VALUES}::test_a_window_that_fires_again_has_its_elements_as_they_came",),
    ),
    Mutant(
        name="functions are captured at execution",
        file="penstock/datastream/stream_execution_environment.py",
        old='operator = captured(operator, f"operator {name!r}")',
        new="pass",
        tests=(f"{_CAPTURE}::test_functions_made_in_a_loop_keep_the_value_of_their_turn",),
    ),
    Mutant(
        name="key selectors are captured at execution",
        file="penstock/datastream/data_stream.py",
        old='captured(selectors.key_selector(key_selector, self._type, declared), "the key selector of key_by")',
        new="selectors.key_selector(key_selector, self._type, declared)",
        tests=(f"{_CAPTURE}::test_what_cannot_travel_is_refused_at_the_call_and_the_line_comes_first",),
    ),
    Mutant(
        name="results of count windows are at the end of time",
        file="penstock/operators/window.py",
        old="stamp = self._fired_at if isinstance(window, (CountWindow, GlobalWindow)) else window.max_timestamp()",
        new="stamp = window.max_timestamp()",
        tests=(f"{_STAMPS}::test_results_of_windows_without_an_end_have_the_time_of_the_record_that_fired_them",),
    ),
    Mutant(
        name="a record without a timestamp has None",
        file="penstock/operators/keyed.py",
        old="return MIN_LONG_VALUE if stamp is None else stamp",
        new="return stamp",
        tests=(f"{_STAMPS}::test_a_record_without_a_timestamp_has_the_smallest_long",),
    ),
)

_COLUMNS: Final = (
    Mutant(
        name="a late record comes without the columns that its window does not read",
        file="penstock/operators/columnar_window.py",
        old="None if late_tag is not None else self.aggregation.reads",
        new="self.aggregation.reads",
        tests=("tests/datastream/test_columns_sent.py",),
    ),
    Mutant(
        name="what a columnar window has gathered is in no snapshot",
        file="penstock/operators/columnar_window.py",
        old="    def end_epoch(self) -> None:\n        self._group()",
        new="    def end_epoch(self) -> None:\n        pass",
        tests=(_COLUMNAR_WINDOW,),
    ),
    Mutant(
        name="a columnar window fires without what it has gathered",
        file="penstock/operators/columnar_window.py",
        old="self._gathered_from))) <= timestamp:",
        new="self._gathered_from))) < timestamp:",
        tests=(_COLUMNAR_WINDOW,),
    ),
    Mutant(
        name="late firings of a columnar window leave out what it has gathered",
        file="penstock/operators/columnar_window.py",
        old="        self._group()  # what came before\n",
        new="",
        tests=(_COLUMNAR_WINDOW,),
    ),
    Mutant(
        name="sessions that touch are two",
        file="penstock/records/touching.py",
        old="begins[1:] > reach[:-1]",
        new="begins[1:] >= reach[:-1]",
        tests=(_COLUMNAR_SESSIONS,),
        out_of_reach=_ROW_SESSIONS,
    ),
    Mutant(
        name="a session ends with its last record that began",
        file="penstock/records/touching.py",
        old="reach = _running_max(until, other)",
        new="reach = until",
        tests=(_SESSIONS,),
        out_of_reach=_ROW_SESSIONS,
    ),
    Mutant(
        name="a session fires though a part of it goes on",
        file="penstock/operators/columnar_sessions.py",
        old="self._bounds([*ending, *self._blocks.open_of(keys, until)])",
        new="self._bounds(ending)",
        tests=(_COLUMNAR_SESSIONS,),
        out_of_reach=_ROW_SESSIONS,
    ),
    Mutant(
        name="a record that joins a session late ends by itself",
        file="penstock/operators/columnar_sessions.py",
        old="        if maybe_late:\n            ends = ",
        new="        if False:\n            ends = ",
        tests=(_COLUMNAR_SESSIONS,),
        out_of_reach=_ROW_SESSIONS,
    ),
    Mutant(
        name="late records join only what was there before their block",
        file="penstock/operators/columnar_sessions.py",
        old="joined = sure or (known and earliest <= end)",
        new="joined = sure",
        tests=(_COLUMNAR_SESSIONS,),
        out_of_reach=_ROW_SESSIONS,
    ),
    Mutant(
        name="sessions over columns fire without what was gathered",
        file="penstock/operators/columnar_sessions.py",
        old="if self._gathered and self._next_end() <= until:",
        new="if False:",
        tests=(_COLUMNAR_SESSIONS,),
        out_of_reach=_ROW_SESSIONS,
    ),
    Mutant(
        name="what a subtask that was ahead has fired fires again",
        file="penstock/operators/session_blocks.py",
        old="before = ended_for(name)",
        new="before = ended",
        tests=(_COLUMNAR_SESSIONS,),
        out_of_reach=_ROW_SESSIONS,
    ),
    Mutant(
        name="blocks of open sessions are never cut",
        file="penstock/operators/session_blocks.py",
        old="if 2 * entry.open_rows < entry.rows:",
        new="if False:",
        tests=(_COLUMNAR_SESSIONS,),
        out_of_reach=_ROW_SESSIONS,
    ),
    Mutant(
        name="what has fired is merged with what is open",
        file="penstock/operators/session_blocks.py",
        old="merge([self._open(self._table.peek(entry.name), ended) for entry in small])",
        new="merge([self._table.peek(entry.name) for entry in small])",
        tests=(_SESSIONS, _COLUMNAR_SESSIONS),
        out_of_reach=_ROW_SESSIONS,
    ),
    Mutant(
        name="open sessions that were gathered are in no snapshot",
        file="penstock/operators/columnar_sessions.py",
        old="    def end_epoch(self) -> None:\n        self._group()",
        new="    def end_epoch(self) -> None:\n        pass",
        tests=(_COLUMNAR_SESSIONS,),
        out_of_reach=_ROW_SESSIONS,
    ),
    Mutant(
        name="keys of sparse numbers collide",
        file="penstock/records/key_numbers.py",
        old="numbers * own_size + own, size * own_size",
        new="numbers * (own_size - 1) + own, size * own_size",
        tests=(_SESSIONS,),
        out_of_reach=_ROW_SESSIONS,
    ),
    Mutant(
        name="open sessions of older releases are forgotten",
        file="penstock/operators/columnar_sessions.py",
        old="            if rows:\n",
        new="            if False:\n",
        tests=(f"{_SPECIFICATION}::test_open_sessions_keep_what_they_have_under_aggregates_in_another_order",),
        out_of_reach=_ROW_SESSIONS,
    ),
    Mutant(
        name="who comes at the very time of the watermark and waits for nobody later is met by nobody",
        file="penstock/operators/columnar_interval_join.py",
        old="self._waits(side))] = _EDGE",
        new="self._waits(side))] = 0",
        tests=(_JOIN_PATHS,),
        out_of_reach=_NO_JOINS,
    ),
    Mutant(
        name="an interval join of columns meets records whose wait is over, as long as their pane is there",
        file="penstock/operators/columnar_interval_join.py",
        old="np.maximum(lowest, min(gone + 1, MAX_LONG_VALUE))",
        new="lowest",
        tests=(_JOIN_PATHS,),
        out_of_reach=_NO_JOINS,
    ),
    Mutant(
        name="a late record fires its window with those of its block that come after it",
        file="penstock/operators/columnar_window_join.py",
        old="np.zeros_like(number), number, most",
        new="np.zeros_like(number), np.full_like(number, len(number)), most",
        tests=(_JOIN_PATHS,),
        out_of_reach=_NO_JOINS,
    ),
    Mutant(
        name="null meets nobody in a join of columns",
        file="penstock/state/key_codes.py",
        old="alike = pc.or_(alike, ",
        new="alike = pc.or_(pc.and_(alike, False), ",
        tests=(_JOIN_PATHS,),
        out_of_reach=_NO_JOINS,
    ),
    Mutant(
        name="text that is long somewhere in a block has other numbers than where it is not",
        file="penstock/state/column_keys.py",
        old=" ^ np.uint32(0xFFFFFFFF) if _hashable(column)",
        new=" if _hashable(column)",
        tests=(_COLUMNAR_JOINS,),
        out_of_reach=_NO_JOINS,
    ),
    Mutant(
        name="a batch window behind a keyed sum never fires",
        file="penstock/operators/panes.py",
        old="return last_timestamp(self.end(window))",
        new="return window - 1",
        tests=("tests/contract/test_end_of_time.py::test_a_batch_window_behind_a_keyed_sum_loses_nothing",),
        out_of_reach="a batch job: simulated jobs are streams, and none has records at the end of time",
    ),
    Mutant(
        name="Arrow casts to the declared type",
        file="penstock/records/typed.py",
        old="        if kinds == only and surely(values):\n            return values\n        check_fits(values, kind)",
        new="        values = pa.array(values, kind).to_pylist()",
        tests=("tests/contract/test_declared_types.py::test_a_value_of_another_type_fails_the_job",),
    ),
    Mutant(
        name="declared types are not checked inside of a chain",
        file="penstock/operators/wiring.py",
        old="        if self._typed is not None:",
        new="        if self._typed is not None and self.routers:",
        tests=("tests/contract/test_declared_types.py::test_a_value_of_another_type_fails_the_job",),
    ),
    Mutant(
        name="sums wrap",
        file="penstock/records/exact_sums.py",
        old="        if largest * len(column) < 2**63:",
        new="        if True:",
        tests=(f"{_ONE_ANSWER}::test_an_aggregate_has_one_answer",),
    ),
    Mutant(
        name="decimals are rounded over rows",
        file="penstock/records/exact_sums.py",
        old="        return _EXACT.add(a, b)\n    if",
        new="        return a + b\n    if",
        tests=(f"{_ONE_ANSWER}::test_an_aggregate_has_one_answer",),
    ),
    Mutant(
        name="NaN is many keys over columns",
        file="penstock/operators/aggregation.py",
        old="one_nan(plain(column_of(batch, name, where)))",
        new="plain(column_of(batch, name, where))",
        tests=(f"{_ONE_ANSWER}::test_a_key_is_the_same_over_columns_and_over_rows",),
    ),
    Mutant(
        name="an expression's type depends on its block",
        file="penstock/operators/column_operators.py",
        old="return kind if kind in _SIMPLE else (kind, position)",
        new="return 0",
        tests=(f"{_ONE_ANSWER}::test_integers_are_divided_as_integers_and_floats_as_floats",),
    ),
    Mutant(
        name="durations cannot be summed over columns",
        file="penstock/records/exact_sums.py",
        old="    return kind if _t.is_duration(kind) else None",
        new="    return None",
        tests=(f"{_ONE_ANSWER}::test_an_aggregate_has_one_answer",),
    ),
    Mutant(
        name="the repeated hour is one hour",
        file="penstock/state/keys.py",
        old="return key if other.utcoffset() == key.utcoffset() else key.astimezone(datetime.UTC)",
        new="return key",
        tests=(f"{_ONE_ANSWER}::test_a_key_is_the_same_over_columns_and_over_rows",),
    ),
)

_SINKS_AND_SPARK: Final = (
    Mutant(
        name="SparkSink reads staged files of an epoch that is written",
        file="penstock/spark/sink.py",
        old="if is_done(self.storage, staged, sink_id=self.sink_id):",
        new="if False:",
        tests=(
            "tests/spark/test_spark_sink.py::test_a_commit_that_was_done_is_recognised_when_its_staged_files_are_gone",
        ),
        out_of_reach=_SPARK,
    ),
    Mutant(
        name="the log of a file source stays behind",
        file="penstock/runtime/epochs/spark_log.py",
        old="lines=progress.lines, files=dict(files))",
        new="lines=progress.lines, location=str(self.location))",
        tests=("tests/spark/test_spark_log.py::test_a_checkpoint_holds_a_sources_log_from_its_last_compaction_on",),
        out_of_reach=_SPARK,
    ),
    Mutant(
        name="Spark commits a batch that no checkpoint covers",
        file="penstock/runtime/epochs/job.py",
        old="held = next((source.forgets for source in bringing if source.forgets is not None), None)",
        new="held = None",
        tests=(
            "tests/spark/test_from_spark.py::test_a_source_that_forgets_what_is_committed_is_told_only_what_a_checkpoint_covers",
        ),
        out_of_reach=_SPARK,
    ),
    Mutant(
        name="an epoch that hangs ends all jobs of the session",
        file="penstock/runtime/epochs/job.py",
        old="cancelJobGroup(self._query.runId)",
        new="cancelAllJobs()",
        tests=(
            "tests/spark/test_bad_input.py::test_an_epoch_that_hangs_is_given_up_and_replayed_and_no_other_job_of_the_session_notices",
        ),
        out_of_reach=_SPARK,
    ),
    Mutant(
        name="sinks commit before all have taken over",
        file="penstock/driver/sink_commits.py",
        old="                committer.take_over()",
        new="                pass",
        tests=("tests/driver/test_sink_commits.py::test_all_sinks_take_over_before_the_first_of_them_commits",),
    ),
    Mutant(
        name="what a dead process left is never swept",
        file="penstock/state/local_folder.py",
        old="                _sweep(self._parent)\n",
        new="",
        tests=(
            "tests/state/test_local_folder.py::test_only_what_is_certainly_left_by_a_dead_process_of_ours_is_removed",
        ),
        out_of_reach="a process that is really dead: a simulated one dies inside of one that lives",
    ),
)

_STATE: Final = (
    Mutant(
        name="a RocksDB scan does not ask whether it came to its end",
        file="penstock/state/rocksdb.py",
        old="            cursor.status()",
        new="            pass",
        tests=("tests/embedded/test_damaged_working_state.py", "tests/state/test_damaged_rocksdb.py"),
        out_of_reach="damaged files of RocksDB: simulated state is too small to leave its memory",
    ),
    Mutant(
        name="rows read ahead outlive the epoch",
        file="penstock/state/rocksdb.py",
        old="        cache, self._ahead = self._cache, {}\n",
        new="        cache = self._cache\n",
        tests=("tests/state/test_block_reads.py",),
        out_of_reach="RocksDB: one seed in sixty has it, and blocks of a few records",
    ),
    Mutant(
        name="a restore by columns keeps what was deleted",
        file="penstock/state/rocksdb.py",
        old="                    if away:\n",
        new="                    if False:\n",
        tests=(f"{_STATE_COLUMNS}::test_entries_in_whatever_order_keep_their_values_and_deletions_count",),
        out_of_reach="columns of a restore: one seed in sixty has RocksDB, and its chains seldom delete",
    ),
    Mutant(
        name="a file that a restore has written is not the database's",
        file="penstock/state/rocksdb.py",
        old="                file.ingest()",
        new="                pass",
        tests=(f"{_STATE_COLUMNS}::test_what_a_restore_writes_in_files_is_one_database_afterwards",),
        out_of_reach="files of a restore: simulated state is too small for one",
    ),
    Mutant(
        name="rows of a restore are not sorted with their keys",
        file="penstock/state/rocksdb.py",
        old="            keys, rows = keys.take(order), rows.take(order)",
        new="            keys = keys.take(order)",
        tests=(f"{_STATE_COLUMNS}::test_entries_in_whatever_order_keep_their_values_and_deletions_count",),
        out_of_reach="files of a restore: simulated state is too small for one",
    ),
    Mutant(
        name="a chain's files are loaded as they come",
        file="penstock/checkpoint/restore.py",
        old="first, data = coming.popleft()\n                    yield",
        new="first, data = coming.pop()\n                    yield",
        tests=("tests/checkpoint/test_read_ahead.py",),
        out_of_reach="threads that fetch: a simulated host has none",
    ),
    Mutant(
        name="an error crosses processes without its class",
        file="penstock/errors.py",
        old='return _CROSSING.get(text["type"], PenstockError)(text["message"])',
        new='return PenstockError(text["message"])',
        tests=(f"{_CROSSING}::test_a_damaged_state_file_is_a_corrupt_snapshot_to_relay_and_driver",),
        out_of_reach="errors between processes: the simulator has one",
    ),
    Mutant(
        name="a damaged checkpoint is tried again for ever",
        file="penstock/driver/failures.py",
        old="return not settings.fall_back_to_older",
        new="return False",
        tests=(f"{_CROSSING}::test_a_job_over_a_damaged_checkpoint_ends_at_once_with_its_own_error",),
    ),
    Mutant(
        name="a slot without open files is taken for a lost connection",
        file="penstock/runtime/epochs/slot.py",
        old="except _RelayGoneError:\n            raise",
        new="except (_RelayGoneError, OSError):\n            raise",
        tests=(f"{_CROSSING}::test_a_slot_that_has_no_more_files_says_so_and_is_not_taken_for_a_lost_connection",),
        out_of_reach=_SOCKETS_ONLY,
    ),
    Mutant(
        name="state of another specification is taken as it is",
        file="penstock/state/specification.py",
        old="    if not differences:\n        return",
        new="    if differences is not None:\n        return",
        tests=(f"{_SPECIFICATION}::test_another_program_under_the_same_uid_is_refused_with_what_differs",),
    ),
    Mutant(
        name="reordered aggregates are taken by place, over columns",
        file="penstock/operators/aggregation.py",
        old="len(self.keys) + before.index(partial) for partial in self.partials]",
        new="len(self.keys) + place for place, _ in enumerate(self.partials)]",
        tests=(f"{_SPECIFICATION}::test_reordered_aggregates_keep_their_own_values",),
    ),
    Mutant(
        name="reordered aggregates are taken by place, over rows",
        file="penstock/operators/window.py",
        old="(before.partials or ()).index(partial) for partial in self.contents.partials or ()]",
        new="place for place, _ in enumerate(self.contents.partials or ())]",
        tests=(f"{_SPECIFICATION}::test_reordered_aggregates_keep_their_own_values",),
    ),
    Mutant(
        name="an interval join goes on with wider bounds",
        file="penstock/state/specification.py",
        old="if lower < before.reach[0] or before.reach[1] < upper:",
        new="if False:",
        tests=(f"{_SPECIFICATION}::test_an_interval_join_may_become_narrower_and_not_wider",),
    ),
    Mutant(
        name="a write to a full disk counts",
        file="penstock/checkpoint/local_storage.py",
        old="        except BaseException:\n            _unlink_quietly(temporary)\n            raise\n        return temporary",
        new="        except OSError:\n            pass\n        return temporary",
        tests=("tests/checkpoint/test_storage.py", "tests/embedded/test_full_disk.py"),
    ),
    Mutant(
        name="checkpoints are readable for everybody",
        file="penstock/checkpoint/local_storage.py",
        old="self._rights & 0o666",
        new="0o644",
        tests=("tests/checkpoint/test_private_files.py",),
    ),
)

_HOSTS: Final = (
    Mutant(
        name="an unreachable slot may not be replaced",
        file="penstock/runtime/epochs/registry.py",
        old="return lease is not None and lease.instead_of == served.address",
        new="return False",
        tests=(f"{_REGISTRY}::test_who_found_a_slot_unreachable_may_replace_it_and_nobody_else",),
        out_of_reach=_SLOTS,
    ),
    Mutant(
        name="slots are compared by pid alone",
        file="penstock/runtime/epochs/registry.py",
        old="if known is not None and known.address != wanted.unreachable:",
        new="if known is not None and known.address.pid != getattr(wanted.unreachable, 'pid', None):",
        tests=(f"{_REGISTRY}::test_equal_pids_on_two_hosts_are_two_slots",),
        out_of_reach=_SLOTS,
    ),
    Mutant(
        name="an error of an earlier attempt fails the later one",
        file="penstock/runtime/epochs/registry.py",
        old="current = self._running == (failure.job_attempt, failure.epoch)",
        new="current = self._running is not None and self._running[1] == failure.epoch",
        tests=(f"{_ATTEMPTS}::test_an_error_of_an_earlier_attempt_does_not_fail_the_later_one",),
        out_of_reach=_SLOTS,
    ),
    Mutant(
        name="an acknowledgement of an earlier attempt counts",
        file="penstock/protocol/checkpoints.py",
        old="        if ack.job_attempt != self._job_attempt:\n",
        new="        if False:\n",
        tests=(f"{_ATTEMPTS}::test_an_acknowledgement_of_an_earlier_attempt_is_not_counted",),
    ),
    Mutant(
        name="a slot takes a relay of an earlier attempt",
        file="penstock/runtime/epochs/slot.py",
        old="if plan.fence < self._newest:",
        new="if False:",
        tests=(f"{_ATTEMPTS}::test_a_slot_refuses_a_relay_of_an_earlier_attempt_and_goes_on_with_the_later_one",),
        out_of_reach=_SLOTS,
    ),
    Mutant(
        name="silent slots are kept at a restart",
        file="penstock/runtime/epochs/registry.py",
        old="        self._drop(silent)\n",
        new="",
        tests=(f"{_REGISTRY}::test_before_a_restart_slots_that_do_not_answer_are_dropped",),
        out_of_reach=_SLOTS,
    ),
    Mutant(
        name="crowded slots stay where they are",
        file="penstock/runtime/epochs/registry.py",
        old="        if crowded:",
        new="        if False:",
        tests=(f"{_REGISTRY}::test_crowded_slots_are_spread_again_before_a_restart",),
        out_of_reach=_SLOTS,
    ),
    Mutant(
        name="a slot is waited for longer than the epoch may take",
        file="penstock/runtime/epochs/registry.py",
        old="self._start_timeout_s = min(START_TIMEOUT_S, epoch_timeout_s)",
        new="self._start_timeout_s = START_TIMEOUT_S",
        tests=(f"{_REGISTRY}::test_nobody_waits_for_a_slot_longer_than_the_epoch_may_take",),
        out_of_reach=_SLOTS,
    ),
    Mutant(
        name="connections are not watched",
        file="penstock/runtime/connection/liveness.py",
        old="    if sock.family not in (socket.AF_INET, socket.AF_INET6):",
        new="    if True:",
        tests=("tests/runtime/test_liveness.py",),
        out_of_reach=_SOCKETS_ONLY,
    ),
    Mutant(
        name="a replaced driver blames its files",
        file="penstock/runtime/embedded/job.py",
        old="error = self.master.cause_of(error)",
        new="pass",
        tests=(
            "tests/embedded/test_restart.py::test_a_replaced_driver_that_misses_a_checkpoint_says_that_it_was_replaced",
        ),
    ),
)

_WAYS_IN: Final = (
    Mutant(
        name="a reset looks like the end of the stream",
        file="penstock/connectors/push/receiver.py",
        old="            except TimeoutError as error:\n",
        new='            except ConnectionResetError:\n                chunk = b""\n            except TimeoutError as error:\n',
        tests=(f"{_SOCKETS}::test_a_reset_in_the_middle_of_a_record_is_an_error_and_no_record",),
        out_of_reach=_SOCKETS_ONLY,
    ),
    Mutant(
        name="a server need not prove that it knows the token",
        file="penstock/runtime/connection/handshake.py",
        old="    if not proves(proven, token, Side.SERVER, *facts):",
        new="    if False:",
        tests=(f"{_STRANGERS}::test_a_listener_on_a_freed_port_gets_no_token_and_nothing_it_says_is_unpickled",),
        out_of_reach=_SOCKETS_ONLY,
    ),
    Mutant(
        name="a proof does not say whose it is",
        file="penstock/common/secrets.py",
        old='(b"penstock 2", side.value, *facts)',
        new='(b"penstock 2", *facts)',
        tests=(f"{_STRANGERS}::test_a_client_that_sends_the_servers_own_proof_back_is_not_let_in",),
        out_of_reach=_SOCKETS_ONLY,
    ),
    Mutant(
        name="a proof holds for any port",
        file="penstock/runtime/connection/handshake.py",
        old='    return struct.pack(">H", port)',
        new='    return b""',
        tests=(f"{_STRANGERS}::test_a_listener_that_passes_everything_on_to_the_real_one_is_found_out",),
        out_of_reach=_SOCKETS_ONLY,
    ),
    Mutant(
        name="a stranger at a slot's address fails the job",
        file="penstock/runtime/epochs/client.py",
        old="                except (OSError, StrangerError)",
        new="                except OSError",
        tests=(f"{_STRANGERS}::test_a_stranger_at_a_slots_address_is_a_slot_that_is_gone",),
        out_of_reach=_SOCKETS_ONLY,
    ),
    Mutant(
        name="a chain keeps the state of operators that have left it",
        file="penstock/driver/checkpoints.py",
        old="        and state.operators == tuple(node.operator_id for node in vertex.nodes)\n",
        new="",
        tests=("tests/embedded/test_operator_state.py::test_what_moves_to_another_task_and_back_is_not_found_in_both",),
    ),
    Mutant(
        name="a relay that cannot send does not listen",
        file="penstock/runtime/epochs/client.py",
        old="        except OSError:\n            return False",
        new="        except OSError:\n            self._wire.close()\n            return False",
        tests=(
            "tests/runtime/test_errors_cross.py::test_a_slot_that_refuses_says_why_to_a_relay_that_is_still_sending",
        ),
        out_of_reach=_SOCKETS_ONLY,
    ),
    Mutant(
        name="any number of silent connections",
        file="penstock/runtime/connection/door.py",
        old="            while len(self._waiting) >= MOST_WAITING:",
        new="            while False:",
        tests=(f"{_STRANGERS}::test_two_hundred_silent_connections_are_few_threads_and_do_not_keep_others_out",),
        out_of_reach=_SOCKETS_ONLY,
    ),
    Mutant(
        name="a stranger may take all the time it likes",
        file="penstock/runtime/connection/door.py",
        old="Wire.accept(sock, self._token, PATIENCE_S)",
        new="Wire.accept(sock, self._token, 1e6)",
        tests=(f"{_STRANGERS}::test_a_stranger_that_trickles_is_turned_away_in_time",),
        out_of_reach=_SOCKETS_ONLY,
    ),
    Mutant(
        name="REST without a token",
        file="penstock/service/rest/guard.py",
        old="            if expected is None:\n",
        new="            if False:\n",
        tests=("tests/service/test_rest.py::test_without_the_token_only_the_page_is_open",),
        out_of_reach="REST: the simulator asks the driver itself",
    ),
    Mutant(
        name="a request can be repeated by who overheard it",
        file="penstock/driver/control/challenge.py",
        old="now - made > _GOOD_FOR_S or mine in self._used",
        new="now - made > _GOOD_FOR_S",
        tests=(f"{_CHALLENGE}::test_an_impostor_that_passes_requests_on_can_neither_change_nor_repeat_them",),
        out_of_reach=_SOCKETS_ONLY,
    ),
    Mutant(
        name="a command talks to a server that proved nothing",
        file="penstock/driver/control/challenge.py",
        old="    return theirs if known else None",
        new="    return theirs",
        tests=(f"{_CHALLENGE}::test_an_impostor_hears_neither_token_nor_request",),
        out_of_reach=_SOCKETS_ONLY,
    ),
    Mutant(
        name="secrets inside values are shown",
        file="penstock/common/secrets.py",
        old="            text = pattern.sub(shown, text)",
        new="            pass",
        tests=("tests/service/test_hidden_secrets.py",),
        out_of_reach="what is shown to people: no run looks at it",
    ),
)

_STREAMS: Final = (
    Mutant(
        name="a barrier is delivered before its plan",
        file="penstock/engine/stream_run.py",
        old="        if plan is None or any(\n",
        new="        if plan is not None and any(\n",
        tests=(f"{_STREAM}::test_a_barrier_waits_for_the_drivers_word_of_it",),
    ),
    Mutant(
        name="a tail does not wait for what its head has taken",
        file="penstock/engine/stream_run.py",
        old="            (name, barrier.epoch) not in self._taken for name in flow.tails if name not in flow.short\n",
        new="            (name, barrier.epoch) not in self._taken for name in flow.tails if name in flow.short\n",
        tests=(f"{_STREAM}::test_a_tail_keeps_at_its_barrier_what_its_head_had_not_taken",),
    ),
    Mutant(
        name="a tail forgets one block too many",
        file="penstock/operators/iteration.py",
        old="        del self._kept[: taken - self._forgotten]\n",
        new="        del self._kept[: taken - self._forgotten + 1]\n",
        tests=(f"{_STREAM}::test_a_tail_keeps_at_its_barrier_what_its_head_had_not_taken",),
    ),
    Mutant(
        name="a tail keeps one block that its head had",
        file="penstock/operators/iteration.py",
        old="        del self._kept[: taken - self._forgotten]\n",
        new="        del self._kept[: max(0, taken - self._forgotten - 1)]\n",
        tests=(f"{_STREAM}::test_a_tail_keeps_at_its_barrier_what_its_head_had_not_taken",),
    ),
    Mutant(
        name="a tail counts from the last barrier what its head counts from the start",
        file="penstock/operators/iteration.py",
        old="        self._forgotten = taken\n",
        new="",
        tests=(f"{_STREAM}::test_a_tail_keeps_at_its_barrier_what_its_head_had_not_taken",),
    ),
    Mutant(
        name="what a checkpoint has on the way back stays with the tail",
        file="penstock/engine/stream_run.py",
        old="        for kept in tail.kept:\n            send_back(kept)\n",
        new="",
        tests=(f"{_STREAM}::test_a_restored_tail_first_sends_back_what_its_checkpoint_has",),
    ),
    Mutant(
        name="a grant is read twice",
        file="penstock/engine/stream_run.py",
        old="                flow.work.append(_Work(part, None))\n",
        new="                flow.work.append(_Work(part, None))\n                flow.work.append(_Work(part, None))\n",
        tests=(f"{_STREAM}::test_a_source_reads_each_grant_once_and_sends_the_barrier_behind_all_of_them",),
    ),
    Mutant(
        name="a barrier overtakes what its source was granted",
        file="penstock/engine/stream_run.py",
        old="                flow.work.append(_Work(plan.sources[",
        new="                flow.work.appendleft(_Work(plan.sources[",
        tests=(f"{_STREAM}::test_a_source_reads_each_grant_once_and_sends_the_barrier_behind_all_of_them",),
    ),
    Mutant(
        name="the last unaligned barrier overtakes records",
        file="penstock/engine/stream_run.py",
        old="        if not self._unaligned or not (plan.last or plan.savepoint is not None or flow.pointwise):\n",
        new="        if not self._unaligned or not (plan.savepoint is not None or flow.pointwise):\n",
        tests=(f"{_STREAM}::test_unaligned_a_barrier_overtakes_records_but_the_last_one_does_not",),
    ),
    Mutant(
        name="an unaligned barrier overtakes records from one subtask only",
        file="penstock/engine/stream_run.py",
        old="(plan.last or plan.savepoint is not None or flow.pointwise):\n",
        new="(plan.last or plan.savepoint is not None):\n",
        tests=(f"{_UNALIGNED}::test_what_was_on_the_way_is_neither_lost_nor_taken_twice[forward]",),
        out_of_reach="order is lost only where many records of a key are on their way and their split moves: too rare in a run",
    ),
    Mutant(
        name="what was on the way is taken when its channel has its turn",
        file="penstock/engine/stream_run.py",
        old="        flow = _Flow(held, inputs, epoch, deque(held.on_the_way), pointwise)\n",
        new=(
            "        for channel, event in held.on_the_way:\n            inputs[channel].append(event)\n"
            "        flow = _Flow(held, inputs, epoch, deque(), pointwise)\n"
        ),
        tests=(f"{_UNALIGNED}::test_what_was_on_the_way_is_neither_lost_nor_taken_twice",),
        out_of_reach="order is lost only where many records of a key are on their way and their split moves: too rare in a run",
    ),
    Mutant(
        name="a barrier that takes no checkpoint holds records back",
        file="penstock/protocol/gate.py",
        old="        if not event.checkpoint:\n            return out\n",
        new="",
        tests=(f"{_STREAM}::test_no_record_waits_for_a_barrier_that_takes_no_checkpoint",),
        out_of_reach="it is late, not wrong: no run waits for so long",
    ),
    Mutant(
        name="an aborted barrier is waited for",
        file="penstock/protocol/gate.py",
        old="        self._missing.pop(epoch, None)\n        if self._aligning != epoch:\n            return []\n",
        new="        if self._aligning != epoch or self._missing:\n            return []\n",
        tests=(f"{_ABORTED}::test_records_that_an_aborted_barrier_has_held_back_go_on_at_once",),
    ),
    Mutant(
        name="a barrier of an aborted checkpoint comes in after all",
        file="penstock/engine/stream_run.py",
        old="        if isinstance(event, Barrier) and event.epoch in self._aborted:\n            return\n",
        new="",
        tests=(f"{_ABORTED}::test_the_next_checkpoint_does_not_need_the_aborted_ones_barrier",),
    ),
    Mutant(
        name="an epoch whose checkpoint was aborted does not end",
        file="penstock/engine/stream_run.py",
        old="        while flow.epoch in self._aborted:\n",
        new="        while False:\n",
        tests=(f"{_ABORTED}::test_a_task_that_has_not_come_to_the_epoch_skips_it_when_it_does",),
    ),
    Mutant(
        name="the output of an epoch whose checkpoint was aborted is dropped",
        file="penstock/engine/task.py",
        old="            committables=committables,\n            complete=True,\n            skipped=True,\n",
        new="            committables={},\n            complete=True,\n            skipped=True,\n",
        tests=(f"{_ABORTED}::test_what_a_sink_has_staged_goes_along_with_an_epoch_that_is_skipped",),
    ),
    Mutant(
        name="a large event comes out of the file in another order",
        file="penstock/engine/stream_run.py",
        old="            waiting.extendleft(reversed(rest))\n",
        new="            waiting.extend(rest)\n",
        tests=(f"{_SPILL}::test_a_large_block_comes_out_of_the_file_in_its_place",),
        out_of_reach="its blocks are small",
    ),
    Mutant(
        name="the file is emptied while something in it is waited for",
        file="penstock/engine/spill.py",
        old="        if not self._waiting:\n",
        new="        if True:\n",
        tests=(f"{_SPILL}::test_several_barriers_may_be_under_way_and_the_file_is_emptied",),
    ),
    Mutant(
        name="a local copy is believed unseen",
        file="penstock/checkpoint/local_copies.py",
        old="            handle.verify(data)\n",
        new="",
        tests=(_LOCAL,),
        out_of_reach="the simulator has no local copies",
    ),
    Mutant(
        name="records on the way go to every new subtask",
        file="penstock/operators/wiring.py",
        old="        if target == subtask:\n            assert isinstance(event, Data)\n",
        new="        if True:\n            assert isinstance(event, Data)\n",
        tests=(f"{_UNALIGNED}::test_what_was_on_the_way_is_neither_lost_nor_taken_twice[key_by]",),
    ),
    Mutant(
        name="an epoch adds to the list that a checkpoint has",
        file="penstock/state/list_table.py",
        old="            tail = tail.copy()\n",
        new="",
        tests=(_LISTS,),
    ),
    Mutant(
        name="a full piece of a list is numbered as the one before it",
        file="penstock/state/list_table.py",
        old="            self.overlay[(key, _TAIL)] = (pieces + 1, [])\n",
        new="            self.overlay[(key, _TAIL)] = (max(1, pieces), [])\n",
        tests=(_LISTS,),
        out_of_reach="its lists are short",
    ),
    Mutant(
        name="pieces of a list that is deleted stay",
        file="penstock/state/list_table.py",
        old="            super().delete((key, piece))\n",
        new="            pass\n",
        tests=(_LISTS,),
        out_of_reach="its lists are short",
    ),
    Mutant(
        name="time goes on behind the last barrier",
        file="penstock/engine/stream_run.py",
        old="        flow.resting = self._plans[epoch].last\n",
        new="        flow.resting = False\n",
        tests=(f"{_STREAM}::test_behind_the_last_barrier_no_watermark_comes_until_the_job_goes_on",),
        out_of_reach="an attempt that is over is not looked at any more: what comes behind the last barrier goes nowhere",
    ),
    Mutant(
        name="a split that waits to be read falls idle",
        file="penstock/operators/source.py",
        old="        at_work, self._at_work = self._at_work | self._unread, set()\n",
        new="        at_work, self._at_work = self._at_work, set()\n",
        tests=(f"{_STREAM}::test_a_split_whose_records_wait_behind_those_of_another_does_not_become_idle",),
        out_of_reach="where splits may be idle records may be late: the oracle does not say which",
    ),
    Mutant(
        name="records that come back to a host which has not come yet are dropped",
        file="penstock/runtime/pipelined/hosts.py",
        old="                self._early.setdefault(host, []).append(message)\n",
        new="                pass\n",
        tests=(
            "tests/pipelined/test_hosts.py::test_records_for_a_host_that_has_not_come_yet_are_the_first_it_hears_after_its_start",
        ),
        out_of_reach=_SOCKETS_ONLY,
    ),
)

_PIPELINED: Final = (
    Mutant(
        name="pipelined, what passes through a host waits until that has something to send",
        file="penstock/runtime/pipelined/host_loop.py",
        old="                self._passing = True\n",
        new="",
        tests=("tests/pipelined/test_host_loop.py",),
        out_of_reach=_SPARK,
    ),
    Mutant(
        name="pipelined, exactly-once barriers do not wait for each other",
        file="penstock/runtime/pipelined/job.py",
        old="        mode = BarrierMode.EXACTLY_ONCE\n",
        new="        mode = BarrierMode.AT_LEAST_ONCE\n",
        tests=(f"{_BARRIERS}::test_an_aligned_barrier_holds_the_records_behind_it_back",),
        out_of_reach=_SPARK,
    ),
    Mutant(
        name="pipelined, at-least-once barriers wait for each other",
        file="penstock/runtime/pipelined/job.py",
        old="            mode = BarrierMode.AT_LEAST_ONCE\n",
        new="            mode = BarrierMode.EXACTLY_ONCE\n",
        tests=(f"{_BARRIERS}::test_at_least_once_counts_what_came_behind_the_early_barrier_twice",),
        out_of_reach=_SPARK,
    ),
    Mutant(
        name="pipelined, unaligned barriers wait for each other",
        file="penstock/runtime/pipelined/job.py",
        old="            mode = BarrierMode.UNALIGNED\n",
        new="            mode = BarrierMode.EXACTLY_ONCE\n",
        tests=(
            f"{_BARRIERS}::test_under_back_pressure_an_unaligned_barrier_overtakes_what_waits_for_the_slow_operator",
        ),
        out_of_reach=_SPARK,
    ),
    Mutant(
        name="pipelined, an unaligned checkpoint forgets what its barriers overtook",
        file="penstock/engine/stream_run.py",
        old="            self.host.overtake(flow.held, channel, barrier, overtaken)\n",
        new="            self.host.overtake(flow.held, channel, barrier, [])\n",
        tests=(f"{_BARRIERS}::test_an_unaligned_barrier_holds_nothing_back_and_counts_everything_once",),
    ),
    Mutant(
        name="pipelined, a split that is ahead hears of the others with a barrier only",
        file="penstock/driver/job_master.py",
        old="        self._sources.splits_read(operator_id, subtask, splits)\n",
        new="        pass\n",
        tests=("tests/pipelined/test_watermarks.py::test_a_split_that_is_ahead_of_its_group_waits_for_the_others",),
        out_of_reach=_SPARK,
    ),
    Mutant(
        name="pipelined, one checkpoint is in flight whatever is allowed",
        file="penstock/runtime/pipelined/job.py",
        old="len(self._checkpoints) >= self._settings.max_concurrent_checkpoints:\n",
        new="len(self._checkpoints) >= 1:\n",
        tests=(f"{_PIPELINED_CHECKPOINTS}::test_as_many_checkpoints_are_in_flight_as_are_allowed",),
        out_of_reach=_SPARK,
    ),
    Mutant(
        name="no pause between two checkpoints",
        file="penstock/protocol/checkpoints.py",
        old=" and (pause >= rules.min_pause_ms or pause < 0)\n",
        new="\n",
        tests=(f"{_PIPELINED_CHECKPOINTS}::test_between_two_checkpoints_there_is_the_pause_that_was_asked_for",),
        out_of_reach="when a checkpoint is taken changes no answer",
    ),
    Mutant(
        name="pipelined, functions do not hear of completed checkpoints",
        file="penstock/runtime/pipelined/job.py",
        old="            self._hosts.tell(CheckpointsSettled(completed=completed, oldest=oldest))\n",
        new="            pass\n",
        tests=(
            f"{_PIPELINED_CHECKPOINTS}::test_functions_of_every_level_and_subtask_hear_of_every_completed_checkpoint_in_order",
        ),
        out_of_reach=_SPARK,
    ),
)

_KEYED_COLUMNS: Final = (
    Mutant(
        name="a key has another hash where another key of the block is null",
        file="penstock/records/key_index.py",
        old="np.where(nulls != 0, _mixed(hashes, nulls.view(np.uint64) * np.uint64(_NULL)), hashes)",
        new="_mixed(hashes, nulls.view(np.uint64) * np.uint64(_NULL))",
        tests=(_KEY_INDEX,),
        out_of_reach=_NOT_SIMULATED,
    ),
    Mutant(
        name="keys with one hash are one key",
        file="penstock/records/key_index.py",
        old="            equal &= held.equal(numbers, text)\n",
        new="            pass\n",
        tests=(_KEY_INDEX,),
        out_of_reach=_NOT_SIMULATED,
    ),
    Mutant(
        name="of a key with several rows the oldest counts after a restore",
        file="penstock/state/keyed_rows.py",
        old="key=lambda entry: (entry[0][1], entry[0])):",
        new="key=lambda entry: (-entry[0][1], entry[0])):",
        tests=(_KEYED_ROWS,),
        out_of_reach=_NOT_SIMULATED,
    ),
    Mutant(
        name="blocks that become one keep their dead rows",
        file="penstock/state/keyed_rows.py",
        old="parts.append(block.rows.filter(pa.array(living[at])) if block.dead else block.rows)\n"
        "                cells.append(block.cells[living[at]])",
        new="parts.append(block.rows)\n                cells.append(block.cells)",
        tests=(_KEYED_ROWS,),
        out_of_reach=_NOT_SIMULATED,
    ),
    Mutant(
        name="a watermark overtakes records that are gathered",
        file="penstock/operators/gathering.py",
        old="    def on_watermark(self, timestamp: int) -> None:\n        self.work_off()\n",
        new="    def on_watermark(self, timestamp: int) -> None:\n",
        tests=("tests/operators/test_running_aggregation.py",),
        out_of_reach=_NOT_SIMULATED,
    ),
    Mutant(
        name="a flush leaves what operators have gathered",
        file="penstock/engine/task.py",
        old="        for operator in self._gathering:\n            operator.flush()\n",
        new="",
        tests=("tests/engine/test_gathering.py",),
        out_of_reach=_NOT_SIMULATED,
    ),
    Mutant(
        name="of equal records the last is the first",
        file="penstock/operators/keyed_choice.py",
        old="            candidates = candidates[::-1]\n",
        new="            pass\n",
        tests=("tests/operators/test_keyed_choice.py",),
        out_of_reach=_NOT_SIMULATED,
    ),
    Mutant(
        name="a record that moves down a rank is not given again",
        file="penstock/operators/top.py",
        old="moved = np.flatnonzero(rank >= changed[at // self.number])",
        new="moved = np.arange(len(places))",
        tests=("tests/operators/test_top.py",),
        out_of_reach=_NOT_SIMULATED,
    ),
)

_TIMED: Final = (
    Mutant(
        name="late records of columns are not counted",
        file="penstock/operators/timed_columns.py",
        old="        ctx.metrics.late_dropped += number\n",
        new="        pass\n",
        tests=("tests/operators/test_columnar_window.py", "tests/operators/test_columnar_joins.py"),
        out_of_reach="windows and joins of columns: simulated jobs have none",
    ),
    Mutant(
        name="a result of a window of columns has the time at which the window is over",
        file="penstock/operators/timed_columns.py",
        old="ends - 1, MAX_WATERMARK",
        new="ends, MAX_WATERMARK",
        tests=("tests/operators/test_columnar_window.py", "tests/operators/test_columnar_sessions.py"),
        out_of_reach="windows of columns: simulated jobs have none",
    ),
)

_CALCULATED = "tests/operators/test_calculations.py"
_OBJECTS: Final = "calculations over columns: the records of simulated jobs are objects"
_CALCULATIONS: Final = (
    Mutant(
        name="whole numbers are calculated with though 64 bits may not hold the result",
        file="penstock/operators/calculation_signs.py",
        old="    if bounds[0] < -_LARGEST or bounds[1] > _LARGEST:\n",
        new="    if False:\n",
        tests=(_CALCULATED,),
        out_of_reach=_OBJECTS,
    ),
    Mutant(
        name="large whole numbers are compared with floats as floats",
        file="penstock/operators/calculation_signs.py",
        old="        return Bools(compare(*_floats(left, right, exact=True)))",
        new="        return Bools(compare(*_floats(left, right, exact=False)))",
        tests=(_CALCULATED,),
        out_of_reach=_OBJECTS,
    ),
    Mutant(
        name="a division of floats by zero is calculated",
        file="penstock/operators/calculation_signs.py",
        old="    if not np.all(other):\n",
        new="    if False:\n",
        tests=(_CALCULATED,),
        out_of_reach=_OBJECTS,
    ),
    Mutant(
        name="what a filter has kept has the timestamps of the first records",
        file="penstock/operators/calculations.py",
        old="block.timestamps[chosen]",
        new="block.timestamps[: len(chosen)]",
        tests=(_CALCULATED,),
        out_of_reach=_OBJECTS,
    ),
    Mutant(
        name="positions of a source are taken for records of a grant",
        file="penstock/runtime/pipelined/grants.py",
        old="    if part.records is not None:\n        return part.records\n",
        new="",
        tests=("tests/pipelined/test_grants.py",),
        out_of_reach="grants of Spark's runtime: the simulator deals ranges by itself",
    ),
)


MUTANTS: Final[tuple[Mutant, ...]] = (
    *_CHECKPOINTS,
    *_EVENT_TIME,
    *_VALUES_AND_KEYS,
    *_COLUMNS,
    *_SINKS_AND_SPARK,
    *_STATE,
    *_HOSTS,
    *_STREAMS,
    *_PIPELINED,
    *_WAYS_IN,
    *_KEYED_COLUMNS,
    *_CALCULATIONS,
    *_TIMED,
)
