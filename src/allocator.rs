//! What memory the program takes from the system, and when it gives it back.
//!
//! Sessions come and go with histories of all sizes. The system's allocator keeps what lies between pieces that are still in use,
//! and has an arena for each thread: what a session that left gives back stays with the process. Jemalloc gives pages back that
//! nobody used for a while, by a thread of its own, so also when nothing happens.

use playhouse_workspace::walls::CONFINE;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// How jemalloc is set, in its own words. What `_RJEM_MALLOC_CONF` in the environment says goes before it.
///
/// A second, instead of ten, until unused pages are given back: a burst of sessions is over in seconds. Few arenas, since few threads
/// run sessions: what one thread freed, others use again. Threads keep no large pieces for themselves, since most of them sleep. And
/// small pieces lie in runs of one page, so that one of them that stays does not hold several. (That is with pages of 4 KB. On
/// aarch64 jemalloc is built for pages of up to 64 KB, and its runs are of that size.)
#[expect(unsafe_code, reason = "the name by which jemalloc finds it")]
// SAFETY: jemalloc reads a pointer to a string that ends with a zero from the symbol of this name, before anything is allocated;
// a reference to an array is such a pointer, and nothing else has the name.
#[unsafe(export_name = "_rjem_malloc_conf")]
static CONFIGURATION: &[u8; 83] =
    b"dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:2,tcache_max:4096,slab_sizes:1-1024:1\0";

/// Lets a thread of jemalloc give back what is unused, where this process goes on: one that becomes a confined command has no need
/// of a thread, and its limits may refuse one, which jemalloc says where the command's output goes. Without the thread, pages are
/// given back when something is allocated or freed.
#[expect(
    unsafe_code,
    reason = "the one setting that is made in the process: crates for it have an abandoned macro beneath them"
)]
pub(crate) fn begin() {
    if std::env::args_os().nth(1).is_some_and(|command| command == CONFINE) {
        return;
    }
    let mut is_on = true;
    // SAFETY: the name ends with a zero; nothing is asked for, so both places for the old value may be null; the new value is a
    // bool of C, as the name says, which has the size and the values of this one and outlives the call.
    unsafe {
        tikv_jemalloc_sys::mallctl(
            c"background_thread".as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            (&raw mut is_on).cast(),
            size_of::<bool>(),
        );
    }
}
