"""The file that `sluicegate config init` writes: what most gates need, and comments on the rest."""

STARTER = """\
# Sluicegate's configuration. `sluicegate config check` says whether it is right and what each model costs;
# docs/configuration.md lists every setting. ${NAME} is taken from the environment.

server:
  listen: "127.0.0.1:4000"     # where clients connect; 0.0.0.0:4000 for all of this machine's addresses
  workers: 1                   # processes; one for each processor core the gate may use

admin:
  listen: "127.0.0.1:4001"     # health and metrics
  # token: "${SLUICEGATE_ADMIN_TOKEN}"   # turns the admin API on

store: "sqlite:///sluicegate.db"   # keys, accounts, ledger and usage; the path is relative to this file

providers:
  openai:
    base_url: "https://api.openai.com/v1"
    api_key: "${OPENAI_API_KEY}"
  # local:                     # any server that speaks the OpenAI format; no key needed
  #   base_url: "http://127.0.0.1:8080/v1"

models:
  gpt-5-mini:                  # the id that clients ask for
    routes: [{provider: openai, model: gpt-5-mini}]
    # price: {input: 0.25, cache_read: 0.025, output: 2}   # USD per million tokens; left out: the price catalogue's
  # "openai/*":                # every model of a provider that has a price
  #   routes: [{provider: openai, model: "*"}]
  # smollm:
  #   routes: [{provider: local, model: smollm}]
  #   price: free

accounts:
  team: unlimited              # or {balance_usd: 100}, prepaid

# Keys are made with `sluicegate keys create`; one that must be there from the start stands here:
# keys:
#   - {name: dev, key: "${DEV_KEY}", account: team, rpm: 600}
"""
