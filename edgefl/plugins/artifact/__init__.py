"""``edgefl artifact``: a folder or zip from which others repeat runs, and check what they claim.

- ``command``: the command. ``making`` writes the folder; start there.
- ``contents``: what is in it: experiments and claims, from runs.
- ``users_files``: which files of the user a config names, and what their code imports.
- ``packages``: the lock file.
- ``kick``: the short runs of ``kick-the-tires.sh``, tried when the artifact is made.
- ``check``: compares results with claims. A copy of it is in each artifact.
- ``documents``, ``templates``: scripts, README, Dockerfile, appendix, metadata.
- ``names``: what an anonymous artifact must not say.
"""
