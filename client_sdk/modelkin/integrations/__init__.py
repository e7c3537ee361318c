"""modelkin inside the training loops of others: one module a library.

``huggingface`` and ``lightning`` hold callbacks that push a support at each save; ``flower`` holds
a client mod and a strategy that clusters clients by their supports. A module needs its library when
it is imported, and says which extra brings it; this package needs none of them.
"""
