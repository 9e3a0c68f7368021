//! The server that is measured: the program `playhouse serve`, started as people start it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::Result;
use crate::process::Process;

/// A folder with a configuration, a data directory and a workspace.
pub(crate) struct Place {
    folder: TempDir,
    program: PathBuf,
    /// Goes before the program: a profiler with its options.
    under: Vec<String>,
    /// Threads that carry sessions, where somebody says.
    threads: Option<usize>,
    /// The certificate that is trusted, in place of those of the system.
    certificate: Option<PathBuf>,
}

impl Place {
    /// One among the temporary files.
    pub(crate) fn new(config: &str) -> Result<Self> {
        Self::in_folder(tempfile::tempdir()?, config)
    }

    /// One in this folder, which goes away with it.
    pub(crate) fn in_folder(folder: TempDir, config: &str) -> Result<Self> {
        fs_err::create_dir_all(folder.path().join("workspace"))?;
        fs_err::write(folder.path().join("config.toml"), config)?;
        let program = env!("CARGO_BIN_EXE_playhouse").into();
        Ok(Self { folder, program, under: Vec::new(), threads: None, certificate: None })
    }

    /// The server runs on so many threads, and below this program.
    pub(crate) fn run_by(mut self, under: &[String], threads: Option<usize>) -> Self {
        (self.under, self.threads) = (under.to_vec(), threads);
        self
    }

    /// Where a program is named, it is the server.
    pub(crate) fn with_program(mut self, program: Option<&Path>) -> Self {
        if let Some(program) = program {
            self.program = program.to_owned();
        }
        self
    }

    /// Where a certificate is named, the server trusts it and no other.
    pub(crate) fn trusting(mut self, certificate: Option<&Path>) -> Self {
        self.certificate = certificate.map(Path::to_owned);
        self
    }

    /// Everything is in here.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The program with these words, on the data directory and the configuration here.
    pub(crate) fn program(&self, words: &[&str]) -> Command {
        let mut line: Vec<OsString> = self.under.iter().map(OsString::from).collect();
        line.push(self.program.clone().into());
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).args(words).arg("--data").arg(self.data());
        command.arg("--config").arg(self.folder.path().join("config.toml"));
        if let Some(file) = &self.certificate {
            command.env("SSL_CERT_FILE", file).env_remove("SSL_CERT_DIR");
        }
        command
    }

    /// Starts a server here.
    pub(crate) fn serve(&self) -> Result<Served> {
        let mut command = self.program(&["serve", "--port", "0"]);
        command.arg("--root").arg(self.workspace()).stderr(Stdio::null());
        if let Some(threads) = self.threads {
            command.arg("--threads").arg(threads.to_string());
        }
        let process = Process::start(&mut command)?;
        let address = process.line.rsplit_once("http://").map(|(_, address)| address.to_owned());
        let Some(address) = address else {
            let why = self.why(command, process)?;
            return Err(format!("`playhouse serve` did not start: {why}").into());
        };
        let process = if self.under.is_empty() { process } else { process.ended_gently() };
        Ok(Served { process, address })
    }
}

impl Place {
    /// What a server says that does not start. Nobody reads what one says that does: so this one is started once more.
    fn why(&self, mut command: Command, before: Process) -> Result<String> {
        drop(before);
        let path = self.folder.path().join("said");
        command.stderr(fs_err::File::create(&path)?.into_file());
        drop(Process::start(&mut command)?);
        let said = fs_err::read_to_string(&path)?;
        let lines: Vec<&str> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(10)..].join("\n");
        Ok(if last.is_empty() { "it says nothing".to_owned() } else { last })
    }
}

/// A running server.
pub(crate) struct Served {
    pub(crate) process: Process,
    /// Host and port.
    pub(crate) address: String,
}
