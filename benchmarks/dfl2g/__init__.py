"""Where a newcomer starts, beside what the literature compares: its tables and figures.

Sums over members, scores of layers and penalties are the product's; the other sharing rules are
here alone. Data are scikit-learn's digits, so accuracies rank nothing on harder data.
"""
