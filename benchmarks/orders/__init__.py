"""How far orders of reading tensors are from the order in which networks use them."""
