"""A section of the configuration: a mapping whose keys are all known."""

from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from sluicegate.config.scalars import either


class Section(BaseModel):
    """A mapping of the file whose keys are all known."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    empty_means_default: ClassVar[bool] = True
    """Whether a section that stands there empty (`server:`) is the same as one that does not stand there."""

    words: ClassVar[dict[str, dict[str, Any]]] = {}
    """Single words that may stand for the section, and what they mean."""

    @model_validator(mode="before")
    @classmethod
    def _take_word(cls, data: Any) -> Any:
        if data is None and cls.empty_means_default:
            return {}
        if isinstance(data, str):
            if data in cls.words:
                return cls.words[data]
            raise ValueError(
                f"must be a mapping or the word {either(tuple(cls.words))}"
                if cls.words
                else "must be a mapping"
            )
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if value is not None or cls._takes_null(name)}
        return data

    @classmethod
    def _takes_null(cls, name: str) -> bool:
        """Whether null means something other than the field's absence."""
        field = cls.model_fields.get(name)
        return field is None or (not field.is_required() and field.default is None)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core))
        if not cls.words:
            return schema
        for field in set().union(*cls.words.values()):
            schema.get("properties", {}).pop(field, None)
        return {"anyOf": [{"enum": list(cls.words)}, schema]}


SectionT = TypeVar("SectionT", bound=Section)
