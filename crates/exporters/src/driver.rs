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
use playhouse_store::{Shelf, StoreError};
use reqwest::Client;
use thiserror::Error;
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;

use crate::config::Start;
use crate::exporters::Surroundings;
use crate::feed::Feed;
use crate::file::{FileError, Files};
use crate::http::{Server, client};
use crate::measure::Measures;
use crate::reader::Reader;
use crate::records::{FileMark, RecordError, Records, Saved};
use crate::sink::{Sink, Target};
use crate::status::Board;

/// How often a sink that has nothing to do looks whether its file is old.
const TICK: Duration = Duration::from_secs(30);

/// Why a life ended.
#[derive(Debug, Error)]
enum LifeError {
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
                | Self::Files(FileError::Foreign(_) | FileError::Short { .. })
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
    /// The engine ends: what there is to deliver is delivered at once, and nothing is waited for.
    pub(crate) ending: CancellationToken,
    /// It ends wherever it is.
    pub(crate) stop: CancellationToken,
}

/// Where entries go.
enum Destination {
    Server {
        server: Arc<Server>,
        client: Client,
    },
    /// Taken while a thread writes.
    Files(Option<Files>),
}

/// What one life has.
struct Life<'a> {
    driver: &'a Driver,
    records: Option<Records>,
    destination: Destination,
    reader: Option<Reader>,
    delivery: Delivery,
    saved: Cursor,
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
            self.board.change(|status| {
                let since = status.trouble.as_ref().map_or((self.surroundings.clock)(), |old| old.since);
                let misconfigured = error.is_for_people();
                status.trouble =
                    Some(Trouble { misconfigured, reason: error.to_string(), since, tries: failures });
            });
            tokio::select! {
                () = self.ending.cancelled() => return,
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
    }

    /// Waits for more, or until what failed is tried again.
    async fn sleep(&self, millis: u64, failed: bool) -> Option<Input> {
        tokio::select! {
            () = self.ending.cancelled() => (!failed).then_some(Input::Waited),
            () = tokio::time::sleep(Duration::from_millis(millis)) => Some(Input::Waited),
        }
    }

    async fn begin(&self) -> Result<Life<'_>, LifeError> {
        let (shelf, feed, name) =
            (Arc::clone(&self.shelf), Arc::clone(&self.feed), Arc::clone(&self.sink.name));
        let (start, target) = (self.sink.start, self.sink.target.clone());
        let opened = spawn_blocking(move || open(shelf, &*feed, &name, start, target));
        let (records, saved, letters, destination) = opened.await??;
        self.board.change(|status| status.dead_letters = letters);
        let reader = Reader::new(Arc::clone(&self.feed), Arc::clone(&self.sink.shape), saved.cursor);
        Ok(Life {
            driver: self,
            records: Some(records),
            destination,
            reader: Some(reader),
            delivery: Delivery::new(self.sink.policy.clone(), saved.cursor),
            saved: saved.cursor,
        })
    }
}

/// Everything that a life begins with. Blocks.
fn open(
    shelf: Arc<dyn Shelf>,
    feed: &dyn Feed,
    name: &str,
    start: Start,
    target: Target,
) -> Result<(Records, Saved, u64, Destination), LifeError> {
    let mut records = Records::new(shelf, name);
    let found = records.load()?;
    let is_new = found.is_none();
    let mut saved = found.unwrap_or_else(|| match start {
        Start::Beginning => Saved::default(),
        Start::Now => Saved { cursor: Cursor::at(feed.end()), file: None },
    });
    let destination = match target {
        Target::Server(server) => {
            let client = client(&server.url).map_err(LifeError::Client)?;
            Destination::Server { server, client }
        }
        Target::Folder { folder, rotation } => {
            Destination::Files(Some(Files::open(&folder, rotation, saved.file, is_new)?))
        }
    };
    let has_file = matches!(&destination, Destination::Files(Some(files)) if files.has_active());
    if is_new || saved.file.is_some() && !has_file {
        // From now on the file is ours, and "now" stays when it was; and the length of a file that was closed says nothing
        // of the next one.
        saved.file = None;
        records.save(&saved)?;
    }
    let mut letters = 0;
    for letter in records.letters()? {
        if letter.place.number > saved.cursor.settled {
            // Buried before the end of the last life, which did not come to save it: it is sent again.
            records.forget(letter.place)?;
        } else {
            letters += 1;
        }
    }
    Ok((records, saved, letters, destination))
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
        self.with_records(move |records| records.save(&Saved { cursor, file })).await?;
        self.saved = cursor;
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
            self.with_files(move |files| files.append(&lines, first, last, now)).await?;
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

#[cfg(test)]
mod tests {
    use playhouse_protocol::Timestamp;
    use playhouse_store::Store;

    use super::*;
    use crate::file::Rotation;

    struct Empty;

    impl Feed for Empty {
        fn after(
            &self,
            _: u64,
            _: usize,
        ) -> Result<Vec<(u64, playhouse_billing::export::FeedItem)>, StoreError> {
            Ok(Vec::new())
        }

        fn end(&self) -> u64 {
            7
        }

        fn grown(&self, _: u64) -> futures::future::BoxFuture<'static, ()> {
            std::future::pending().boxed()
        }
    }

    /// The engine ended between the renaming of a file and the next save, and then before the first save of the next file.
    #[test]
    fn the_length_of_a_closed_file_is_not_that_of_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Store::memory().unwrap().shelf;
        let mark = FileMark { length: 100, first: 1, last: 2, begun: Timestamp::from_millis(1) };
        let mut records = Records::new(Arc::clone(&shelf), "a");
        records.save(&Saved { cursor: Cursor::at(2), file: Some(mark) }).unwrap();
        for length in [50, 150] {
            let target = Target::Folder {
                folder: folder.path().to_owned(),
                rotation: Rotation { bytes: 1_000, millis: 1_000 },
            };
            let (_, saved, _, destination) =
                open(Arc::clone(&shelf), &Empty, "a", Start::Beginning, target).unwrap();
            assert_eq!(saved, Saved { cursor: Cursor::at(2), file: None });
            assert_eq!(records.load().unwrap(), Some(saved));
            let Destination::Files(Some(mut files)) = destination else { panic!("it is a folder") };
            files.append(&vec![b'x'; length], 3, 4, Timestamp::from_millis(1)).unwrap();
        }
    }

    #[test]
    fn letters_that_the_cursor_has_not_passed_are_sent_again() {
        let shelf = Store::memory().unwrap().shelf;
        let mut records = Records::new(Arc::clone(&shelf), "a");
        records.save(&Saved { cursor: Cursor { after: 1, settled: 4 }, file: None }).unwrap();
        let report = playhouse_billing::export::TurnReport {
            id: "rep_1".to_owned(),
            tenant: "acme".to_owned(),
            session: "ses_0123456789abABCDEFGHIJKLMN".parse().unwrap(),
            turn: "msg_0123456789abABCDEFGHIJKLMN".parse().unwrap(),
            model_id: "p/m".to_owned(),
            tier: playhouse_protocol::ledger::Tier::Pro,
            raw_tokens: 1,
            at: Timestamp::from_millis(1),
        };
        for number in [3, 4, 5] {
            let letter = DeadLetter {
                place: playhouse_billing::export::Place { number, part: 1 },
                id: report.id.clone(),
                status: 422,
                reason: "no".to_owned(),
                at: Timestamp::from_millis(1),
                entry: playhouse_billing::export::Entry::Report(report.clone()),
            };
            records.bury(&letter).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let target = Target::Folder {
            folder: folder.path().to_owned(),
            rotation: Rotation { bytes: 1_000, millis: 1_000 },
        };
        let (records, _, letters, _) = open(shelf, &Empty, "a", Start::Now, target).unwrap();
        assert_eq!(letters, 2);
        let left: Vec<u64> = records.letters().unwrap().iter().map(|letter| letter.place.number).collect();
        assert_eq!(left, [3, 4]);
    }
}
