//! What is made good in answers that are not as their dialect says.

use std::collections::BTreeMap;
use std::fmt;

/// Something in an answer that is not as its dialect says, and was understood all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repair {
    /// A call has the id of an earlier one of the answer: it is given another.
    RepeatedCallId,
    /// The pieces of a call do not say by their index which call they belong to: id and name do.
    CallIndex,
    /// The arguments of a call are not a JSON object: the call is answered with an error.
    ArgumentsNotAnObject,
    /// The answer says that the model stopped, and holds calls: they are carried out.
    StoppedWithCalls,
    /// The answer has an end marker and no reason, or the other way round: it is complete.
    HalfAnEnd,
    /// Parts of the answer are mixed, repeated, unfinished, or come after its reason: each piece is put where it belongs.
    OutOfOrder,
    /// No usage was reported with the end: it is estimated.
    NoUsage,
    /// Figures of the usage contradict each other: the record is marked, and has the provider's own object.
    UnreconciledUsage,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RepeatedCallId => "a call with the id of an earlier one was given another id",
            Self::CallIndex => "pieces of calls without a fitting index were told apart by id and name",
            Self::ArgumentsNotAnObject => {
                "a call whose arguments are no JSON object is answered with an error"
            }
            Self::StoppedWithCalls => "calls of an answer that says it just stopped are carried out",
            Self::HalfAnEnd => {
                "an answer with an end marker and no reason, or a reason and no marker, is complete"
            }
            Self::OutOfOrder => {
                "parts of an answer that were mixed, repeated or unfinished were put together"
            }
            Self::NoUsage => "usage that was not reported is estimated",
            Self::UnreconciledUsage => "usage whose figures contradict each other is marked so",
        })
    }
}

/// What was made good in one answer, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repairs(BTreeMap<Repair, u32>);

impl Repairs {
    /// Adds one.
    pub fn note(&mut self, repair: Repair) {
        *self.0.entry(repair).or_insert(0) += 1;
    }

    /// Each kind of repair, with how often it was made.
    pub fn iter(&self) -> impl Iterator<Item = (Repair, u32)> {
        self.0.iter().map(|(repair, times)| (*repair, *times))
    }

    /// Whether nothing had to be made good.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
