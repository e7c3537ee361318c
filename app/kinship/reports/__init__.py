"""Reports: what the models of a tenant are made of, in a form that leaves the house."""
