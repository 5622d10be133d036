"""Property tests for the algebra, and for what users make of it: `tp.laws.check(MyMonoid)`."""

from __future__ import annotations

from laws.catalogue import catalogue as catalogue
from laws.check import assert_lawful as assert_lawful
from laws.check import check as check
from laws.check import replay as replay
from laws.cuts import partitions as partitions
from laws.drawing import states as states
from laws.entries import values as values
from laws.equivalent import assert_equivalent as assert_equivalent
from laws.errors import LawError as LawError
from laws.examine import examine as examine
from laws.given import Given as Given
from laws.given import given as given
from laws.known import KnownFailing as KnownFailing
from laws.known import known_failing as known_failing
from laws.language import Sentence as Sentence
from laws.language import arrows as arrows
from laws.language import graphs as graphs
from laws.language import parse as parse
from laws.law import Law as Law
from laws.mutants import Mutant as Mutant
from laws.mutants import Mutants as Mutants
from laws.mutants import mutants as mutants
from laws.outcome import Checked as Checked
from laws.outcome import Report as Report
from laws.placements import plans as plans
from laws.quickly import compile_quickly as compile_quickly
from laws.structures import Action as Action
from laws.structures import Homomorphism as Homomorphism
from laws.structures import Semiring as Semiring
