//! What memory the program takes from the system, and when it gives it back.
//!
//! Sessions come and go with histories of all sizes. The system's allocator keeps what lies between pieces that are still in use,
//! and has an arena for each thread: what a session that left gives back stays with the process. Jemalloc gives pages back that
//! nobody used for a while, by a thread of its own, so also when nothing happens.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// How jemalloc is set, in its own words. What `_RJEM_MALLOC_CONF` in the environment says goes before it.
///
/// A second, instead of ten, until unused pages are given back: a burst of sessions is over in seconds. Few arenas, since few threads
/// run sessions: what one thread freed, others use again. Threads keep no large pieces for themselves, since most of them sleep. And
/// small pieces lie in runs of one page, so that one of them that stays does not hold several.
#[expect(unsafe_code, reason = "the name by which jemalloc finds it")]
// SAFETY: jemalloc reads a pointer to a string that ends with a zero from the symbol of this name, before anything is allocated;
// a reference to an array is such a pointer, and nothing else has the name.
#[unsafe(export_name = "_rjem_malloc_conf")]
static CONFIGURATION: &[u8; 106] =
    b"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:2,tcache_max:4096,slab_sizes:1-1024:1\0";
