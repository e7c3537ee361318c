"""SQL of clusterings, and of the policies that renew them."""
