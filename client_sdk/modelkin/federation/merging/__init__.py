"""A party's part in a merge, whatever carries it: the hub's mailbox, or a bucket."""
