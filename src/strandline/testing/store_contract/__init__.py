"""What every journal store promises, as tests. A back-end's test class inherits the suite and says how a store is made:

    class TestMine(StoreContract):
        @pytest.fixture
        def make(self):
            return lambda settings: MyStore(settings)

Call `pytest.register_assert_rewrite("strandline.testing.store_contract")` before the import, to see why a test failed.
"""

from strandline.testing.store_contract.keeping import KeepingContract
from strandline.testing.store_contract.made import Make, contents, random_tape, settings_of
from strandline.testing.store_contract.mending import MendingContract
from strandline.testing.store_contract.reading import ReadingContract
from strandline.testing.store_contract.tagging import TaggingContract
from strandline.testing.store_contract.writing import WritingContract


class StoreContract(ReadingContract, WritingContract, KeepingContract, TaggingContract, MendingContract):
    """The whole suite."""


__all__ = ["Make", "StoreContract", "contents", "random_tape", "settings_of"]
