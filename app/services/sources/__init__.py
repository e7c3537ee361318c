"""Sources: the hubs whose models are followed, and when somebody looks at them."""
