"""The operator's file: `load` reads, checks and resolves it; what it returns is ready to be passed on as plain values.

`document` reads YAML as text, `schema` and what it names know every setting, `reading` says what is wrong with one,
`meaning` what must agree; `credentials` fetches the providers' keys, `models` prices what is served. The file and the
environment are looked at when it is loaded, and never again.
"""

from sluicegate.config.loading import DEFAULT_FILE, Config, load

__all__ = ["DEFAULT_FILE", "Config", "load"]
