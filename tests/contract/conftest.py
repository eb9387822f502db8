"""The shipped suites show what they compared, like any test."""

import pytest

pytest.register_assert_rewrite("strandline.testing.store_contract", "strandline.testing.log_contract")
