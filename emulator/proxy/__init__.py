"""The same links in front of any TCP program."""
