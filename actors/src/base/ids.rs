//! Ids and random numbers.

use std::cell::RefCell;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use playhouse_protocol::id::Id;
use playhouse_protocol::{IdGenerator, Timestamp};

use crate::base::now;

/// Random bytes of the system that a thread has for what it makes next: a step takes some of them seven times.
struct Entropy {
    bytes: [u8; 2048],
    /// Number of bytes already used.
    used: usize,
}

thread_local! {
    static ENTROPY: RefCell<Entropy> = const { RefCell::new(Entropy { bytes: [0; 2048], used: 2048 }) };
}

/// Fills `out`, no longer than the stock, with bytes that nobody can foresee and nobody else is given.
fn random(out: &mut [u8]) -> Result<(), getrandom::Error> {
    ENTROPY.with_borrow_mut(|stock| {
        if stock.bytes.len() - stock.used < out.len() {
            // Until all of them came there are none.
            stock.used = stock.bytes.len();
            getrandom::fill(&mut stock.bytes)?;
            stock.used = 0;
        }
        let given = &mut stock.bytes[stock.used..][..out.len()];
        out.copy_from_slice(given);
        given.fill(0);
        stock.used += out.len();
        Ok(())
    })
}

/// A number from 0 to 1 that nobody can foresee.
pub(crate) fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    match random(&mut bytes) {
        Ok(()) => f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 0.5,
    }
}

/// The maker of a session's ids, shared by the actors of that session.
#[derive(Clone, Debug)]
pub(crate) struct Ids(Arc<Mutex<IdGenerator>>);

impl Ids {
    /// A maker whose ids sort after those made up to `time`.
    pub(crate) fn after(time: Timestamp) -> Self {
        let mut generator = IdGenerator::new(|bytes| {
            // Without randomness ids still ascend; they could only be guessed.
            if random(bytes).is_err() {
                tracing::error!("the system gives no random bytes: ids can be guessed");
            }
        });
        generator.advance_past(time);
        Self(Arc::new(Mutex::new(generator)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, IdGenerator> {
        self.0.lock()
    }

    pub(crate) fn next<I: Id>(&self) -> I {
        self.lock().next(now())
    }
}
