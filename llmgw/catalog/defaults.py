"""What server.yaml writes down for many models at once: fields of a model, and of each of its profiles."""

from __future__ import annotations

from collections.abc import Container
from copy import copy
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from llmgw.catalog.fields import Strict
from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile

OF_ONE_MODEL = ("name", "extends", "aliases", "replaced_by", "source_", "external", "profiles")
"""Fields that each model has for itself."""


def _partial(kind: type[Strict], title: str, text: str, *, without: Container[str], **more: Any) -> type[Strict]:
    """A type with the fields of another, none of which must be there."""
    fields: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if name not in without:
            fields[name] = (field.annotation, _optional(field))
    made = create_model(title.title().replace(" ", ""), __base__=Strict, __doc__=text, **fields, **more)
    made.model_config = ConfigDict(**{**Strict.model_config, "title": title})
    made.fields_of = kind
    return made


def _optional(field: FieldInfo) -> FieldInfo:
    # pydantic takes a default as it is: None says that nothing was written, and writing null is still an error.
    optional = copy(field)
    optional.default, optional.default_factory = None, None
    return optional


_OfProfiles = _partial(
    Profile, "profile defaults", "Fields of every profile that does not write them itself.", without={"name"}
)
_OfModels = _partial(
    Model,
    "defaults",
    "Fields of every model that does not write them itself. A mapping goes on key by key; a list is taken whole.",
    without=OF_ONE_MODEL,
    profile=(_OfProfiles | None, Field(default=None, description="Fields of every profile of these models.")),
)

if TYPE_CHECKING:
    # What is in one is merged as it is written and never looked at as a value, so this is all that is told of it.
    Defaults: TypeAlias = Strict
else:
    Defaults = _OfModels
