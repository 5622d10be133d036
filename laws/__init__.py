"""Property tests for the algebra, and for what users make of it: `tp.laws.check(MyMonoid)`."""

from __future__ import annotations

from laws.catalogue import catalogue as catalogue
from laws.check import Checked as Checked
from laws.check import Report as Report
from laws.check import assert_equivalent as assert_equivalent
from laws.check import assert_lawful as assert_lawful
from laws.check import check as check
from laws.check import replay as replay
from laws.errors import LawError as LawError
from laws.law import Law as Law
