"""Tables, figures and the live display, from the files of finished or running runs."""
