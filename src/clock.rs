//! The time of day, as it is stored.

use playhouse_protocol::Timestamp;

/// Now.
pub(crate) fn now() -> Timestamp {
    let millis = jiff::Timestamp::now().as_millisecond();
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
}
