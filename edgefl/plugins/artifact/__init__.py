"""``edgefl artifact``: a folder or zip from which others repeat runs, and check what they claim.

- ``command``: the command. ``making`` writes the folder; start there.
- ``contents``: what is in it: experiments and claims, from runs.
- ``users_files``: which files of the user a config names, and what their code imports.
- ``packages``: the lock file.
- ``check``: compares results with claims. A copy of it is in each artifact.
- ``templates``: scripts, README, Dockerfile, appendix.
"""
