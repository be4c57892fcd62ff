"""The name of a side output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.absent import missing_attribute
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types


class OutputTag:
    """Names a side output and the type of what it carries; emitted to with `yield tag, value`.

    Tags are the same output when their ids are equal: the instance that emits lives in another process than the one
    `get_side_output` was called with.
    """

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: TypeInformation | list[TypeInformation] | None = None) -> None:
        if not tag_id:
            raise ValueError(f"The tag_id of an OutputTag must be a non-empty string, not {tag_id!r}")
        self.tag_id = tag_id
        match type_info:
            case None:
                self.type_info = Types.PICKLED_BYTE_ARRAY()
            case list():
                self.type_info = RowTypeInfo(type_info)
            case TypeInformation():
                self.type_info = type_info
            case _:
                raise TypeError(
                    f"The type_info of OutputTag {tag_id!r} must be None, a list or a TypeInformation, "
                    f"not {type_info!r}"
                )

    if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and self.tag_id == other.tag_id

    def __hash__(self) -> int:
        return hash((OutputTag, self.tag_id))

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r}, {self.type_info})"
