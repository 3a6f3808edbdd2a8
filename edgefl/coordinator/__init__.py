"""The coordinator as an actor: open tasks, checks and open jobs. It opens no file."""
