//! What the server is compared with: a process that hands on the bytes of one socket to another, and nothing else.

use std::io::{Read, Write};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Result;
use crate::process::Process;

/// The argument that makes this program the forwarder.
pub(crate) const ROLE: &str = "bare-forwarder";

/// A running forwarder.
pub(crate) struct Forwarder {
    pub(crate) process: Process,
    /// Host and port.
    pub(crate) address: String,
}

impl Forwarder {
    /// One whose connections go on to `target` (host and port), on so many threads: as many as there are processors where
    /// nobody says.
    pub(crate) fn start(target: &str, threads: Option<usize>) -> Result<Self> {
        let threads = threads.map(|threads| threads.to_string());
        let arguments: Vec<&str> = std::iter::once(target).chain(threads.as_deref()).collect();
        let process = Process::role(ROLE, &arguments)?;
        let address = process.line.clone();
        Ok(Self { process, address })
    }
}

/// Forwards until its input ends.
pub(crate) fn serve(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let target = arguments.next().ok_or("the target is missing")?;
    // The same runtime as the server's.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = arguments.next() {
        builder.worker_threads(threads.parse()?);
    }
    let runtime = builder.enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        // As the engine and the model have it: whoever finds the queue full waits for a second.
        rustix::net::listen(&listener, 4_096)?;
        println!("{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let target = target.clone();
                tokio::spawn(async move {
                    // A connection that breaks is seen by the client.
                    drop(forward(client, &target).await);
                });
            }
        });
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
        Ok::<_, crate::Failure>(())
    })
}

async fn forward(client: TcpStream, target: &str) -> std::io::Result<()> {
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (up, down) = (client.into_split(), server.into_split());
    tokio::spawn(hand_on(up.0, down.1));
    hand_on(down.0, up.1).await
}

async fn hand_on(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
    }
}
