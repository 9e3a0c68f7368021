//! What is done with a server.

mod deep;
mod fair;
mod fanout;
mod idle;
mod mixed;
mod start;
mod steady;
mod storm;
mod stream;

use std::rc::Rc;
use std::time::Duration;

use crate::model::SHORT;
use crate::place::Place;
use crate::report::Row;
use crate::target::Wire;
use crate::watch::{Watch, until};
use crate::who::{Who, serve};
use crate::{Options, Result};

/// How long a short turn may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// From the start of the program until it is ready, and until what was cut off goes on.
    Start,
    /// Turns with five calls of `read`, at a pace.
    Steady,
    /// Long answers: many at a pace, and one as fast as it goes.
    Stream,
    /// One session of many steps, and short turns after them.
    Deep,
    /// Sessions that only exist.
    Idle,
    /// Many clients of one session.
    Fanout,
    /// Everybody prompts, aborts and connects at once.
    Storm,
    /// Whether the fast and the many leave room for the others.
    Fair,
    /// All of it, for as long as told.
    Mixed,
}

impl Scenario {
    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// How many sessions (or clients) there are, in the sizes of the goals.
    pub(crate) fn sizes(self, with_peer: bool) -> &'static [usize] {
        match (self, with_peer) {
            (Self::Start | Self::Idle, _) => &[10_000],
            (Self::Steady, false) => &[1, 500, 1_000, 2_000],
            (Self::Steady, true) => &[1, 10, 50],
            (Self::Stream, true) => &[10],
            (Self::Deep, _) => &[1],
            (Self::Fanout, false) => &[1_000],
            (Self::Fanout, true) => &[100],
            (Self::Storm | Self::Mixed, true) => &[20],
            (Self::Mixed, false) => &[200],
            (Self::Stream | Self::Storm | Self::Fair, _) => &[500],
        }
    }

    /// Whether a peer does it too.
    pub(crate) fn is_for_peers(self) -> bool {
        !matches!(self, Self::Idle | Self::Fair)
    }

    /// Does it.
    pub(crate) async fn run(self, options: &Options, who: &Who, sessions: usize) -> Result<Vec<Row>> {
        match self {
            Self::Start => Box::pin(start::run(options, who, sessions)).await,
            Self::Steady => Box::pin(steady::run(options, who, sessions)).await,
            Self::Stream => Box::pin(stream::run(options, who, sessions)).await,
            Self::Deep => Box::pin(deep::run(options, who)).await,
            Self::Idle if options.server.is_some() => Err("it needs an engine that it starts itself".into()),
            Self::Idle => Box::pin(idle::run(options, sessions)).await,
            Self::Fanout => Box::pin(fanout::run(options, who, sessions)).await,
            Self::Storm => Box::pin(storm::run(options, who, sessions)).await,
            Self::Fair => Box::pin(fair::run(options, who, sessions)).await,
            Self::Mixed => Box::pin(mixed::run(options, who, sessions)).await,
        }
    }
}

/// Has the engine make a session of so many short turns in this place; its id. The engine has ended then.
async fn old_session(place: &Rc<Place>, turns: usize) -> Result<String> {
    let target = serve(Wire::Native, Rc::clone(place))?;
    let watch = Watch::shared();
    let ids = target.sessions(&watch, 1, SHORT).await?;
    for turn in 0..turns {
        target.prompt_all(&watch, 0, &ids, SHORT).await?;
        if !until(&watch, PATIENCE, |watch| watch.busy == 0 || watch.failed > 0).await {
            return Err(format!("turn {turn} did not come to an end: {:?}", watch.borrow().failures).into());
        }
    }
    ids.into_iter().next().ok_or_else(|| "there is no session".into())
}
