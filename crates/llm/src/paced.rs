//! Sockets that are read seldom while much comes.
//!
//! Models send a token at a time, and each that is read by itself costs a wake of the task that has the connection, a system
//! call, and a wake of the task that reads the answer: far more than what is done with the token. While few answers come, all
//! of that is done at once. While so many come that it would fill the processors, a socket rests for some milliseconds after
//! it was read, and what came meanwhile is read in one piece; as network cards hold back their interrupts under load.
//!
//! What follows a write is read as soon as it is there: the answer to a request, the next message of a handshake. And so is what
//! follows the end of an answer: a server that closes the connection.
//!
//! What is read in one piece is also handed on in one piece: see [`driven`](crate::driven).

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep};

use crate::driven::Link;

/// While no more answers than these come for each carrier, no socket rests: the end of an answer, which a step waits for, would be read
/// late as well. Two processors carry 500 answers of 50 tokens a second, with their clients and the server of the model, in 1.05
/// times the time that they take at least.
const UNHURRIED: u32 = 300;
/// What each of all answers asks for, on one carrier: 24 ms as soon as sockets rest at all, since models say 20 to 100 tokens a second, and
/// a rest in which less comes than one saves nothing; 40 ms beside 500, which nobody who reads along sees.
const EACH: Duration = Duration::from_micros(80);
/// From so many answers for each carrier on, each may ask for [`EACH_OF_A_CROWD`] more.
const CROWD: u32 = 600;
/// What each of a crowd asks for where processors do not keep up: whatever waits for its turn behind the answers, such as a prompt that
/// comes just now, has it sooner when more of them is read at once.
const EACH_OF_A_CROWD: Duration = Duration::from_micros(300);
/// No rest is longer for it than so many times as long as rests ended too late of late.
const LATE_TIMES: u32 = 4;
/// The longest rest where rests end in time, and where they do not.
const LONGEST: Duration = Duration::from_millis(100);
const LONGEST_OF_A_CROWD: Duration = Duration::from_millis(200);
/// How long answers are counted after their end, in milliseconds: fewer and fewer of them. Where processors do not keep up, it is the steps
/// between answers that take long; if rests became shorter for it, there would be still more to do.
const FADING: u64 = 2_000;

/// How many threads carry sessions and connections, each on a processor: those of the runtime that this is asked in (outside of one:
/// all), and no more than there are processors; 1 at least.
pub fn carriers() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Handle::try_current().map_or(processors, |runtime| runtime.metrics().num_workers().clamp(1, processors))
}

/// Counts the answers that come just now, and that came a moment ago.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace(Arc<Answers>);

#[derive(Debug)]
struct Answers {
    /// How many come just now.
    coming: AtomicUsize,
    /// The most that came, and when, in milliseconds after `epoch`: in the lower and the upper half.
    most: AtomicU64,
    epoch: Instant,
    /// How much later than it was due a rest ended of late, in microseconds.
    late: AtomicU64,
    /// How many threads carry them: known when one is read.
    carriers: OnceLock<usize>,
}

impl Default for Answers {
    fn default() -> Self {
        let (coming, most, late) = Default::default();
        Self { coming, most, epoch: Instant::now(), late, carriers: OnceLock::new() }
    }
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub(crate) struct Coming(Pace);

impl Pace {
    pub(crate) fn begin(&self) -> Coming {
        self.0.coming.fetch_add(1, Ordering::Relaxed);
        Coming(self.clone())
    }

    /// How long a socket rests that was read just now.
    fn rest(&self, now: Instant) -> Duration {
        let late = Duration::from_micros(self.0.late.load(Ordering::Relaxed));
        rest(self.answers(now), *self.0.carriers.get_or_init(carriers), late)
    }

    /// A rest ended so much later than it was due: that is when its reader was polled. It moves what is known by a part: about a hundred rests
    /// say it, and none of them much.
    fn ended(&self, late: Duration) {
        const PART: u64 = 64;
        let late = u64::try_from(late.min(LONGEST_OF_A_CROWD).as_micros()).unwrap_or(u64::MAX);
        let known = self.0.late.load(Ordering::Relaxed);
        // Two that do this at once differ by little.
        self.0.late.store((known.saturating_mul(PART - 1).saturating_add(late)) / PART, Ordering::Relaxed);
    }

    /// How many answers come, and those that came a moment ago as far as they are counted still.
    fn answers(&self, now: Instant) -> usize {
        const HALF: u64 = u32::MAX as u64;
        let coming = self.0.coming.load(Ordering::Relaxed);
        let millis =
            u64::try_from(now.saturating_duration_since(self.0.epoch).as_millis()).unwrap_or(0) & HALF;
        let most = self.0.most.load(Ordering::Relaxed);
        let (at, most) = (most >> 32, most & HALF);
        // Another thread may have looked at the clock later than this one.
        let age = millis.wrapping_sub(at) & HALF;
        let left = if age > HALF / 2 { FADING } else { FADING.saturating_sub(age) };
        let faded = usize::try_from(most * left / FADING).unwrap_or(0);
        if coming < faded {
            return faded;
        }
        // Two that do this at once differ by little.
        self.0.most.store(millis << 32 | (coming as u64).min(HALF), Ordering::Relaxed);
        coming
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.0.coming.fetch_sub(1, Ordering::Relaxed);
    }
}

fn rest(answers: usize, carriers: usize, late: Duration) -> Duration {
    let each = u32::try_from(answers / carriers).unwrap_or(u32::MAX);
    if each <= UNHURRIED {
        return Duration::ZERO;
    }
    let crowd =
        EACH_OF_A_CROWD.saturating_mul(each.saturating_sub(CROWD)).min(late.saturating_mul(LATE_TIMES));
    EACH.saturating_mul(each).min(LONGEST).saturating_add(crowd).min(LONGEST_OF_A_CROWD)
}

/// A connection that rests after each read, as long as the pace says.
pub(crate) struct Paced<T> {
    connection: T,
    pace: Pace,
    /// Whether it was read since it was written to last.
    is_read: bool,
    /// Rings when the rest is over. Made when it is first needed.
    over: Option<Pin<Box<Sleep>>>,
    is_resting: bool,
    /// What it and those who read answers from it tell each other.
    link: Link,
}

impl<T> Paced<T> {
    pub(crate) fn new(connection: T, pace: Pace) -> Self {
        Self { connection, pace, is_read: false, over: None, is_resting: false, link: Link::default() }
    }

    /// Begins a rest, unless this was the first read after a write, or nothing is expected any more.
    fn rest(&mut self) {
        if !std::mem::replace(&mut self.is_read, true) || self.link.is_over() {
            return;
        }
        let now = Instant::now();
        let rest = self.pace.rest(now);
        self.is_resting = !rest.is_zero();
        if self.is_resting {
            match &mut self.over {
                Some(over) => over.as_mut().reset(now + rest),
                None => self.over = Some(Box::pin(sleep(rest))),
            }
        }
    }

    /// Ends a rest, also for a reader that waits for its end.
    fn wrote(&mut self) {
        if let Some(over) = self.over.as_mut().filter(|_| self.is_resting) {
            over.as_mut().reset(Instant::now());
        }
        (self.is_read, self.is_resting) = (false, false);
        self.link.asked();
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Paced<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.link.polled();
        if this.is_resting
            && !this.link.is_over()
            && let Some(over) = &mut this.over
        {
            ready!(over.as_mut().poll(cx));
            this.pace.ended(over.deadline().elapsed());
        }
        this.is_resting = false;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.connection).poll_read(cx, buffer))?;
        // A buffer that is full may have left something behind; nothing at all is the end.
        if buffer.filled().len() > before && buffer.remaining() > 0 {
            this.rest();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Paced<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.link.polled();
        self.wrote();
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.link.polled();
        self.wrote();
        Pin::new(&mut self.connection).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

impl<T: Connection> Connection for Paced<T> {
    fn connected(&self) -> Connected {
        self.link.beside(self.connection.connected())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// A pace beside so many answers, of tests that one thread carries.
    fn beside(answers: usize) -> (Pace, Vec<Coming>) {
        let pace = Pace::default();
        let others = (0..answers).map(|_| pace.begin()).collect();
        (pace, others)
    }

    #[test]
    fn rests_grow_with_the_answers_and_shrink_with_the_carriers() {
        let millis = |answers, carriers| rest(answers, carriers, Duration::from_millis(50)).as_millis();
        assert_eq!([millis(0, 1), millis(300, 1), millis(301, 1), millis(400, 1)], [0, 0, 24, 32]);
        assert_eq!([millis(500, 1), millis(600, 1), millis(700, 1)], [40, 48, 86]);
        assert_eq!([millis(900, 1), millis(1_000, 1), millis(9_000, 1)], [162, 200, 200]);
        assert_eq!([millis(600, 2), millis(800, 2), millis(1_000, 2)], [0, 32, 40]);
        assert_eq!(millis(1_000, 16), 0);
        // Where processors keep up, a crowd asks for no more than others.
        let late = |millis| rest(1_000, 1, Duration::from_millis(millis)).as_millis();
        assert_eq!([late(0), late(1), late(10), late(30), late(90)], [80, 84, 120, 200, 200]);
        assert_eq!(rest(9_000, 1, Duration::ZERO).as_millis(), 100);
    }

    #[test]
    fn how_late_rests_end_is_known_after_some_of_them() {
        let pace = Pace::default();
        let mut known = Vec::new();
        for late in [80, 80, 80, 0, 0, 0] {
            (0..100).for_each(|_| pace.ended(Duration::from_millis(late)));
            known.push(pace.0.late.load(Ordering::Relaxed) / 1_000);
        }
        assert!(known[0] > 60 && known[2] >= 79 && known[3] < 20 && known[5] <= 1, "{known:?}");
        // A reader that looks after a minute only says nothing of the processors.
        pace.ended(Duration::from_secs(60));
        assert!(pace.0.late.load(Ordering::Relaxed) < 4_000);
    }

    #[test]
    fn those_who_carry_are_the_threads_of_the_runtime_at_most_one_for_each_processor() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(carriers(), processors);
        let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(single.block_on(async { carriers() }), 1);
        let several = |threads| {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build().unwrap();
            runtime.block_on(async { carriers() })
        };
        assert_eq!([several(1), several(2), several(processors + 2)], [1, processors.min(2), processors]);
    }

    #[tokio::test]
    async fn answers_that_ended_fade() {
        let (pace, others) = beside(600);
        let rest = |millis| pace.rest(pace.0.epoch + Duration::from_millis(millis)).as_millis();
        assert_eq!(rest(0), 48);
        drop(others);
        assert_eq!([0, 250, 500, 750, 1_000].map(rest), [48, 42, 36, 30, 0]);
        // What comes then is counted as it is.
        let _others: Vec<Coming> = (0..400).map(|_| pace.begin()).collect();
        assert_eq!(rest(2_250), 32);
    }

    /// Reads once, without waiting: `None` where nothing is there.
    fn read_now(near: &mut Paced<DuplexStream>) -> Option<String> {
        let mut buffer = [0; 64];
        let length = near.read(&mut buffer).now_or_never()?.unwrap();
        Some(String::from_utf8(buffer[..length].to_vec()).unwrap())
    }

    #[tokio::test]
    async fn beside_few_answers_each_piece_is_read_when_it_comes() {
        let (pace, _others) = beside(100);
        let (near, mut far) = duplex(1_024);
        let mut near = Paced::new(near, pace);
        near.write_all(b"ask").await.unwrap();
        for piece in ["a", "b", "c", "d", "e"] {
            far.write_all(piece.as_bytes()).await.unwrap();
            assert_eq!(read_now(&mut near).as_deref(), Some(piece));
        }
    }

    #[tokio::test]
    async fn beside_many_the_first_after_a_write_is_read_at_once_and_others_together() {
        let (pace, _others) = beside(500);
        let (near, mut far) = duplex(1_024);
        let mut near = Paced::new(near, pace);
        near.write_all(b"ask").await.unwrap();
        far.write_all(b"a").await.unwrap();
        assert_eq!(read_now(&mut near).as_deref(), Some("a"));
        let began = Instant::now();
        far.write_all(b"b").await.unwrap();
        assert_eq!(read_now(&mut near).as_deref(), Some("b"));
        let mut buffer = [0; 64];
        for (rests, pieces) in [(1, ["c", "d"]), (2, ["e", "f"])] {
            for piece in pieces {
                far.write_all(piece.as_bytes()).await.unwrap();
            }
            let length = near.read(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..length], pieces.concat().as_bytes());
            assert!(began.elapsed() >= Duration::from_millis(40) * rests, "{:?}", began.elapsed());
        }
    }

    #[tokio::test]
    async fn a_buffer_that_was_filled_is_followed_by_the_rest_at_once() {
        let (pace, _others) = beside(2_000);
        let (near, mut far) = duplex(1_024);
        let mut near = Paced::new(near, pace);
        far.write_all(b"abcdefgh").await.unwrap();
        let mut buffer = [0; 3];
        for expected in ["abc", "def", "gh"] {
            let length = near.read(&mut buffer).now_or_never().expect("it does not rest").unwrap();
            assert_eq!(&buffer[..length], expected.as_bytes());
        }
    }

    /// A connection that rests for an hour, its other end, and the answers beside it.
    async fn resting() -> (Paced<DuplexStream>, DuplexStream, Vec<Coming>) {
        let (pace, others) = beside(2_000);
        let (near, mut far) = duplex(1_024);
        let mut near = Paced::new(near, pace);
        near.write_all(b"ask").await.unwrap();
        for text in ["a", "b"] {
            far.write_all(text.as_bytes()).await.unwrap();
            assert_eq!(near.read(&mut [0; 64]).await.unwrap(), 1);
        }
        let over = near.over.as_mut().filter(|_| near.is_resting).expect("it rests");
        over.as_mut().reset(Instant::now() + Duration::from_secs(3_600));
        (near, far, others)
    }

    #[tokio::test]
    async fn an_answer_to_what_was_written_meanwhile_waits_for_nothing() {
        let (mut near, mut far, _others) = resting().await;
        far.write_all(b"c").await.unwrap();
        assert_eq!(read_now(&mut near), None);
        near.write_all(b"ask").await.unwrap();
        assert_eq!(read_now(&mut near).as_deref(), Some("c"));
    }

    #[tokio::test]
    async fn after_the_end_of_an_answer_nothing_rests() {
        let (mut near, mut far, _others) = resting().await;
        near.link.ended(near.link.asked_so_far());
        // A last word, and the end.
        far.write_all(b"c").await.unwrap();
        assert_eq!(read_now(&mut near).as_deref(), Some("c"));
        drop(far);
        assert_eq!(read_now(&mut near).as_deref(), Some(""));
    }

    #[tokio::test]
    async fn a_reader_that_waits_for_the_end_of_a_rest_is_woken_by_a_write() {
        let (near, mut far, _others) = resting().await;
        let (mut reader, mut writer) = tokio::io::split(near);
        let (polled, begun) = tokio::sync::oneshot::channel();
        // A task of its own, which nothing but its waker wakes.
        let read = tokio::spawn(async move {
            let mut buffer = [0; 64];
            let mut read = std::pin::pin!(reader.read(&mut buffer));
            assert!(futures::poll!(&mut read).is_pending());
            polled.send(()).unwrap();
            read.await.unwrap()
        });
        begun.await.unwrap();
        writer.write_all(b"ask").await.unwrap();
        far.write_all(b"c").await.unwrap();
        let read = tokio::time::timeout(Duration::from_secs(30), read).await.expect("it is woken");
        assert_eq!(read.unwrap(), 1);
    }
}
