"""`sluicegate config`: check a configuration, print its JSON Schema, or write one to start from."""

import json
import os
from typing import Any

import msgspec
import typer

from sluicegate.cli.options import AsJson, ConfigFile
from sluicegate.config import DEFAULT_FILE, Config, load
from sluicegate.config.json_schema import json_schema
from sluicegate.config.starter import STARTER
from sluicegate.errors import ConfigError
from sluicegate.money import format_usd
from sluicegate.routing.catalog_shapes import Deployment, Model, Price

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.command()
def check(config: ConfigFile = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Check a configuration, and tell what each model costs."""
    try:
        loaded = load(config, os.environ)
        catalogue = loaded.worker_settings(b"", os.environ).catalogue
    except ConfigError as error:
        if not as_json:
            raise
        print(json.dumps({"ok": False, "errors": error.message.splitlines()}, ensure_ascii=False))
        raise typer.Exit(2) from None
    served = {model.id: model for model in catalogue.models.values()}
    served |= {model.id: model for _, model in catalogue.wildcards}
    models = [served[model_id] for model_id in loaded.sections.models]
    if as_json:
        print(json.dumps(_summary(loaded, models), ensure_ascii=False))
    else:
        _print_summary(loaded, models)


@app.command()
def schema(as_json: AsJson = False) -> None:
    """Print the JSON Schema of the configuration, for editors."""
    print(json.dumps(json_schema(), ensure_ascii=False, indent=None if as_json else 2))


@app.command()
def init(config: ConfigFile = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Write a commented configuration to start from. A file that is there is left alone."""
    try:
        with config.open("x", encoding="utf-8") as file:
            file.write(STARTER)
    except FileExistsError:
        raise ConfigError(f"{config}: is there already, and is left as it is") from None
    except OSError as error:
        raise ConfigError(f"{config}: cannot be written: {error.strerror}") from None
    if as_json:
        print(json.dumps({"ok": True, "file": str(config)}))
    else:
        print(
            f"{config} is written. Set its environment variables, then: sluicegate config check -c {config}"
        )


def _summary(loaded: Config, models: list[Model]) -> dict[str, Any]:
    sections = loaded.sections
    return {
        "ok": True,
        "file": str(loaded.path),
        "warnings": list(loaded.warnings),
        "listen": str(sections.server.listen),
        "admin": str(sections.admin.listen),
        "workers": sections.server.workers,
        "providers": list(sections.providers),
        "accounts": list(sections.accounts),
        "keys": [key.name for key in sections.keys],
        "models": [_model(loaded, model) for model in models],
    }


def _model(loaded: Config, model: Model) -> dict[str, Any]:
    priced = loaded.prices[model.id]
    return {
        "id": model.id,
        "aliases": list(model.aliases),
        "free": model.free,
        "price_nano_usd_per_mtok": _json_rates(priced.price),
        "price_source": priced.source,
        "notes": list(priced.notes),
        "routes": [_route(deployment) for deployment in model.deployments],
    }


def _route(deployment: Deployment) -> dict[str, Any]:
    return {
        "provider": deployment.provider,
        "model": deployment.model,
        "priority": deployment.priority,
        "weight": deployment.weight,
        "cost_nano_usd_per_mtok": _json_rates(deployment.cost),
    }


def _json_rates(price: Price | None) -> dict[str, Any] | None:
    if price is None:
        return None
    rates: dict[str, Any] = msgspec.to_builtins(price)
    return {"input": price.input, "output": price.output, **rates}


def _print_summary(loaded: Config, models: list[Model]) -> None:
    sections = loaded.sections
    print(f"{loaded.path} is right.")
    workers = "1 worker" if sections.server.workers == 1 else f"{sections.server.workers} workers"
    print(f"clients on {sections.server.listen}, {workers}; operator on {sections.admin.listen}")
    for warning in loaded.warnings:
        print(f"warning: {warning}")
    if not models:
        return
    print("\nmodel · USD per million tokens, in / out · where the price is from · routes")
    for model in models:
        priced = loaded.prices[model.id]
        routes = ", ".join(f"{deployment.provider}/{deployment.model}" for deployment in model.deployments)
        notes = f" ({'; '.join(priced.notes)})" if priced.notes else ""
        print(f"{model.id} · {_words(model, priced.price)} · {priced.source}{notes} · {routes}")


def _words(model: Model, price: Price | None) -> str:
    if model.free:
        return "free"
    if price is None:
        return "by id"
    longer = "".join(
        f"; above {tier.above_input_tokens:,} in: {format_usd(tier.price.input)} / {format_usd(tier.price.output)}"
        for tier in price.tiers
    )
    return f"{format_usd(price.input)} / {format_usd(price.output)}{longer}"
