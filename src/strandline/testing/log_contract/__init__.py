"""What every action log promises, as tests. A back-end's test class inherits the suite and says how a log is opened:

    class TestMine(LogContract):
        @pytest.fixture
        def opened(self):
            return lambda **given: MyLog(**given)  # partitions, segment_size, clock

Called again, it opens the same log a second time where `durable` is true, else a new one. Call
`pytest.register_assert_rewrite("strandline.testing.log_contract")` before the import, to see why a test failed.
"""

from strandline.testing.log_contract.appending import AppendingContract
from strandline.testing.log_contract.committing import CommittingContract
from strandline.testing.log_contract.made import Opened, draft_of, everything
from strandline.testing.log_contract.reading import ReadingContract


class LogContract(AppendingContract, ReadingContract, CommittingContract):
    """The whole suite."""


__all__ = ["LogContract", "Opened", "draft_of", "everything"]
