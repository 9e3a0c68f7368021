//! The loop of a sink: it carries out what the state machine of delivery decides.
//!
//! A life begins with what is on the shelf, and ends when the engine stops or when something that must not fail has failed
//! (the shelf, the feed, a file). Then the next one begins, after a wait. Nothing is carried over from one to the next.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use playhouse_billing::export::{
    Answer, Answers, Cursor, DeadLetter, Delivery, Effect, Input, Item, Stamp, Trouble,
};
use playhouse_protocol::Timestamp;
use playhouse_protocol::operator::ArchivedRows;
use playhouse_store::{Shelf, StoreError};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;

use crate::begin::{Destination, load, open};
use crate::exporters::Surroundings;
use crate::feed::Feed;
use crate::file::{FileError, Files};
use crate::measure::Measures;
use crate::reader::Reader;
use crate::records::{FileMark, RecordError, Records, Saved};
use crate::sink::Sink;
use crate::status::Board;

/// How often a sink that has nothing to do looks whether its file is old.
const TICK: Duration = Duration::from_secs(30);

/// Why a life ended.
#[derive(Debug, Error)]
pub(crate) enum LifeError {
    #[error(transparent)]
    Records(#[from] RecordError),
    #[error("the ledger cannot be read: {0}")]
    Feed(#[from] StoreError),
    #[error(transparent)]
    Files(#[from] FileError),
    #[error("TLS cannot be set up ({0}): are the machine's CA certificates installed?")]
    Client(String),
    #[error("a thread of the sink crashed: {0}")]
    Crashed(#[from] JoinError),
    #[error("the sink crashed: this is a bug")]
    Panicked,
}

impl LifeError {
    /// Whether only people can help.
    fn is_for_people(&self) -> bool {
        matches!(
            self,
            Self::Records(RecordError::Damaged { .. } | RecordError::Taken { .. })
                | Self::Files(FileError::NoFolder(_) | FileError::Foreign(_) | FileError::Short { .. })
                | Self::Client(_)
        )
    }
}

/// A sink at work.
pub(crate) struct Driver {
    pub(crate) sink: Sink,
    pub(crate) feed: Arc<dyn Feed>,
    pub(crate) shelf: Arc<dyn Shelf>,
    pub(crate) surroundings: Surroundings,
    pub(crate) board: Arc<Board>,
    pub(crate) measures: Measures,
    /// Somebody wants that what failed is tried now.
    pub(crate) hurry: Arc<Notify>,
    /// The engine ends: what there is to deliver is delivered at once, and nothing is waited for.
    pub(crate) ending: CancellationToken,
    /// It ends wherever it is.
    pub(crate) stop: CancellationToken,
}

/// What one life has.
struct Life<'a> {
    driver: &'a Driver,
    records: Option<Records>,
    destination: Destination,
    reader: Option<Reader>,
    delivery: Delivery,
    saved: Cursor,
    archived: Option<ArchivedRows>,
}

impl Driver {
    /// Drives the sink until it is stopped.
    pub(crate) async fn run(self) {
        let mut failures: u32 = 0;
        while !self.stop.is_cancelled() {
            let before = self.board.read(0).delivered;
            let life = AssertUnwindSafe(Box::pin(self.live())).catch_unwind().await;
            let Err(error) = life.unwrap_or(Err(LifeError::Panicked)) else { return };
            if self.board.read(0).delivered > before {
                failures = 0;
            }
            let policy = &self.sink.policy;
            let wait = if error.is_for_people() {
                policy.slow_wait_ms
            } else {
                policy.first_wait_ms.saturating_mul(1 << failures.min(32)).min(policy.longest_wait_ms)
            };
            failures = failures.saturating_add(1);
            tracing::error!(sink = self.sink.name(), %error, wait_ms = wait, "the sink begins anew");
            let since = (self.surroundings.clock)();
            let (misconfigured, reason) = (error.is_for_people(), error.to_string());
            let trouble = Trouble { misconfigured, reason, since, tries: failures, asked: false };
            self.board.fail(trouble, later(since, wait));
            tokio::select! {
                () = self.ending.cancelled() => return,
                () = self.hurry.notified() => {}
                () = tokio::time::sleep(Duration::from_millis(wait)) => {}
            }
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp { at: (self.surroundings.clock)(), random: (self.surroundings.random)() }
    }

    async fn live(&self) -> Result<(), LifeError> {
        let mut life = self.begin().await?;
        let mut input = Input::Started;
        loop {
            let mut effects = life.delivery.on(input, self.stamp());
            let Some(last) = effects.pop() else { return Ok(()) };
            for effect in effects {
                match effect {
                    Effect::Bury(letter) => life.bury(*letter).await?,
                    Effect::Save(cursor) => life.save(cursor).await?,
                    Effect::Read(_) | Effect::Send | Effect::Wait(_) | Effect::Idle => {}
                }
            }
            self.show(&life.delivery, &last);
            let next = match last {
                Effect::Read(limit) => Some(life.read(limit).await?),
                Effect::Send => life.send().await?,
                Effect::Wait(millis) => self.sleep(millis, life.delivery.trouble().is_some()).await,
                Effect::Idle => life.idle().await?,
                Effect::Bury(_) | Effect::Save(_) => None,
            };
            match next {
                Some(next) if !self.stop.is_cancelled() => input = next,
                Some(next) => {
                    // What was answered is not asked for again after the next start.
                    if matches!(next, Input::Answered(_)) {
                        for effect in life.delivery.on(next, self.stamp()) {
                            if let Effect::Bury(letter) = effect {
                                life.bury(*letter).await?;
                            }
                        }
                    }
                    return life.end().await;
                }
                None => return life.end().await,
            }
        }
    }

    /// Tells people when it begins to fail, and others how far it is.
    fn show(&self, delivery: &Delivery, next: &Effect) {
        if let (Effect::Wait(wait_ms), Some(trouble)) = (next, delivery.trouble()) {
            let (sink, reason) = (self.sink.name(), &trouble.reason);
            if trouble.misconfigured {
                tracing::error!(
                    sink,
                    reason,
                    wait_ms,
                    "the sink takes nothing: check its address and its key"
                );
            } else {
                tracing::warn!(sink, reason, wait_ms, tries = trouble.tries, "the sink is tried again");
            }
        }
        self.board.show(delivery);
        if let (Effect::Wait(wait_ms), true) = (next, delivery.trouble().is_some()) {
            let until = later((self.surroundings.clock)(), *wait_ms);
            self.board.change(|status| status.waits_until = Some(until));
        }
    }

    /// Waits for more, or until what failed is tried again.
    async fn sleep(&self, millis: u64, failed: bool) -> Option<Input> {
        tokio::select! {
            () = self.ending.cancelled() => (!failed).then_some(Input::Waited),
            () = self.hurry.notified(), if failed => Some(Input::Waited),
            () = tokio::time::sleep(Duration::from_millis(millis)) => Some(Input::Waited),
        }
    }

    async fn begin(&self) -> Result<Life<'_>, LifeError> {
        let (shelf, feed, name) =
            (Arc::clone(&self.shelf), Arc::clone(&self.feed), Arc::clone(&self.sink.name));
        let (start, kind) = (self.sink.start, self.sink.kind.name());
        let loading = spawn_blocking(move || load(shelf, &*feed, &name, kind, start));
        let (mut records, saved, begun) = loading.await??;
        // What opening its destination may fail with is told beside where it is.
        self.board.begin(begun);
        let target = self.sink.target.clone();
        let (records, saved, destination) = spawn_blocking(move || {
            let (saved, destination) = open(&mut records, saved, target)?;
            Ok::<_, LifeError>((records, saved, destination))
        })
        .await??;
        let reader = Reader::new(Arc::clone(&self.feed), Arc::clone(&self.sink.shape), saved.cursor);
        Ok(Life {
            driver: self,
            records: Some(records),
            destination,
            reader: Some(reader),
            delivery: Delivery::new(self.sink.policy.clone(), saved.cursor),
            saved: saved.cursor,
            archived: saved.archived,
        })
    }
}

fn later(now: Timestamp, millis: u64) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_add(millis))
}

impl Life<'_> {
    async fn bury(&mut self, letter: DeadLetter) -> Result<(), LifeError> {
        let (sink, id, status, reason) = (self.driver.sink.name(), &letter.id, letter.status, &letter.reason);
        tracing::warn!(sink, id, status, reason, "refused for good: see `playhouse billing dead`");
        self.with_records(move |records| records.bury(&letter)).await?;
        self.driver.board.change(|status| status.dead_letters += 1);
        self.driver.measures.buried();
        Ok(())
    }

    /// Runs something on a thread that may block.
    async fn with_records<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Records) -> Result<T, RecordError> + Send + 'static,
    ) -> Result<T, LifeError> {
        let Some(mut records) = self.records.take() else { return Err(StoreError::Closed.into()) };
        let (records, result) = spawn_blocking(move || {
            let result = work(&mut records);
            (records, result)
        })
        .await?;
        self.records = Some(records);
        Ok(result?)
    }

    async fn with_files<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Files) -> Result<T, FileError> + Send + 'static,
    ) -> Result<Option<T>, LifeError> {
        let Destination::Files(files) = &mut self.destination else { return Ok(None) };
        let Some(mut taken) = files.take() else { return Ok(None) };
        let (taken, result) = spawn_blocking(move || {
            let result = work(&mut taken);
            (taken, result)
        })
        .await?;
        *files = Some(taken);
        Ok(Some(result?))
    }

    async fn save(&mut self, cursor: Cursor) -> Result<(), LifeError> {
        let file = self.with_files(Files::sync).await?.flatten();
        self.store(cursor, file).await?;
        self.rotate(cursor).await
    }

    async fn store(&mut self, cursor: Cursor, file: Option<FileMark>) -> Result<(), LifeError> {
        let kind = Some(self.driver.sink.kind.name().to_owned());
        let saved = Saved { cursor, file, archived: self.archived, kind };
        self.with_records(move |records| records.save(&saved)).await?;
        self.saved = cursor;
        self.driver.board.saved(cursor.settled);
        Ok(())
    }

    /// Closes a file that is due. Everything in it must be saved.
    async fn rotate(&mut self, cursor: Cursor) -> Result<(), LifeError> {
        let now = (self.driver.surroundings.clock)();
        let rotate = move |files: &mut Files| {
            let is_due = files.is_due(now);
            if is_due {
                files.rotate()?;
            }
            Ok(is_due)
        };
        match self.with_files(rotate).await? {
            Some(true) => self.store(cursor, None).await,
            _ => Ok(()),
        }
    }

    async fn read(&mut self, limit: usize) -> Result<Input, LifeError> {
        let Some(mut reader) = self.reader.take() else { return Err(StoreError::Closed.into()) };
        let (reader, portion) = spawn_blocking(move || {
            let portion = reader.read(limit);
            (reader, portion)
        })
        .await?;
        self.reader = Some(reader);
        let portion = portion?;
        Ok(Input::Read { items: portion.items, cursor: portion.cursor, more: portion.more })
    }

    async fn send(&mut self) -> Result<Option<Input>, LifeError> {
        let batch = self.delivery.batch();
        let count = batch.len() as u64;
        let answers = if let Destination::Server { server, client } = &self.destination {
            let delivered = server.deliver(client, &batch, &self.driver.surroundings);
            tokio::select! {
                answers = delivered => answers,
                () = self.driver.stop.cancelled() => return Ok(None),
            }
        } else {
            let lines: Vec<u8> = batch.iter().flat_map(|item| item.encoded.iter().copied()).collect();
            let number = |item: Option<&&Item>| item.map_or(0, |item| item.place.number);
            let (first, last) = (number(batch.first()), number(batch.last()));
            let now = (self.driver.surroundings.clock)();
            if let Some(mark) = self.with_files(move |files| files.prepare(first, now)).await?.flatten() {
                self.store(self.saved, Some(mark)).await?;
            }
            self.with_files(move |files| files.append(&lines, last)).await?;
            Answers::All(Answer::Accepted)
        };
        let accepted = match &answers {
            Answers::All(Answer::Accepted) => count,
            Answers::All(_) => 0,
            Answers::Each(each) => each.iter().filter(|answer| **answer == Answer::Accepted).count() as u64,
        };
        self.driver.board.change(|status| status.delivered += accepted);
        self.driver.measures.answered(&answers, accepted);
        Ok(Some(Input::Answered(answers)))
    }

    /// Whether there is a file that may become old.
    fn is_writing(&self) -> bool {
        matches!(&self.destination, Destination::Files(Some(files)) if files.has_active())
    }

    /// Waits until the feed grew. A file that is being written is looked at from time to time: it may become old.
    async fn idle(&mut self) -> Result<Option<Input>, LifeError> {
        let position = self.reader.as_ref().map_or(0, Reader::position);
        let mut grown = self.driver.feed.grown(position);
        loop {
            tokio::select! {
                // What is there already is delivered first.
                biased;
                () = &mut grown => return Ok(Some(Input::Waited)),
                () = self.driver.ending.cancelled() => return Ok(None),
                () = tokio::time::sleep(TICK), if self.is_writing() => self.rotate(self.saved).await?,
            }
        }
    }

    /// Saves what is settled, at the end.
    async fn end(mut self) -> Result<(), LifeError> {
        let done = self.delivery.done();
        if done != self.saved {
            self.save(done).await?;
        }
        self.driver.board.show(&self.delivery);
        Ok(())
    }
}
