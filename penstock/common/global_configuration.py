"""The configuration a process was started with: what `penstock run -D key=value` hands to an unchanged program.

It travels in an environment variable, so that it reaches the program whether it runs in this process or in a child, and
lies below everything the program sets itself, as Flink's command line does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Final

from penstock.common.configuration import Configuration
from penstock.errors import ConfigurationError

VARIABLE: Final = "PENSTOCK_CONFIGURATION"


class GlobalConfiguration:
    """Flink's name for it."""

    @staticmethod
    def load_configuration() -> Configuration:
        """A fresh copy; empty when the process was started without one."""
        text = os.environ.get(VARIABLE)
        if not text:
            return Configuration()
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ConfigurationError(
                f"{VARIABLE} is not a JSON object ({error}): unset it, or let `penstock run` set it"
            ) from None
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise ConfigurationError(
                f"{VARIABLE} should be a JSON object of strings: unset it, or let `penstock run` set it"
            )
        return Configuration.from_dict(values)

    @staticmethod
    def to_environment(values: Mapping[str, str]) -> dict[str, str]:
        """The environment variable that gives `values` to this process, or to a child that is started with it."""
        return {VARIABLE: json.dumps(dict(values))}
