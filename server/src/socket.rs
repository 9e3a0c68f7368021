//! The Unix socket: for the operator's account only, and in the place of one that nobody serves any more.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::SocketAddr as StdAddress;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// Connections that may wait to be accepted: as many as Linux allows unless it is configured. What comes beyond that over the
/// network is dropped, and the client's system tries again only after a second, after three, and after seven.
pub(crate) const BACKLOG: u32 = 4_096;
/// How often it is looked whether the file is still there.
const LOOK: Duration = Duration::from_secs(1);
/// What the operator's account may do with it, and nobody else.
const OWN: u32 = 0o600;

/// The file of a socket. It is removed with this, if it still is the same.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and number of the file, and of its folder.
    identity: (u64, u64),
    folder: (u64, u64),
}

impl SocketFile {
    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until it is there no more, so that nobody finds the server by it.
    pub(crate) async fn gone(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            if identity(&self.path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                return;
            }
        }
    }

    /// Listens at the same path again, as soon as that can be; never in another folder that lies there now: it is somebody else's.
    pub(crate) async fn renew(self) -> (UnixListener, Self) {
        let (path, folder) = (self.path.clone(), self.folder);
        // The new file may get the number of the old one, which is not to remove it.
        drop(self);
        let mut is_told = false;
        loop {
            let listening = async {
                if folder_of(&path)? != folder {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "another folder lies there now"));
                }
                listen(&path).await
            };
            match listening.await {
                Ok(made) => return made,
                Err(error) if !is_told => {
                    is_told = true;
                    tracing::warn!(%error, path = %path.display(), "the socket's file is gone and cannot be made again");
                }
                Err(_) => {}
            }
            tokio::time::sleep(LOOK).await;
        }
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

/// A path of a socket that a system takes, which allows about 100 bytes.
struct Short {
    path: PathBuf,
    /// The folder through which it leads, where the path itself is too long.
    _folder: Option<OwnedFd>,
}

impl Short {
    fn of(path: &Path) -> io::Result<Self> {
        if StdAddress::from_pathname(path).is_ok() || !cfg!(target_os = "linux") {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no file name in the path"));
        };
        let folder =
            rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }
}

/// Connects to the socket at `path`, however long that is where the system allows it.
///
/// # Errors
/// There is no socket, nobody serves it, or the system refused.
pub(crate) async fn connect(path: &Path) -> io::Result<UnixStream> {
    let short = Short::of(path)?;
    UnixStream::connect(&short.path).await
}

/// Device and number of the folder of a file.
fn folder_of(path: &Path) -> io::Result<(u64, u64)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs_err::metadata(folder).map(|found| (found.dev(), found.ino()))
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
    let short = Short::of(path)?;
    socket.bind(&short.path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            io::Error::new(error.kind(), "the path is too long for a socket: at most about 100 bytes")
        }
        _ => error,
    })?;
    // Where the system does not take the mode over from above.
    rustix::fs::chmod(path, Mode::from_raw_mode(OWN))?;
    let (identity, folder) = (identity(path)?, folder_of(path)?);
    Ok((socket.listen(BACKLOG)?, SocketFile { path: path.to_owned(), identity, folder }))
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
    match connect(path).await {
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
    async fn a_file_that_somebody_removed_is_made_again_and_goes_with_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.sock");
        let (listener, file) = listen(&path).await.unwrap();
        fs_err::remove_file(&path).unwrap();
        file.gone().await;
        drop(listener);
        let (_listener, file) = file.renew().await;
        connect(&path).await.unwrap();
        drop(file);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn no_file_is_made_in_another_folder_that_lies_there_now() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("data");
        fs_err::create_dir(&inner).unwrap();
        let (listener, file) = listen(&inner.join("engine.sock")).await.unwrap();
        // Not removed, so that the new one cannot get its number.
        fs_err::rename(&inner, folder.path().join("moved")).unwrap();
        fs_err::create_dir(&inner).unwrap();
        file.gone().await;
        drop(listener);
        tokio::time::timeout(2 * LOOK, file.renew()).await.unwrap_err();
        assert_eq!(fs_err::read_dir(&inner).unwrap().count(), 0);
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

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_path_may_be_long() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("x".repeat(200));
        fs_err::create_dir(&long).unwrap();
        let path = long.join("engine.sock");
        assert_eq!(connect(&path).await.unwrap_err().kind(), io::ErrorKind::NotFound);
        let (listener, file) = listen(&path).await.unwrap();
        let (_client, accepted) = (connect(&path).await.unwrap(), listener.accept().await.unwrap());
        assert_eq!(fs_err::metadata(&path).unwrap().mode() & 0o777, OWN);
        assert_eq!(listen(&path).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop((listener, file, accepted));
        assert!(!path.exists());
    }
}
