//! Who is measured: the engine, a server that runs already, or a peer.

use std::path::PathBuf;
use std::rc::Rc;

use crate::model::{FILE, STEADY, Scripted};
use crate::peer::Peer;
use crate::place::Place;
use crate::target::{Target, Wire};
use crate::{Options, Result};

/// Who is measured.
pub(crate) enum Who {
    /// The engine, by this wire.
    Engine(Wire),
    /// A server that runs already.
    Running(Wire),
    /// Another server.
    Peer(Peer),
}

impl Who {
    /// Who is to be measured.
    pub(crate) fn subject(options: &Options) -> Result<Self> {
        Ok(match &options.server {
            Some(_) => Self::Running(options.wire()),
            None => Self::Engine(options.wire()),
        })
    }

    /// Who stands beside it.
    pub(crate) fn peer(options: &Options) -> Result<Option<Self>> {
        options.peer.as_ref().map(|_| Ok(Self::Peer(Peer::install(&options.peer_version)?))).transpose()
    }

    /// Whether it is the engine, of which goals are demanded.
    pub(crate) fn is_engine(&self) -> bool {
        !matches!(self, Self::Peer(_))
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Engine(_) => "playhouse".to_owned(),
            Self::Running(_) => "the server".to_owned(),
            Self::Peer(peer) => peer.name(),
        }
    }

    /// Starts it, with this model, in a new place.
    pub(crate) async fn start(&self, options: &Options, model: &Scripted) -> Result<Target> {
        self.start_with(options, model, "").await
    }

    /// The same with more of the engine's configuration (tables only).
    pub(crate) async fn start_with(&self, options: &Options, model: &Scripted, more: &str) -> Result<Target> {
        match self {
            Self::Engine(wire) => serve(*wire, Rc::new(place(options, model, more)?)),
            Self::Running(wire) => running(options, *wire),
            Self::Peer(peer) => peer.start(options, model).await,
        }
    }
}

/// A place for the engine, with a file to read.
pub(crate) fn place(options: &Options, model: &Scripted, more: &str) -> Result<Place> {
    let given = options.config.as_ref().map_or(Ok(String::new()), fs_err::read_to_string)?;
    // Each session has a client, and a moment later a prompt of its own. What is not needed is left out: an engine from before knows no
    // such key.
    let many = options.sessions.is_some_and(|sessions| sessions > 2_000) && !given.contains("[server]");
    let connections = if many { "[server]\nconnections = 1000000\n" } else { "" };
    // A client of each session is more than a tenant usually has.
    // A client of the v1 wire names the model with the prompt only.
    let config = format!(
        "model = \"bench/{STEADY}\"\nsandbox = \"off\"\n{given}\n{}\n[server.limits]\nsubscribers = 1000000\n{connections}{more}\n",
        model.config()
    );
    let under = options.under.as_ref().map(|words| words.0.clone()).unwrap_or_default();
    let place = Place::in_folder(options.folder()?, &config)?
        .run_by(&under, options.threads)
        .with_program(options.program.as_deref())
        .trusting(model.certificate());
    write_file(&place.workspace())?;
    Ok(place)
}

/// The file that models read.
pub(crate) fn write_file(workspace: &std::path::Path) -> Result<()> {
    let line = "A line of a small file, such as models read all day.\n";
    Ok(fs_err::write(workspace.join(FILE), line.repeat(10))?)
}

/// Starts the engine in this place.
pub(crate) fn serve(wire: Wire, place: Rc<Place>) -> Result<Target> {
    let served = place.serve()?;
    Ok(Target {
        wire,
        address: served.address,
        workspace: place.workspace(),
        id: Some(served.process.id()),
        process: Some(served.process),
        place: Some(place),
        authorization: None,
    })
}

fn running(options: &Options, wire: Wire) -> Result<Target> {
    let address = options.server.as_deref().and_then(|url| url.strip_prefix("http://"));
    let workspace: PathBuf = options.workspace.clone().map_or_else(std::env::current_dir, Ok)?;
    Ok(Target {
        wire,
        address: address.ok_or("a server is named as http://HOST:PORT")?.trim_end_matches('/').to_owned(),
        workspace,
        process: None,
        id: options.pid,
        place: None,
        authorization: None,
    })
}
