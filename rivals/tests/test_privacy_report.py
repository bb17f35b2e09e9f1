"""The privacy report of runs of rivals; see `support.privacy_report`."""

import pytest
from support.privacy_report import PrivacyReport
from support.privacy_report import any_run as any_run

SETTINGS = {
    "statistics": {"method": "fedtad"},
    "exchange": {"method": "fedsage"},
    "synthetic": {"method": "fedgm"},
}


@pytest.mark.parametrize("keys", SETTINGS.values(), ids=SETTINGS, scope="class")
class TestPrivacyReport(PrivacyReport):
    """Of runs of rivals."""
