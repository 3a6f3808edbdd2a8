"""The coordinator as an actor: tasks, deadlines, checks and jobs. It opens no file or socket."""
