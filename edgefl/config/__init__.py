"""The experiment file: what it may contain, how it is read, and what is said about mistakes.

Start here: ``experiment`` has the file's tables, ``file`` reads one.

- ``experiment``, ``links``, ``faults``: the schema, with the text of every key, and the links and
  devices of each edge; ``scores`` are the metrics that a target may refer to
- ``section``: the base class of all tables, and one-line messages about mistakes in them
- ``file``: from TOML, ``extends`` and overrides to a checked ``Experiment``; to the wire and back;
  the plug-ins that a file names, with their options, keys that do not go together, and kinds of
  tasks that plug-ins bring
- ``keys``, ``schema``: the keys of a table with their texts; the JSON schema that is made of them
- ``packaged``: the experiment files that come with edgefl
- ``toml``: untrusted TOML
"""
