//! All of it at once, for as long as told: turns with calls, a long answer at full speed, clients that come and go, aborts.

use std::time::{Duration, Instant};

use super::fair::flood;
use crate::model::{CLOCK, STEADY, Scripted};
use crate::report::{Row, Rows};
use crate::streams::Client;
use crate::target::{Target, Wire};
use crate::watch::{Shared, Watch};
use crate::who::Who;
use crate::{Options, Result};

/// How often it is looked who is done.
const LOOK: Duration = Duration::from_millis(20);
/// How often a turn is aborted, and clients come and go.
const TROUBLE: Duration = Duration::from_millis(500);
/// Clients that come and go together.
const VISITORS: usize = 10;

pub(crate) async fn run(options: &Options, who: &Who, sessions: usize) -> Result<Vec<Row>> {
    let model = Scripted::with_threads(options, 1, 1, options.model_threads.max(2))?;
    let length = Duration::from_secs(if options.bench { options.seconds } else { 2 });
    let mut rows = Rows::of(format!("mixed, {sessions} sessions for {} s", length.as_secs()));
    let target = who.start(options, &model).await?;
    let watch = Watch::shared();
    watch.borrow_mut().may_abort = true;
    let ids = target.sessions(&watch, sessions, STEADY).await?;
    target.prompt_all(&watch, 0, &ids, STEADY).await?;
    flood(&target).await?;
    let first = target.resident()?;
    let (before, begun) = (target.used()?, Instant::now());
    let mut mix =
        Mix { target: &target, watch: &watch, ids: &ids, visitors: Vec::new(), aborts: 0, round: 0 };
    let (mut connection, mut trouble) = (target.connect().await?, Instant::now());
    let mut half = f64::NAN;
    while begun.elapsed() < length {
        tokio::time::sleep(LOOK).await;
        mix.prompt(&mut connection).await?;
        if trouble.elapsed() > TROUBLE {
            trouble = Instant::now();
            mix.trouble(&mut connection).await?;
        }
        if half.is_nan() && begun.elapsed() > length / 2 {
            half = target.resident()?;
        }
    }
    let (spent, wall) = (target.used()?.since(before), begun.elapsed().as_secs_f64());
    let aborts = mix.aborts;
    let watch = watch.borrow();
    watch.failures.iter().take(3).for_each(|failure| println!("{failure}"));
    let turns: u64 = watch.sessions.iter().map(|seen| seen.turns).sum();
    rows.goal("errors", "", watch.failed as f64, 0.0);
    rows.add("turns that ended", "a second", turns as f64 / wall);
    rows.add("turns aborted", "", aborts as f64);
    rows.add("tokens to clients", "a second", watch.tokens as f64 / wall);
    rows.add("event latency, median", "ms", watch.latency.at(0.5));
    rows.add("event latency, 99 %", "ms", watch.latency.at(0.99));
    rows.add("processors used by the server", "", spent.own / 1e6 / wall);
    rows.add("memory at the beginning", "MB", first);
    rows.add("memory at half of the time", "MB", half);
    rows.add("memory at the end", "MB", target.resident()?);
    Ok(rows.rows)
}

/// What goes on.
struct Mix<'a> {
    target: &'a Target,
    watch: &'a Shared,
    ids: &'a [String],
    visitors: Vec<Client>,
    aborts: usize,
    round: usize,
}

impl Mix<'_> {
    /// Sessions that are done get their next prompt.
    async fn prompt(&mut self, connection: &mut crate::http::Connection) -> Result<()> {
        for (number, id) in self.ids.iter().enumerate() {
            if self.watch.borrow().sessions[number].is_busy {
                continue;
            }
            self.round += 1;
            self.watch.borrow_mut().begin(number);
            let text = format!("Session {number}, prompt {}: go on.", self.round);
            self.target.prompt(connection, id, STEADY, &text).await?;
        }
        Ok(())
    }

    /// One turn is aborted, and clients come and go.
    async fn trouble(&mut self, connection: &mut crate::http::Connection) -> Result<()> {
        let number = self.aborts * 7 % self.ids.len();
        self.aborts += 1;
        self.target.abort(connection, &self.ids[number]).await?;
        self.visitors.drain(..).for_each(Client::close);
        if self.target.wire == Wire::Native {
            // What they see is seen already.
            let unheard = Watch::shared();
            unheard.borrow_mut().may_abort = true;
            unheard.borrow_mut().session(CLOCK);
            for visitor in 0..VISITORS {
                let id = &self.ids[(number + visitor) % self.ids.len()];
                self.visitors.push(self.target.client(&unheard, id, 0).await?);
            }
        }
        Ok(())
    }
}
