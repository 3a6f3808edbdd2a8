"""The experiment file: what it may contain, how it is read, and what is said about mistakes.

Start here: ``experiment`` has the file's tables, ``file`` reads one.

- ``experiment``, ``links``, ``faults``: the schema, with the text of every key; ``section`` is
  their base class, ``scores`` are the metrics that a target may refer to
- ``groups``: the links and devices of each edge
- ``file``: from TOML, ``extends`` and overrides to a checked ``Experiment``; to the wire and back
- ``names``: the plug-ins that a file names, with their options, and keys that do not go together
- ``task_kinds``: kinds of tasks that plug-ins bring
- ``keys``, ``schema``: the keys of a table with their texts; the JSON schema that is made of them
- ``packaged``: the experiment files that come with edgefl
- ``errors``, ``toml``: one-line messages; untrusted TOML
"""
