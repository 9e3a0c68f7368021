//! What a life of a sink begins with.

use std::sync::Arc;

use playhouse_protocol::operator::ArchivedRows;
use playhouse_store::Shelf;
use reqwest::Client;

use crate::config::Start;
use crate::driver::LifeError;
use crate::feed::Feed;
use crate::file::Files;
use crate::http::{Server, client};
use crate::records::{Records, Saved};
use crate::rest::{first, oldest};
use crate::sink::Target;
use crate::status::Begun;

/// Where entries go.
pub(crate) enum Destination {
    Server {
        server: Arc<Server>,
        client: Client,
    },
    /// Taken while a thread writes.
    Files(Option<Files>),
}

/// What is kept of a sink, and what that says. Where it begins for the first time is kept from here on. Blocks.
pub(crate) fn load(
    shelf: Arc<dyn Shelf>,
    feed: &dyn Feed,
    name: &str,
    kind: &str,
    start: Start,
) -> Result<(Records, Saved, Begun), LifeError> {
    let mut records = Records::new(shelf, name);
    let mut saved = match records.load()? {
        Some(saved) => saved,
        None => {
            let saved = first(start, feed)?;
            if let Some(ArchivedRows { rows, before }) = saved.archived {
                let before = before.as_millis();
                tracing::warn!(
                    sink = name,
                    rows,
                    before,
                    "rows that were archived are not sent to the new sink"
                );
            }
            saved
        }
    };
    if saved.kind.as_deref() != Some(kind) {
        saved.kind = Some(kind.to_owned());
        records.save(&saved)?;
    }
    let mut dead_letters = 0;
    for letter in records.letters()? {
        if letter.place.number > saved.cursor.settled {
            // Buried before the end of the last life, which did not come to save it: it is sent again.
            records.forget(letter.place)?;
        } else {
            dead_letters += 1;
        }
    }
    let (settled, archived) = (saved.cursor.settled, saved.archived);
    let begun = Begun { settled, oldest: oldest(feed, saved.cursor)?, dead_letters, archived };
    Ok((records, saved, begun))
}

/// Opens what the sink leads to. Blocks.
pub(crate) fn open(
    records: &mut Records,
    mut saved: Saved,
    target: Target,
) -> Result<(Saved, Destination), LifeError> {
    let destination = match target {
        Target::Server(server) => {
            let client = client(&server.url).map_err(LifeError::Client)?;
            Destination::Server { server, client }
        }
        Target::Folder { folder, rotation } => {
            Destination::Files(Some(Files::open(&folder, rotation, saved.file.clone())?))
        }
    };
    let has_file = matches!(&destination, Destination::Files(Some(files)) if files.has_active());
    if saved.file.is_some() && !has_file {
        // The length of a file that was closed or taken says nothing of the next one.
        saved.file = None;
        records.save(&saved)?;
    }
    Ok((saved, destination))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use playhouse_billing::export::{Cursor, DeadLetter};
    use playhouse_protocol::Timestamp;
    use playhouse_store::{Store, StoreError};

    use super::*;
    use crate::file::Rotation;
    use crate::records::FileMark;

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

    fn folder(folder: &tempfile::TempDir) -> Target {
        let rotation = Rotation { bytes: 1_000, millis: 1_000 };
        Target::Folder { folder: folder.path().to_owned(), rotation }
    }

    /// The engine ended between the renaming of a file and the next save, and then before the first save of rows of the next
    /// file.
    #[test]
    fn the_length_of_a_closed_file_is_not_that_of_the_next_one() {
        let place = tempfile::tempdir().unwrap();
        let shelf = Store::memory().unwrap().shelf;
        let begun = Timestamp::from_millis(1);
        let mark = FileMark { length: 100, first: 1, last: 2, begun, inode: None, last_line: None };
        let mut records = Records::new(Arc::clone(&shelf), "a");
        let saved = Saved { cursor: Cursor::at(2), file: Some(mark), ..Saved::default() };
        records.save(&saved).unwrap();
        for length in [50, 150] {
            let (mut records, saved, _) =
                load(Arc::clone(&shelf), &Empty, "a", "file", Start::Beginning).unwrap();
            let (mut saved, destination) = open(&mut records, saved, folder(&place)).unwrap();
            assert_eq!(saved.file.as_ref().map_or(0, |mark| mark.length), 0);
            let Destination::Files(Some(mut files)) = destination else { panic!("it is a folder") };
            if let Some(mark) = files.prepare(3, begun).unwrap() {
                saved.file = Some(mark);
                records.save(&saved).unwrap();
            }
            files.append(&vec![b'x'; length], 4).unwrap();
        }
        let text = fs_err::read_to_string(place.path().join("usage.ndjson")).unwrap();
        assert_eq!(text, "x".repeat(150));
    }

    #[test]
    fn letters_that_the_cursor_has_not_passed_are_sent_again() {
        let shelf = Store::memory().unwrap().shelf;
        let mut records = Records::new(Arc::clone(&shelf), "a");
        let cursor = Cursor { after: 1, settled: 4 };
        records.save(&Saved { cursor, ..Saved::default() }).unwrap();
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
        let (records, _, begun) = load(shelf, &Empty, "a", "file", Start::Now).unwrap();
        assert_eq!((begun.settled, begun.dead_letters), (4, 2));
        let left: Vec<u64> = records.letters().unwrap().iter().map(|letter| letter.place.number).collect();
        assert_eq!(left, [3, 4]);
    }
}
