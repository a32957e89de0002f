"""`sluicegate serve`: run the gate until told to stop."""

import asyncio
import os
import sys

import typer
import uvloop

from sluicegate.cli.options import AsJson, ConfigFile
from sluicegate.cli.store_access import key_secret, load_config, print_json
from sluicegate.config import DEFAULT_FILE, Config
from sluicegate.server.listeners import Address
from sluicegate.server.supervisor import SupervisorSettings, run_supervisor
from sluicegate.server.telemetry import start_logging
from sluicegate.store.keys import configured


def serve(config: ConfigFile = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Run the gate.

    SIGTERM or Ctrl-C finishes running requests first (server.drain_timeout), a second one ends them; SIGHUP
    reads the configuration again.
    """
    start_logging("supervisor")
    loaded = load_config(config)
    for warning in loaded.warnings:
        typer.echo(f"sluicegate: {warning}", err=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(
            run_supervisor(
                supervisor_settings(loaded),
                lambda: supervisor_settings(load_config(config)),
                on_serving=lambda clients, admin: _tell(clients, admin, loaded, as_json),
            )
        )


def supervisor_settings(config: Config) -> SupervisorSettings:
    """Return what the supervisor needs to know of the configuration."""
    secret = key_secret(config)
    accounts, keys = configured(config.bootstrap(), secret)
    admin = config.sections.admin.listen
    return SupervisorSettings(
        worker=config.worker_settings(secret, os.environ),
        store_url=config.store_url,
        accounts=tuple(accounts),
        keys=tuple(keys),
        admin=Address(admin.host, admin.port),
        admin_token=config.admin_token,
    )


def _tell(clients: Address, admin: Address, config: Config, as_json: bool) -> None:
    scheme = "http" if config.sections.server.tls.cert_file is None else "https"
    if as_json:
        print_json({"clients": f"{scheme}://{clients}", "admin": f"http://{admin}", "pid": os.getpid()})
    else:
        typer.echo(f"Sluicegate serves on {scheme}://{clients}, admin on http://{admin}")
    sys.stdout.flush()
