"""Property tests for the algebra, and for what users make of it: `tp.laws.check(MyMonoid)`.

Check      check assert_lawful assert_equivalent assert_embeddings examine replay mutants
Say how    given known_failing Semiring Homomorphism Action
Draw       values states partitions arrows graphs plans
Read       Report Checked Mutants Mutant LawError catalogue Law Given KnownFailing Sentence parse
Compile    compile_quickly, for tests that compile much
"""

from __future__ import annotations

from laws.catalogue import catalogue as catalogue
from laws.check import assert_lawful as assert_lawful
from laws.check import check as check
from laws.check import replay as replay
from laws.counterexamples.known import KnownFailing as KnownFailing
from laws.counterexamples.known import known_failing as known_failing
from laws.embeddings import assert_embeddings as assert_embeddings
from laws.equivalent import assert_equivalent as assert_equivalent
from laws.errors import LawError as LawError
from laws.examine import examine as examine
from laws.given import Given as Given
from laws.given import given as given
from laws.law import Law as Law
from laws.mistakes.mutants import Mutant as Mutant
from laws.mistakes.mutants import Mutants as Mutants
from laws.mistakes.mutants import mutants as mutants
from laws.quickly import compile_quickly as compile_quickly
from laws.strategies.language import Sentence as Sentence
from laws.strategies.language import arrows as arrows
from laws.strategies.language import graphs as graphs
from laws.strategies.language import parse as parse
from laws.strategies.partitions import partitions as partitions
from laws.strategies.plans import plans as plans
from laws.strategies.states import states as states
from laws.strategies.values import values as values
from laws.subjects.structures import Action as Action
from laws.subjects.structures import Homomorphism as Homomorphism
from laws.subjects.structures import Semiring as Semiring
from laws.verdicts.outcome import Checked as Checked
from laws.verdicts.outcome import Report as Report
