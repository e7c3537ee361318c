"""Whether a model for each group of clients pays, by what their supports show.

Depends on the core alone, and reads no data, weights or accuracy of the clients.
"""
