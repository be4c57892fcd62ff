from __future__ import annotations

import copy
import pickle

import pytest

from penstock.common import ConfigOptions, Configuration
from penstock.errors import ConfigurationError


def test_values_are_converted_when_they_are_read() -> None:
    configuration = Configuration.from_dict({"i": " 7 ", "b": "TRUE", "f": "1.5"})
    assert configuration.get_integer("i", 0) == 7
    assert configuration.get_boolean("b", False) is True
    assert configuration.get_float("f", 0.0) == 1.5
    assert configuration.set_boolean("off", False).get_string("off", "") == "false"
    assert configuration.set_bytearray("raw", bytearray(b"\x01\xff")).to_dict()["raw"] == "01ff"
    assert configuration.get_bytearray("raw", bytearray()) == bytearray(b"\x01\xff")


def test_a_missing_key_gives_the_default() -> None:
    configuration = Configuration()
    assert configuration.get_string("a", "x") == "x"
    assert configuration.get_integer("a", 3) == 3
    assert configuration.get_boolean("a", True) is True
    assert configuration.get_float("a", 2) == 2.0


def test_a_value_that_does_not_fit_names_its_key() -> None:
    configuration = Configuration.from_dict({"parallelism.default": "many", "db.password": "hunter2"})
    with pytest.raises(ConfigurationError, match=r"'parallelism.default' should be a whole number, but is 'many'"):
        configuration.get_integer("parallelism.default", 1)
    with pytest.raises(ConfigurationError, match=r"should be true or false, but is \*\*\*\*\*\*"):
        configuration.get_boolean("db.password", False)


def test_secrets_are_not_shown() -> None:
    assert str(Configuration.from_dict({"s3.secret-key": "x", "a": "b"})) == "{s3.secret-key=******, a=b}"


def test_a_copy_is_independent_of_the_original() -> None:
    original = Configuration().set_integer("a", 1)
    copies = [
        Configuration(original),
        copy.copy(original),
        copy.deepcopy(original),
        pickle.loads(pickle.dumps(original)),
    ]
    original.set_integer("a", 2)
    for other in copies:
        assert other == Configuration.from_dict({"a": "1"})
        assert hash(other) == hash(Configuration.from_dict({"a": "1"}))
        assert other != original


def test_keys_can_be_added_with_a_prefix_and_removed() -> None:
    configuration = Configuration().set_string("x", "1").add_all(Configuration.from_dict({"y": "2"}), "pre.")
    assert configuration.key_set() == {"x", "pre.y"}
    assert configuration.remove_config("x") is True
    assert configuration.remove_config("x") is False
    assert not configuration.contains_key("x")
    target = {"z": "3"}
    configuration.add_all_to_dict(target)
    assert target == {"z": "3", "pre.y": "2"}


def test_lists_are_written_with_semicolons_or_brackets() -> None:
    for text in ("a;b", "[a, b]", "['a', \"b\"]"):
        assert Configuration.parse_list_value(text) == ["a", "b"]
    assert Configuration.parse_list_value("") == []


def test_an_option_reads_its_type_and_default() -> None:
    option = ConfigOptions.key("n").int_type().default_value(4)
    configuration = Configuration()
    assert option.get(configuration) == 4
    assert option.get(configuration.set_string("n", "9")) == 9
    option.set(configuration, 5)
    assert configuration.get_integer("n", 0) == 5
    assert ConfigOptions.key("s").string_type().no_default_value().get(configuration) is None
