from edgefl.config.experiment import Experiment as Experiment
from edgefl.errors import UserError as UserError
from edgefl.interface.running import ModelScores as ModelScores
from edgefl.interface.running import check as check
from edgefl.interface.running import run as run
from edgefl.interface.running import sweep as sweep
from edgefl.interface.runs import LoadedRun as LoadedRun
from edgefl.interface.runs import RunComparison as RunComparison
from edgefl.interface.runs import Runs as Runs
from edgefl.interface.runs import load as load

__version__: str
