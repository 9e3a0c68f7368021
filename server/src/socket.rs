//! The Unix socket: for the operator's account only, and in the place of one that nobody serves any more.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1_024;
/// What the operator's account may do with it, and nobody else.
const OWN: u32 = 0o600;

/// The file of a socket. It is removed with this, if it still is the same.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and number of the file.
    identity: (u64, u64),
}

impl SocketFile {
    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity)
            && let Err(error) = fs_err::remove_file(&self.path)
        {
            tracing::warn!(%error, "the socket's file stays behind");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs_err::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Listens at `path`. A socket that nobody serves is replaced; nothing else is.
///
/// # Errors
/// Somebody serves it, something else lies there, or the system refused.
pub(crate) async fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    make_way(path).await?;
    let socket = UnixSocket::new_stream()?;
    // Before it has a name: there is no moment at which another account could connect.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(OWN))?;
    socket.bind(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            io::Error::new(error.kind(), "the path is too long for a socket: at most about 100 bytes")
        }
        _ => error,
    })?;
    // Where the system does not take the mode over from above.
    rustix::fs::chmod(path, Mode::from_raw_mode(OWN))?;
    let identity = identity(path)?;
    Ok((socket.listen(BACKLOG)?, SocketFile { path: path.to_owned(), identity }))
}

async fn make_way(path: &Path) -> io::Result<()> {
    let found = match fs_err::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket lies there"));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs_err::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_the_operators_own_and_goes_with_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.sock");
        let (listener, file) = listen(&path).await.unwrap();
        let mode = fs_err::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, OWN);
        assert_eq!(listen(&path).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop((listener, file));
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_that_nobody_serves_is_replaced_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.sock");
        let (listener, file) = listen(&path).await.unwrap();
        // Gone without removing it, as by `kill -9`.
        std::mem::forget(file);
        drop(listener);
        let (listener, file) = listen(&path).await.unwrap();
        UnixStream::connect(&path).await.unwrap();
        // Another server took the place meanwhile: its file stays.
        fs_err::remove_file(&path).unwrap();
        fs_err::write(&path, "mine").unwrap();
        drop((listener, file));
        assert_eq!(listen(&path).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "mine");
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_is_explained() {
        let path = Path::new("/tmp").join("x".repeat(200));
        let error = listen(&path).await.unwrap_err().to_string();
        assert!(error.contains("too long"), "{error}");
    }
}
