"""modelkin inside the training loops of other libraries: one module a library.

``huggingface`` and ``lightning`` hold callbacks that upload a support at each save; ``flower``
holds a client mod and a strategy that clusters clients by their supports. A module imports its
library and names the extra that installs it; this package imports none of them.
"""
