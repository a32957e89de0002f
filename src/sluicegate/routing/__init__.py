"""Pure choices: which deployments serve a model, in what order, and what follows a failure."""
