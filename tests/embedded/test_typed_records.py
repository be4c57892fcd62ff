"""A record of a declared type is what the type says: for chained operators, behind an exchange, in state and in results."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.common import Configuration, Row, TypeInformation, Types
from penstock.datastream import DataStream, OutputTag, ProcessFunction, StreamExecutionEnvironment
from penstock.errors import JobDefinitionError, PenstockError

PAIR = Types.ROW([Types.STRING(), Types.INT()])


@pytest.fixture(params=[1, 2], ids=["one subtask", "two"])
def env(request: pytest.FixtureRequest) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict({"penstock.runtime": "embedded", "parallelism.default": str(request.param)})
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def shown(stream: DataStream) -> list[str]:
    return sorted(map(repr, stream.execute_and_collect()))


@pytest.mark.parametrize("record", [("a", 1), ["a", 1], Row("a", 1), Row(f1=1, f0="a"), {"f0": "a", "f1": 1}])
def test_a_declared_row_is_a_row_with_names_in_every_operator_and_result(
    env: StreamExecutionEnvironment, record: Any
) -> None:
    start = env.from_collection([record], PAIR)
    assert shown(start) == ["Row(f0='a', f1=1)"]
    assert shown(start.map(repr)) == ["\"Row(f0='a', f1=1)\""]
    assert shown(env.from_collection([0]).map(lambda _: record, PAIR).map(repr)) == ["\"Row(f0='a', f1=1)\""]
    keyed = env.from_collection([record, record], PAIR).key_by(lambda row: row.f0)
    assert shown(keyed.sum("f1")) == ["Row(f0='a', f1=1)", "Row(f0='a', f1=2)"]


def test_what_a_reduce_gives_is_a_row_for_the_next_call_too(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection([("a", 1), ("a", 2), ("a", 3)], PAIR).key_by(lambda row: row.f0)
    assert shown(keyed.reduce(lambda one, other: (one.f0, one.f1 + other.f1)))[-1] == "Row(f0='a', f1=6)"


def test_a_side_output_is_of_its_declared_type(env: StreamExecutionEnvironment) -> None:
    tag = OutputTag("side", PAIR)

    class Both(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
            yield tag, ("x", value)

    assert shown(env.from_collection([1]).process(Both()).get_side_output(tag)) == ["Row(f0='x', f1=1)"]


@pytest.mark.parametrize(
    ("declared", "given", "becomes"),
    [
        (Types.FLOAT(), 0.1, 0.10000000149011612),
        (Types.DOUBLE(), 1, 1.0),
        (Types.BIG_DEC(), 3, decimal.Decimal(3)),
        (Types.TUPLE([Types.FLOAT(), Types.STRING()]), [0.1, "a"], (0.10000000149011612, "a")),
        (Types.LIST(Types.DOUBLE()), (1, 2), [1.0, 2.0]),
        (Types.MAP(Types.STRING(), PAIR), {"k": ("a", 1)}, {"k": Row(f0="a", f1=1)}),
        (Types.ROW([Types.INT(), Types.STRING()]), (None, None), Row(f0=None, f1=None)),
        (Types.TUPLE([Types.INT(), Types.PICKLED_BYTE_ARRAY()]), (1, None), (1, None)),
    ],
    ids=str,
)
def test_a_value_is_converted_to_its_declared_type(
    env: StreamExecutionEnvironment, declared: TypeInformation, given: Any, becomes: Any
) -> None:
    for stream in (env.from_collection([0]).map(lambda _: given, declared), env.from_collection([given], declared)):
        (found,) = stream.execute_and_collect()
        assert (found, repr(found)) == (becomes, repr(becomes))


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        (Types.INT(), "a str"),
        (Types.INT(), True),
        (Types.STRING(), 1),
        (Types.STRING(), None),
        (Types.LONG(), 2**63),
        (Types.BIG_DEC(), 1.5),
        (Types.BIG_INT(), "1"),
        (Types.LIST(Types.INT()), [1, "x"]),
        (Types.MAP(Types.STRING(), Types.INT()), {"k": "v"}),
        (Types.TUPLE([Types.INT(), Types.STRING()]), (1, None)),
        (Types.TUPLE([Types.INT(), Types.STRING()]), (1,)),
        (Types.ROW([Types.INT()]), 5),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [1, None]),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused(
    env: StreamExecutionEnvironment, declared: TypeInformation, given: Any
) -> None:
    with pytest.raises(PenstockError, match="declares the type"):
        list(env.from_collection([0]).map(lambda _: given, declared).execute_and_collect())
    with pytest.raises(PenstockError, match="from_collection declares the type"):
        env.from_collection([given], declared)


def test_numbers_of_a_collection_are_narrowed_as_flink_does_with_a_warning(env: StreamExecutionEnvironment) -> None:
    with pytest.warns(UserWarning, match="upper bits are cut off: .*43878.* becomes .*-21658"):
        stream = env.from_collection([(43878, 9147483648)], Types.TUPLE([Types.SHORT(), Types.INT()]))
    assert shown(stream) == ["(-21658, 557549056)"]


def test_streams_of_different_types_have_no_union(env: StreamExecutionEnvironment) -> None:
    numbers, texts, any_of = env.from_collection([1], Types.INT()), env.from_collection([""], Types.STRING()), [1]
    with pytest.raises(JobDefinitionError, match="one is of Integer, the other of String"):
        numbers.union(texts)
    with pytest.raises(JobDefinitionError, match="the other of PickledByteArrayTypeInfo"):
        numbers.union(env.from_collection(any_of))
    assert shown(numbers.union(env.from_collection([2], Types.INT()))) == ["1", "2"]


def test_a_keyed_stream_is_collected_with_its_keys(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection([("b", 1), ("a", 2)], Types.TUPLE([Types.STRING(), Types.INT()])).key_by(
        lambda p: [p[0]]
    )
    assert list(keyed.execute_and_collect()) == [Row(f0=["b"], f1=("b", 1)), Row(f0=["a"], f1=("a", 2))]
    assert keyed.execute_and_collect(limit=1) == [Row(f0=["b"], f1=("b", 1))]
