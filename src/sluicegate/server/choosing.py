"""What may serve one request: its model, the models a client names beside it, the one provider it insists on.

Both are for keys that may override, and are refused in the client's format for others. In which order what remains is
tried is `deployments`' and `routing.route`'s.
"""

from typing import Final, NamedTuple

import msgspec

from sluicegate.billing.accounts import KeyRecord
from sluicegate.errors import BadRequest, Forbidden, ModelNotFound
from sluicegate.routing.catalog import Catalogue, Deployment, Model
from sluicegate.wire.translation import AdmittedRequest

PROVIDER_HEADER: Final = b"x-sluicegate-provider"
MODELS: Final = "models"
"""The field of a body that names models to fall back on."""
MAX_FALLBACKS = 10

_decode_names = msgspec.json.Decoder(list[str]).decode


class Served(NamedTuple):
    """A model that may serve a request."""

    name: str
    """As the client spelled it: an alias is echoed."""
    model: Model
    deployments: tuple[Deployment, ...]


def find_model(catalogue: Catalogue, key: KeyRecord, name: str, param: str = "model") -> Model:
    """Return the model of a public id, for a key.

    Raises:
        ModelNotFound, Forbidden
    """
    model = catalogue.models.get(name) or catalogue.find(name)
    if model is None:
        raise ModelNotFound(
            f"The model '{name}' does not exist or you do not have access to it.", param=param
        )
    if "*" not in key.models and not allowed(key, name, model):
        raise Forbidden("This API key may not use this model.", param=param)
    return model


def allowed(key: KeyRecord, asked: str, model: Model) -> bool:
    """Whether a key's list of models has the id that was asked for, or the model it stands for."""
    for pattern in key.models:
        if pattern == "*" or pattern == asked or pattern == model.id:
            return True
        if pattern.endswith("*") and (asked.startswith(pattern[:-1]) or model.id.startswith(pattern[:-1])):
            return True
    return False


def overridden(
    catalogue: Catalogue, key: KeyRecord, request: AdmittedRequest, model: Model, provider: bytes | None
) -> tuple[Served, ...]:
    """Return what may serve a request that overrides something, the model it asks for first.

    Args:
        provider: value of `x-sluicegate-provider`.
    Raises:
        BadRequest, Forbidden, ModelNotFound: `param` is the field or header at fault.
    """
    other = request.names_other_models
    if other is not None and not key.may_override:
        raise BadRequest(f"'{other}' names other models, which this API key may not do.", param=other)
    if provider is not None and not key.may_override:
        name = PROVIDER_HEADER.decode()
        raise Forbidden(f"'{name}' chooses a provider, which this API key may not do.", param=name)
    served = [Served(request.model, model, model.deployments)]
    for place, fallback in enumerate(_fallbacks(request)):
        found = find_model(catalogue, key, fallback, f"{MODELS}[{place}]")
        if all(found is not known.model or fallback != known.name for known in served):
            served.append(Served(fallback, found, found.deployments))
    if provider is not None:
        served = _at(served, provider.decode("latin-1").strip())
    return tuple(served)


def _fallbacks(request: AdmittedRequest) -> list[str]:
    raw = request.value(MODELS)
    if raw is None or raw == b"null":
        return []
    try:
        names = _decode_names(raw)
    except (msgspec.DecodeError, RecursionError):
        raise BadRequest(
            f"Invalid type for '{MODELS}': expected an array of strings.", param=MODELS
        ) from None
    if len(names) > MAX_FALLBACKS:
        raise BadRequest(f"Invalid '{MODELS}': at most {MAX_FALLBACKS} models.", param=MODELS)
    return names


def _at(served: list[Served], provider: str) -> list[Served]:
    """Keep what one provider serves."""
    kept = [
        one._replace(deployments=theirs)
        for one in served
        if (theirs := tuple(target for target in one.deployments if target.provider == provider))
    ]
    if not kept:
        name = PROVIDER_HEADER.decode()
        raise BadRequest(f"'{name}': no such provider serves the model '{served[0].name}'.", param=name)
    return kept
