"""What every action log promises, as tests. A back-end's test class inherits the suite and says how a log is opened:

    class TestMine(LogContract):
        @pytest.fixture
        def opened(self):
            return lambda **given: MyLog(**given)  # partitions, segment_size, clock

Called again, it opens the same log a second time where `durable` is true, else a new one. A log that is not exact
inherits `UnfoldedLogContract`: it does not fold, and asks no clock of ours. Call
`pytest.register_assert_rewrite("strandline.testing.log_contract")` before the import, to see why a test failed.
"""

from strandline.testing.log_contract.appending import AppendingContract
from strandline.testing.log_contract.committing import CommittingContract
from strandline.testing.log_contract.following import FollowingContract
from strandline.testing.log_contract.made import Opened, draft_of, everything, timed
from strandline.testing.log_contract.reading import ExactContract, ReadingContract
from strandline.testing.log_contract.recording import RecordingContract


class LogContract(RecordingContract, AppendingContract, ReadingContract, ExactContract, CommittingContract):
    """The whole suite."""


class UnfoldedLogContract(RecordingContract, ReadingContract, FollowingContract):
    """The promises of a log that only keeps records in order."""


__all__ = ["LogContract", "Opened", "UnfoldedLogContract", "draft_of", "everything", "timed"]
