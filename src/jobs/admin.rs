//! Administration: what is done on the disk beside the store. Settings files, folders of applications, the log,
//! certificates. One job after the other.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::config::{AppSettings, Config, Edit, ServerSettings};

/// An administrative operation.
#[derive(Clone, PartialEq, Eq)]
pub enum AdminWork {
    /// Make an application.
    CreateApp(Arc<str>),
    /// Remove its folder.
    DeleteApp(Arc<str>),
    /// Change its settings file.
    EditApp(Arc<str>, Edit),
    /// Change the server's.
    EditServer(Edit),
    /// Read all settings again.
    Reload,
    /// Count the bytes of the folders of these applications.
    Storage(Vec<Arc<str>>),
    /// Read a part of the log.
    ReadLog {
        /// The start of the part; negative: counted back from the end, which makes it the last part.
        offset: i64,
        /// Bytes at most.
        size: usize,
        /// The log of errors alone.
        errors: bool,
    },
    /// Write the files of the certificate, when they fit each other.
    Certificate {
        /// The certificate and what leads to its root.
        full_chain: Bytes,
        /// The chain to the root certificate.
        chain: Bytes,
        /// The certificate's private key.
        key: Bytes,
    },
}

/// The names alone: settings and keys are secret.
impl fmt::Debug for AdminWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateApp(_) => "CreateApp(..)",
            Self::DeleteApp(_) => "DeleteApp(..)",
            Self::EditApp(..) => "EditApp(..)",
            Self::EditServer(_) => "EditServer(..)",
            Self::Reload => "Reload",
            Self::Storage(_) => "Storage(..)",
            Self::ReadLog { .. } => "ReadLog { .. }",
            Self::Certificate { .. } => "Certificate { .. }",
        })
    }
}

/// The outcome of [`AdminWork`].
#[derive(Debug, Clone)]
pub enum AdminOutcome {
    /// Settings of an application, made or changed.
    App(Box<AppSettings>),
    /// Settings of the server.
    Server(Box<ServerSettings>),
    /// The whole configuration.
    Config(Box<Config>),
    /// Bytes, in the order of the applications asked for; -1 for what could not be counted.
    Storage(Vec<i64>),
    /// A part of the log, and the bytes of all of it. `None`: there is no log.
    Log(Option<(String, u64)>),
    /// Done, with nothing else to say.
    Done,
    /// The reason of a failure, in one line.
    Failed(String),
}

impl AdminOutcome {
    fn reason(self) -> String {
        if let Self::Failed(reason) = self { reason } else { "the answer to something else".to_owned() }
    }

    /// Settings of an application.
    ///
    /// # Errors
    /// The reason of a failure.
    pub fn app(self) -> Result<AppSettings, String> {
        if let Self::App(app) = self { Ok(*app) } else { Err(self.reason()) }
    }

    /// Settings of the server.
    ///
    /// # Errors
    /// The reason of a failure.
    pub fn server(self) -> Result<ServerSettings, String> {
        if let Self::Server(server) = self { Ok(*server) } else { Err(self.reason()) }
    }

    /// Takes the configuration.
    ///
    /// # Errors
    /// The reason of a failure.
    pub fn config(self) -> Result<Config, String> {
        if let Self::Config(config) = self { Ok(*config) } else { Err(self.reason()) }
    }

    /// A part of the log.
    ///
    /// # Errors
    /// The reason of a failure.
    pub fn log(self) -> Result<Option<(String, u64)>, String> {
        if let Self::Log(part) = self { Ok(part) } else { Err(self.reason()) }
    }

    /// Takes success.
    ///
    /// # Errors
    /// The reason of a failure.
    pub fn done(self) -> Result<(), String> {
        if matches!(self, Self::Done) { Ok(()) } else { Err(self.reason()) }
    }
}
