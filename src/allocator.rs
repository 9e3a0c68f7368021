//! What memory the program takes from the system, and when it gives it back.
//!
//! Sessions come and go with histories of all sizes. The system's allocator keeps what lies between pieces that are still in use,
//! and has an arena for each thread: what a session that left gives back stays with the process. Jemalloc gives pages back that
//! nobody used for a while, by a thread of its own, so also when nothing happens.

use std::ffi::CStr;

use playhouse_sandbox::walls::CONFINE;
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

/// The arenas there are: see [`CONFIGURATION`]. What the environment says may give more, which are set as they come.
const ARENAS: [&CStr; 2] = [c"arena.0.dirty_decay_ms", c"arena.1.dirty_decay_ms"];
/// How arenas are set that are made from here on.
const ARENAS_TO_COME: &CStr = c"arenas.dirty_decay_ms";

/// Lets a thread of jemalloc give back what is unused, where this process goes on: one that becomes a confined command has no need
/// of a thread, and its limits may refuse one, which jemalloc says where the command's output goes. Without the thread, pages are
/// given back when something is allocated or freed.
///
/// Until [`opened`], unused pages are given back at once: opening a store reads it through buffers of megabytes. Their pages would
/// become those of the buffers that the store keeps, of which it uses little, and so stay with a process that rests.
pub(crate) fn begin() {
    if std::env::args_os().nth(1).is_some_and(|command| command == CONFINE) {
        return;
    }
    set(c"background_thread", true);
    decay(0);
}

/// From here on unused pages wait for whoever uses them again, as long as is configured.
pub(crate) fn opened() {
    if let Some(configured) = get(c"opt.dirty_decay_ms") {
        decay(configured);
    }
}

/// When unused pages are given back, in milliseconds; never, if that is negative.
fn decay(milliseconds: isize) {
    for name in ARENAS.into_iter().chain([ARENAS_TO_COME]) {
        // An arena that nobody used yet is not there.
        set(name, milliseconds);
    }
}

/// What a setting of jemalloc may be.
trait Setting {}
impl Setting for bool {}
/// `ssize_t` of C.
impl Setting for isize {}

/// Sets a setting, which is of this type. One that is refused stays as it was.
#[expect(unsafe_code, reason = "crates for settings have an abandoned macro beneath them")]
fn set<T: Setting>(name: &CStr, mut value: T) {
    // SAFETY: the name ends with a zero; nothing is asked for, so both places for the old value may be null; the new value has the
    // size that is said, which jemalloc compares with that of the setting, and outlives the call.
    unsafe {
        tikv_jemalloc_sys::mallctl(
            name.as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            (&raw mut value).cast(),
            size_of::<T>(),
        );
    }
}

/// A setting that is a number of this type.
#[expect(unsafe_code, reason = "as for `set`")]
fn get(name: &CStr) -> Option<isize> {
    let (mut value, mut size) = (0, size_of::<isize>());
    // SAFETY: the name ends with a zero; the value is written to a place of the size that is said, which jemalloc compares with that
    // of the setting; nothing is set, so the place of the new value may be null.
    let refused = unsafe {
        tikv_jemalloc_sys::mallctl(
            name.as_ptr(),
            (&raw mut value).cast(),
            &raw mut size,
            std::ptr::null_mut(),
            0,
        )
    };
    (refused == 0).then_some(value)
}
